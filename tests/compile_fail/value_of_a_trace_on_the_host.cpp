// expect first: ts::to_host and ts::item read a stored tensor, and this is a value of a traced function
#include <tessera/ops/ops.hpp>
#include <tessera/optim/tree_vdot.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

auto norm(const ts::ShardedTensor<float, 2>& x) {
#ifdef TESSERA_TWIN
  return ts::item(ts::ShardedTensor<float, 0>(ts::sum(x * x)));
#else
  return ts::item(ts::tree_sum(x));
#endif
}
