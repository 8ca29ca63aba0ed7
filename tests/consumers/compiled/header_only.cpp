// What all headers of programs include: enough for a unit to be header-only, and light.
#include <tessera/base/compiled.hpp>
