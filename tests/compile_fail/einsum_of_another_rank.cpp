// expect: the second operand of einsum has a different rank than in the equation
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto product(const Matrix& x, const ts::ShardedTensor<float, 1>& v) {
#ifdef TESSERA_TWIN
  return ts::einsum<"ij,j->i">(x, v);
#else
  return ts::einsum<"ij,jk->ik">(x, v);
#endif
}
