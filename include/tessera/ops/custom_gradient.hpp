#ifndef TESSERA_OPS_CUSTOM_GRADIENT_HPP
#define TESSERA_OPS_CUSTOM_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <utility>

#include <tessera/graph/transform/vjp.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/gradient_rows.hpp>

namespace tessera {

namespace detail {

/// The values of a custom gradient's node, after y and the cotangent.
constexpr Value custom_gradient_node(const Value& y, const Value& cotangent, const Growable<std::int32_t>& values,
                                     const Growable<std::int32_t>& gradients) {
  Growable<std::int32_t> operands;
  operands.push_back(y.id);
  operands.push_back(cotangent.id);
  for (std::int32_t id : values) operands.push_back(id);
  for (std::int32_t id : gradients) operands.push_back(id);
  const Node& node = y.node();
  return y.make({.op = Op::custom_gradient,
                 .dtype = node.dtype,
                 .rank = node.rank,
                 .singletons = node.singletons,
                 .labels = CustomGradient{static_cast<std::int32_t>(values.size())}.pack()},
                operands.data(), static_cast<int>(operands.size()));
}

}  // namespace detail

/// Inside a traced function: f with a gradient of your own, as jax.custom_vjp. `forward(x, ...)` returns (y,
/// residuals); `backward(residuals, cotangent)` returns the cotangents of the arguments: for one argument a structure
/// like it, for several a tuple. f returns one tensor. Tensors that f captures get no gradient.
///
///     constexpr auto clipped = ts::custom_vjp(
///         [](const auto& x) { return std::tuple(x * 1.0, std::tuple()); },
///         [](const auto&, const auto& g) { return ts::clamp(g, -1.0, 1.0); });
///
/// The gradient is traced with the call, and is part of the program only where it is used; higher derivatives are those
/// of `backward`. Errors: structure for a result of `backward` unlike the arguments.
template <class Forward, class Backward> constexpr auto custom_vjp(const Forward& forward, const Backward& backward) {
  return [forward, backward](const auto&... given) {
    const auto arguments = std::tuple<decltype(detail::settle(given))...>(detail::settle(given)...);
    const auto made = std::apply(forward, arguments);
    const auto y = detail::settle(std::get<0>(made));
    using Y = std::remove_const_t<decltype(y)>;
    static_assert(TensorOperand<Y>, "tessera: the function of ts::custom_vjp returns one tensor");
    if constexpr (TensorOperand<Y>) {
      const Value value = here(detail::value_behind(y));
      const Value cotangent = detail::as_variable(build::broadcast(value.number(0), value));
      const auto cotangents = backward(std::get<1>(made), Y(cotangent));
      const detail::Floating values = detail::floating_of(arguments);
      const Growable<std::int32_t> gradients =
          detail::matched(cotangents, value, values.ids,
                          "[custom_vjp] result of backward: it must have the structure, element types and ranks of the "
                          "function's arguments");
      return Y(detail::custom_gradient_node(value, cotangent, values.ids, gradients));
    } else {
      return y;
    }
  };
}
/// The same for an f whose y is computed in another way than by `forward`, of which only the residuals are used.
template <class F, class Forward, class Backward>
constexpr auto custom_vjp(const F& f, const Forward& forward, const Backward& backward) {
  return custom_vjp([f, forward](const auto&... xs) { return std::tuple(f(xs...), std::get<1>(forward(xs...))); },
                    backward);
}

/// The Jacobian of a function of one tensor x, which returns a vector: J[i] is the gradient of element i, so the result
/// has the dims of x behind that of the vector. One pullback for each element, in a ts::map, as jax.jacrev; for vectors
/// of few elements.
template <class F> constexpr auto jacrev(const F& f) {
  return [f](const auto& x) {
    const auto y = detail::settle(f(x));
    constexpr bool is_vector = std::remove_const_t<decltype(y)>::rank == 1;
    static_assert(is_vector, "tessera: the function of ts::jacrev returns a vector, a tensor of rank 1");
    if constexpr (is_vector) {
      const Value value = here(detail::value_behind(y));
      const Value row = build::iota(value, 0, DType::i32);
      return map(
          [&](const auto& i) {
            const auto [own, pullback] = vjp(f, x);
            const Value inside = here(detail::value_behind(own));
            const Value one_hot = build::binary(Op::equal, build::iota(inside, 0, DType::i32), i.value);
            return pullback(std::remove_cvref_t<decltype(own)>(build::cast(one_hot, inside.dtype())));
          },
          Sym<std::int32_t, 1>(row));
    } else {
      return y;
    }
  };
}

/// The Hessian of a scalar function of a vector x, a matrix, as jax.hessian; for vectors of few elements.
template <class F> constexpr auto hessian(const F& f) {
  return jacrev([f](const auto& x) { return grad(f)(x); });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
