#ifndef TESSERA_OPS_CONTRACTION_DEFAULT_MATMUL_PRECISION_HPP
#define TESSERA_OPS_CONTRACTION_DEFAULT_MATMUL_PRECISION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/ir/precision.hpp>
#include <tessera/ops/contraction/product_scope.hpp>

namespace tessera {

/// Inside a traced function: f, whose f32 products (ts::matmul, ts::einsum and the layers made of them) have precision
/// P, and so do their gradients: jax.default_matmul_precision. Results of products are not rounded; see ts::autocast.
///
///     const auto forward = ts::default_matmul_precision<ts::Precision::bf16>(
///         [](const auto& model, const auto& x) { return model(x); });
///     const auto y = forward(model, x);
///
/// A product with a precision of its own keeps it; a call inside of f has the precision of the inner call, and so do
/// products inside of ts::autocast. Attention and convolutions compute in the element type of their operands.
/// Communication: that of f. Errors: unsupported outside of a traced function.
template <Precision P, class F> constexpr auto default_matmul_precision(const F& f) {
  return detail::with_products<P, DType::f32>(
      f, "[default_matmul_precision] outside of a traced function: call it inside a function of ts::compile");
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
