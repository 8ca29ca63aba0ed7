#ifndef TESSERA_OPS_ELEMENTWISE_INCOMPLETE_GAMMA_HPP
#define TESSERA_OPS_ELEMENTWISE_INCOMPLETE_GAMMA_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/special.hpp>

// Incomplete gamma functions and Hurwitz's zeta function, of two operands.

namespace tessera::ops {

/// The regularised lower incomplete gamma function of a and x, or the upper one, which is 1 minus it. By the power
/// series below a + 1, by Lentz's continued fraction from there on: Numerical Recipes 6.2.
inline double incomplete_gamma(double a, double x, bool upper) {
  if (!(a >= 0) || !(x >= 0) || (a == 0 && x == 0) || (a == infinity && x == infinity)) return not_a_number;
  if (a == 0 || x == infinity) return upper ? 0 : 1;
  if (x == 0 || a == infinity) return upper ? 1 : 0;
  // x^a exp(-x) / gamma(a)
  const double scale = __builtin_exp(a * __builtin_log(x) - x - lgamma(a));
  constexpr int most = 1'000'000;
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int n = 1; n < most && term > 1e-17 * sum; ++n) {
      term *= x / (a + n);
      sum += term;
    }
    const double lower = sum * scale;
    return upper ? 1 - lower : lower;
  }
  constexpr double tiny = 1e-300;
  double b = x + 1 - a, c = 1 / tiny, d = 1 / b, fraction = d;
  for (int n = 1; n < most; ++n) {
    const double factor = -n * (n - a);
    b += 2;
    d = factor * d + b;
    if (d < tiny && d > -tiny) d = tiny;
    c = b + factor / c;
    if (c < tiny && c > -tiny) c = tiny;
    d = 1 / d;
    const double change = d * c;
    fraction *= change;
    if (change - 1 < 1e-16 && change - 1 > -1e-16) break;
  }
  const double above = fraction * scale;
  return upper ? above : 1 - above;
}

/// The derivative by a of the number x up to which the lower incomplete gamma function of a has a given value, as for a
/// gamma draw x: the function's derivative by a over minus its density at x. Differentiates the series and the fraction
/// of incomplete_gamma, x^a exp(-x) / gamma(a) times their sum: the factor cancels, but for its logarithmic derivative.
inline double random_gamma_grad(double a, double x) {
  if (!(a > 0) || !(x >= 0) || a == infinity || x == infinity) return not_a_number;
  if (x == 0) return 0;
  if (a > 1e6) {  // the expansion of Cornish and Fisher; the terms left out are below 1e-9
    const double z = (x - a) / __builtin_sqrt(a);
    return 1 + z / (2 * __builtin_sqrt(a)) - (z * z - 1) / (6 * a);
  }
  const double slope = __builtin_log(x) - digamma(a);  // of the logarithm of x^a / gamma(a)
  constexpr int most = 1'000'000;
  if (x < a + 1) {
    double term = 1 / a, inverses = term, sum = term, change = -term * inverses;
    for (int n = 1; n < most && term * (1 + inverses) > 1e-17 * sum; ++n) {
      term *= x / (a + n);
      inverses += 1 / (a + n);
      sum += term;
      change -= term * inverses;
    }
    return -x * (sum * slope + change);
  }
  // Lentz's method; each variable with its derivative by a.
  constexpr double tiny = 1e-300;
  double b = x + 1 - a, c = 1 / tiny, d = 1 / b, fraction = d;
  double c_by_a = 0, d_by_a = d * d, fraction_by_a = d_by_a;
  for (int n = 1; n < most; ++n) {
    const double factor = -n * (n - a);
    b += 2;
    double below = factor * d + b;
    if (below < tiny && below > -tiny) below = tiny;
    d_by_a = (1 - n * d - factor * d_by_a) / (below * below);
    d = 1 / below;
    c_by_a = -1 + n / c - factor * c_by_a / (c * c);
    c = b + factor / c;
    if (c < tiny && c > -tiny) c = tiny;
    const double step = d * c, step_by_a = d_by_a * c + d * c_by_a;
    fraction_by_a = fraction_by_a * step + fraction * step_by_a;
    fraction *= step;
    if (step - 1 < 1e-15 && step - 1 > -1e-15 && step_by_a < 1e-15 && step_by_a > -1e-15) break;
  }
  return x * (fraction * slope + fraction_by_a);
}

/// The sum of (q + k)^-s over k = 0, 1, ... Where q is below 0 and s is whole, as two sums over positive numbers: q is
/// f - m, and the terms below f are those of 1 - f up to m - f, with the sign of an odd power.
inline double zeta(double s, double q) {
  if (s != s || q != q || s < 1) return not_a_number;
  if (s == 1) return infinity;
  if (q <= 0 && q == __builtin_floor(q)) return infinity;
  if (q < 0 && s != __builtin_floor(s)) return not_a_number;
  if (s > 200 && q > 0) {  // only the first terms count
    double sum = 0;
    for (int k = 0; k < 100; ++k) {
      const double term = __builtin_pow(q + k, -s);
      sum += term;
      if (!(term > 1e-17 * sum)) break;
    }
    return sum;
  }
  if (q > 0) return q == infinity ? 0 : hurwitz_zeta(s, q);
  const double f = q - __builtin_floor(q), m = -__builtin_floor(q);
  const double below = zeta(s, 1 - f) - zeta(s, m + 1 - f);
  return zeta(s, f) + (s / 2 == __builtin_floor(s / 2) ? below : -below);
}

/// Of operands a and x.
struct RandomGammaGradOp : FunctionOfDoubles<2> {
  static constexpr std::string_view name = "random_gamma_grad";
  static TESSERA_INLINE auto value(const auto& a, const auto& x) {
    return in_double([](double order, double v) { return random_gamma_grad(order, v); }, a, x);
  }
  /// By x it follows from the density p: the derivative of the lower function by a is -p times this, and that of p by a
  /// is p (log(x) - digamma(a)).
  static constexpr void gradient(Gradient& r) {
    const Value a = r.x(0), x = r.x(1);
    if (r.needs(0))
      r.y().refuse(errc::unsupported, "[random_gamma_grad] gradient: igamma, and samples of gamma distributions, have "
                                      "no second derivative by their first operand");
    if (r.needs(1)) r.add(1, r.g() * (build::apply<DigammaOp>(a) - build::log(x) - r.y() * ((a - 1.0) / x - 1.0)));
  }
};
/// x, a gamma draw of the concentration a, which has no gradient of its own: with its gradient by a.
struct ReparametrizedGammaOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "reparametrized_gamma";
  static TESSERA_INLINE auto value(const auto&, const auto& x) { return x; }
  static constexpr void gradient(Gradient& r) {
    if (r.needs(0)) r.add(0, r.g() * build::apply<RandomGammaGradOp>(r.x(0), r.x(1)));
  }
};

/// Of operands a and x.
template <bool Upper> struct IncompleteGamma : FunctionOfDoubles<2> {
  static TESSERA_INLINE auto value(const auto& a, const auto& x) {
    return in_double([](double order, double v) { return incomplete_gamma(order, v, Upper); }, a, x);
  }
  static constexpr void gradient(Gradient& r) {
    // x^(a - 1) exp(-x) / gamma(a); 0^0 is 1
    const Value a = r.x(0), x = r.x(1), zero = x.number(0), power = a - 1.0;
    // 0 log(x) is NaN only where x is 0 or infinite: elsewhere its derivative by the power is needed.
    const Value infinite = build::equal(x, x.number(infinity)), none_of_x = build::equal(x, zero);
    const Value none =
        build::apply<LogicalAndOp>(build::equal(power, zero), build::apply<LogicalOrOp>(none_of_x, infinite));
    const Value logarithm = build::select(none, zero, power * build::log(build::select(none, x.number(1), x)));
    const Value density = build::exp(logarithm - x - build::apply<LgammaOp>(a));
    const Value of_x = Upper ? -(r.g() * density) : r.g() * density;
    if (r.needs(1)) r.add(1, of_x);
    if (r.needs(0)) r.add(0, -of_x * build::apply<RandomGammaGradOp>(a, x));
  }
};
struct IgammaOp : IncompleteGamma<false> {
  static constexpr std::string_view name = "igamma";
};
struct IgammacOp : IncompleteGamma<true> {
  static constexpr std::string_view name = "igammac";
};
/// Of operands s and q. There is no derivative by s.
struct ZetaOp : FunctionOfDoubles<2> {
  static constexpr std::string_view name = "zeta";
  static TESSERA_INLINE auto value(const auto& s, const auto& q) {
    return in_double([](double order, double v) { return zeta(order, v); }, s, q);
  }
  static constexpr void gradient(Gradient& r) {
    if (r.needs(1)) r.add(1, r.g() * (-r.x(0) * build::binary(r.node().op, r.x(0) + 1.0, r.x(1))));
  }
};

using IncompleteGammaOperations = OperationList<IgammaOp, IgammacOp, ZetaOp, RandomGammaGradOp, ReparametrizedGammaOp>;

}  // namespace tessera::ops

namespace tessera {

/// The regularised lower incomplete gamma function, the integral of t^(a - 1) exp(-t) / gamma(a) from 0 to x
/// (torch.igamma, torch.special.gammainc, jax.scipy.special.gammainc), and the upper one, from x on (igammac,
/// gammaincc). NaN for operands below 0, and where both are 0 or both infinite. Operands are broadcast; integers give
/// f32. Computed in double: an error of 1e-15 (1 + a), relative to the larger of both functions. Gradient of x: x^(a -
/// 1) exp(-x) / gamma(a), or its negative; of a by the derivative of the series, as in JAX. Derivatives of all orders
/// by x, and of these by a; of the derivative by a those by x. Errors: shape_mismatch; unsupported for a second
/// derivative by a of what is not a derivative by x. No communication.
template <Operand A, Operand X>
  requires(TensorOperand<A> || TensorOperand<X>)
constexpr auto igamma(const A& a, const X& x, Here at = Here::current()) {
  return call<detail::Binary<ops::IgammaOp>>(Source::from(at), a, x);
}
template <Operand A, Operand X>
  requires(TensorOperand<A> || TensorOperand<X>)
constexpr auto igammac(const A& a, const X& x, Here at = Here::current()) {
  return call<detail::Binary<ops::IgammacOp>>(Source::from(at), a, x);
}
/// Hurwitz's zeta function, the sum of (q + k)^-s over k = 0, 1, ... (torch.special.zeta, jax.scipy.special.zeta):
/// Riemann's is `zeta(s, 1)`. NaN for s below 1, and for q below 0 if s is not whole; infinity for s = 1 and where q is
/// 0 or a negative integer. Operands are broadcast; integers give f32. Error: 8 ulp; for q below 0 of the largest term.
/// Gradient of q: -s zeta(s + 1, q); of s none, as in PyTorch. Errors: shape_mismatch. No communication.
template <Operand S, Operand Q>
  requires(TensorOperand<S> || TensorOperand<Q>)
constexpr auto zeta(const S& s, const Q& q, Here at = Here::current()) {
  return call<detail::Binary<ops::ZetaOp>>(Source::from(at), s, q);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
