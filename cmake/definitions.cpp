// The planner, the executor and the steps, compiled once for all tests and examples: docs/build_times.md.
#define TESSERA_DEFINITIONS
#include <tessera/tessera.hpp>
