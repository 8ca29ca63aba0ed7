// tessera::compiled: the planner, the executor and the steps, compiled once for all units of a project.
#define TESSERA_DEFINITIONS
#include <tessera/data/checkpoint/checkpoint_manager.hpp>
#include <tessera/data/data.hpp>
#include <tessera/data/safetensors.hpp>
#include <tessera/runtime/executor/made_program.hpp>
#include <tessera/runtime/transport/collectives.hpp>
#include <tessera/runtime/transport/process_transport.hpp>
#include <tessera/runtime/transport/reduce_shards.hpp>
#include <tessera/tensor/oracle.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/profiler.hpp>
