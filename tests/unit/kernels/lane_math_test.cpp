#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "lane_accuracy.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/simd/lane_ops.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;
using namespace lane_accuracy;

/// Every bit pattern of float in steps: denormals, infinities and NaN of both signs are among them.
template <class F, class G> void expect_accurate_floats(F function, G exact, double bound) {
  constexpr std::uint32_t step = 5003;
  double worst = 0;
  float worst_at = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step * width) {
    float x[width], y[width];
    for (int i = 0; i < width; ++i)
      x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits + step * static_cast<std::uint32_t>(i)));
    store(y, function(load(x)));
    for (int i = 0; i < width; ++i)
      if (const double u = ulps(y[i], exact(static_cast<double>(x[i]))); u > worst) worst = u, worst_at = x[i];
  }
  EXPECT_LE(worst, bound) << "at " << worst_at;
}

/// Doubles against long double: specials, and magnitudes of all sizes with both signs.
template <class F, class G> void expect_accurate_doubles(F function, G exact, double bound) {
  std::mt19937_64 random(5);
  std::vector<double> points = specials<double>();
  std::uniform_real_distribution<double> unit(-1, 1), size(-320, 308);
  for (int i = 0; i < 40000; ++i) {
    points.push_back(unit(random) * 750);
    points.push_back(unit(random) * 4);
    points.push_back(unit(random) * std::pow(10.0, size(random)));
  }
  while (points.size() % width != 0) points.push_back(1);
  double worst = 0, worst_at = 0;
  for (std::size_t k = 0; k < points.size(); k += width) {
    double y[width];
    store(y, function(load(points.data() + k)));
    for (int i = 0; i < width; ++i) {
      const double x = points[k + static_cast<std::size_t>(i)];
      if (const double u = ulps(y[i], exact(static_cast<long double>(x))); u > worst) worst = u, worst_at = x;
    }
  }
  EXPECT_LE(worst, bound) << "at " << worst_at;
}

#define EXPECT_ACCURATE(function, exact, float_bound, double_bound)                                                 \
  do {                                                                                                              \
    expect_accurate_floats([](const auto& x) { return function(x); }, [](auto x) { return exact; }, float_bound);   \
    expect_accurate_doubles([](const auto& x) { return function(x); }, [](auto x) { return exact; }, double_bound); \
  } while (false)

TEST(LaneMath, Exp) { EXPECT_ACCURATE(exp, std::exp(x), 1.1, 1.2); }
// A vector without large operands takes fewer operations; results must not show which vector an element was in.
template <class T> void expect_exp_of_each_lane_alone() {
  std::vector<T> points = specials<T>();
  for (const T edge : {simd::Format<T>::exp_normal, simd::Format<T>::exp_lowest, simd::Format<T>::exp_highest})
    for (const T near : {std::nextafter(edge, T(-2000)), edge, std::nextafter(edge, T(2000))})
      points.insert(points.end(), {near, -near, near / 2});
  for (const T other : {T(1), T(-100), std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::infinity()})
    for (std::size_t i = 0; i < points.size(); ++i) {
      const int at = static_cast<int>(i) % width;
      T x[width], mixed[width], alone[width];
      for (int lane = 0; lane < width; ++lane) x[lane] = lane == at ? points[i] : other;
      store(mixed, exp(load(x)));
      store(alone, exp(splat<T>(points[i])));
      EXPECT_TRUE(mixed[at] == alone[at] || (std::isnan(mixed[at]) && std::isnan(points[i]))) << points[i];
    }
}
TEST(LaneMath, ExpOfEachLaneAlone) {
  expect_exp_of_each_lane_alone<float>();
  expect_exp_of_each_lane_alone<double>();
}

TEST(LaneMath, Log) { EXPECT_ACCURATE(log, std::log(x), 1.0, 1.0); }
TEST(LaneMath, Tanh) { EXPECT_ACCURATE(tanh, std::tanh(x), 3.0, 3.0); }
TEST(LaneMath, Sigmoid) { EXPECT_ACCURATE(sigmoid, 1 / (1 + std::exp(-x)), 3.0, 3.0); }
TEST(LaneMath, Sqrt) { EXPECT_ACCURATE(sqrt, std::sqrt(x), 0.51, 0.51); }
TEST(LaneMath, Rsqrt) { EXPECT_ACCURATE(rsqrt, 1 / std::sqrt(x), 1.5, 1.5); }
TEST(LaneMath, Abs) { EXPECT_ACCURATE(abs, std::fabs(x), 0, 0); }
TEST(LaneMath, Relu) { EXPECT_ACCURATE(relu, (x > 0 || std::isnan(x) ? x : 0), 0, 0); }
TEST(LaneMath, Sign) { EXPECT_ACCURATE(sign, (x > 0 ? 1 : x < 0 ? -1 : x), 0, 0); }

/// An elementwise operation as kernels compute it. Of specials signs of zeros count too.
template <class Operation, class Exact> void expect_accurate(Exact exact, double float_bound, double double_bound) {
  SCOPED_TRACE(Operation::name);
  const auto made = [](const auto& x) { return apply<ops::op_v<Operation>>(x); };
  expect_accurate_floats(made, exact, float_bound);
  expect_accurate_doubles(made, exact, double_bound);
  const auto expect_signs = [&]<class T>(T) {
    for (const T x : specials<T>()) {
      T got[width];
      store(got, made(splat<T>(x)));
      const double want = exact(static_cast<double>(x));
      EXPECT_TRUE(std::isnan(want) || std::signbit(got[0]) == std::signbit(want)) << x;
    }
  };
  expect_signs(float{});
  expect_signs(double{});
}

// Against libm in double and in long double, whose special cases are those of ISO C.
TEST(LaneMath, Rounding) {
  expect_accurate<ops::FloorOp>([](auto x) { return std::floor(x); }, 0, 0);
  expect_accurate<ops::CeilOp>([](auto x) { return std::ceil(x); }, 0, 0);
  expect_accurate<ops::TruncOp>([](auto x) { return std::trunc(x); }, 0, 0);
  expect_accurate<ops::RoundOp>([](auto x) { return std::nearbyint(x); }, 0, 0);
}
TEST(LaneMath, Exponentials) {
  expect_accurate<ops::Expm1Op>([](auto x) { return std::expm1(x); }, 3, 3);
  expect_accurate<ops::Log1pOp>([](auto x) { return std::log1p(x); }, 1.5, 1.5);
  expect_accurate<ops::Exp2Op>([](auto x) { return std::exp2(x); }, 1.5, 1.5);
  expect_accurate<ops::Log2Op>([](auto x) { return std::log2(x); }, 2, 2);
  expect_accurate<ops::Log10Op>([](auto x) { return std::log10(x); }, 2, 2);
  expect_accurate<ops::ErfOp>([](auto x) { return std::erf(x); }, 2.5, 1);
}
// What is less than the smallest normal number may be 0.
TEST(LaneMath, Softplus) {
  for (const double x : {-700.0, -80.0, -20.0, -1.5, 0.0, 1e-9, 0.75, 17.0, 90.0, 1e30, HUGE_VAL, -HUGE_VAL}) {
    const long double want = std::log1p(std::exp(-std::fabs(static_cast<long double>(x)))) + std::fmax(x, 0.0);
    float single[width];
    double wide[width];
    store(single, apply<ops::op_v<ops::SoftplusOp>>(splat<float>(static_cast<float>(x))));
    store(wide, apply<ops::op_v<ops::SoftplusOp>>(splat<double>(x)));
    EXPECT_TRUE(single[0] == static_cast<float>(want) || std::fabs(single[0] - want) <= 3e-7L * want + 1e-38L) << x;
    EXPECT_TRUE(wide[0] == static_cast<double>(want) || std::fabs(wide[0] - want) <= 5e-16L * want + 1e-307L) << x;
  }
  float nan[width];
  store(nan, apply<ops::op_v<ops::SoftplusOp>>(splat<float>(NAN)));
  EXPECT_TRUE(std::isnan(nan[0]));
}
TEST(LaneMath, Trigonometric) {
  expect_accurate<ops::SinOp>([](auto x) { return std::sin(x); }, 2, 2);
  expect_accurate<ops::CosOp>([](auto x) { return std::cos(x); }, 2, 2);
  expect_accurate<ops::TanOp>([](auto x) { return std::tan(x); }, 3, 3);
  expect_accurate<ops::AsinOp>([](auto x) { return std::asin(x); }, 2.5, 2.5);
  expect_accurate<ops::AcosOp>([](auto x) { return std::acos(x); }, 2.5, 2.5);
  expect_accurate<ops::AtanOp>([](auto x) { return std::atan(x); }, 2.5, 2.5);
}
TEST(LaneMath, Hyperbolic) {
  expect_accurate<ops::SinhOp>([](auto x) { return std::sinh(x); }, 2.5, 2.5);
  expect_accurate<ops::CoshOp>([](auto x) { return std::cosh(x); }, 2.5, 2.5);
  expect_accurate<ops::AsinhOp>([](auto x) { return std::asinh(x); }, 3, 3);
  expect_accurate<ops::AcoshOp>([](auto x) { return std::acosh(x); }, 2.5, 2.5);
  expect_accurate<ops::AtanhOp>([](auto x) { return std::atanh(x); }, 2.5, 2.5);
}

// Against libm and libstdc++ in long double.
TEST(LaneMath, SpecialFunctions) {
  expect_accurate<ops::ErfcOp>([](auto x) { return std::erfc(x); }, 0.6, 3.5);
  const auto lgamma = [](const auto& x) { return apply<ops::op_v<ops::LgammaOp>>(x); };
  expect_accurate_floats(
      lgamma, [](auto x) { return std::lgamma(x); }, 0.6);
  expect_accurate_doubles(
      lgamma, [](auto x) { return x < 0 && x == std::floor(x) ? HUGE_VALL : std::lgamma(x); }, 5);
  // Of points of which the exact result is known: x = erf(y), and sums of reciprocals.
  const auto near = [](double got, long double want, double ulps_of_it) {
    EXPECT_LE(std::fabs(got - want), ulps_of_it * 0x1p-53L * std::fabs(want)) << static_cast<double>(want);
  };
  for (long double y = 0.01L; y < 5.5L; y += 0.0137L) {
    const double x = static_cast<double>(std::erf(y));
    if (x == 1) break;
    long double want = y;  // then by Newton's method the inverse at the rounded x
    for (int step = 0; step < 3; ++step) {
      const long double miss = y > 1 ? std::erfc(want) - (1.0L - x) : x - std::erf(want);
      want += miss * std::sqrt(std::numbers::pi_v<long double>) / 2 * std::exp(want * want);
    }
    double wide[width];
    store(wide, apply<ops::op_v<ops::ErfinvOp>>(splat<double>(x)));
    near(wide[0], want, 14);
    store(wide, apply<ops::op_v<ops::ErfinvOp>>(splat<double>(-x)));
    near(wide[0], -want, 14);
  }
  const auto double_of = []<class Operation>(Operation, double x) {
    double wide[width];
    store(wide, apply<ops::op_v<Operation>>(splat<double>(x)));
    return wide[0];
  };
  long double harmonic = -0.577215664901532860606512090082402431L;
  for (int n = 1; n < 200; ++n) {
    near(double_of(ops::DigammaOp{}, n), harmonic, 8);
    harmonic += 1.0L / n;
  }
  for (double x = 0.01; x < 700; x *= 1.03)
    for (const double sign : {-1.0, 1.0}) {
      const long double zeroth = std::cyl_bessel_i(0.0L, static_cast<long double>(x));
      const long double one = std::cyl_bessel_i(1.0L, static_cast<long double>(x));
      const long double scale = std::exp(-static_cast<long double>(x));
      near(double_of(ops::I0Op{}, sign * x), zeroth, 40);
      near(double_of(ops::I1Op{}, sign * x), sign * one, 40);
      near(double_of(ops::I0eOp{}, sign * x), scale * zeroth, 40);
      near(double_of(ops::I1eOp{}, sign * x), sign * scale * one, 40);
    }
  // Special cases of torch.special and scipy.special, and their published digits.
  const double infinity = HUGE_VAL, pi = std::numbers::pi, gamma = std::numbers::egamma;
  const double points[] = {0, -0.0, 1, -1, -0.5, infinity, -infinity, NAN};
  const auto expect_special = [&](auto function, std::vector<double> want) {
    for (std::size_t i = 0; i < want.size(); ++i) {
      const double got = function(points[i]);
      EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got) : got == want[i] || std::fabs(got - want[i]) < 1e-14)
          << got << " at " << points[i] << ", not " << want[i];
    }
  };
  const auto of = [&]<class Operation>(Operation operation, std::vector<double> want) {
    SCOPED_TRACE(Operation::name);
    expect_special([&](double x) { return double_of(operation, x); }, want);
  };
  const auto polygamma = [](double n) {
    return [n](double x) {
      double wide[width];
      store(wide, apply<ops::op_v<ops::PolygammaOp>>(splat<double>(n), splat<double>(x)));
      return wide[0];
    };
  };
  const double half = 0.47693627620446987, one = 0.5651591039924850, a_half = 0.2578943053908963;
  of(ops::ErfinvOp{}, {0, -0.0, infinity, -infinity, -half, NAN, NAN, NAN});
  of(ops::LgammaOp{}, {infinity, infinity, 0, infinity, std::log(2 * std::sqrt(pi)), infinity, infinity, NAN});
  of(ops::DigammaOp{}, {-infinity, infinity, -gamma, NAN, 0.03648997397857652, infinity, NAN, NAN});
  expect_special(polygamma(0), {-infinity, infinity, -gamma, NAN, 0.03648997397857652, infinity, NAN, NAN});
  expect_special(polygamma(1), {infinity, infinity, pi * pi / 6, infinity, pi * pi / 2 + 4, 0, NAN, NAN});
  expect_special(polygamma(2),
                 {-infinity, -infinity, -2.4041138063191886, -infinity, -0.8287966442343199, 0, NAN, NAN});
  expect_special(polygamma(-1), {NAN, NAN, NAN});
  for (double x = -8.25; x < 40; x += 0.5)  // each is the slope of the one before
    for (int n = 0; n < 4; ++n) {
      const double slope = (polygamma(n)(x + 1e-4) - polygamma(n)(x - 1e-4)) / 2e-4, made = polygamma(n + 1)(x);
      EXPECT_NEAR(made, slope, 1e-4 * std::fabs(made) + 1e-9) << n << " at " << x;
    }
  of(ops::I0eOp{}, {1, 1, 0.46575960759364043, 0.46575960759364043, 0.6450352704491501, 0, 0, NAN});
  of(ops::I1Op{}, {0, -0.0, one, -one, -a_half, infinity, -infinity, NAN});
  const auto sum = [](double x, double y) {
    double wide[width];
    store(wide, apply<ops::op_v<ops::LogAddExpOp>>(splat<double>(x), splat<double>(y)));
    return wide[0];
  };
  for (const double x : {0.0, 1000.0, -1000.0, infinity, -infinity}) EXPECT_EQ(sum(x, x), x + std::numbers::ln2) << x;
  EXPECT_EQ(sum(infinity, -infinity), infinity);
  EXPECT_EQ(sum(-infinity, 3), 3);
  EXPECT_EQ(sum(1000, -1000), 1000);
  EXPECT_NEAR(sum(2, 0), 2.1269280110429727, 1e-15);
  EXPECT_TRUE(std::isnan(sum(NAN, infinity)) && std::isnan(sum(1, NAN)));
  expect_special_pairs<ops::HypotOp, float>(std::hypot, 1);
  expect_special_pairs<ops::HypotOp, double>(std::hypot, 1);
}

// ISO C F.10.1.4: all pairs of zeros, infinities and NaN, and sizes that overflow or fade as a quotient.
TEST(LaneMath, Atan2) {
  expect_special_pairs<ops::Atan2Op, float>(std::atan2, 2.5);
  expect_special_pairs<ops::Atan2Op, double>(std::atan2, 2.5);
  const auto steep = [](const auto& x) { return apply<ops::op_v<ops::Atan2Op>>(splat<float>(3), x); };
  expect_accurate_floats(
      steep, [](auto x) { return std::atan2(3, x); }, 2.5);
}

// The argument p that gelu gives exp carries four roundings (coefficient, square, sum, product), so its result is off
// by 4 |p| half units; the rest takes eight. Where exp is denormal, its last place is multiplied by x.
TEST(LaneMath, GeluAndSilu) {
  for (double t = -30; t < 30; t += 0.00037 * width) {
    float x[width], g[width], s[width];
    double xd[width], gd[width], sd[width];
    for (int i = 0; i < width; ++i) xd[i] = x[i] = static_cast<float>(t + 0.00037 * i);
    store(g, gelu(load(x)));
    store(s, silu(load(x)));
    store(gd, gelu(load(xd)));
    store(sd, silu(load(xd)));
    for (int i = 0; i < width; ++i) {
      const long double t_exact = xd[i];
      const long double p =
          std::sqrt(8 / std::numbers::pi_v<long double>) * (t_exact + 0.044715L * t_exact * t_exact * t_exact);
      const long double want_gelu = t_exact / (1 + std::exp(-p)), want_silu = t_exact / (1 + std::exp(-t_exact));
      const long double gelu_scale = std::fabs(want_gelu) * (8 + 4 * std::fabs(p));
      const long double silu_scale = std::fabs(want_silu) * 8, spread = 2 + std::fabs(t_exact);
      ASSERT_LE(std::fabs(g[i] - want_gelu), 0x1p-24L * gelu_scale + 0x1p-149L * spread) << x[i];
      ASSERT_LE(std::fabs(gd[i] - want_gelu), 0x1p-53L * gelu_scale + 0x1p-1074L * spread) << x[i];
      ASSERT_LE(std::fabs(s[i] - want_silu), 0x1p-24L * silu_scale) << x[i];
      ASSERT_LE(std::fabs(sd[i] - want_silu), 0x1p-53L * silu_scale) << x[i];
    }
  }
  for (const float x : {0.0f, INFINITY, 1e30f, -1e30f, NAN}) {
    float g[width], s[width];
    store(g, gelu(splat(x)));
    store(s, silu(splat(x)));
    const float want = std::isnan(x) ? NAN : x > 0 ? x : 0.0f;
    EXPECT_TRUE(g[0] == want || (std::isnan(g[0]) && std::isnan(want))) << x;
    EXPECT_TRUE(s[0] == want || (std::isnan(s[0]) && std::isnan(want))) << x;
  }
}

TEST(LaneMath, TanhStaysBelowOne) {
  for (float start = 0; start < 60; start += 0.01f) {
    float x[width], y[width];
    for (int i = 0; i < width; ++i) x[i] = start + 0.0006f * static_cast<float>(i);
    store(y, tanh(load(x)));
    for (int i = 0; i < width; ++i) {
      ASSERT_LE(y[i], 1.0f);
      ASSERT_TRUE(x[i] < 9.1f || y[i] == 1.0f) << x[i];
    }
  }
}

}  // namespace
