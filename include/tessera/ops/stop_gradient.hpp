#ifndef TESSERA_OPS_STOP_GRADIENT_HPP
#define TESSERA_OPS_STOP_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/expression/expr.hpp>
#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera {

namespace detail {

struct StopGradientTag {
  template <class A> using result = A;
  static constexpr Value emit(Value context, Value x) {
    return build::unary(ops::op_v<ops::StopGradientOp>, x.at(context.source));
  }
};

}  // namespace detail

/// x, which gradients treat as a constant: jax.lax.stop_gradient, Tensor.detach. What only the gradient of x needs is
/// not computed. No communication.
template <TensorArgument X> constexpr auto stop_gradient(const X& x, Here at = Here::current()) {
  return call<detail::StopGradientTag>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
