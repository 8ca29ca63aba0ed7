// expect: the expression has a different element type than the tensor to which it is assigned; use ts::cast
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

Matrix less(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::cast<float>(x < 1);
#else
  return x < 1;
#endif
}
