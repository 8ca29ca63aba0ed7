// expect: the indices of take_along have the rank of what they index
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto taken(const Matrix& x, const ts::ShardedTensor<int, 1>& at) {
#ifdef TESSERA_TWIN
  return ts::take_along<1>(x, ts::unit<0>(at));
#else
  return ts::take_along<1>(x, at);
#endif
}
