#ifndef TESSERA_OPS_ELEMENTWISE_COMPOSITION_HPP
#define TESSERA_OPS_ELEMENTWISE_COMPOSITION_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <limits>

#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/select.hpp>

// Elementwise functions that are a few other operations: one node of an expression, and one kernel in a program.

namespace tessera {

namespace detail {

/// A function of a tensor and scalars, in the element type of the tensor; f32 for integers and bools.
struct FloatingComposition {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class...> struct result : X {
    using type = element_t<floating_type(dtype_v<typename X::type>)>;
  };
  template <class...> static constexpr void convert(Value& x, std::same_as<Value> auto&... numbers) {
    const DType type = floating_type(x.dtype());
    x = build::cast(x, type);
    ((numbers = build::cast(numbers, type)), ...);
  }
};

struct ReciprocalTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) { return 1.0 / x.at(context.source); }
};
struct SquareTag : Unary<ops::AbsOp> {
  static constexpr Value emit(Value context, Value x) { return x.at(context.source) * x; }
};
struct DegreesToRadiansTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) { return x.at(context.source) * 0.017453292519943295769; }
};
struct RadiansToDegreesTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) { return x.at(context.source) * 57.295779513082320877; }
};

enum class NumberClass : std::uint8_t { nan, infinite, finite };
template <NumberClass Class> struct ClassifyTag {
  template <class X> struct result : Typed<bool, X::rank> {
    static_assert(require_arithmetic<typename X::type>());
  };
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    if (Class == NumberClass::nan) return build::not_equal(x, x);
    if (!is_floating(x.dtype())) return build::binary(Class == NumberClass::finite ? Op::equal : Op::not_equal, x, x);
    const Value infinity = x.number(std::numeric_limits<double>::infinity());
    return build::binary(Class == NumberClass::finite ? Op::less : Op::equal, build::abs(x), infinity);
  }
};

/// The common type of three operands, of which the first two may be numbers.
template <class A, class B, class C>
struct PromoteThree : Promote<Typed<typename Promote<A, B>::type, Promote<A, B>::rank>, C> {};
template <class A, class B, class C>
  requires(is_number_v<typename A::type> && is_number_v<typename B::type>)
struct PromoteThree<A, B, C> : Promote<A, Typed<typename Promote<B, C>::type, Promote<B, C>::rank>> {};

/// Three operands that are promoted to one element type.
struct ThreeOperands {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class A, class B, class C> using Meet = PromoteThree<A, B, C>;
  template <class A, class B, class C> using result = Typed<typename Meet<A, B, C>::type, Meet<A, B, C>::rank>;
  template <class A, class B, class C> static constexpr void convert(Value& a, Value& b, Value& c) {
    a = convert_operand<A>(a, Meet<A, B, C>::dtype);
    b = convert_operand<B>(b, Meet<A, B, C>::dtype);
    c = convert_operand<C>(c, Meet<A, B, C>::dtype);
  }
};
struct ClampTag : ThreeOperands {
  static constexpr const char* function = "clamp";
  static constexpr Value emit(Value context, Value x, Value low, Value high) {
    x = x.at(context.source);
    const Value raised = build::select(or_nan(build::less(x, low), low), low, x);
    return build::select(or_nan(build::greater(raised, high), high), high, raised);
  }
  /// Whether x is beyond a bound, or the bound is NaN.
  static constexpr Value or_nan(Value beyond, Value bound) {
    const Node& node = bound.node();
    if (!is_floating(node.dtype) || (node.is_constant() && node.value == node.value)) return beyond;
    return build::binary(Op::logical_or, beyond, build::binary(Op::not_equal, bound, bound));
  }
};
/// Whether two operands are equal within a tolerance.
template <bool EqualNan> struct IsCloseTag {
  static constexpr const char* function = "isclose";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class A, class B, class...> using result = Typed<bool, Promote<A, B>::rank>;
  template <class A, class B, class...>
  static constexpr void convert(Value& a, Value& b, Value& relative, Value& absolute) {
    const DType type = floating_type(Promote<A, B>::dtype);
    a = build::cast(convert_operand<A>(a, Promote<A, B>::dtype), type);
    b = build::cast(convert_operand<B>(b, Promote<A, B>::dtype), type);
    relative = build::cast(relative, type), absolute = build::cast(absolute, type);
  }
  static constexpr Value emit(Value context, Value a, Value b, Value relative, Value absolute) {
    a = a.at(context.source);
    const Value bound = absolute + relative * build::abs(b);
    // An infinity is close only to itself: its bound is infinite.
    const Value finite = build::less(build::abs(b), b.number(std::numeric_limits<double>::infinity()));
    const Value near = build::logical_and(build::less_equal(build::abs(a - b), bound), finite);
    const Value close = build::logical_or(build::equal(a, b), near);
    if (!EqualNan) return close;
    return build::logical_or(close, build::logical_and(build::not_equal(a, a), build::not_equal(b, b)));
  }
};
struct LerpTag : ThreeOperands {
  static constexpr const char* function = "lerp";
  template <class A, class B, class C> struct result : ThreeOperands::result<A, B, C> {
    using Checks = decltype([] {
      static_assert(is_floating_v<typename ThreeOperands::result<A, B, C>::type>,
                    "tessera: lerp takes float, double, bf16 and f16 tensors");
    });
  };
  // Computed from the nearer operand, so that a weight of 1 gives exactly the second operand.
  static constexpr Value emit(Value context, Value a, Value b, Value weight) {
    weight = weight.at(context.source);
    const Value way = b.at(context.source) - a, half = weight.number(0.5);
    return build::select(build::less(build::abs(weight), half), a + weight * way, b - way * (1.0 - weight));
  }
};

/// x + number * a * b, or x + number * a / b, where fractions are computed in the promoted element type.
template <bool Divides> struct AddProductTag {
  static constexpr const char* function = Divides ? "addcdiv" : "addcmul";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class A, class B>
  static constexpr DType meets_in =
      Divides ? floating_type(ThreeOperands::Meet<X, A, B>::dtype) : ThreeOperands::Meet<X, A, B>::dtype;
  template <class X, class A, class B, class> struct result {
    using type = element_t<meets_in<X, A, B>>;
    static constexpr int rank = ThreeOperands::Meet<X, A, B>::rank;
    using Checks = decltype([] {
      static_assert(meets_in<X, A, B> != DType::bool_,
                    "tessera: addcmul takes numbers; a bool tensor needs ts::cast<float>(x) first");
    });
  };
  template <class X, class A, class B, class N>
  static constexpr void convert(Value& x, Value& a, Value& b, Value& number) {
    x = convert_operand<X>(x, meets_in<X, A, B>);
    a = convert_operand<A>(a, meets_in<X, A, B>);
    b = convert_operand<B>(b, meets_in<X, A, B>);
    number = convert_operand<N>(number, meets_in<X, A, B>);
  }
  static constexpr Value emit(Value context, Value x, Value a, Value b, Value number) {
    const Value scaled = number.at(context.source) * a;
    return x + (Divides ? scaled / b : scaled * b);
  }
};
struct FloatPowerTag {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class A, class B> using result = Typed<double, Promote<A, B>::rank>;
  template <class...> static constexpr void convert(Value& x, Value& y) {
    x = build::cast(x, DType::f64), y = build::cast(y, DType::f64);
  }
  static constexpr Value emit(Value context, Value x, Value y) {
    return build::apply<ops::PowOp>(x.at(context.source), y);
  }
};

/// Whether the sign of a number is negative: 1 / x tells it of zeros. NaN has none.
constexpr Value is_negative(Value x) {
  const Value zero = x.number(0), below = build::less(x, zero);
  if (!is_floating(x.dtype())) return below;
  return build::logical_or(below, build::logical_and(build::equal(x, zero), build::less(1.0 / x, zero)));
}
struct SignbitTag : Unary<ops::AbsOp> {
  template <class X> struct result : Unary<ops::AbsOp>::result<X> {
    using type = bool;
  };
  static constexpr Value emit(Value context, Value x) { return is_negative(x.at(context.source)); }
};
struct CopysignTag : Binary<ops::DivOp> {
  static constexpr Value emit(Value context, Value x, Value y) {
    const Value size = build::abs(x.at(context.source));
    return build::select(is_negative(y), -size, size);
  }
};
struct HeavisideTag : Binary<ops::MaximumOp> {
  static constexpr Value emit(Value context, Value x, Value at_zero) {
    x = x.at(context.source);
    const Value zero = x.number(0);
    const Value step =
        build::select(build::less(x, zero), zero, build::select(build::greater(x, zero), x.number(1), x));
    return build::select(build::equal(x, zero), at_zero, step);
  }
};
/// NaN and infinities replaced: by 0 and by the numbers of largest size when none are given.
struct NanToNumTag {
  template <class X, class...> using result = X;
  template <class...> static constexpr void convert(Value& x, std::same_as<Value> auto&... numbers) {
    ((numbers = build::cast(numbers, x.dtype())), ...);
  }
  static constexpr double largest(DType type) {
    return type == DType::f64    ? std::numeric_limits<double>::max()
           : type == DType::bf16 ? 0x1.fep127
           : type == DType::f16  ? 65504
                                 : 0x1.fffffep127;
  }
  static constexpr Value emit(Value context, Value x) { return emit(context, x, x.number(0)); }
  static constexpr Value emit(Value context, Value x, Value nan) {
    return emit(context, x, nan, x.number(largest(x.dtype())), x.number(-largest(x.dtype())));
  }
  static constexpr Value emit(Value context, Value x, Value nan, Value high, Value low) {
    if (!is_floating(x.dtype())) return x;
    x = x.at(context.source);
    const double infinity = std::numeric_limits<double>::infinity();
    const Value below = build::select(build::equal(x, x.number(-infinity)), low, x);
    const Value finite = build::select(build::equal(x, x.number(infinity)), high, below);
    return build::select(build::not_equal(x, x), nan, finite);
  }
};

}  // namespace detail

/// 1 / x; an infinity of the sign of x where it is 0. Integers give f32, as in PyTorch. Gradient: -1 / x^2. Shapes and
/// communication of these functions: see `abs`, of several operands `pow`.
template <TensorArgument X> constexpr auto reciprocal(const X& x, Here at = Here::current()) {
  return call<detail::ReciprocalTag>(Source::from(at), x);
}
/// x times x, in the element type of x; integers wrap around. Gradient: 2 x.
template <TensorArgument X> constexpr auto square(const X& x, Here at = Here::current()) {
  return call<detail::SquareTag>(Source::from(at), x);
}
/// Degrees as radians, and radians as degrees; integers give f32 (torch.deg2rad, rad2deg). Gradient: the same factor.
template <TensorArgument X> constexpr auto deg2rad(const X& x, Here at = Here::current()) {
  return call<detail::DegreesToRadiansTag>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto rad2deg(const X& x, Here at = Here::current()) {
  return call<detail::RadiansToDegreesTag>(Source::from(at), x);
}

/// Which elements are NaN (isnan), infinite of either sign (isinf), neither of the two (isfinite): bool tensors of the
/// shape of x. Integers and bools are finite. No gradient, no communication.
template <TensorArgument X> constexpr auto isnan(const X& x, Here at = Here::current()) {
  return call<detail::ClassifyTag<detail::NumberClass::nan>>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto isinf(const X& x, Here at = Here::current()) {
  return call<detail::ClassifyTag<detail::NumberClass::infinite>>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto isfinite(const X& x, Here at = Here::current()) {
  return call<detail::ClassifyTag<detail::NumberClass::finite>>(Source::from(at), x);
}

/// x where it is between low and high, and the nearer of the two elsewhere; high everywhere where low is above it, as
/// in PyTorch. NaN in x or in a bound gives NaN. The bounds are numbers or tensors, broadcast against x and promoted
/// with it; one bound alone is ts::maximum or ts::minimum. Gradient: 1 where low <= x <= high, bounds included as in
/// PyTorch, and 0 elsewhere, where the bound gets the cotangent. Errors: shape_mismatch; dtype_mismatch for an integer
/// bound that is no value of an integer type. No communication.
template <Operand X, Operand Low, Operand High>
  requires(TensorOperand<X> || TensorOperand<Low> || TensorOperand<High>)
constexpr auto clamp(const X& x, const Low& low, const High& high, Here at = Here::current()) {
  return call<detail::ClampTag>(Source::from(at), x, low, high);
}
/// x + value a b, and x + value a / b, as torch.addcmul and torch.addcdiv. The three operands are broadcast against
/// each other and promoted; addcdiv of integers gives f32, where PyTorch throws. Gradients: 1, value b and value a; of
/// addcdiv 1, value / b and -value a / b^2. Errors: shape_mismatch; dtype_mismatch for an integer value that is none of
/// an integer type. No communication.
template <Operand X, Operand A, Operand B, NumberOperand N = int>
  requires(TensorOperand<X> || TensorOperand<A> || TensorOperand<B>)
constexpr auto addcmul(const X& x, const A& a, const B& b, const N& value = 1, Here at = Here::current()) {
  return call<detail::AddProductTag<false>>(Source::from(at), x, a, b, value);
}
template <Operand X, Operand A, Operand B, NumberOperand N = int>
  requires(TensorOperand<X> || TensorOperand<A> || TensorOperand<B>)
constexpr auto addcdiv(const X& x, const A& a, const B& b, const N& value = 1, Here at = Here::current()) {
  return call<detail::AddProductTag<true>>(Source::from(at), x, a, b, value);
}
/// x to the power of y in double, whatever the element types of the operands (torch.float_power): a double tensor.
/// Special cases (NaN), error and gradients: as pow. Errors: shape_mismatch. No communication.
template <Operand X, Operand Y>
  requires(TensorOperand<X> || TensorOperand<Y>)
constexpr auto float_power(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::FloatPowerTag>(Source::from(at), x, y);
}
/// Whether x is negative, -0 included: a bool tensor. False of NaN, of which PyTorch gives the sign bit. No gradient.
template <TensorArgument X> constexpr auto signbit(const X& x, Here at = Here::current()) {
  return call<detail::SignbitTag>(Source::from(at), x);
}
/// |a| with the sign of b, also that of -0; NaN counts as positive. Integers give f32, as in PyTorch. Exact. Gradient
/// of a: 1 where both have the same sign, otherwise -1; 0 where a is 0. Of b: 0. Errors: shape_mismatch.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto copysign(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::CopysignTag>(Source::from(at), a, b);
}
/// 0 where x is negative, 1 where it is positive, `at_zero` where it is 0, and NaN where it is NaN, as NumPy has it.
/// Operands are broadcast and promoted. The gradient is that of `at_zero` where x is 0. Errors: shape_mismatch.
template <TensorArgument X, Operand V>
constexpr auto heaviside(const X& x, const V& at_zero, Here at = Here::current()) {
  return call<detail::HeavisideTag>(Source::from(at), x, at_zero);
}
/// x with numbers in place of NaN and infinities: 0, and the largest and lowest finite numbers of the element type, or
/// the given ones. Integers are given as they are. The gradient is 0 where elements are replaced. No communication.
template <TensorArgument X> constexpr auto nan_to_num(const X& x, Here at = Here::current()) {
  return call<detail::NanToNumTag>(Source::from(at), x);
}
template <TensorArgument X, NumberOperand N>
constexpr auto nan_to_num(const X& x, const N& nan, Here at = Here::current()) {
  return call<detail::NanToNumTag>(Source::from(at), x, nan);
}
template <TensorArgument X, NumberOperand N, NumberOperand High, NumberOperand Low>
constexpr auto nan_to_num(const X& x, const N& nan, const High& positive, const Low& negative,
                          Here at = Here::current()) {
  return call<detail::NanToNumTag>(Source::from(at), x, nan, positive, negative);
}
/// Whether |a - b| <= absolute + relative |b|, or a equals b (torch.isclose, jnp.isclose): a bool tensor. Infinities
/// are close only to themselves, NaN to nothing, or with `isclose<true>` to NaN. Operands are broadcast and promoted.
/// No gradient. Errors: shape_mismatch. No communication.
template <bool EqualNan = false, TensorArgument A, Operand B, NumberOperand Relative = double,
          NumberOperand Absolute = double>
constexpr auto isclose(const A& a, const B& b, const Relative& relative = 1e-5, const Absolute& absolute = 1e-8,
                       Here at = Here::current()) {
  return call<detail::IsCloseTag<EqualNan>>(Source::from(at), a, b, relative, absolute);
}
/// a + weight (b - a), and exactly a at weight 0, b at weight 1; weights beyond extrapolate. NaN in any operand gives
/// NaN. Floating operands, broadcast against each other. Gradients: 1 - weight, weight and b - a. Errors:
/// shape_mismatch. No communication.
template <TensorArgument A, TensorArgument B, Operand Weight>
constexpr auto lerp(const A& a, const B& b, const Weight& weight, Here at = Here::current()) {
  return call<detail::LerpTag>(Source::from(at), a, b, weight);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
