// expect: an einsum equation is written .*a letter for each dim of each operand, no letter
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto product(const Matrix& x, const Matrix& y) {
#ifdef TESSERA_TWIN
  return ts::einsum<"ij,jk->ik">(x, y);
#else
  return ts::einsum<"ij,jk->il">(x, y);
#endif
}
