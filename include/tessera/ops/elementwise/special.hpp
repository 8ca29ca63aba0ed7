#ifndef TESSERA_OPS_ELEMENTWISE_SPECIAL_HPP
#define TESSERA_OPS_ELEMENTWISE_SPECIAL_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/elementwise/each_element.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>
#include <tessera/ops/elementwise/exponential.hpp>
#include <tessera/ops/elementwise/special_functions.hpp>
#include <tessera/ops/elementwise/trigonometric.hpp>

// Special functions, as in scipy.special.

namespace tessera::ops {

/// A function of floating-point numbers, computed in double for each element; an f32 result is rounded once.
template <int Arity> struct FunctionOfDoubles : ElementwiseOperation<Arity> {
  static constexpr std::uint8_t flops = 60, lane_cost = 120;
  static constexpr bool fractional = true, by_part = true;
};
template <class F, class... V> TESSERA_INLINE auto in_double(F f, const V&... x) {
  return each_element([f](auto... element) { return f(static_cast<double>(element)...); }, x...);
}

struct ErfcOp : FunctionOfDoubles<1> {
  static constexpr std::string_view name = "erfc";
  static TESSERA_INLINE auto value(const auto& x) {
    return in_double([](double v) { return erfc(v); }, x);
  }
  static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0);
    r.add(0, r.g() * -1.12837916709551257390 * build::exp(-(x * x)));  // -2/sqrt(pi)
  }
};

struct ErfinvOp : FunctionOfDoubles<1> {
  static constexpr std::string_view name = "erfinv";
  static TESSERA_INLINE auto value(const auto& x) {
    return in_double([](double v) { return erfinv(v); }, x);
  }
  static constexpr void gradient(Gradient& r) {
    r.add(0, r.g() * 0.88622692545275801365 * build::exp(r.y() * r.y()));  // sqrt(pi)/2
  }
};

/// Derivative n of digamma, of operands n and x. There is no derivative by n.
struct PolygammaOp : FunctionOfDoubles<2> {
  static constexpr std::string_view name = "polygamma";
  static TESSERA_INLINE auto value(const auto& n, const auto& x) {
    return in_double([](double order, double v) { return polygamma(order, v); }, n, x);
  }
  static constexpr void gradient(Gradient& r) {
    if (r.needs(1)) r.add(1, r.g() * build::binary(r.node().op, r.x(0) + 1.0, r.x(1)));
  }
};
struct DigammaOp : FunctionOfDoubles<1> {
  static constexpr std::string_view name = "digamma";
  static TESSERA_INLINE auto value(const auto& x) {
    return in_double([](double v) { return digamma(v); }, x);
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::apply<PolygammaOp>(r.x(0).number(1), r.x(0))); }
};
struct LgammaOp : FunctionOfDoubles<1> {
  static constexpr std::string_view name = "lgamma";
  static TESSERA_INLINE auto value(const auto& x) {
    return in_double([](double v) { return lgamma(v); }, x);
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::apply<DigammaOp>(r.x(0))); }
};

template <int Order, bool Scaled> struct BesselOperation : FunctionOfDoubles<1> {
  static TESSERA_INLINE auto value(const auto& x) {
    return in_double([](double v) { return bessel_i(Order, v, Scaled); }, x);
  }
};
/// I1(x) / x, or the same times exp(-|x|); 1/2 of I0 at 0.
constexpr Value bessel_quotient(Value one, Value zeroth, Value x) {
  const Value at_zero = build::equal(x, x.number(0));
  return build::select(at_zero, zeroth * 0.5, one / build::select(at_zero, x.number(1), x));
}
struct I0Op : BesselOperation<0, false> {
  static constexpr std::string_view name = "i0";
  static constexpr void gradient(Gradient& r);
};
struct I1Op : BesselOperation<1, false> {
  static constexpr std::string_view name = "i1";
  static constexpr void gradient(Gradient& r) {
    const Value zeroth = build::apply<I0Op>(r.x(0));
    r.add(0, r.g() * (zeroth - bessel_quotient(r.y(), zeroth, r.x(0))));
  }
};
constexpr void I0Op::gradient(Gradient& r) { r.add(0, r.g() * build::apply<I1Op>(r.x(0))); }
struct I0eOp : BesselOperation<0, true> {
  static constexpr std::string_view name = "i0e";
  static constexpr void gradient(Gradient& r);
};
struct I1eOp : BesselOperation<1, true> {
  static constexpr std::string_view name = "i1e";
  static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0), zeroth = build::apply<I0eOp>(x);
    r.add(0, r.g() * (zeroth - bessel_quotient(r.y(), zeroth, x) - build::sign(x) * r.y()));
  }
};
constexpr void I0eOp::gradient(Gradient& r) {
  r.add(0, r.g() * (build::apply<I1eOp>(r.x(0)) - build::sign(r.x(0)) * r.y()));
}

/// An operation of its own since a composition with maximum has no second derivative where the operands are equal.
struct LogAddExpOp : FunctionOfDoubles<2> {
  static constexpr std::string_view name = "logaddexp";
  static TESSERA_INLINE auto value(const auto& x, const auto& y) {
    return in_double([](double a, double b) { return logaddexp(a, b); }, x, y);
  }
  static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0), y = r.x(1);
    // Equal infinities have no difference. Other equal operands keep theirs, which has second derivatives.
    const Value infinite = build::equal(build::abs(x), x.number(infinity));
    const Value alike = build::logical_and(build::equal(x, y), infinite);
    const Value smooth = build::select(alike, x.number(0), x - y);
    r.add(0, r.g() * build::sigmoid(smooth));
    r.add(1, r.g() * build::sigmoid(-smooth));
  }
};

struct HypotOp : FunctionOfDoubles<2> {
  static constexpr std::string_view name = "hypot";
  static TESSERA_INLINE auto value(const auto& x, const auto& y) {
    return in_double([](double a, double b) { return hypot(a, b); }, x, y);
  }
  static constexpr void gradient(Gradient& r) {
    const Value at_zero = build::equal(r.y(), r.y().number(0)), scale = build::select(at_zero, r.y().number(1), r.y());
    r.add(0, r.g() * (r.x(0) / scale));
    r.add(1, r.g() * (r.x(1) / scale));
  }
};

using SpecialOperations =
    OperationList<ErfcOp, ErfinvOp, PolygammaOp, DigammaOp, LgammaOp, I0Op, I1Op, I0eOp, I1eOp, LogAddExpOp, HypotOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {

struct SincTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value at_zero = build::equal(x, x.number(0)), angle = build::select(at_zero, x.number(1), x) * ops::pi;
    return build::select(at_zero, x.number(1), build::apply<ops::SinOp>(angle) / angle);
  }
};
struct XlogyTag : Binary<ops::HypotOp> {
  static constexpr Value emit(Value context, Value x, Value y) {
    x = x.at(context.source);
    const Value zero = x.number(0);
    const Value has_no_log = build::logical_or(build::less_equal(y, zero), build::equal(y, y.number(ops::infinity)));
    const Value is_zero = build::logical_and(build::equal(x, zero), has_no_log);
    return x * build::log(build::select(is_zero, y.number(1), y));
  }
};
/// Computed of the operands times log(2): there is no power that could overflow.
struct LogAddExp2Tag : Binary<ops::LogAddExpOp> {
  static constexpr Value emit(Value context, Value x, Value y) {
    constexpr double log2 = 0.69314718055994530942;
    return build::apply<ops::LogAddExpOp>(x.at(context.source) * log2, y * log2) * (1 / log2);
  }
};
struct Xlog1pyTag : Binary<ops::HypotOp> {
  static constexpr Value emit(Value context, Value x, Value y) {
    x = x.at(context.source);
    const Value has_no_log =
        build::logical_or(build::less_equal(y, y.number(-1)), build::equal(y, y.number(ops::infinity)));
    const Value is_zero = build::logical_and(build::equal(x, x.number(0)), has_no_log);
    return x * build::apply<ops::Log1pOp>(build::select(is_zero, y.number(0), y));
  }
};
struct EntrTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value zero = x.number(0), is_above = build::greater(x, zero), safe = build::select(is_above, x, x.number(1));
    // NaN is neither above nor below 0, and stays.
    const Value rest = build::select(build::less(x, zero), x.number(-ops::infinity), x);
    return build::select(is_above, -(safe * build::log(safe)), rest);
  }
};
struct NdtrTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    return build::apply<ops::ErfcOp>(x.at(context.source) * -0.70710678118654752440) * 0.5;
  }
};
struct LogNdtrTag : FloatingComposition {
  static constexpr Value emit(Value context, Value given) {
    const Value x = build::cast(given.at(context.source), computed_as(given.dtype()));
    constexpr double root = 0.70710678118654752440;
    const Value zero = x.number(0), tail = x.number(x.dtype() == DType::f64 ? -20 : -10);
    const Value in_tail = build::less(x, tail), below = build::less(x, zero);
    // Each formula gets only numbers for which it is finite. The last formula gets NaN.
    const Value far = build::select(in_tail, x, tail),
                near = build::select(in_tail, tail, build::select(below, x, zero)),
                above = build::select(below, zero, x);
    const Value high = build::apply<ops::Log1pOp>(build::apply<ops::ErfcOp>(above * root) * -0.5);
    const Value middle = build::log(build::apply<ops::ErfcOp>(near * -root) * 0.5);
    // The asymptotic series 1 - 1 / x^2 + 3 / x^4 - 15 / x^6 + ..., whose next term is below 1e-17 at -20.
    const Value inverse = 1.0 / far, step = inverse * inverse;
    Value series = x.number(1);
    for (int n = 10; n >= 1; --n) series = 1.0 - step * series * (2.0 * n - 1);
    const Value low =
        build::log(series) - far * far * 0.5 - build::log(-far) - 0.91893853320467274178;  // log(2 pi) / 2
    return build::cast(build::select(in_tail, low, build::select(below, middle, high)), given.dtype());
  }
};

}  // namespace detail

// Shapes and sharding are those of the operand, or of operands broadcast against each other; no communication. Integers
// and bools give f32. NaN gives NaN. Results of f32, bf16 and f16 are computed in double and rounded once; errors are
// of f64.

/// 1 - erf(x), accurate where erf(x) is near 1; 0 at infinity, 2 at -infinity. Error: 3.2 ulp. Gradient: -2 / sqrt(pi)
/// exp(-x^2). Shapes, element types and communication of these functions: see `abs`, of two operands `pow`.
template <TensorArgument X> constexpr auto erfc(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::ErfcOp>>(Source::from(at), x);
}
/// The inverse of erf; an infinity at -1 and 1, NaN outside of them. Error: 6.2 ulp. Gradient: sqrt(pi) / 2
/// exp(erfinv(x)^2). Source: Wichura, AS 241.
template <TensorArgument X> constexpr auto erfinv(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::ErfinvOp>>(Source::from(at), x);
}
/// log(|gamma(x)|); infinity at 0, at negative integers and at both infinities. Error: 4.7 ulp. Gradient: digamma.
template <TensorArgument X> constexpr auto lgamma(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::LgammaOp>>(Source::from(at), x);
}
/// The logarithm of the multivariate gamma function of P dims, P (P - 1) / 4 log(pi) plus the sum of lgamma(x - i / 2)
/// for i below P (torch.mvlgamma, jax.scipy.special.multigammaln), for x above (P - 1) / 2. Error: 3.1 ulp of the
/// largest of these terms and the result. Gradient: that of lgamma.
template <int P, TensorArgument X> constexpr auto multigammaln(const X& x, Here at = Here::current()) {
  static_assert(P >= 1 && P <= 16, "tessera: multigammaln takes from 1 to 16 dims");
  if constexpr (P == 1)
    return lgamma(x, at);
  else {
    const Source source = Source::from(at);
    const auto last = lgamma(call<SubTag>(source, x, (P - 1) * 0.5), at);
    const auto with_factor = call<AddTag>(source, last, (P - 1) * 0.57236494292470008707);  // log(pi) / 2
    return call<AddTag>(source, multigammaln<P - 1>(x, at), with_factor);
  }
}
/// The derivative of lgamma. -infinity at 0, infinity at -0, NaN at negative integers and at -infinity, as in PyTorch.
/// Error: 1e-15 times the larger of 1 and |y|, and below 0 of pi^2 |x| / sin(pi x)^2. Gradient: polygamma(1, x).
template <TensorArgument X> constexpr auto digamma(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::DigammaOp>>(Source::from(at), x);
}
/// Derivative n of digamma: `polygamma(1, x)` is trigamma. n is a whole number from 0 to 30, otherwise the result is
/// NaN. At 0 and negative integers infinity for odd n, -infinity for even n. Error: 5.2 ulp of n = 1, 9.2 ulp up to
/// n = 4, for x above 0. Gradient: polygamma(n + 1, x).
template <NumberOperand N, TensorArgument X>
constexpr auto polygamma(const N& n, const X& x, Here at = Here::current()) {
  return call<detail::Binary<ops::PolygammaOp>>(Source::from(at), n, x);
}
/// Modified Bessel functions of the first kind, of order 0 and 1; infinite from 714 on (f32 from 92 on). Error: 18 ulp
/// between 10 and 25, 10 ulp elsewhere. Gradients: i1(x); i0(x) - i1(x) / x, which is 1/2 at 0.
template <TensorArgument X> constexpr auto i0(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::I0Op>>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto i1(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::I1Op>>(Source::from(at), x);
}
/// exp(-|x|) i0(x) and exp(-|x|) i1(x), which don't overflow; 0 at infinities. Error: as for i0.
template <TensorArgument X> constexpr auto i0e(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::I0eOp>>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto i1e(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::I1eOp>>(Source::from(at), x);
}

/// log(exp(a) + exp(b)), without overflow; for equal infinities it is that infinity, NaN in either operand gives NaN.
/// Error: 1.5 ulp of the larger operand. Gradients: sigmoid(a - b) and sigmoid(b - a), one half each where the operands
/// are equal. Errors: shape_mismatch.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto logaddexp(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::LogAddExpOp>>(Source::from(at), a, b);
}
/// sqrt(a^2 + b^2), where squares would overflow too; infinite where an operand is, even if the other is NaN, as in C's
/// hypot. Error: 1 ulp. Gradients: a / y and b / y, 0 where both are 0. Errors: shape_mismatch.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto hypot(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::HypotOp>>(Source::from(at), a, b);
}
/// x log(y), and 0 where x is 0 and y is not NaN. Error: 1.8 ulp. Gradients: log(y), 0 where x is 0 and y is not above
/// 0 as in PyTorch; x / y, 0 where x is 0. Errors: shape_mismatch.
template <Operand X, Operand Y>
  requires(TensorOperand<X> || TensorOperand<Y>)
constexpr auto xlogy(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::XlogyTag>(Source::from(at), x, y);
}
/// log2(2^a + 2^b), without overflow (torch.logaddexp2). Special cases and gradients: as logaddexp, of the operands
/// times log(2). Error: 4 ulp of the larger operand. Errors: shape_mismatch.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto logaddexp2(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::LogAddExp2Tag>(Source::from(at), a, b);
}
/// x log(1 + y), and 0 where x is 0 and y is not NaN, accurate for y near 0. Error: 1.8 ulp. Gradients: log1p(y), 0
/// where x is 0 and y is not above -1; x / (1 + y). Errors: shape_mismatch.
template <Operand X, Operand Y>
  requires(TensorOperand<X> || TensorOperand<Y>)
constexpr auto xlog1py(const X& x, const Y& y, Here at = Here::current()) {
  return call<detail::Xlog1pyTag>(Source::from(at), x, y);
}
/// The entropy of a probability, -x log(x): 0 of 0, -infinity below 0 (torch.special.entr). Error: 1.6 ulp. Gradient:
/// -log(x) - 1 above 0; 1 at 0 and 0 below it, where PyTorch has infinity and NaN.
template <TensorArgument X> constexpr auto entr(const X& x, Here at = Here::current()) {
  return call<detail::EntrTag>(Source::from(at), x);
}
/// The normal distribution function, the probability that a standard normal number is below x: erfc(-x / sqrt(2)) / 2,
/// as torch.special.ndtr. Error: 2 (1 + x^2) ulp, since -x / sqrt(2) is rounded. Gradient: exp(-x^2 / 2) / sqrt(2 pi).
template <TensorArgument X> constexpr auto ndtr(const X& x, Here at = Here::current()) {
  return call<detail::NdtrTag>(Source::from(at), x);
}
/// The logarithm of ndtr, accurate where ndtr is 0 or rounds to 1 (torch.special.log_ndtr). The relative error for x up
/// to 8 is 1e-14 in f64, 4e-6 in f32. Gradient: exp(-x^2 / 2) / sqrt(2 pi) / ndtr(x), about -x far below 0. Source:
/// Abramowitz and Stegun, 26.2.12.
template <TensorArgument X> constexpr auto log_ndtr(const X& x, Here at = Here::current()) {
  return call<detail::LogNdtrTag>(Source::from(at), x);
}
/// sin(pi x) / (pi x), and 1 at 0, NumPy's sinc; NaN of infinities. The error of f32 is 3 ulp below 1, and grows with
/// that of pi x. The gradient at 0 is 0; the second derivative there is left out.
template <TensorArgument X> constexpr auto sinc(const X& x, Here at = Here::current()) {
  return call<detail::SincTag>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
