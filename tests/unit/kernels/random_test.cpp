#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/random.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;

// Known answers published with Random123 (kat_vectors, philox4x32 with 10 rounds).
static_assert(philox4x32({0, 0, 0, 0}, {0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}) ==
              PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST(Philox, GroupsAreTheBijectionOfTheirCounters) {
  const std::uint64_t key = 0x299f31d0a4093822ull;
  for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{0xfffffff0}, std::uint64_t{0x123456789abcdef0}}) {
    kernels::detail::PhiloxWords words;
    kernels::detail::philox_group(key, first, words);
    for (std::uint64_t i = 0; i < kernels::detail::philox_lanes; ++i) {
      const std::uint64_t counter = first + i;
      const PhiloxBlock block =
          philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
                     {0xa4093822, 0x299f31d0});
      for (std::size_t w = 0; w < 4; ++w) ASSERT_EQ(words[w][i], block[w]);
    }
  }
}

TEST(Random, KeysFoldIntoDistinctKeys) {
  std::set<std::uint64_t> keys{0, 1, 2};
  for (std::uint64_t key = 0; key < 3; ++key)
    for (std::uint64_t n = 0; n < 1000; ++n) keys.insert(fold_in(key, n));
  EXPECT_EQ(keys.size(), 3003u);
  static_assert(fold_in(1, 2) != fold_in(2, 1));
}

/// Element `index` of a stream from the definition: bits of one counter, and the standard library's functions in
/// double.
template <class T> double expected_element(Distribution distribution, std::uint64_t key, std::int64_t index) {
  const std::int64_t parts = 16 / static_cast<std::int64_t>(sizeof(T));
  const auto counter = static_cast<std::uint64_t>(index / parts);
  const auto part = static_cast<std::size_t>(index % parts);
  const PhiloxBlock w =
      philox4x32({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0},
                 {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  const auto wide = [&](std::size_t i) { return std::uint64_t{w[2 * i]} << 32 | w[2 * i + 1]; };
  if (distribution == Distribution::uniform) {
    return sizeof(T) == 4 ? (w[part] >> 8) * 0x1p-24 : static_cast<double>(wide(part) >> 11) * 0x1p-53;
  }
  const double two_pi = 6.283185307179586476925;
  double u, angle;
  if (sizeof(T) == 4) {
    u = ((w[part / 2 * 2] >> 1) + 0.5) * 0x1p-31;
    angle = two_pi * (w[part / 2 * 2 + 1] * 0x1p-32);
  } else {
    u = (static_cast<double>(wide(0) >> 12) + 0.5) * 0x1p-52;
    angle = two_pi * (static_cast<double>(wide(1)) * 0x1p-64);
  }
  return std::sqrt(-2 * std::log(u)) * (part % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

template <class T> void check_against_definition() {
  const std::int64_t n = 40000;
  std::vector<T> values(n);
  const std::uint64_t key = fold_in(7, 3);
  fill_uniform<T>(values.data(), {1}, key, {n}, {0}, {n});
  for (std::int64_t i = 0; i < n; ++i)
    ASSERT_EQ(static_cast<double>(values[static_cast<std::size_t>(i)]),
              expected_element<T>(Distribution::uniform, key, i));
  fill_normal<T>(values.data(), {1}, key, {n}, {0}, {n});
  const double tolerance = sizeof(T) == 4 ? 2e-6 : 4e-15;
  for (std::int64_t i = 0; i < n; ++i) {
    const double expected = expected_element<T>(Distribution::normal, key, i);
    ASSERT_NEAR(static_cast<double>(values[static_cast<std::size_t>(i)]), expected,
                tolerance * std::max(1.0, std::abs(expected)));
  }
}

TEST(Random, ElementsFollowTheirDefinition) {
  check_against_definition<float>();
  check_against_definition<double>();
}

TEST(Random, RadiusAndAngleAtTheEnds) {
  EXPECT_EQ(kernels::detail::minus_two_log(1.0f), 0.0f);
  EXPECT_EQ(kernels::detail::minus_two_log(1.0), 0.0);
  EXPECT_NEAR(kernels::detail::minus_two_log(0x1p-32f), 64 * std::log(2.0), 1e-5);
  EXPECT_NEAR(kernels::detail::minus_two_log(0x1p-53), 106 * std::log(2.0), 1e-13);
  for (std::uint32_t eighth = 0; eighth < 8; ++eighth)
    for (std::uint32_t beside : {0u, 1u, ~0u}) {
      float c, s;
      const std::uint32_t bits = (eighth << 29) + beside;
      kernels::detail::cos_sin_of(bits, c, s);
      EXPECT_NEAR(c, std::cos(bits * 0x1p-32 * 6.283185307179586), 1e-7);
      EXPECT_NEAR(s, std::sin(bits * 0x1p-32 * 6.283185307179586), 1e-7);
    }
}

template <class T, Distribution D> void check_boxes() {
  const Shape global{5, 7, 1, 26};
  const Strides whole_strides = contiguous_strides(global);
  std::vector<T> whole(static_cast<std::size_t>(volume(global)));
  fill_random<T, D>(whole.data(), whole_strides, 99, global, {0, 0, 0, 0}, global);
  const auto check = [&](const Shape& begin, const Shape& extents, const Strides& strides) {
    std::vector<T> part(8000, T(-1));
    fill_random<T, D>(part.data(), strides, 99, global, begin, extents);
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < extents[0]; ++i)
      for (std::int64_t j = 0; j < extents[1]; ++j)
        for (std::int64_t k = 0; k < extents[3]; ++k, ++seen) {
          const std::int64_t at = (begin[0] + i) * whole_strides[0] + (begin[1] + j) * whole_strides[1] + begin[3] + k;
          const T got = part[static_cast<std::size_t>(i * strides[0] + j * strides[1] + k * strides[3])];
          ASSERT_EQ(std::bit_cast<typename kernels::detail::RandomReal<T>::Bits>(got),
                    std::bit_cast<typename kernels::detail::RandomReal<T>::Bits>(whole[static_cast<std::size_t>(at)]));
        }
    if (D == Distribution::uniform) ASSERT_EQ(std::count(part.begin(), part.end(), T(-1)), 8000 - seen);
  };
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t k = 0; k < 26; ++k) {
      check({i, 2, 0, k}, {5 - i, 4, 1, 26 - k}, contiguous_strides({5 - i, 4, 1, 26 - k}));
      check({i, 0, 0, k}, {1, 7, 1, 1}, {7, 1, 1, 1});
      check({0, 1, 0, k}, {5, 3, 1, std::min<std::int64_t>(2, 26 - k)}, {6, 2, 1, 1});
    }
  check({0, 0, 0, 0}, {5, 7, 1, 26}, {2, 10, 1, 75});
  check({0, 0, 0, 0}, {0, 7, 1, 26}, {182, 26, 26, 1});
}

TEST(Random, EveryShardHoldsTheNumbersOfTheWhole) {
  check_boxes<float, Distribution::uniform>();
  check_boxes<float, Distribution::normal>();
  check_boxes<double, Distribution::uniform>();
  check_boxes<double, Distribution::normal>();
}

/// Largest distance between the empirical distribution and `cdf`.
template <class Cdf> double kolmogorov(std::vector<double> values, Cdf cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(values[i]), at = static_cast<double>(i);
    worst = std::max({worst, std::abs(p - at / n), std::abs(p - (at + 1) / n)});
  }
  return worst;
}

template <class T> void check_statistics() {
  const std::int64_t n = 1 << 18;
  const double root = std::sqrt(static_cast<double>(n));
  std::vector<T> values(n);
  for (const Distribution distribution : {Distribution::uniform, Distribution::normal}) {
    const bool uniform = distribution == Distribution::uniform;
    fill_random(dtype_v<T>, distribution, values.data(), {1}, 2024, {n}, {0}, {n});
    const std::vector<double> all(values.begin(), values.end());
    double mean = 0, variance = 0, fourth = 0, neighbours = 0;
    for (double value : all) mean += value / static_cast<double>(n);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double d = all[i] - mean;
      variance += d * d / static_cast<double>(n);
      fourth += d * d * d * d / static_cast<double>(n);
      if (i > 0) neighbours += d * (all[i - 1] - mean) / static_cast<double>(n);
    }
    // Five standard errors each; the last bound is the 0.1 % point of the Kolmogorov distribution.
    EXPECT_NEAR(mean, uniform ? 0.5 : 0, 5 * std::sqrt(uniform ? 1.0 / 12 : 1) / root);
    EXPECT_NEAR(variance, uniform ? 1.0 / 12 : 1, 5 * (uniform ? std::sqrt(1.0 / 180) : std::sqrt(2.0)) / root);
    EXPECT_NEAR(fourth, uniform ? 1.0 / 80 : 3,
                5 * (uniform ? std::sqrt(1.0 / 2304 - 1.0 / 6400) : std::sqrt(96.0)) / root);
    EXPECT_NEAR(neighbours, 0, 5 * (uniform ? 1.0 / 12 : 1) / root);
    EXPECT_LT(kolmogorov(all, [&](double x) { return uniform ? x : 0.5 * std::erfc(-x / std::sqrt(2.0)); }),
              1.95 / root);
    if (uniform) {
      EXPECT_GE(*std::min_element(all.begin(), all.end()), 0.0);
      EXPECT_LT(*std::max_element(all.begin(), all.end()), 1.0);
    }
  }
}

TEST(Random, Statistics) {
  check_statistics<float>();
  check_statistics<double>();
}

TEST(Random, OtherDtypesAreErrors) {
  std::int32_t value = 0;
  EXPECT_THROW(fill_random(DType::i32, Distribution::uniform, &value, {1}, 1, {1}, {0}, {1}), error);
}

}  // namespace
