#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/base/dtype.hpp>

namespace {

using tessera::f16;
using tessera::f8_e4m3;
using tessera::f8_e5m2;

/// What the standards say of a format, written without the code under test.
struct Published {
  int exponent, mantissa, bias;
  bool infinite;
  double most, least, least_normal;
};
template <class T> Published published();
template <> Published published<f16>() { return {5, 10, 15, true, 65504, 0x1p-24, 0x1p-14}; }  // IEEE 754, binary16
template <> Published published<f8_e4m3>() { return {4, 3, 7, false, 448, 0x1p-9, 0x1p-6}; }   // arXiv 2209.05433
template <> Published published<f8_e5m2>() { return {5, 2, 15, true, 57344, 0x1p-16, 0x1p-14}; }

/// The value of each code without its sign, by the definition of a floating-point format.
template <class T> std::vector<double> values_of_codes() {
  const Published format = published<T>();
  std::vector<double> all;
  for (int code = 0; code < 1 << (format.exponent + format.mantissa); ++code) {
    const int exponent = code >> format.mantissa, fraction = code & ((1 << format.mantissa) - 1);
    const bool last = exponent == (1 << format.exponent) - 1;
    const int whole = 1 << format.mantissa;
    if (last && format.infinite)
      all.push_back(fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan(""));
    else if (last && fraction == whole - 1)
      all.push_back(std::nan(""));
    else if (exponent == 0)
      all.push_back(std::ldexp(fraction, 1 - format.bias - format.mantissa));
    else
      all.push_back(std::ldexp(whole + fraction, exponent - format.bias - format.mantissa));
  }
  return all;
}

/// Rounds by search among all finite values and the first one beyond them, to which larger numbers go.
template <class T> class Nearest {
 public:
  Nearest() : all_(values_of_codes<T>()) {
    while (!std::isfinite(all_[finite_ - 1])) --finite_;
    all_.resize(finite_);
    all_.push_back(2 * all_[finite_ - 1] - all_[finite_ - 2]);
  }
  std::uint32_t code(double x) const {
    const double size = std::fabs(x);
    const auto above = static_cast<std::size_t>(std::lower_bound(all_.begin(), all_.end(), size) - all_.begin());
    std::size_t found = std::min(above, finite_);
    if (above > 0 && above <= finite_) {
      const double up = all_[above] - size, down = size - all_[above - 1];
      if (down < up || (down == up && above % 2 == 1)) found = above - 1;
    }
    const auto sign = static_cast<std::uint32_t>(std::signbit(x) ? 1 << (8 * sizeof(T) - 1) : 0);
    return static_cast<std::uint32_t>(found) | sign;
  }
  const std::vector<double>& values() const { return all_; }
  std::size_t finite() const { return finite_; }

 private:
  std::vector<double> all_;
  std::size_t finite_ = all_.size();
};

template <class T> class SmallFloat : public testing::Test {};
using Formats = testing::Types<f16, f8_e4m3, f8_e5m2>;
TYPED_TEST_SUITE(SmallFloat, Formats);

TYPED_TEST(SmallFloat, EveryCodeHasItsValueAndComesBack) {
  using T = TypeParam;
  const std::vector<double> values = values_of_codes<T>();
  const auto sign = static_cast<std::uint32_t>(1) << (8 * sizeof(T) - 1);
  ASSERT_EQ(values.size(), sign);
  for (std::uint32_t code = 0; code < 2 * sign; ++code) {
    const T value = T::from_bits(static_cast<decltype(T{}.bits)>(code));
    const auto wide = static_cast<float>(value);
    const double expected = values[code % sign];
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << code;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(wide)))) << code;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide), code < sign ? expected : -expected) << code;
    ASSERT_EQ(std::signbit(wide), code >= sign) << code;
    ASSERT_EQ(T(wide).bits, code);
    ASSERT_EQ(T(static_cast<double>(wide)).bits, code);
  }
}

TYPED_TEST(SmallFloat, AtEveryBoundaryFloatsAndDoublesGoToTheNearest) {
  using T = TypeParam;
  const Nearest<T> nearest;
  const double limit = std::numeric_limits<double>::infinity();
  for (std::size_t c = 0; c + 1 < nearest.values().size(); ++c) {
    const double low = nearest.values()[c], high = nearest.values()[c + 1];
    for (const double at : {low, (low + high) / 2, high}) {
      const auto single = static_cast<float>(at);
      ASSERT_EQ(static_cast<double>(single), at);
      const auto most = static_cast<float>(limit);
      for (const float x : {std::nextafter(single, -most), single, std::nextafter(single, most)})
        for (const float signed_x : {x, -x})
          ASSERT_EQ(T(signed_x).bits, nearest.code(static_cast<double>(signed_x))) << signed_x;
      for (const double x : {std::nextafter(at, -limit), at, std::nextafter(at, limit)})
        for (const double signed_x : {x, -x}) ASSERT_EQ(T(signed_x).bits, nearest.code(signed_x)) << signed_x;
    }
  }
}

TYPED_TEST(SmallFloat, RandomFloatsAndDoublesGoToTheNearest) {
  using T = TypeParam;
  const Nearest<T> nearest;
  std::mt19937_64 random(1);
  for (int round = 0; round < 200000; ++round) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const double wide = std::ldexp(static_cast<double>(random()) * 0x1p-63 - 1, static_cast<int>(random() % 50) - 30);
    if (!std::isnan(value)) {
      ASSERT_EQ(T(value).bits, nearest.code(static_cast<double>(value))) << value;
    }
    ASSERT_EQ(T(wide).bits, nearest.code(wide)) << wide;
  }
}

TYPED_TEST(SmallFloat, TheEndsOfTheRange) {
  using T = TypeParam;
  using Limits = std::numeric_limits<T>;
  const Published format = published<T>();
  EXPECT_EQ(static_cast<float>(Limits::max()), static_cast<float>(format.most));
  EXPECT_EQ(static_cast<float>(Limits::lowest()), static_cast<float>(-format.most));
  EXPECT_EQ(static_cast<float>(Limits::min()), static_cast<float>(format.least_normal));
  EXPECT_EQ(static_cast<double>(static_cast<float>(T(format.least))), format.least);
  EXPECT_EQ(static_cast<float>(T(format.least / 2)), 0) << "a tie with the even 0";
  EXPECT_TRUE(std::isnan(static_cast<float>(Limits::quiet_NaN())));
  EXPECT_EQ(Limits::digits, format.mantissa + 1);
  EXPECT_EQ(Limits::has_infinity, format.infinite);
  for (const double beyond : {1e6, 1e300, std::numeric_limits<double>::infinity()})
    for (const float x : {static_cast<float>(T(beyond)), static_cast<float>(T(-beyond)),
                          static_cast<float>(T(static_cast<float>(beyond)))})
      EXPECT_TRUE(format.infinite ? std::isinf(x) : std::isnan(x)) << beyond;
  for (const float nan : {std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7f800001u)}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(T(nan))));
    EXPECT_TRUE(std::isnan(static_cast<float>(T(static_cast<double>(nan)))));
  }
  EXPECT_EQ(T(-0.0f).bits, 1u << (8 * sizeof(T) - 1));
}

// Codes that ml_dtypes and torch.float16, torch.float8_e4m3fn and torch.float8_e5m2 give, which IEEE 754 and arXiv
// 2209.05433 state for the first of each.
TEST(SmallFloat, PublishedCodes) {
  EXPECT_EQ(f16(1.f).bits, 0x3c00);
  EXPECT_EQ(f16(0.333333343f).bits, 0x3555);
  EXPECT_EQ(f16(-2.f).bits, 0xc000);
  EXPECT_EQ(f16(65504.f).bits, 0x7bff);
  EXPECT_EQ(f16(65519.996f).bits, 0x7bff);
  EXPECT_EQ(f16(65520.f).bits, 0x7c00);
  EXPECT_EQ(f8_e4m3(448.f).bits, 0x7e);
  EXPECT_EQ(f8_e4m3(464.f).bits, 0x7e);
  EXPECT_EQ(f8_e4m3(464.1f).bits, 0x7f);
  EXPECT_EQ(f8_e4m3(0x1p-9f).bits, 0x01);
  EXPECT_EQ(f8_e5m2(57344.f).bits, 0x7b);
  EXPECT_EQ(f8_e5m2(61439.f).bits, 0x7b);
  EXPECT_EQ(f8_e5m2(61440.f).bits, 0x7c);
}

static_assert(static_cast<float>(f16(1.0f)) == 1 && static_cast<float>(f16(2049)) == 2048 &&
              static_cast<float>(f16(2051.0)) == 2052 && static_cast<float>(-f16(3)) == -3);
static_assert(static_cast<float>(f8_e4m3(17)) == 16 && static_cast<float>(f8_e5m2(9.0)) == 8);
static_assert(tessera::rounded_to(tessera::DType::f16, 2049) == 2048);
static_assert(tessera::rounded_to(tessera::DType::f64, 0.1) == 0.1);

// Arithmetic of the 8-bit types themselves does not compile: they convert explicitly.
template <class T>
concept Adds = requires(T x) { x + x; };
static_assert(Adds<f16> && !Adds<f8_e4m3> && !Adds<f8_e5m2>);
static_assert(tessera::Element<f16> && tessera::Element<f8_e4m3> && tessera::is_floating_v<f16> &&
              !tessera::is_floating_v<f8_e4m3>);
static_assert(tessera::widens(tessera::DType::f8_e5m2, tessera::DType::f16) &&
              tessera::widens(tessera::DType::f16, tessera::DType::f32) &&
              !tessera::widens(tessera::DType::f16, tessera::DType::bf16) &&
              !tessera::widens(tessera::DType::f16, tessera::DType::i32) &&
              !tessera::widens(tessera::DType::f32, tessera::DType::f64));

}  // namespace
