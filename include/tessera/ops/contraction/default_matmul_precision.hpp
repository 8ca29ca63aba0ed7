#ifndef TESSERA_OPS_CONTRACTION_DEFAULT_MATMUL_PRECISION_HPP
#define TESSERA_OPS_CONTRACTION_DEFAULT_MATMUL_PRECISION_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/base/error.hpp>
#include <tessera/graph/ir/precision.hpp>
#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera {

/// Inside a traced function: f, whose f32 products (ts::matmul, ts::einsum and the layers made of them) have precision
/// P, and so do their gradients: jax.default_matmul_precision, and what torch.autocast does to products. All else stays
/// in f32: softmax, norms, losses, sums.
///
///     const auto forward = ts::default_matmul_precision<ts::Precision::bf16>(
///         [](const auto& model, const auto& x) { return model(x); });
///     const auto y = forward(model, x);
///
/// A product with a precision of its own keeps it; a call inside of f has the precision of the inner call. Attention
/// and convolutions compute in the element type of their operands. Communication: that of f. Errors: unsupported
/// outside of a traced function.
template <Precision P, class F> constexpr auto default_matmul_precision(const F& f) {
  return [f](const auto&... given) {
    const auto arguments = std::tuple<decltype(detail::settle(given))...>(detail::settle(given)...);
    const Value context = detail::trace_in(arguments);
    if (context.module == nullptr)
      fail(errc::unsupported,
           "[default_matmul_precision] outside of a traced function: call it inside a function of ts::compile");
    Precision& precision = context.module->matmul_precision;
    const Precision around = precision;
    precision = P;
    auto result = detail::settle(std::apply(f, arguments));
    precision = around;
    return result;
  };
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
