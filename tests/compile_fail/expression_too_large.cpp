// expect: an expression of stored tensors has at most 64 operations; evaluate a part with ts::eval
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto grown(const Matrix& x) {
  const auto sum = x + x + x + x;
  const auto product = sum * sum * sum * sum;
#ifdef TESSERA_TWIN
  return product + product;
#else
  return product + product + product;
#endif
}
