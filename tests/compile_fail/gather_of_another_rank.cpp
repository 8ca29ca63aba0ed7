// expect: the indices of gather must have the rank of the first operand
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto taken(const Matrix& x, const ts::ShardedTensor<int, 1>& at) {
#ifdef TESSERA_TWIN
  return ts::gather<1>(x, ts::unsqueeze<0>(at));
#else
  return ts::gather<1>(x, at);
#endif
}
