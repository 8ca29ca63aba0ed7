#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/simd/lane_ops.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;

template <class T> class Memory : public testing::Test {};
using Elements =
    testing::Types<float, double, bf16, f16, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, bool>;
TYPED_TEST_SUITE(Memory, Elements);

template <class T> T element(int i) {
  return static_cast<T>(std::is_same_v<T, bool> ? (i * 5 % 3 == 0)
                                                : i * 7 % 120 - (std::numeric_limits<T>::is_signed ? 60 : 0));
}

TYPED_TEST(Memory, LoadsAndStoresWhole) {
  using T = TypeParam;
  T from[width + 1], to[width + 3];
  for (int i = 0; i <= width; ++i) from[i] = element<T>(i);
  for (T& x : to) x = element<T>(1);
  store(to + 1, load(from + 1));
  EXPECT_EQ(to[0], element<T>(1));
  EXPECT_EQ(to[width + 1], element<T>(1));
  for (int i = 0; i < width; ++i) EXPECT_EQ(to[i + 1], from[i + 1]);
}

TYPED_TEST(Memory, Splats) {
  using T = TypeParam;
  for (const T value : {element<T>(0), element<T>(1), element<T>(2)}) {
    T all[width];
    store(all, splat<lane_t<T>>(value));
    for (const T x : all) EXPECT_EQ(x, value);
  }
}

TYPED_TEST(Memory, Reduces) {
  using T = TypeParam;
  T all[width];
  double sum = 0, largest = -1e9, smallest = 1e9;
  for (int i = 0; i < width; ++i) {
    all[i] = element<T>(i * 3 + 1);
    sum += all[i];
    largest = std::fmax(largest, static_cast<double>(all[i]));
    smallest = std::fmin(smallest, static_cast<double>(all[i]));
  }
  if (std::is_same_v<T, bool>) sum = sum != 0;
  EXPECT_EQ(static_cast<double>(reduce_lanes<monoids::Sum>(load(all))), sum);
  EXPECT_EQ(static_cast<double>(reduce_lanes<monoids::Max>(load(all))), largest);
  EXPECT_EQ(static_cast<double>(reduce_lanes<monoids::Min>(load(all))), smallest);
}

TEST(Simd, ReductionsPropagateNan) {
  for (int at = 0; at < width; ++at) {
    float all[width];
    for (int i = 0; i < width; ++i) all[i] = i == at ? NAN : static_cast<float>(i);
    EXPECT_TRUE(std::isnan(reduce_lanes<monoids::Max>(load(all))));
    EXPECT_TRUE(std::isnan(reduce_lanes<monoids::Min>(load(all))));
    EXPECT_TRUE(std::isnan(reduce_lanes<monoids::Sum>(load(all))));
  }
}

TEST(Simd, FirstLanes) {
  for (int count = -3; count <= width + 3; ++count) {
    bool all[width];
    store(all, first_lanes(count));
    for (int i = 0; i < width; ++i) EXPECT_EQ(all[i], i < count);
  }
}

TEST(Simd, Iota) {
  std::int64_t whole[width];
  float real[width];
  store(whole, iota<std::int64_t>((std::int64_t{1} << 40) - 3));
  store(real, iota<float>(1000));
  for (int i = 0; i < width; ++i) {
    EXPECT_EQ(whole[i], (std::int64_t{1} << 40) - 3 + i);
    EXPECT_EQ(real[i], static_cast<float>(1000 + i));
  }
}

// ---- conversions

template <class To, class From> void expect_converts() {
  From from[width];
  To to[width];
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    for (From& x : from) {
      // Within the narrowest of the types, with fractions where there are some.
      const double value = static_cast<double>(random() % 250) / 2 - (std::is_signed_v<From> ? 60 : 0);
      x = static_cast<From>(std::is_same_v<To, std::uint8_t> ? std::fabs(value) : value);
      if constexpr (std::is_same_v<From, bool>) x = random() % 2 == 0;
    }
    store(to, cast_to<To>(load(from)));
    for (int i = 0; i < width; ++i) ASSERT_EQ(to[i], static_cast<To>(from[i])) << static_cast<double>(from[i]);
  }
}
template <class From> void expect_converts_to_all() {
  expect_converts<float, From>();
  expect_converts<double, From>();
  expect_converts<std::int32_t, From>();
  expect_converts<std::int64_t, From>();
  expect_converts<std::uint8_t, From>();
  if constexpr (!std::is_same_v<From, std::uint8_t>) expect_converts<std::int8_t, From>();
  expect_converts<std::int16_t, From>();
}
TEST(Simd, ConvertsBetweenAllTypes) {
  expect_converts_to_all<float>();
  expect_converts_to_all<double>();
  expect_converts_to_all<std::int8_t>();
  expect_converts_to_all<std::int16_t>();
  expect_converts_to_all<std::int32_t>();
  expect_converts_to_all<std::int64_t>();
  expect_converts_to_all<std::uint8_t>();
  expect_converts_to_all<bool>();
}

/// As XLA's ConvertElementType: the nearest integer of the type, and 0 for NaN.
template <class To, class From> void expect_saturates() {
  constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  constexpr From infinity = std::numeric_limits<From>::infinity();
  const auto end = std::ldexp(From(1), std::numeric_limits<To>::digits);  // the first integer beyond the type
  const From start = std::is_signed_v<To> ? -end : From(0), inside = std::nextafter(end, From(0));
  const std::pair<From, To> cases[] = {
      {end, most},           {inside, static_cast<To>(inside)},
      {2 * end, most},       {infinity, most},
      {From(1e30f), most},   {start, least},
      {-2 * end, least},     {-infinity, least},
      {From(-1e30f), least}, {std::numeric_limits<From>::quiet_NaN(), To{0}},
      {From(1.75), To{1}},   {From(-0.75), To{0}},
  };
  From from[width];
  To to[width];
  for (const auto& [x, expected] : cases)
    for (int lane : {0, width - 1}) {
      std::fill_n(from, width, From(3));
      from[lane] = x;
      store(to, cast_to<To>(load(from)));
      EXPECT_EQ(to[lane], expected) << static_cast<double>(x);
      EXPECT_EQ(to[width - 1 - lane], To{3});
    }
}
TEST(Simd, FloatsBeyondAnIntegerTypeBecomeItsNearestInteger) {
  const auto from = []<class From>(From) {
    expect_saturates<std::int8_t, From>();
    expect_saturates<std::int16_t, From>();
    expect_saturates<std::int32_t, From>();
    expect_saturates<std::int64_t, From>();
    expect_saturates<std::uint8_t, From>();
  };
  from(float());
  from(double());
}

TEST(Simd, Bf16IsRoundedAsTheTypeIs) {
  std::mt19937 random(7);
  for (int round = 0; round < 4000; ++round) {
    float from[width];
    for (float& x : from) {
      std::uint32_t bits = static_cast<std::uint32_t>(random());
      if (random() % 4 == 0) bits = (bits & 0xffff0000u) | 0x8000u;
      if (random() % 16 == 0) bits |= 0x7f800000u;
      x = std::bit_cast<float>(bits);
    }
    bf16 stored[width];
    float wrapped[width];
    store(stored, load(from));
    store(wrapped, wrap<bf16>(load(from)));
    for (int i = 0; i < width; ++i) {
      ASSERT_EQ(stored[i].bits, bf16(from[i]).bits) << from[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wrapped[i]), static_cast<std::uint32_t>(bf16(from[i]).bits) << 16);
    }
  }
}

template <class T> void expect_rounded_as_the_type_is() {
  std::mt19937 random(8);
  const auto expect = [](const float* from) {
    T stored[width];
    float wrapped[width], loaded[width];
    store(stored, load(from));
    store(wrapped, wrap<T>(load(from)));
    store(loaded, load(stored));
    for (int i = 0; i < width; ++i) {
      ASSERT_EQ(stored[i].bits, T(from[i]).bits) << from[i];
      const auto expected = std::bit_cast<std::uint32_t>(static_cast<float>(stored[i]));
      ASSERT_EQ(std::bit_cast<std::uint32_t>(loaded[i]), expected) << from[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wrapped[i]), expected) << from[i];
    }
  };
  float from[width];
  for (int round = 0; round < 4000; ++round) {
    for (float& x : from) {
      auto bits = static_cast<std::uint32_t>(random());
      if (random() % 16 == 0) bits |= 0x7f800000u;
      // Most exponents are around those of the type, and many numbers halfway between two of its numbers.
      if (random() % 4 != 0) bits = (bits & 0x807fffffu) | (96 + random() % 50) << 23;
      if (random() % 2 == 0) bits = (bits & (~0u << T::Format::drop)) | 1u << (T::Format::drop - 1);
      x = std::bit_cast<float>(bits);
    }
    expect(from);
  }
  // Every code, and the float next to it on each side.
  for (std::uint32_t code = 0; code < 1u << (8 * sizeof(T)); code += width)
    for (const float towards : {-1e30f, 0.0f, 1e30f}) {
      for (int i = 0; i < width; ++i) {
        from[i] = static_cast<float>(T::from_bits(static_cast<decltype(T{}.bits)>(code + static_cast<unsigned>(i))));
        if (towards != 0) from[i] = std::nextafter(from[i], towards);
      }
      expect(from);
    }
}
TEST(Simd, SmallFloatsAreRoundedAsTheTypesAre) {
  expect_rounded_as_the_type_is<f16>();
  expect_rounded_as_the_type_is<f8_e4m3>();
  expect_rounded_as_the_type_is<f8_e5m2>();
}

TEST(Simd, WrapsNarrowIntegers) {
  std::int32_t wide[width];
  std::int8_t narrow[width];
  for (int start = -70000; start < 70000; start += 977) {
    for (int i = 0; i < width; ++i) wide[i] = start + 13 * i;
    std::int32_t back[width];
    store(back, wrap<std::int8_t>(load(wide)));
    store(narrow, load(wide));
    for (int i = 0; i < width; ++i) {
      EXPECT_EQ(back[i], static_cast<std::int8_t>(wide[i]));
      EXPECT_EQ(narrow[i], static_cast<std::int8_t>(wide[i]));
    }
    store(back, wrap<std::uint8_t>(load(wide)));
    for (int i = 0; i < width; ++i) EXPECT_EQ(back[i], static_cast<std::uint8_t>(wide[i]));
    store(back, wrap<std::int16_t>(load(wide)));
    for (int i = 0; i < width; ++i) EXPECT_EQ(back[i], static_cast<std::int16_t>(wide[i]));
  }
}

// ---- integers

template <class T> void check_integers() {
  using Limits = std::numeric_limits<T>;
  using Unsigned = std::make_unsigned_t<T>;
  const std::vector<T> points{0, 1, -1, 2, -2, 3, 7, -7, 100, -100, Limits::max(), Limits::lowest(), Limits::max() / 2};
  for (const T a : points)
    for (const T b : points) {
      const auto u = [](T x) { return static_cast<Unsigned>(x); };
      T result[width];
      store(result, apply<Op::add>(splat(a), splat(b)));
      EXPECT_EQ(result[width - 1], static_cast<T>(u(a) + u(b)));
      store(result, apply<Op::sub>(splat(a), splat(b)));
      EXPECT_EQ(result[width - 1], static_cast<T>(u(a) - u(b)));
      store(result, apply<Op::mul>(splat(a), splat(b)));
      EXPECT_EQ(result[width - 1], static_cast<T>(u(a) * u(b)));
      store(result, apply<Op::div>(splat(a), splat(b)));
      EXPECT_EQ(result[width - 1], b == 0 ? 0 : b == -1 ? static_cast<T>(0 - u(a)) : a / b);
      store(result, apply<Op::maximum>(splat(a), splat(b)));
      EXPECT_EQ(result[width - 1], std::max(a, b));
      store(result, apply<Op::minimum>(splat(a), splat(b)));
      EXPECT_EQ(result[width - 1], std::min(a, b));
      bool truth[width];
      store(truth, apply<Op::less>(splat(a), splat(b)));
      EXPECT_EQ(truth[width - 1], a < b);
      store(truth, apply<Op::greater_equal>(splat(a), splat(b)));
      EXPECT_EQ(truth[width - 1], a >= b);
      store(truth, apply<Op::not_equal>(splat(a), splat(b)));
      EXPECT_EQ(truth[width - 1], a != b);
    }
  T result[width];
  store(result, apply<Op::pow>(splat(T(-3)), splat(T(5))));
  EXPECT_EQ(result[0], T(-243));
  store(result, apply<Op::pow>(splat(T(2)), splat(T(-1))));
  EXPECT_EQ(result[0], T(0));
  store(result, apply<Op::sign>(splat(T(-9))));
  EXPECT_EQ(result[0], T(-1));
  store(result, apply<Op::abs>(splat(T(-9))));
  EXPECT_EQ(result[0], T(9));
}
TEST(LaneOps, Integers32) { check_integers<std::int32_t>(); }
TEST(LaneOps, Integers64) { check_integers<std::int64_t>(); }

TEST(LaneOps, Masks) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    bool a[width], b[width], c[width], r[width];
    for (int i = 0; i < width; ++i) {
      a[i] = random() % 2 == 0;
      b[i] = random() % 2 == 0;
      c[i] = random() % 2 == 0;
    }
    const Mask x = load(a), y = load(b), z = load(c);
    const auto expect = [&](const Mask& got, auto want) {
      store(r, got);
      for (int i = 0; i < width; ++i) ASSERT_EQ(r[i], want(a[i], b[i], c[i]));
    };
    expect(apply<Op::logical_and>(x, y), [](bool p, bool q, bool) { return p && q; });
    expect(apply<Op::logical_or>(x, y), [](bool p, bool q, bool) { return p || q; });
    expect(apply<Op::logical_not>(x), [](bool p, bool, bool) { return !p; });
    expect(apply<Op::equal>(x, y), [](bool p, bool q, bool) { return p == q; });
    expect(apply<Op::not_equal>(x, y), [](bool p, bool q, bool) { return p != q; });
    expect(apply<Op::less>(x, y), [](bool p, bool q, bool) { return p < q; });
    expect(apply<Op::greater_equal>(x, y), [](bool p, bool q, bool) { return p >= q; });
    expect(apply<Op::maximum>(x, y), [](bool p, bool q, bool) { return p || q; });
    expect(apply<Op::minimum>(x, y), [](bool p, bool q, bool) { return p && q; });
    expect(apply<Op::select>(x, y, z), [](bool p, bool q, bool s) { return p ? q : s; });
    double d[width];
    store(d, apply<Op::select>(x, splat(2.5), splat(-1.0)));
    for (int i = 0; i < width; ++i) ASSERT_EQ(d[i], a[i] ? 2.5 : -1.0);
  }
}

}  // namespace
