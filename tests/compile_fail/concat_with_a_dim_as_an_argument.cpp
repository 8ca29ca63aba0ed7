// expect first: dims are template arguments: .*ts::concat<0>\(x, y\) for ts::concat\(x, y, 0\)
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto result(const Matrix& x, const Matrix& y) {
#ifdef TESSERA_TWIN
  return ts::concat<0>(x, y);
#else
  return ts::concat(x, y, 0);
#endif
}
