#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/partition/plan/lifetimes.hpp>

namespace {

using tessera::assign_offsets;
using tessera::Lifetime;
using tessera::max_live_bytes;

void expect_valid(const tessera::Growable<Lifetime>& blocks, std::int64_t peak) {
  std::int64_t highest = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Lifetime& a = blocks[i];
    ASSERT_GE(a.offset, 0);
    ASSERT_EQ(a.offset % 64, 0);
    highest = std::max(highest, a.offset + a.bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const Lifetime& b = blocks[j];
      const bool share_step = std::max(a.first, b.first) <= std::min(a.last, b.last);
      const bool share_byte = std::max(a.offset, b.offset) < std::min(a.offset + a.bytes, b.offset + b.bytes);
      ASSERT_FALSE(share_step && share_byte) << i << " and " << j;
    }
  }
  EXPECT_LE(highest, peak);
  EXPECT_LT(peak, highest + 64);
}

TEST(Lifetimes, AreStaticallyAssignable) {
  // A chain in which each value is freed when the value after next is made: two blocks are enough.
  constexpr std::int64_t peak = [] {
    tessera::Growable<Lifetime> chain;
    for (int i = 0; i < 12; ++i) chain.push_back({.bytes = 1000, .first = i, .last = i + 1});
    return assign_offsets(chain);
  }();
  static_assert(peak == 2 * 1024);
  static_assert(max_live_bytes({{.bytes = 1000, .first = 0, .last = 1}, {.bytes = 10, .first = 1, .last = 2}}) == 1088);
  static_assert([] {
    tessera::Growable<Lifetime> none;
    return assign_offsets(none) == 0 && max_live_bytes(none) == 0;
  }());
}

TEST(Lifetimes, TakeTheTightestGap) {
  // Alive at step 0: 512, 256, 256 bytes. Then 512 and 256 are gaps; the last block fits the 256 exactly.
  tessera::Growable<Lifetime> blocks = {{.bytes = 512, .first = 0, .last = 0},
                                        {.bytes = 320, .first = 0, .last = 1},
                                        {.bytes = 256, .first = 0, .last = 0},
                                        {.bytes = 192, .first = 0, .last = 1},
                                        {.bytes = 192, .first = 1, .last = 1}};
  const auto peak = assign_offsets(blocks);
  expect_valid(blocks, peak);
  EXPECT_EQ(peak, 512 + 320 + 256 + 192);
  EXPECT_EQ(blocks[4].offset, 512 + 320);
}

TEST(Lifetimes, OfZeroBytesNeedNothing) {
  tessera::Growable<Lifetime> blocks = {{.bytes = 0, .first = 0, .last = 9}, {.bytes = 64, .first = 3, .last = 4}};
  EXPECT_EQ(assign_offsets(blocks), 64);
}

TEST(Lifetimes, ThatMakeNoSenseAreRefused) {
  tessera::Growable<Lifetime> negative = {{.bytes = -1}};
  EXPECT_THROW(assign_offsets(negative), tessera::error);
  tessera::Growable<Lifetime> backwards = {{.bytes = 1, .first = 2, .last = 1}};
  EXPECT_THROW(assign_offsets(backwards), tessera::error);
}

TEST(Lifetimes, NeverOverlapOnRandomPlansAndStayNearTheBound) {
  std::mt19937 random(7);
  double total_ratio = 0;
  constexpr int rounds = 300;
  for (int round = 0; round < rounds; ++round) {
    const int n = 1 + static_cast<int>(random() % 120), steps = 1 + static_cast<int>(random() % 100);
    tessera::Growable<Lifetime> blocks;
    for (int i = 0; i < n; ++i) {
      const int first = static_cast<int>(random() % static_cast<unsigned>(steps));
      const int length = static_cast<int>(random() % (random() % 8 == 0 ? static_cast<unsigned>(steps) : 6u));
      blocks.push_back({.bytes = static_cast<std::int64_t>(random() % (1u << (random() % 20))),
                        .first = first,
                        .last = std::min(first + length, steps - 1)});
    }
    const auto peak = assign_offsets(blocks);
    expect_valid(blocks, peak);

    std::int64_t bound = 0;
    for (int step = 0; step < steps; ++step) {
      std::int64_t live = 0;
      for (const Lifetime& b : blocks)
        if (b.first <= step && step <= b.last) live += (b.bytes + 63) / 64 * 64;
      bound = std::max(bound, live);
    }
    ASSERT_EQ(max_live_bytes(blocks), bound);
    ASSERT_GE(peak, bound);
    if (bound > 0)
      total_ratio += static_cast<double>(peak) / static_cast<double>(bound);
    else
      total_ratio += 1;
  }
  EXPECT_LT(total_ratio / rounds, 1.05);
  RecordProperty("mean_peak_over_bound", std::to_string(total_ratio / rounds));
}

TEST(Lifetimes, OfATrainingStepAreTight) {
  // Forward makes one activation per layer, backward frees them in reverse: the lower bound is reached.
  tessera::Growable<Lifetime> blocks;
  constexpr int layers = 50;
  for (int i = 0; i < layers; ++i) {
    blocks.push_back({.bytes = 4096 + 64 * (i % 3), .first = i, .last = 2 * layers - i});
    blocks.push_back({.bytes = 1024, .first = 2 * layers - i, .last = 2 * layers - i + 1});
    blocks.push_back({.bytes = 2048, .first = i, .last = i + 1});
  }
  const auto peak = assign_offsets(blocks);
  expect_valid(blocks, peak);
  EXPECT_EQ(peak, max_live_bytes(blocks));
}

}  // namespace
