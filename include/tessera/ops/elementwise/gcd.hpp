#ifndef TESSERA_OPS_ELEMENTWISE_GCD_HPP
#define TESSERA_OPS_ELEMENTWISE_GCD_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/each_element.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>
#include <tessera/ops/elementwise/select.hpp>

namespace tessera::ops {

/// Euclid's algorithm on absolute values, which as unsigned numbers always exist.
template <class T> constexpr T greatest_common_divisor(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(greatest_common_divisor(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
  } else {
    using U = std::make_unsigned_t<T>;
    U x = a < 0 ? static_cast<U>(U{0} - static_cast<U>(a)) : static_cast<U>(a);
    U y = b < 0 ? static_cast<U>(U{0} - static_cast<U>(b)) : static_cast<U>(b);
    while (y != 0) {
      const U rest = static_cast<U>(x % y);
      x = y;
      y = rest;
    }
    return static_cast<T>(x);
  }
}

struct GcdOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "gcd";
  static constexpr std::uint8_t flops = 40, lane_cost = 250;
  static constexpr bool of_bools = false, of_floats = false, by_part = true;
  static TESSERA_INLINE auto value(const auto& x, const auto& y) {
    return each_element([](auto a, auto b) { return greatest_common_divisor(a, b); }, x, y);
  }
};

using GcdOperations = OperationList<GcdOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {
struct GcdTag : Binary<ops::GcdOp> {
  template <class A, class B> struct result : Promote<A, B> {
    using Checks =
        decltype([] { static_assert(is_integer(Promote<A, B>::dtype), "tessera: gcd and lcm take integer tensors"); });
  };
};
struct LcmTag : GcdTag {
  static constexpr Value emit(Value context, Value x, Value y) {
    x = x.at(context.source);
    const Value divisor = build::apply<ops::GcdOp>(x, y), zero = divisor.number(0);
    const Value some = build::not_equal(divisor, zero);
    return build::abs(x / build::select(some, divisor, divisor.number(1)) * y);
  }
};
}  // namespace detail

/// The greatest common divisor of integers, 0 or above, and the absolute value of a where b is 0 (torch.gcd, jnp.gcd);
/// of the lowest number of its type with itself or 0 that number, which has no absolute value. Operands are broadcast
/// and promoted. No gradient. Errors: shape_mismatch. No communication.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto gcd(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::GcdTag>(Source::from(at), a, b);
}
/// The least common multiple of integers, 0 where either is 0 (torch.lcm, jnp.lcm); it wraps around. Otherwise as gcd.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto lcm(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::LcmTag>(Source::from(at), a, b);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
