// expect: the operands of matmul must have the same element type
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto product(const Matrix& x, const ts::ShardedTensor<int, 2>& count) {
#ifdef TESSERA_TWIN
  return ts::matmul(x, ts::cast<float>(count)) + count;
#else
  return ts::matmul(x, count);
#endif
}
