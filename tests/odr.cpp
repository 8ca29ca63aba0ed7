// The second unit of every test binary: whatever a header defines twice fails to link here.
#include <tessera/tessera.hpp>
