#define TESSERA_DEFINITIONS
#include <tessera/tessera.hpp>
