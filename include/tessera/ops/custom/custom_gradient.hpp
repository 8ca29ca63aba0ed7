#ifndef TESSERA_OPS_CUSTOM_CUSTOM_GRADIENT_HPP
#define TESSERA_OPS_CUSTOM_CUSTOM_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/transform/vjp.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/gradient_rows.hpp>

namespace tessera {

namespace detail {

/// The nodes of the results of a function with a custom gradient.
constexpr Growable<std::int32_t> custom_gradient_nodes(const Value& context, const Growable<std::int32_t>& results,
                                                       const Growable<std::int32_t>& cotangents,
                                                       const Growable<std::int32_t>& values,
                                                       const Growable<std::int32_t>& gradients) {
  Growable<std::int32_t> made, operands;
  operands.push_back(results[0]);
  for (const auto* list : {&cotangents, &values, &gradients})
    for (std::int32_t id : *list) operands.push_back(id);
  const CustomGradient counts{static_cast<std::int32_t>(values.size()), static_cast<std::int32_t>(results.size())};
  for (std::size_t k = 0; k < results.size(); ++k) {
    const Value y = context.with(results[k]);
    const Node own = y.node();
    Node node{.op = k == 0 ? Op::custom_gradient : Op::custom_result,
              .dtype = own.dtype,
              .rank = own.rank,
              .singletons = own.singletons};
    if (k == 0) {
      node.labels = counts.pack();
      made.push_back(y.make(node, operands.data(), static_cast<int>(operands.size())).id);
    } else {
      node.value = static_cast<double>(k);
      made.push_back(y.make(node, {y.id, made[0]}).id);
    }
  }
  return made;
}

/// A structure of the results with variables of value 0 in the place of the floating tensors.
template <class Y> constexpr Floating make_cotangents(Y& y) {
  Floating made;
  for_each_floating(y, [&](auto& leaf, const Value& given) {
    const Value value = here(given), own = as_variable(build::broadcast(value.number(0), value));
    leaf = std::remove_cvref_t<decltype(leaf)>(own);
    made.add(own);
  });
  return made;
}

}  // namespace detail

/// Inside a traced function: f with a gradient of your own, as jax.custom_vjp. `forward(x, ...)` returns (y,
/// residuals); `backward(residuals, cotangent)` returns the cotangents of the arguments: for one argument a structure
/// like it, for several a tuple. Tensors that f captures get no gradient.
///
///     constexpr auto clipped = ts::custom_vjp(
///         [](const auto& x) { return std::tuple(x * 1.0, std::tuple()); },
///         [](const auto&, const auto& g) { return ts::clamp(g, -1.0, 1.0); });
///
/// y is a tensor, or a tuple or plain struct of tensors, and the cotangent is a structure like it, with zeros for
/// results that the loss doesn't use. Only floating tensors have cotangents: in the place of an integer result the
/// cotangent has the result itself, and for an integer argument `backward` returns `std::tuple()` or the argument.
/// `forward` is traced once, and the gradient with it; that is part of the program only where it is used. Higher
/// derivatives are those of `backward`. Errors: structure for a result of `backward` unlike the arguments.
template <class Forward, class Backward> constexpr auto custom_vjp(const Forward& forward, const Backward& backward) {
  return [forward, backward](const auto&... given) {
    const auto arguments = std::tuple<decltype(detail::settle(given))...>(detail::settle(given)...);
    const auto made = detail::applied(forward, arguments);
    auto y = detail::settle(std::get<0>(made));
    constexpr bool is_model = Model<decltype(y)> || SymOperand<decltype(y)>;
    static_assert(is_model, "tessera: the function of ts::custom_vjp returns a tensor, or a tuple or plain struct of "
                            "tensors, as the first item of the tuple that `forward` returns");
    if constexpr (is_model) {
      const detail::Floating results = detail::floating_of(y);
      if (results.ids.empty()) return y;
      auto cotangent = y;
      const detail::Floating traced_on = detail::make_cotangents(cotangent);
      const auto cotangents = backward(std::get<1>(made), std::as_const(cotangent));
      const detail::Floating values = detail::floating_of(arguments);
      const Growable<std::int32_t> gradients =
          detail::matched(cotangents, results.context, values.ids, MadeBy::custom_vjp,
                          "[custom_vjp] result of backward: it must have the structure, element types and ranks of the "
                          "function's arguments");
      detail::replace_floating(
          y, results.context,
          detail::custom_gradient_nodes(results.context, results.ids, traced_on.ids, values.ids, gradients));
      return y;
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

/// Inside a traced function: f with a derivative of your own, as jax.custom_jvp. `derivative(primals, tangents)` is the
/// tangent of f's result, in its structure, for tuples of the arguments and of their tangents, and is linear in the
/// tangents; gradients are its transpose.
///
///     constexpr auto log1pexp = ts::custom_jvp(
///         [](const auto& x) { return ts::log(1.0 + ts::exp(x)); },
///         [](const auto& primals, const auto& tangents) {
///           return ts::sigmoid(std::get<0>(primals)) * std::get<0>(tangents);
///         });
///
/// In the place of the tangent of an integer tensor is the tensor itself. Errors: structure for a tangent unlike the
/// result.
template <class F, class Derivative> constexpr auto custom_jvp(const F& f, const Derivative& derivative) {
  return custom_vjp(
      [f](const auto&... xs) { return std::tuple(f(xs...), std::tuple(xs...)); },
      [derivative](const auto& primals, const auto& cotangent) {
        auto zeros = primals;
        detail::for_each_floating(zeros, [](auto& leaf, const Value& given) {
          const Value value = here(given);
          leaf = std::remove_cvref_t<decltype(leaf)>(build::broadcast(value.number(0), value));
        });
        const auto linear = [&](const auto&... tangents) { return derivative(primals, std::tuple(tangents...)); };
        return std::apply([&](const auto&... at) { return std::get<1>(vjp(linear, at...)); }, zeros)(cotangent);
      });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
