// expect: the second operand of matmul is a matrix, or has the rank of the first operand
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto product(const Matrix& x, const ts::ShardedTensor<float, 3>& batch) {
#ifdef TESSERA_TWIN
  return ts::matmul(batch, x);
#else
  return ts::matmul(x, batch);
#endif
}
