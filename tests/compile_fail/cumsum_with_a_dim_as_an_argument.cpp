// expect first: dims are template arguments: ts::cumsum<0>\(x\) for ts::cumsum\(x, 0\)
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto result(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::cumsum<0>(x);
#else
  return ts::cumsum(x, 0);
#endif
}
