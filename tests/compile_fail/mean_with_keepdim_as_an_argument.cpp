// expect first: ts::keepdims stands for keepdim=True: ts::mean<1>\(x, ts::keepdims\)
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto result(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::mean<1>(x, ts::keepdims);
#else
  return ts::mean(x, 1, true);
#endif
}
