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

namespace build {
constexpr Value equal(Value x, Value y) { return binary(Op::equal, x, y); }
constexpr Value less(Value x, Value y) { return binary(Op::less, x, y); }
constexpr Value greater(Value x, Value y) { return binary(Op::greater, x, y); }
}  // namespace build

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

enum class NumberClass : std::uint8_t { nan, infinite, finite };
template <NumberClass Class> struct ClassifyTag {
  template <class X> using result = Typed<bool, X::rank>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    if (Class == NumberClass::nan) return build::binary(Op::not_equal, x, x);
    if (!is_floating(x.dtype())) return build::binary(Class == NumberClass::finite ? Op::equal : Op::not_equal, x, x);
    const Value infinity = x.number(std::numeric_limits<double>::infinity());
    return build::binary(Class == NumberClass::finite ? Op::less : Op::equal, build::unary(Op::abs, x), infinity);
  }
};

/// Three operands that are promoted to one element type.
struct ThreeOperands {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class A, class B, class C>
  using Meet = Promote<Typed<typename Promote<A, B>::type, Promote<A, B>::rank>, C>;
  template <class A, class B, class C> using result = Typed<typename Meet<A, B, C>::type, Meet<A, B, C>::rank>;
  template <class A, class B, class C> static constexpr void convert(Value& a, Value& b, Value& c) {
    a = convert_operand<A>(a, Meet<A, B, C>::dtype);
    b = convert_operand<B>(b, Meet<A, B, C>::dtype);
    c = convert_operand<C>(c, Meet<A, B, C>::dtype);
  }
};
struct ClampTag : ThreeOperands {
  static constexpr Value emit(Value context, Value x, Value low, Value high) {
    x = x.at(context.source);
    const Value raised = build::select(build::less(x, low), low, x);
    return build::select(build::greater(raised, high), high, raised);
  }
};
struct LerpTag : ThreeOperands {
  template <class A, class B, class C> struct result : ThreeOperands::result<A, B, C> {
    using Checks = decltype([] {
      static_assert(is_floating_v<typename ThreeOperands::result<A, B, C>::type>,
                    "tessera: lerp takes float, double and bf16 tensors");
    });
  };
  // Computed from the nearer operand, so that a weight of 1 gives exactly the second operand.
  static constexpr Value emit(Value context, Value a, Value b, Value weight) {
    weight = weight.at(context.source);
    const Value way = b.at(context.source) - a, half = weight.number(0.5);
    return build::select(build::less(build::unary(Op::abs, weight), half), a + weight * way, b - way * (1.0 - weight));
  }
};

}  // namespace detail

/// 1 / x; an infinity of the sign of x where it is 0. Of integers f32, as in PyTorch. Gradient: -1 / x^2.
template <TensorOperand X> constexpr auto reciprocal(const X& x, Here at = Here::current()) {
  return call<detail::ReciprocalTag>(Source::from(at), x);
}
/// x times x, in the element type of x; integers wrap around. Gradient: 2 x.
template <TensorOperand X> constexpr auto square(const X& x, Here at = Here::current()) {
  return call<detail::SquareTag>(Source::from(at), x);
}

/// Which elements are NaN, infinite of either sign, neither of the two: bool tensors of the shape of x. Integers and
/// bools are finite. No gradient, no communication.
template <TensorOperand X> constexpr auto isnan(const X& x, Here at = Here::current()) {
  return call<detail::ClassifyTag<detail::NumberClass::nan>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto isinf(const X& x, Here at = Here::current()) {
  return call<detail::ClassifyTag<detail::NumberClass::infinite>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto isfinite(const X& x, Here at = Here::current()) {
  return call<detail::ClassifyTag<detail::NumberClass::finite>>(Source::from(at), x);
}

/// x where it is between low and high, and the nearer of the two elsewhere; high everywhere where low is above it, as
/// in PyTorch. NaN stays NaN. The bounds are numbers or tensors, broadcast against x and promoted with it; one bound
/// alone is ts::maximum or ts::minimum. Gradient: 1 where low <= x <= high, bounds included as in PyTorch, and 0
/// elsewhere, where it is that of the bound. Errors: shape_mismatch; dtype_mismatch for an integer bound that is no
/// value of an integer type. No communication.
template <Operand X, Operand Low, Operand High>
  requires(TensorOperand<X> || TensorOperand<Low> || TensorOperand<High>)
constexpr auto clamp(const X& x, const Low& low, const High& high, Here at = Here::current()) {
  return call<detail::ClampTag>(Source::from(at), x, low, high);
}
/// a + weight (b - a), and exactly a at weight 0, b at weight 1; weights beyond extrapolate. Floating operands,
/// broadcast against each other. Gradients: 1 - weight, weight and b - a. Errors: shape_mismatch. No communication.
template <TensorOperand A, TensorOperand B, Operand Weight>
constexpr auto lerp(const A& a, const B& b, const Weight& weight, Here at = Here::current()) {
  return call<detail::LerpTag>(Source::from(at), a, b, weight);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
