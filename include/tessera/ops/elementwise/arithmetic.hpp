#ifndef TESSERA_OPS_ELEMENTWISE_ARITHMETIC_HPP
#define TESSERA_OPS_ELEMENTWISE_ARITHMETIC_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/ops/data_movement/pads_to_concat.hpp>
#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>
#include <tessera/ops/elementwise/exponential.hpp>
#include <tessera/ops/elementwise/select.hpp>

namespace tessera::build {
constexpr Value abs(Value x) { return unary(Op::abs, x); }
constexpr Value sign(Value x) { return unary(Op::sign, x); }
constexpr Value minimum(Value x, Value y) { return binary(Op::minimum, x, y); }
constexpr Value maximum(Value x, Value y) { return binary(Op::maximum, x, y); }
}  // namespace tessera::build

namespace tessera {

constexpr Value operator+(Value x, Value y) {
  if (y.is_number(0) && x.rank() >= y.rank()) return x;
  if (x.is_number(0) && y.rank() >= x.rank()) return y;
  return build::binary(Op::add, x, y);
}
constexpr Value operator-(Value x) { return build::unary(Op::neg, x); }
constexpr Value operator-(Value x, Value y) {
  if (y.is_number(0)) return x;
  return build::binary(Op::sub, x, y);
}
constexpr Value operator*(Value x, Value y) {
  if (y.is_number(1)) return x;
  if (x.is_number(1)) return y;
  return build::binary(Op::mul, x, y);
}
constexpr Value operator/(Value x, Value y) {
  if (y.is_number(1)) return x;
  return build::binary(Op::div, x, y);
}
}  // namespace tessera

namespace tessera::ops {

constexpr double abs(double x) { return x <= 0 ? 0 - x : x; }
constexpr double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
constexpr double minimum(double x, double y) { return y < x || y != y ? y : x; }
constexpr double maximum(double x, double y) { return x < y || y != y ? y : x; }
inline double pow(double x, double y) { return __builtin_pow(x, y); }

struct NegOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "neg";
  static constexpr Linearity linear = Linearity::first;
  static constexpr bool folds_constants = true, of_integers = true, of_bools = false;
  static TESSERA_INLINE constexpr auto value(const auto& x) { return -x; }
  static constexpr void gradient(Gradient& r) { r.add(0, -r.g()); }
};

struct AbsOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "abs";
  static constexpr bool folds_constants = true, of_integers = true, of_bools = false;
  static TESSERA_INLINE constexpr auto value(const auto& x) { return abs(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::sign(r.x(0))); }
};

struct SignOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "sign";
  static constexpr bool of_bools = false;
  static TESSERA_INLINE constexpr auto value(const auto& x) { return sign(x); }
};

struct AddOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "add";
  static constexpr Linearity linear = Linearity::jointly;
  static constexpr bool folds_constants = true, of_integers = true, adds = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x + y; }
  static constexpr int simplify(Graph& made, const Node& node, const std::int32_t* operands) {
    return made[operands[1]].op == Op::pad ? PadsToConcat(made).sum(node, operands) : -1;
  }
  static constexpr void gradient(Gradient& r) {
    r.add(0, r.g());
    r.add(1, r.g());
  }
};

struct SubOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "sub";
  static constexpr Linearity linear = Linearity::jointly;
  static constexpr bool folds_constants = true, of_integers = true, of_bools = false;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x - y; }
  static constexpr void gradient(Gradient& r) {
    r.add(0, r.g());
    r.add(1, -r.g());
  }
};

struct MulOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "mul";
  static constexpr Linearity linear = Linearity::each;
  static constexpr bool folds_constants = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x * y; }
  static constexpr void gradient(Gradient& r) {
    r.add(0, r.g() * r.x(1));
    r.add(1, r.g() * r.x(0));
  }
};

/// The quotient of integers is truncated towards zero; kernels give 0 for a divisor of 0.
struct DivOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "div";
  static constexpr Linearity linear = Linearity::first;
  static constexpr std::uint8_t flops = 4, lane_cost = 8;
  static constexpr bool folds_constants = true, of_integers = true, fractional = true, divides = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x / y; }
  static constexpr void gradient(Gradient& r) {
    r.add(0, r.g() / r.x(1));
    r.add(1, -(r.g() * r.y() / r.x(1)));
  }
};

struct PowOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "pow";
  static constexpr std::uint8_t flops = 30, lane_cost = 60;
  static constexpr bool of_bools = false;
  static TESSERA_INLINE auto value(const auto& x, const auto& y) { return pow(x, y); }
  static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0), p = r.x(1);
    r.add(0, r.g() * p * build::binary(Op::pow, x, lowered(p)));
    if (!r.needs(1)) return;
    // At a base of 0 the derivative by the exponent is 0, not 0 * log 0 = NaN.
    const Value zero = x.number(0);
    const Value flat = build::logical_and(build::equal(x, zero), build::greater_equal(p, zero));
    r.add(1, r.g() * r.y() * build::log(build::select(flat, x.number(1), x)));
  }
  /// p - 1, but 0 at p = 0: x^0 is constant, and 0 * x^-1 would be NaN at x = 0.
  static constexpr Value lowered(Value p) {
    if (p.node().is_constant()) return p.number(p.is_number(0) ? 0 : p.node().value - 1);
    return build::select(build::equal(p, p.number(0)), p.number(0), p - 1.0);
  }
};

/// The gradient of minimum and maximum, which return the second operand where `yields` holds. Where the operands are
/// equal, each gets half of the cotangent, as in JAX and PyTorch.
constexpr void share_choice(Gradient& r, Op yields) {
  const Value x = r.x(0), y = r.x(1), zero = x.number(0);
  const Value share = build::select(build::equal(x, y), r.g() * 0.5, r.g());
  if (r.needs(0)) r.add(0, build::select(build::binary(yields, x, y), zero, share));
  if (r.needs(1)) r.add(1, build::select(build::binary(yields, y, x), zero, share));
}

struct MinimumOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "minimum";
  static constexpr bool folds_constants = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return minimum(x, y); }
  static constexpr void gradient(Gradient& r) { share_choice(r, Op::greater); }
};

struct MaximumOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "maximum";
  static constexpr bool folds_constants = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return maximum(x, y); }
  static constexpr void gradient(Gradient& r) { share_choice(r, Op::less); }
};

using ArithmeticOperations =
    OperationList<NegOp, AbsOp, SignOp, AddOp, SubOp, MulOp, DivOp, PowOp, MinimumOp, MaximumOp>;

}  // namespace tessera::ops

namespace tessera {

struct AddTag : detail::Binary<ops::AddOp> {};
struct SubTag : detail::Binary<ops::SubOp> {};
struct MulTag : detail::Binary<ops::MulOp> {};
struct DivTag : detail::Binary<ops::DivOp> {};
struct NegTag : detail::Unary<ops::NegOp> {};
struct TruncateDivTag : detail::Binary<ops::DivOp> {
  template <class A, class B> struct result : detail::Promote<A, B> {
    using Checks = decltype([] {
      static_assert(is_integer(detail::Promote<A, B>::dtype),
                    "tessera: truncate_div takes integer tensors; use / for floating tensors");
    });
  };
  template <class A, class B> static constexpr void convert(Value& x, Value& y) {
    x = detail::convert_operand<A>(x, detail::Promote<A, B>::dtype);
    y = detail::convert_operand<B>(y, detail::Promote<A, B>::dtype);
  }
};

/// Elementwise functions of one operand: the result has its shape and sharding, without communication. Integer and bool
/// operands of functions without integer results (exp, sqrt, ...) give f32. bf16 and f16 are computed in f32 and
/// rounded once. The stated errors are those of the f32 and f64 kernels for plain x86-64 and AVX2, measured by
/// tools/accuracy.cpp.
///
/// |x|; the sign bit of NaN is cleared. Exact; the least integer of a type wraps to itself. The gradient at 0 is 0.
template <TensorArgument X> constexpr auto abs(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::AbsOp>>(Source::from(at), x);
}
/// -1, 0 or 1 in the type of x; 0 and -0 keep their sign, NaN gives NaN. Exact. No gradient.
template <TensorArgument X> constexpr auto sign(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::SignOp>>(Source::from(at), x);
}

/// Elementwise functions of two operands, which are broadcast against each other: trailing dims are aligned, and dims
/// whose extent 1 is static (from keepdims or ts::unsqueeze) repeat. Different element types are promoted, see
/// `promote`. Errors: shape_mismatch; dtype_mismatch for an integer that is no value of the tensor's integer type.
/// Communication: a reshard where the operands' shardings differ.
///
/// a to the power of b, with the special cases of std::pow: pow(x, 0) and pow(1, y) are 1 even for NaN; NaN for a
/// negative a and a b that is not whole. Error: 0.51 ulp for f32 and f64. Powers of integers wrap around; a negative
/// exponent truncates, so 2^-1 is 0. The gradient by b is 0 where a is 0.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto pow(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::PowOp>>(Source::from(at), a, b);
}
/// The quotient of integers, truncated towards zero as `/` of C++ integers. A divisor of 0 gives 0, and the least
/// integer divided by -1 wraps to itself.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto truncate_div(const A& a, const B& b, Here at = Here::current()) {
  return call<TruncateDivTag>(Source::from(at), a, b);
}
/// The smaller, the larger operand. NaN in either operand gives NaN. Exact. Of equal operands, each gets half of the
/// cotangent.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto minimum(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::MinimumOp>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto maximum(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::MaximumOp>>(Source::from(at), a, b);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
