#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include <tessera/base/element/bf16.hpp>

namespace {

using tessera::bf16;

/// The nearest of the two neighbouring bf16 values, found among all 2^16; the even value where both are equally near.
double nearest(double value) {
  if (std::isnan(value) || std::isinf(value)) return value;
  const double size = std::fabs(value);
  if (size < 0x1p-126) return std::copysign(std::nearbyint(size * 0x1p133) * 0x1p-133, value);
  int exponent = 0;
  std::frexp(size, &exponent);
  const double step = std::ldexp(1.0, exponent - 8);
  const double found = std::nearbyint(size / step) * step;
  return std::copysign(found >= 0x1p128 ? std::numeric_limits<double>::infinity() : found, value);
}

TEST(Bf16, EveryNumberSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 1u << 16; ++bits) {
    const bf16 value = bf16::from_bits(static_cast<std::uint16_t>(bits));
    const float wide = value;
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(bf16(wide)))) << bits;
    } else {
      EXPECT_EQ(bf16(wide).bits, bits);
      EXPECT_EQ(bf16(static_cast<double>(wide)).bits, bits);
    }
  }
}

TEST(Bf16, FloatsAndDoublesAreRoundedToTheNearest) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200000; ++round) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) continue;
    ASSERT_EQ(static_cast<double>(bf16(value)), nearest(value)) << value;
    // Doubles next to the midpoint of two bf16 values, where rounding to float first would give the wrong neighbour.
    const float half = std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0xffff0000u) | 0x8000u);
    if (!std::isfinite(half)) continue;
    const double wide = half, limit = std::numeric_limits<double>::infinity();
    for (const double beside : {wide, std::nextafter(wide, limit), std::nextafter(wide, -limit)})
      ASSERT_EQ(static_cast<double>(bf16(beside)), nearest(beside)) << beside;
  }
}

TEST(Bf16, TheEndsOfTheRange) {
  using Limits = std::numeric_limits<bf16>;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(static_cast<double>(Limits::max()), 0x1.fep127);
  EXPECT_EQ(static_cast<double>(Limits::lowest()), -0x1.fep127);
  EXPECT_EQ(static_cast<double>(Limits::min()), 0x1p-126);
  EXPECT_EQ(static_cast<double>(Limits::epsilon()), 0x1p-7);
  EXPECT_EQ(static_cast<double>(bf16(1e300)), infinity);
  EXPECT_EQ(static_cast<double>(bf16(-0x1.ffp127)), -infinity);
  EXPECT_EQ(static_cast<double>(bf16(0x1.fefffffp127)), 0x1.fep127);
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::numeric_limits<double>::quiet_NaN()))));
  // A NaN whose upper half alone would be the bits of an infinity.
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001u)))));
}

static_assert(static_cast<float>(bf16(1.0f)) == 1 && static_cast<float>(bf16(257)) == 256 &&
              static_cast<float>(bf16(259.0)) == 260);
static_assert(static_cast<float>(-bf16(3)) == -3);

}  // namespace
