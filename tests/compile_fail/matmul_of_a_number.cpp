// expect: matmul takes tensors of rank 1 or more; a product with a tensor of rank 0 is written with \*
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Number = ts::ShardedTensor<float, 0>;

struct Product {
  constexpr auto operator()(const auto& x, const auto& v) const {
#ifdef TESSERA_TWIN
    return x * v;
#else
    return ts::matmul(x, v);
#endif
  }
};
constexpr auto program = ts::Traced<Product, Matrix, Number>::program();
static_assert(program.argument_count == 2);
