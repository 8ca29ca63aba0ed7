#ifndef TESSERA_TESSERA_HPP
#define TESSERA_TESSERA_HPP
#include <tessera/base/push_macros.hpp>

/// The library, except what has headers of its own: parallel/, data/, train/, distributions/ and interop/.

#include <tessera/mesh/hybrid_mesh.hpp>
#include <tessera/mesh/make_mesh.hpp>
#include <tessera/mesh/shardy.hpp>
#include <tessera/mesh/svg.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/static.hpp>
#include <tessera/tensor/annotation.hpp>
#include <tessera/tensor/batches.hpp>
#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/creation/triangle_indices.hpp>
#include <tessera/tensor/creation/window_functions.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/global_mesh.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/local_tensor.hpp>
#include <tessera/tensor/print/debug_print.hpp>
#include <tessera/tensor/print/print.hpp>
#include <tessera/tensor/print/visualize.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>
#include <tessera/tensor/sharded_tensor.hpp>
#include <tessera/tensor/update_shards.hpp>

#include <tessera/base/pop_macros.hpp>

#endif
