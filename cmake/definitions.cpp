// tessera::compiled: the planner, the executor and the steps, compiled once for all units of a project.
#define TESSERA_DEFINITIONS
#include <tessera/data/data.hpp>
#include <tessera/data/safetensors.hpp>
#include <tessera/tessera.hpp>
