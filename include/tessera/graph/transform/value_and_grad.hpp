#ifndef TESSERA_GRAPH_TRANSFORM_VALUE_AND_GRAD_HPP
#define TESSERA_GRAPH_TRANSFORM_VALUE_AND_GRAD_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <utility>

#include <tessera/base/planning.hpp>
#include <tessera/graph/transform/primals.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// A loss may also be a field of a struct, or the result of a compiled function: both are ShardedTensors.
template <class T> constexpr auto as_scalar(const T& loss) {
  if constexpr (StoredOperand<T>)
    return as_sym(loss);
  else
    return loss;
}

}  // namespace detail

/// Inside a traced function: value_and_grad(f)(first, rest...) returns (f(first, rest...), gradient), where the
/// gradient is that of f's result with respect to the tensors of `first`.
///
/// f returns a rank-0 tensor, or a tuple that begins with one, followed by auxiliary results. The gradient has the type
/// and the shapes of `first`; a field without gradient (a Dim, a Scalar, an integer tensor) is copied. `rest` is held
/// constant. Errors: `structure` for a loss that has a value for each layer of a Stack. Source: reverse-mode
/// differentiation of the traced graph; no tape exists at run time.
template <class F> constexpr auto value_and_grad(F f) {
  return [f](const auto& first, const auto&... rest) {
    auto gradient = detail::settle(first);
    const detail::Floating sources = detail::make_variables(gradient);
    auto value = detail::settle(f(std::as_const(gradient), rest...));
    auto loss = [&] {
      if constexpr (detail::is_tuple_v<decltype(value)>)
        return detail::as_scalar(std::get<0>(value));
      else
        return detail::as_scalar(value);
    }();
    using Loss = decltype(loss);
    static_assert(SymOperand<Loss>,
                  "tessera: call ts::value_and_grad inside a traced function, and its result on traced arguments");
    static_assert(Loss::rank == 0,
                  "tessera: ts::value_and_grad needs a loss of rank 0; reduce the loss with ts::mean or ts::sum");
    if constexpr (Loss::rank == 0)  // otherwise a static_assert has failed
      if (loss.value.rank() != 0)
        loss.value.refuse(errc::structure, "[stack] loss: the loss is computed from a field of all layers, so it has a "
                                           "value for each layer, not a single value");
    detail::replace_floating(gradient, loss.value, differentiate(loss.value, sources.ids));
    return std::tuple(value, gradient);
  };
}

/// Inside a traced function: the gradient alone.
template <class F> constexpr auto grad(F f) {
  return [f](const auto& first, const auto&... rest) { return std::get<1>(value_and_grad(f)(first, rest...)); };
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
