// expect: a dim is given twice to a reduction
// lines: 7
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto total(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::sum<0, -1>(x);
#else
  return ts::sum<1, -1>(x);
#endif
}
