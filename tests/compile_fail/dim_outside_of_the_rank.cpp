// expect: the dim is out of range for the rank of the tensor
// lines: 9
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto total(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::sum<-1>(x);
#else
  return ts::sum<2>(x);
#endif
}
