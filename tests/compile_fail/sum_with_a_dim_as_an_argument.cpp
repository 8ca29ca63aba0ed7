// expect first: the dims of a reduction are template arguments: ts::sum<1>\(x\) for ts::sum\(x, 1\)
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto rows(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::sum<1>(x);
#else
  return ts::sum(x, 1);
#endif
}
