// expect: matmul takes tensors of rank 2 or more; a vector needs ts::unsqueeze or ts::einsum
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;

struct Product {
  constexpr auto operator()(const auto& x, const auto& v) const {
#ifdef TESSERA_TWIN
    return ts::matmul(x, ts::unsqueeze<1>(v));
#else
    return ts::matmul(x, v);
#endif
  }
};
constexpr auto program = ts::Traced<Product, Matrix, Vector>::program();
static_assert(program.argument_count == 2);
