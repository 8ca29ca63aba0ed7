#ifndef TESSERA_GRAPH_TRANSFORM_VALUE_AND_GRAD_HPP
#define TESSERA_GRAPH_TRANSFORM_VALUE_AND_GRAD_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <utility>

#include <tessera/base/here.hpp>
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

/// Whether an argument may be differentiated: a tensor of floats, or a structure.
template <class X> inline constexpr bool is_differentiable_v = true;
template <TensorOperand X>
inline constexpr bool is_differentiable_v<X> = is_floating_v<typename X::element> && !is_float8_v<typename X::element>;

/// Argument I of a call: from the chosen arguments if I is one of Chosen, else from all.
template <int I, int... Chosen> constexpr const auto& chosen_argument(const auto& chosen, const auto& all) {
  constexpr int at = [] {
    int k = 0, found = -1;
    ((found = Chosen == I ? k : found, ++k), ...);
    return found;
  }();
  if constexpr (at >= 0)
    return std::get<static_cast<std::size_t>(at)>(chosen);
  else
    return std::get<static_cast<std::size_t>(I)>(all);
}

}  // namespace detail

/// Inside a traced function: value_and_grad(f)(first, rest...) returns (f(first, rest...), gradient), where the
/// gradient is that of f's result with respect to the tensors of `first`.
///
/// f returns a rank-0 tensor, or a tuple that begins with one, followed by auxiliary results. The gradient has the type
/// and the shapes of `first`; a field without gradient (a Dim, a Scalar, an integer tensor) is copied. `rest` is held
/// constant. In the function of a ts::shard_map, a loss that differs between devices stands for the sum of their
/// losses, as in JAX: the gradient of a value that devices share is summed over them. Errors: `structure` for a loss
/// that has a value for each layer of a Stack. Source: reverse-mode differentiation of the traced graph; no tape exists
/// at run time.
template <class F> constexpr auto value_and_grad(F f, Here at = Here::current()) {
  return [f, line = Source::from(at)](const auto& first, const auto&... rest) {
    constexpr bool is_differentiable = detail::is_differentiable_v<std::remove_cvref_t<decltype(first)>>;
    static_assert(is_differentiable,
                  "tessera: ts::grad and ts::value_and_grad need an argument with floating tensors; convert integers "
                  "with ts::cast<float>(x)");
    auto gradient = detail::settle(first);
    constexpr bool is_called = requires { f(std::as_const(gradient), rest...); };
    static_assert(is_called, "tessera: the function of ts::grad and ts::value_and_grad can't be called with these "
                             "arguments; compare their number and types with its parameters");
    if constexpr (!is_called) {
      return std::tuple(gradient, gradient);
    } else {
      const detail::Floating sources = detail::make_variables(gradient, line);
      auto value = detail::settle(f(std::as_const(gradient), rest...));
      auto loss = [&] {
        if constexpr (detail::is_tuple_v<decltype(value)>)
          return detail::as_scalar(std::get<0>(value));
        else
          return detail::as_scalar(value);
      }();
      using Loss = decltype(loss);
      static_assert(SymOperand<Loss>,
                    "tessera: call ts::grad and ts::value_and_grad inside a traced function, and their "
                    "results on traced arguments");
      static_assert(Loss::rank == 0,
                    "tessera: the function of ts::grad and of ts::value_and_grad returns a loss of rank "
                    "0; reduce the loss with ts::mean or ts::sum");
      if constexpr (LocalOperand<Loss>)
        loss.value = loss.of_all_devices();
      else if constexpr (Loss::rank == 0)  // otherwise a static_assert has failed
        if (loss.value.rank() != 0)
          loss.value.refuse(errc::structure,
                            "[stack] loss: the loss is computed from a field of all layers, so it has a "
                            "value for each layer, not a single value");
      detail::replace_floating(gradient, loss.value, differentiate(loss.value, sources.ids));
      return std::tuple(value, gradient);
    }
  };
}

/// The same for the arguments with these numbers, from 0 (argnums of JAX): `value_and_grad<0, 2>(f)(x, y, z)` returns
/// (f(x, y, z), (gradient of x, gradient of z)), and `value_and_grad<1>` only the gradient of the second argument.
template <int First, int... More, class F> constexpr auto value_and_grad(F f, Here at = Here::current()) {
  return [f, at](const auto&... arguments) {
    constexpr int count = sizeof...(arguments);
    constexpr bool in_range = First >= 0 && First < count && ((More >= 0 && More < count) && ...);
    static_assert(in_range, "tessera: a number of ts::grad<...> and ts::value_and_grad<...> is that of an argument, "
                            "counted from 0");
    if constexpr (in_range) {
      const auto all = std::tie(arguments...);
      const auto chosen =
          std::tuple<decltype(detail::settle(std::get<First>(all))), decltype(detail::settle(std::get<More>(all)))...>(
              detail::settle(std::get<First>(all)), detail::settle(std::get<More>(all))...);
      auto [value, gradients] = value_and_grad(
          [&](const auto& own) {
            return [&]<std::size_t... I>(std::index_sequence<I...>) {
              return f(detail::chosen_argument<static_cast<int>(I), First, More...>(own, all)...);
            }(std::make_index_sequence<sizeof...(arguments)>());
          },
          at)(chosen);
      if constexpr (sizeof...(More) == 0)
        return std::tuple(value, std::get<0>(gradients));
      else
        return std::tuple(value, gradients);
    }
  };
}

/// For ts::grad: f returns a tuple of the loss and auxiliary results.
struct HasAux {};
inline constexpr HasAux has_aux{};

/// Inside a traced function: only the gradient.
template <class F> constexpr auto grad(F f, Here at = Here::current()) {
  return [f, at](const auto& first, const auto&... rest) { return std::get<1>(value_and_grad(f, at)(first, rest...)); };
}
/// The gradients of the arguments with these numbers: see value_and_grad.
template <int First, int... More, class F> constexpr auto grad(F f, Here at = Here::current()) {
  return [f, at](const auto&... arguments) { return std::get<1>(value_and_grad<First, More...>(f, at)(arguments...)); };
}
/// (the gradient, the auxiliary result), or a tuple of the auxiliary results where f returns several after the loss:
/// `grad(f, ts::has_aux)`, as jax.grad(f, has_aux=True).
template <class F> constexpr auto grad(F f, HasAux, Here at = Here::current()) {
  return [f, at](const auto& first, const auto&... rest) {
    const auto [value, gradient] = value_and_grad(f, at)(first, rest...);
    return std::apply(
        [&](const auto&, const auto&... aux) {
          if constexpr (sizeof...(aux) == 1)
            return std::tuple(gradient, aux...);
          else
            return std::tuple(gradient, std::tuple(aux...));
        },
        value);
  };
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
