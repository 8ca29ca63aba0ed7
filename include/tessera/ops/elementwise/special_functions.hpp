#ifndef TESSERA_OPS_ELEMENTWISE_SPECIAL_FUNCTIONS_HPP
#define TESSERA_OPS_ELEMENTWISE_SPECIAL_FUNCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>

// The C library's function that has no global variable, as lgamma has; <cmath> is left out for compile time.
extern "C" double lgamma_r(double, int*) noexcept;

// Special functions of doubles.

namespace tessera::ops {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
inline constexpr double pi = 3.14159265358979323846;

inline double erfc(double x) { return __builtin_erfc(x); }
inline double hypot(double x, double y) { return __builtin_hypot(x, y); }
inline double lgamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}
inline double logaddexp(double x, double y) {
  if (x == y) return x + 0.69314718055994530942;
  const double off = x - y;
  return off != off ? off : (off > 0 ? x : y) + __builtin_log1p(__builtin_exp(off > 0 ? -off : off));
}

/// c[0] + c[1] x + c[2] x^2 ...
template <int N> constexpr double polynomial(double x, const double (&c)[N]) {
  double sum = c[N - 1];
  for (int i = N - 2; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

/// The normal quantile at a probability exp(-r^2) up to .075: the quotients of polynomials of r - 1.6 for r up to 5,
/// and of r - 5 beyond. Source: Wichura, Algorithm AS 241, PPND16.
struct NormalTail {
  static constexpr double near_numerator[] = {
      1.42343711074968357734e0, 4.63033784615654529590e0,  5.76949722146069140550e0,  3.64784832476320460504e0,
      1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double near_denominator[] = {1,
                                                2.05319162663775882187e0,
                                                1.67638483018380384940e0,
                                                6.89767334985100004550e-1,
                                                1.48103976427480074590e-1,
                                                1.51986665636164571966e-2,
                                                5.47593808499534494600e-4,
                                                1.05075007164441684324e-9};
  static constexpr double far_numerator[] = {
      6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,  2.96560571828504891230e-1,
      2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double far_denominator[] = {1,
                                               5.99832206555887937690e-1,
                                               1.36929880922735805310e-1,
                                               1.48753612908506148525e-2,
                                               7.86869131145613259100e-4,
                                               1.84631831751005468180e-5,
                                               1.42151175831644588870e-7,
                                               2.04426310338993978564e-15};
};

/// The inverse of erf, through the normal quantile at (1 + x) / 2. Source: Wichura, Algorithm AS 241, PPND16.
inline double erfinv(double x) {
  constexpr double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                          1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                          3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double b[] = {1,
                          4.2313330701600911252e+1,
                          6.8718700749205790830e+2,
                          5.3941960214247511077e+3,
                          2.1213794301586595867e+4,
                          3.9307895800092710610e+4,
                          2.8729085735721942674e+4,
                          5.2264952788528545610e+3};
  constexpr double root_half = 0.70710678118654752440;
  const double size = x < 0 ? -x : x;
  if (!(size < 1)) return size == 1 ? x * infinity : not_a_number;
  if (size <= 0.85) {
    const double r = 0.180625 - 0.25 * x * x;
    return 0.5 * root_half * x * (polynomial(r, a) / polynomial(r, b));
  }
  const double r = __builtin_sqrt(-__builtin_log(0.5 * (1 - size)));
  const double tail =
      r <= 5 ? polynomial(r - 1.6, NormalTail::near_numerator) / polynomial(r - 1.6, NormalTail::near_denominator)
             : polynomial(r - 5, NormalTail::far_numerator) / polynomial(r - 5, NormalTail::far_denominator);
  return __builtin_copysign(root_half * tail, x);
}

/// cot(pi x), with the fraction of x taken first.
inline double cotangent_of_pi(double x) { return 1 / __builtin_tan(pi * (x - __builtin_rint(x))); }

/// The derivative of lgamma. Below 0 by reflection, otherwise by recurrence up to 10 and the asymptotic series.
inline double digamma(double x) {
  if (x == 0) return __builtin_copysign(infinity, -x);
  if (x < 0) {
    if (x == -infinity || x == __builtin_floor(x)) return not_a_number;
    return digamma(1 - x) - pi * cotangent_of_pi(x);
  }
  if (x == infinity) return x;
  double sum = 0;
  for (; x < 10; x += 1) sum -= 1 / x;
  constexpr double series[] = {1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12};
  const double square = 1 / (x * x);
  return sum + __builtin_log(x) - 0.5 / x - square * polynomial(square, series);
}

/// The sum of (x + k)^-s over k = 0, 1, ...: Hurwitz's zeta function, for x above 0 and s above 1, by Euler-Maclaurin.
inline double hurwitz_zeta(double s, double x) {
  double sum = 0;
  for (; x < 10 + s; x += 1) sum += __builtin_pow(x, -s);
  constexpr double series[] = {
      1. / 12, -1. / 720, 1. / 30240, -1. / 1209600, 1. / 47900160., -691. / 1307674368000., 1. / 74724249600.};
  const double power = __builtin_pow(x, -s);
  sum += power * x / (s - 1) + 0.5 * power;
  double factor = s * power / x;
  for (int j = 0; j < 7; ++j) {
    sum += series[j] * factor;
    factor *= (s + 2 * j + 1) * (s + 2 * j + 2) / (x * x);
  }
  return sum;
}

/// Derivative n of digamma. Below 0 by reflection: derivatives of cot are polynomials of it.
inline double polygamma(double n, double x) {
  constexpr int most = 30;
  if (!(n >= 0) || n > most || x != x) return not_a_number;
  const int order = static_cast<int>(n);
  if (order == 0) return digamma(x);
  const bool odd = order % 2 == 1;
  if (x == infinity) return 0;
  if (x == -infinity) return not_a_number;
  if (x <= 0 && x == __builtin_floor(x)) return odd ? infinity : -infinity;
  if (x < 0) {
    double of[most + 3] = {0, 1}, next[most + 3] = {};
    for (int k = 0; k < order; ++k) {
      for (int i = 0; i <= k + 2; ++i) next[i] = -pi * ((i + 1) * of[i + 1] + (i > 0 ? (i - 1) * of[i - 1] : 0));
      for (int i = 0; i <= k + 2; ++i) of[i] = next[i];
    }
    const double above = polygamma(n, 1 - x);
    return (odd ? -above : above) - pi * polynomial(cotangent_of_pi(x), of);
  }
  double factorial = odd ? 1 : -1;
  for (int k = 2; k <= order; ++k) factorial *= k;
  return factorial * hurwitz_zeta(order + 1, x);
}

/// The modified Bessel function of the first kind of order 0 or 1, times exp(-|x|) if scaled: its power series, whose
/// terms are positive, and from 25 on the asymptotic series (Abramowitz and Stegun 9.6.10, 9.7.1).
inline double bessel_i(int order, double x, bool scaled) {
  const double size = x < 0 ? -x : x;
  if (size != size) return x;
  double made = 0;
  if (size < 25) {
    const double quarter = 0.25 * size * size;
    double term = 1, sum = 1;
    for (int k = 1; term > 1e-17 * sum; ++k) {
      term *= quarter / (k * (k + order));
      sum += term;
    }
    made = (order == 0 ? sum : 0.5 * size * sum) * (scaled ? __builtin_exp(-size) : 1);
  } else if (size == infinity) {
    made = scaled ? 0 : infinity;
  } else {
    double term = 1, sum = 1;
    for (int k = 1; k < 40 && (term > 1e-17 || term < -1e-17); ++k) {
      term *= ((2 * k - 1) * (2 * k - 1) - 4 * order) / (8 * k * size);
      sum += term;
    }
    const double root = sum / __builtin_sqrt(2 * pi * size), half = scaled ? 1 : __builtin_exp(0.5 * size);
    made = half * root * half;
  }
  return order == 0 ? made : __builtin_copysign(made, x);
}

}  // namespace tessera::ops

#include <tessera/base/pop_macros.hpp>

#endif
