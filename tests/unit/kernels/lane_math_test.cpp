#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/simd/lane_ops.hpp>

namespace {

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

// Remainders are exact, and shifts by all bits and more move everything out.
TEST(LaneMath, RemaindersAndBits) {
  expect_special_pairs<ops::FmodOp, float>(std::fmod, 0);
  expect_special_pairs<ops::FmodOp, double>(std::fmod, 0);
  const auto made = []<class Operation>(Operation, std::int32_t x, std::int32_t y) {
    std::int32_t to[width];
    store(to, apply<ops::op_v<Operation>>(splat<std::int32_t>(x), splat<std::int32_t>(y)));
    std::int64_t wide[width];
    store(wide, apply<ops::op_v<Operation>>(splat<std::int64_t>(x), splat<std::int64_t>(y)));
    EXPECT_TRUE(to[0] == wide[0] || y >= 31) << x << ", " << y;
    return to[0];
  };
  EXPECT_EQ(made(ops::FmodOp{}, -7, 3), -1);
  EXPECT_EQ(made(ops::FmodOp{}, -7, 0), -7);
  EXPECT_EQ(made(ops::FmodOp{}, std::numeric_limits<std::int32_t>::min(), -1), 0);
  EXPECT_EQ(made(ops::BitwiseAndOp{}, -7, 12), -7 & 12);
  EXPECT_EQ(made(ops::BitwiseOrOp{}, -7, 12), -7 | 12);
  EXPECT_EQ(made(ops::BitwiseXorOp{}, -7, 12), -7 ^ 12);
  EXPECT_EQ(made(ops::LeftShiftOp{}, -7, 3), -56);
  EXPECT_EQ(made(ops::LeftShiftOp{}, 7, 32), 0);
  EXPECT_EQ(made(ops::LeftShiftOp{}, 7, -1), 0);
  EXPECT_EQ(made(ops::RightShiftOp{}, -7, 1), -4);
  EXPECT_EQ(made(ops::RightShiftOp{}, -7, 40), -1);
  EXPECT_EQ(made(ops::RightShiftOp{}, 7, -1), 0);
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

template <class T> void check_pairs(double pow_bound) {
  std::vector<T> points = specials<T>();
  std::mt19937_64 random(11);
  std::uniform_real_distribution<double> size(-3, 3);
  for (int i = 0; i < 40; ++i) points.push_back(static_cast<T>(size(random)));
  for (const double x : {4.0, 5.0, -3.0, 0.25, 1.5, 1e10, -7.0}) points.push_back(static_cast<T>(x));
  using Wide = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  double worst = 0;
  for (const T a : points)
    for (const T b : points) {
      T result[width];
      store(result, pow(splat(a), splat(b)));
      const double u = ulps(result[0], std::pow(static_cast<Wide>(a), static_cast<Wide>(b)));
      EXPECT_LE(u, pow_bound) << a << " ^ " << b << " = " << result[0];
      worst = std::max(worst, u);
      const auto same = [&](T want, const char* name) {
        EXPECT_TRUE(result[0] == want || (std::isnan(result[0]) && std::isnan(want))) << name << ' ' << a << ' ' << b;
      };
      const bool nan = std::isnan(a) || std::isnan(b);
      store(result, maximum(splat(a), splat(b)));
      same(nan ? T(NAN) : std::max(a, b), "maximum");
      store(result, minimum(splat(a), splat(b)));
      same(nan ? T(NAN) : std::min(a, b), "minimum");
      store(result, apply<Op::div>(splat(a), splat(b)));
      same(a / b, "div");
      // A quotient that is denormal may be off by one of its units.
      if (std::fabs(a / b) >= std::numeric_limits<T>::min() || a == 0 || nan) {
        store(result, divide_by_invariant(splat(a), splat(b)));
        same(a / b, "divide by invariant");
      }
      bool truth[width];
      const auto holds = [&](bool want, const char* name) {
        EXPECT_EQ(truth[0], want) << name << ' ' << a << ' ' << b;
      };
      store(truth, apply<Op::equal>(splat(a), splat(b)));
      holds(a == b, "equal");
      store(truth, apply<Op::not_equal>(splat(a), splat(b)));
      holds(a != b, "not_equal");
      store(truth, apply<Op::less>(splat(a), splat(b)));
      holds(a < b, "less");
      store(truth, apply<Op::less_equal>(splat(a), splat(b)));
      holds(a <= b, "less_equal");
      store(truth, apply<Op::greater>(splat(a), splat(b)));
      holds(a > b, "greater");
      store(truth, apply<Op::greater_equal>(splat(a), splat(b)));
      holds(a >= b, "greater_equal");
    }
}
TEST(LaneMath, PairsOfFloats) { check_pairs<float>(1.0); }
TEST(LaneMath, PairsOfDoubles) { check_pairs<double>(1.0); }

TEST(LaneMath, DivisionByInvariantIsRoundedAsDivision) {
  std::mt19937 engine(7);
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 200000 / width; ++round) {
    float a[width], q[width];
    const float d = std::bit_cast<float>((random() & 0x807fffffu) | ((64u + random() % 128u) << 23));
    for (float& x : a) x = std::bit_cast<float>((random() & 0x807fffffu) | ((100u + random() % 54u) << 23));
    store(q, divide_by_invariant(load(a), splat(d)));
    for (int i = 0; i < width; ++i) ASSERT_EQ(q[i], a[i] / d) << a[i] << " / " << d;
  }
}

// IEEE signs, also of zeros, whatever the instruction set: a comparison with == does not see them.
template <class T> void check_signs() {
  const auto alike = [](T got, T expected) {
    return std::isnan(expected) ? std::isnan(got) : got == expected && std::signbit(got) == std::signbit(expected);
  };
  const std::vector<T>& points = specials<T>();
  const auto one = [&](const char* name, auto function, auto exact, const std::vector<T>& values) {
    for (const T x : values) {
      T got[width];
      store(got, function(splat(x)));
      EXPECT_TRUE(alike(got[width - 1], exact(x))) << name << " of " << x << ": " << got[width - 1];
    }
  };
  one(
      "neg", [](const auto& x) { return apply<Op::neg>(x); }, [](T x) { return -x; }, points);
  one(
      "abs", [](const auto& x) { return apply<Op::abs>(x); }, [](T x) { return std::fabs(x); }, points);
  one(
      "sign", [](const auto& x) { return apply<Op::sign>(x); }, [](T x) { return x > 0   ? T(1)
                                                                                 : x < 0 ? T(-1)
                                                                                         : x; },
      points);
  one(
      "sqrt", [](const auto& x) { return apply<Op::sqrt>(x); }, [](T x) { return std::sqrt(x); }, {T(-0.0), T(0)});
  const std::vector<T> zeros{T(0), T(-0.0)};
  one(
      "tanh", [](const auto& x) { return apply<Op::tanh>(x); }, [](T x) { return x; }, zeros);
  one(
      "gelu", [](const auto& x) { return apply<Op::gelu>(x); }, [](T x) { return x; }, zeros);
  one(
      "silu", [](const auto& x) { return apply<Op::silu>(x); }, [](T x) { return x; }, zeros);
  T sign_of_nan[width];
  store(sign_of_nan, apply<Op::neg>(splat(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_TRUE(std::signbit(sign_of_nan[0])) << "negation flips the sign bit of NaN too";

  const auto two = [&](const char* name, auto function, auto exact, T x, T y) {
    T got[width];
    store(got, function(splat(x), splat(y)));
    EXPECT_TRUE(alike(got[width - 1], exact(x, y))) << name << " of " << x << " and " << y << ": " << got[width - 1];
  };
  for (const T x : {T(0), T(-0.0), T(3), T(-3), std::numeric_limits<T>::infinity()})
    for (const T y : {T(0), T(-0.0), T(3), T(-3), T(-433), std::numeric_limits<T>::infinity()}) {
      two(
          "add", [](auto a, auto b) { return apply<Op::add>(a, b); }, [](T a, T b) { return a + b; }, x, y);
      two(
          "sub", [](auto a, auto b) { return apply<Op::sub>(a, b); }, [](T a, T b) { return a - b; }, x, y);
      two(
          "mul", [](auto a, auto b) { return apply<Op::mul>(a, b); }, [](T a, T b) { return a * b; }, x, y);
      two(
          "div", [](auto a, auto b) { return apply<Op::div>(a, b); }, [](T a, T b) { return a / b; }, x, y);
      two(
          "pow", [](auto a, auto b) { return apply<Op::pow>(a, b); }, [](T a, T b) { return std::pow(a, b); }, x, y);
      two(
          "division by what stays the same", [](auto a, auto b) { return divide_by_invariant(a, b); },
          [](T a, T b) { return a / b; }, x, y);
    }
}
TEST(LaneMath, SignsOfFloats) { check_signs<float>(); }
TEST(LaneMath, SignsOfDoubles) { check_signs<double>(); }

}  // namespace
