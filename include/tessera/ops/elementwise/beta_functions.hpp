#ifndef TESSERA_OPS_ELEMENTWISE_BETA_FUNCTIONS_HPP
#define TESSERA_OPS_ELEMENTWISE_BETA_FUNCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/special_functions.hpp>

// The incomplete beta function of doubles, and its derivatives.

namespace tessera::ops {

/// A number with its derivatives by a and by b.
struct ByBoth {
  double value, by_a, by_b;
  constexpr ByBoth(double v, double a = 0, double b = 0) : value(v), by_a(a), by_b(b) {}
  friend constexpr ByBoth operator+(ByBoth x, ByBoth y) {
    return {x.value + y.value, x.by_a + y.by_a, x.by_b + y.by_b};
  }
  friend constexpr ByBoth operator-(ByBoth x, ByBoth y) {
    return {x.value - y.value, x.by_a - y.by_a, x.by_b - y.by_b};
  }
  friend constexpr ByBoth operator*(ByBoth x, ByBoth y) {
    return {x.value * y.value, x.by_a * y.value + x.value * y.by_a, x.by_b * y.value + x.value * y.by_b};
  }
  friend constexpr ByBoth operator/(ByBoth x, ByBoth y) {
    const double of = x.value / y.value;
    return {of, (x.by_a - of * y.by_a) / y.value, (x.by_b - of * y.by_b) / y.value};
  }
};
constexpr double value_of(double x) { return x; }
constexpr double value_of(const ByBoth& x) { return x.value; }
/// How much a step of a fraction changes it.
constexpr double change_of(double factor) { return __builtin_fabs(factor - 1); }
constexpr double change_of(const ByBoth& factor) {
  return __builtin_fabs(factor.value - 1) + __builtin_fabs(factor.by_a) + __builtin_fabs(factor.by_b);
}

/// The continued fraction of the incomplete beta function for x below (a + 1) / (a + b + 2), by Lentz's method:
/// Numerical Recipes 6.4. Of N = ByBoth with its derivatives.
template <class N> N beta_fraction(N a, N b, double x) {
  constexpr double tiny = 1e-300;
  const auto away_from_zero = [](N v) { return value_of(v) < tiny && value_of(v) > -tiny ? N(tiny) : v; };
  const N both = a + b, one(1), at(x);
  N c = one, d = one / away_from_zero(one - both * at / (a + one)), made = d;
  for (int m = 1; m < 100'000; ++m) {
    const N step(m), twice(2 * m);
    const auto advance = [&](N factor) {
      d = one / away_from_zero(one + factor * d);
      c = away_from_zero(one + factor / c);
      made = made * d * c;
    };
    advance(step * (b - step) * at / ((a + twice - one) * (a + twice)));
    advance(N(-1) * (a + step) * (both + step) * at / ((a + twice) * (a + twice + one)));
    if (change_of(d * c) < 3e-16) break;
  }
  return made;
}

/// x^a (1 - x)^b over the beta function of a and b.
inline double beta_power(double a, double b, double log_x, double log_rest) {
  return __builtin_exp(a * log_x + b * log_rest + lgamma(a + b) - lgamma(a) - lgamma(b));
}

/// The regularised incomplete beta function: the integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x over that from 0
/// to 1.
inline double incomplete_beta(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || !(x <= 1) || a == infinity || b == infinity) return not_a_number;
  if (x == 0 || x == 1) return x;
  const double power = beta_power(a, b, __builtin_log(x), __builtin_log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return power * beta_fraction(a, b, x) / a;
  return 1 - power * beta_fraction(b, a, 1 - x) / b;
}

/// Its derivatives by a and by b.
inline ByBoth incomplete_beta_by_both(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || !(x <= 1) || a == infinity || b == infinity)
    return {not_a_number, not_a_number, not_a_number};
  if (x == 0 || x == 1) return {x};
  const double log_x = __builtin_log(x), log_rest = __builtin_log1p(-x), of_both = digamma(a + b);
  const double power = beta_power(a, b, log_x, log_rest);
  const ByBoth scale(power, power * (log_x + of_both - digamma(a)), power * (log_rest + of_both - digamma(b)));
  const ByBoth first(a, 1, 0), second(b, 0, 1);
  if (x < (a + 1) / (a + b + 2)) return scale * beta_fraction(first, second, x) / first;
  return 1 - scale * beta_fraction(second, first, 1 - x) / second;
}

/// Its derivative by x, the density of a beta distribution.
inline double beta_density(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0) || !(x <= 1) || a == infinity || b == infinity) return not_a_number;
  // 0 times the logarithm of 0 is 0 here: a power of 0.
  const double low = a == 1 ? 0 : (a - 1) * __builtin_log(x), high = b == 1 ? 0 : (b - 1) * __builtin_log1p(-x);
  return __builtin_exp(low + high + lgamma(a + b) - lgamma(a) - lgamma(b));
}

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
