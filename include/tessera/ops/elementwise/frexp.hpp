#ifndef TESSERA_OPS_ELEMENTWISE_FREXP_HPP
#define TESSERA_OPS_ELEMENTWISE_FREXP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/ops/elementwise.hpp>

namespace tessera {

/// Mantissas in [0.5, 1), and exponents.
template <class Mantissa, class Exponent> struct Frexp {
  Mantissa mantissa;
  Exponent exponent;
};

namespace detail {

/// x times 2 to the power of n, whole, in three factors: the power alone may be infinite or 0 where the product is not.
constexpr Value times_power_of_two(Value x, Value n) {
  const Value third = build::apply<ops::TruncOp>(n * (1.0 / 3)), rest = n - third * 2.0;
  const Value power = build::apply<ops::Exp2Op>(third);
  return x * power * build::apply<ops::Exp2Op>(rest) * power;
}

struct LdexpTag : FloatingComposition {
  template <class A, class B>
  struct result : Typed<element_t<floating_type(dtype_v<typename A::type>)>, Promote<A, B>::rank> {};
  template <class A, class B> static constexpr void convert(Value& x, Value& n) {
    x = build::cast(x, floating_type(x.dtype()));
    n = build::cast(n, computed_as(x.dtype()));
  }
  static constexpr Value emit(Value context, Value x, Value n) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    return build::cast(times_power_of_two(x, n), type);
  }
};

template <bool Exponent> struct FrexpTag : FloatingComposition {
  template <class X>
  struct result : Typed<std::conditional_t<Exponent, std::int32_t, element_t<floating_type(dtype_v<typename X::type>)>>,
                        X::rank> {};
  static constexpr Value emit(Value context, Value x) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    const Value size = build::abs(x), zero = x.number(0), one = x.number(1);
    const Value counts = build::logical_and(build::greater(size, zero),
                                            build::less(size, x.number(std::numeric_limits<double>::infinity())));
    // Numbers so small that their logarithm may be that of 0 are scaled first.
    const Value small = build::logical_and(counts, build::less(size, x.number(0x1p-100)));
    const Value scaled = build::select(small, x * 0x1p80, x);
    const Value normal = build::select(counts, build::abs(scaled), one);
    // The logarithm may be rounded to the next whole number.
    const Value near = build::apply<ops::FloorOp>(build::apply<ops::Log2Op>(normal)) + 1.0;
    const Value first = times_power_of_two(normal, -near);
    const Value high = build::greater_equal(first, one), low = build::less(first, x.number(0.5));
    const Value n = near + build::select(high, one, zero) - build::select(low, one, zero);
    if constexpr (Exponent)
      return build::cast(build::select(counts, n - build::select(small, x.number(80), zero), zero), DType::i32);
    else
      return build::cast(build::select(counts, times_power_of_two(scaled, -n), x), type);
  }
};

}  // namespace detail

/// x times 2 to the power of n, a whole number (torch.ldexp, jnp.ldexp), rounded once, as C's ldexp; PyTorch's is
/// infinite where 2^n is. Operands are broadcast; the result has the element type of x, f32 for integers. Gradients:
/// 2^n; of n none. Errors: shape_mismatch. No communication.
template <TensorArgument X, Operand N> constexpr auto ldexp(const X& x, const N& n, Here at = Here::current()) {
  return call<detail::LdexpTag>(Source::from(at), x, n);
}
/// Mantissas in [0.5, 1) with the sign of x, and i32 exponents, so that x = mantissa 2^exponent (torch.frexp,
/// jnp.frexp): `const auto [mantissa, exponent] = ts::frexp(x)`. Of 0, infinities and NaN the mantissa is x and the
/// exponent 0. Integers give f32. Exact, also of denormal numbers. Gradient of the mantissa: 2^-exponent. No
/// communication.
template <TensorArgument X> constexpr auto frexp(const X& x, Here at = Here::current()) {
  const auto mantissa = call<detail::FrexpTag<false>>(Source::from(at), x);
  const auto exponent = call<detail::FrexpTag<true>>(Source::from(at), x);
  return Frexp<std::remove_const_t<decltype(mantissa)>, std::remove_const_t<decltype(exponent)>>{mantissa, exponent};
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
