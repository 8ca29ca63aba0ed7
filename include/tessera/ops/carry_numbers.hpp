#ifndef TESSERA_OPS_CARRY_NUMBERS_HPP
#define TESSERA_OPS_CARRY_NUMBERS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/promotion.hpp>
#include <tessera/graph/trace/body.hpp>
#include <tessera/ops/rows.hpp>

// Numbers in the carry of a loop, as the weak types of JAX: std::tuple(x, 0.0) where a step returns an f64 begins with
// an f64.

namespace tessera::detail {

/// The element type with which a number in the carry of a loop begins if a step returns a tensor there: that of the
/// tensor, if the number adapts to it in an operation. Void if it does not, or needs no other type than as_carry gives.
template <class Number, class Returned> struct AdaptedNumber {
  using type = void;
};
template <class Number, TensorOperand Returned>
  requires(std::is_floating_point_v<Number> || (std::is_integral_v<Number> && !std::is_same_v<Number, bool>))
struct AdaptedNumber<Number, Returned> {
  using element = typename Returned::element;
  static constexpr bool floating = std::is_floating_point_v<Number>;
  using unadapted = std::conditional_t<floating, float, std::int32_t>;
  static constexpr DType to = dtype_v<element>;
  static constexpr bool adapts =
      floating ? is_floating(to) && promote(to, NumberKind::floating) == to : promote(DType::i32, to) == to;
  using type = std::conditional_t<Returned::rank == 0 && adapts && !std::is_same_v<element, unadapted>, element, void>;
};

/// Whether a structure holds a C++ number.
template <class T> inline constexpr bool holds_literal_v = std::is_arithmetic_v<T>;
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
inline constexpr bool holds_literal_v<Tuple<Ts...>> = (holds_literal_v<Ts> || ...);
template <class T, std::size_t Size> inline constexpr bool holds_literal_v<std::array<T, Size>> = holds_literal_v<T>;

/// Whether a structure holds nothing but C++ numbers.
template <class T> inline constexpr bool only_literals_v = std::is_arithmetic_v<T>;
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
inline constexpr bool only_literals_v<Tuple<Ts...>> = (only_literals_v<Ts> && ...);
template <class T, std::size_t Size> inline constexpr bool only_literals_v<std::array<T, Size>> = only_literals_v<T>;
/// Fails for a loop whose arguments are all C++ numbers, which belong to no trace.
template <class... Arguments> constexpr bool begins_in_a_trace() {
  constexpr bool begins = !(only_literals_v<Arguments> && ...);
  static_assert(
      begins, "tessera: the carry and the number of steps of a loop are C++ numbers, so the loop is part of no traced "
              "function; begin with a tensor, such as ts::zeros<float>({}, x), where x is a tensor of the function");
  return begins;
}

/// Whether a number of a structure adapts to what a step returns in its place.
template <class T, class Returned>
inline constexpr bool adapts_v = !std::is_void_v<typename AdaptedNumber<T, Returned>::type>;
template <template <class...> class Tuple, class... Ts, template <class...> class Other, class... Rs>
  requires(is_tuple_v<Tuple<Ts...>> && is_tuple_v<Other<Rs...>> && sizeof...(Ts) == sizeof...(Rs))
inline constexpr bool adapts_v<Tuple<Ts...>, Other<Rs...>> = (adapts_v<Ts, Rs> || ...);
template <class T, class R, std::size_t Size>
inline constexpr bool adapts_v<std::array<T, Size>, std::array<R, Size>> = adapts_v<T, R>;

/// The structure with such numbers as tensors of these element types. `Like`: see TensorBeside.
template <class Like, class Returned, class T> constexpr auto adapted(const Value& context, const T& x) {
  if constexpr (!adapts_v<T, Returned>) {
    return x;
  } else if constexpr (is_array_v<T>) {
    return map_items(x, [&](const auto& item) { return adapted<Like, typename Returned::value_type>(context, item); });
  } else if constexpr (is_tuple_v<T>) {
    return [&]<template <class...> class Tuple, class... Ts, std::size_t... I>(const Tuple<Ts...>& items,
                                                                               std::index_sequence<I...>) {
      return Tuple<decltype(adapted<Like, std::tuple_element_t<I, Returned>>(context, std::get<I>(items)))...>{
          adapted<Like, std::tuple_element_t<I, Returned>>(context, std::get<I>(items))...};
    }(x, std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    using Element = typename AdaptedNumber<T, Returned>::type;
    constexpr DType dtype = dtype_v<Element>;
    if constexpr (is_floating(dtype))
      return tensor_beside_t<Like, Element, 0>(context.number(static_cast<double>(x), dtype));
    else
      return tensor_beside_t<Like, Element, 0>(context.integer(static_cast<std::int64_t>(x), dtype));
  }
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
