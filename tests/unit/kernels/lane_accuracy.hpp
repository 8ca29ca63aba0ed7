#ifndef TESSERA_TESTS_UNIT_KERNELS_LANE_ACCURACY_HPP
#define TESSERA_TESTS_UNIT_KERNELS_LANE_ACCURACY_HPP

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/simd/lane_ops.hpp>

namespace lane_accuracy {

using namespace tessera;
using namespace tessera::kernels;

/// Distance of `got` from the exact result, in units of the last place of T at the exact result.
template <class T, class Exact> double ulps(T got, Exact exact) {
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e30;
  const T rounded = static_cast<T>(exact);
  if (got == rounded)
    return static_cast<double>(std::fabs(static_cast<Exact>(got) - exact)) == 0 || std::isinf(rounded)
               ? 0
               : static_cast<double>(std::fabs((static_cast<Exact>(got) - exact) /
                                               (std::nextafter(std::fabs(rounded), INFINITY) - std::fabs(rounded))));
  if (std::isinf(got) || std::isinf(rounded))
    // Overflow may come one unit early or late.
    return std::fabs(std::isinf(got) ? rounded : got) > std::numeric_limits<T>::max() * T(0.999999) ? 1 : 1e30;
  int exponent = 0;
  std::frexp(exact, &exponent);
  const int least = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
  const Exact unit = std::ldexp(Exact(1), std::max(exponent - std::numeric_limits<T>::digits, least));
  return static_cast<double>(std::fabs(static_cast<Exact>(got) - exact) / unit);
}

template <class T> const std::vector<T>& specials() {
  using L = std::numeric_limits<T>;
  static const std::vector<T> values{T(0),
                                     T(-0.0),
                                     T(1),
                                     T(-1),
                                     L::infinity(),
                                     -L::infinity(),
                                     L::quiet_NaN(),
                                     L::min(),
                                     -L::min(),
                                     L::denorm_min(),
                                     -L::denorm_min(),
                                     L::max(),
                                     L::lowest(),
                                     L::epsilon(),
                                     T(0.5),
                                     T(88.5),
                                     T(-88.5),
                                     T(-103.5),
                                     T(709.5),
                                     T(-745),
                                     T(2),
                                     T(-2),
                                     T(3),
                                     T(1e-30),
                                     T(12345.678)};
  return values;
}

/// The same of two operands, of all pairs of specials.
template <class Operation, class T> void expect_special_pairs(double (*exact)(double, double), double bound) {
  for (const T y : specials<T>())
    for (const T x : specials<T>()) {
      T made[width];
      store(made, apply<ops::op_v<Operation>>(splat<T>(y), splat<T>(x)));
      const double want = exact(static_cast<double>(y), static_cast<double>(x));
      EXPECT_LE(ulps(made[0], static_cast<long double>(want)), bound) << y << ", " << x;
      EXPECT_TRUE(std::isnan(want) || std::signbit(made[0]) == std::signbit(want)) << y << ", " << x;
    }
}

}  // namespace lane_accuracy

#endif
