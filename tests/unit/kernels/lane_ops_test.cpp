// Operations of two operands, and signs of zeros.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "lane_accuracy.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/simd/lane_ops.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;
using namespace lane_accuracy;

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
