#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../../support/gemm_problem.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/gemm/small_gemm.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;
using tessera_test::Problem;

/// The levels that this processor can run.
std::vector<CpuLevel> levels(CpuLevel most = std::min(kernels::detail::detect_cpu(), CpuLevel::avx512)) {
  std::vector<CpuLevel> all;
  for (const CpuLevel level : all_cpu_levels)
    if (level <= most) all.push_back(level);
  return all;
}

/// Counts how often each element is reported.
struct Reports {
  std::vector<int> times;
  std::int64_t cols;

  Reports(std::int64_t rows, std::int64_t of_cols)
      : times(static_cast<std::size_t>(rows * of_cols), 0), cols(of_cols) {}
  FinishedPart hook() {
    return {[](const void* context, const PartOfC& part) {
              Reports& reports = *static_cast<Reports*>(const_cast<void*>(context));
              for (std::int64_t i = part.row; i < part.row + part.rows; ++i)
                for (std::int64_t j = part.col; j < part.col + part.cols; ++j)
                  ++reports.times[static_cast<std::size_t>(i * reports.cols + j)];
            },
            this, 0, 256};  // what is beside C is fetched, which has no effect on results
  }
};

template <class T> void check(Problem<T> problem, CpuLevel level, bool packed, std::mt19937& random) {
  const Gemm<T>& g = problem.g;
  const auto expected = problem.expected();
  Reports reports(g.m, g.n);
  if (packed) {
    const PackedLayout layout = packed_layout<T>(g.k, g.n, level);
    std::vector<T> room(static_cast<std::size_t>(packed_room<T>(layout, level)));
    for (std::int64_t panel = 0; panel < layout.panels();) {
      const std::int64_t count = std::min<std::int64_t>(1 + random() % 4, layout.panels() - panel);
      if constexpr (std::is_same_v<T, f16>)
        pack_halves(layout, g.b, g.b_row, g.b_col, panel, count, room.data(), level);
      else
        pack_matrix(layout, g.b, g.b_row, g.b_col, panel, count, room.data(), level);
      panel += count;
    }
    if constexpr (std::is_same_v<T, f16>)
      half_gemm(g, layout, room.data(), reports.hook(), level);
    else
      packed_gemm(g, layout, room.data(), reports.hook(), level);
  } else if constexpr (std::is_same_v<T, f16>) {
    half_gemm(g, reports.hook(), level);
  } else {
    packed_gemm(g, reports.hook(), level);
  }
  ASSERT_EQ(problem.c, expected) << problem.what(name_of(level)) << (packed ? " packed" : "");
  ASSERT_EQ(reports.times, std::vector<int>(static_cast<std::size_t>(g.m * g.n), 1)) << problem.what(name_of(level));
}

TEST(PackedGemm, EveryLayoutAtEveryLevel) {
  std::mt19937 random(1);
  const std::int64_t sizes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17, 28, 31, 32, 33, 48, 65, 130};
  const auto size = [&] { return sizes[random() % std::size(sizes)]; };
  for (int round = 0; round < 700; ++round)
    for (const CpuLevel level : levels()) {
      check(Problem<float>(random, size(), size(), size()), level, round % 2 == 0, random);
      check(Problem<double>(random, size(), size(), size()), level, round % 2 == 0, random);
      if (HasFatalFailure()) return;
    }
}

TEST(SmallGemm, EveryLayoutThatItTakes) {
  std::mt19937 random(7);
  const auto size = [&] { return static_cast<std::int64_t>(2 + random() % 19); };
  const auto check_small = [](auto problem) {
    if (!is_small(problem.g)) return 0;
    const auto expected = problem.expected();
    small_gemm(problem.g);
    EXPECT_EQ(problem.c, expected) << problem.what("small");
    return 1;
  };
  int taken = 0;
  for (int round = 0; round < 4000; ++round) {
    taken += check_small(Problem<float>(random, size(), size(), size()));
    taken += check_small(Problem<double>(random, size(), size(), size() - 2));
  }
  EXPECT_GT(taken, 200);
}

TEST(PackedGemm, SeveralBlocksOfEveryExtent) {
  std::mt19937 random(2);
  for (const CpuLevel level : levels())
    for (const bool packed : {false, true}) {
      check(Problem<float>(random, 61, 1700, 660), level, packed, random);
      check(Problem<float>(random, 20, 4500, 330, false), level, packed, random);
      check(Problem<double>(random, 47, 1100, 530), level, packed, random);
      // More rows than the panels of A that are packed together, at most 280.
      for (int round = 0; round < 4; ++round) check(Problem<float>(random, 605, 70, 90), level, packed, random);
      if (HasFatalFailure()) return;
    }
}

// Equal rows of A give rows of C that are equal bit for bit, wherever they are in a tile: a program that computes a
// product again in other parts gets the same elements.
TEST(PackedGemm, ElementsDoNotDependOnTheirRowInATile) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  constexpr std::int64_t m = 31, n = 37, k = 50;
  std::vector<float> row(k), a, b(k * n);
  for (float& value : row) value = normal(random);
  for (float& value : b) value = normal(random);
  for (std::int64_t i = 0; i < m; ++i) a.insert(a.end(), row.begin(), row.end());
  for (const CpuLevel level : levels()) {
    std::vector<float> c(m * n);
    packed_gemm(Gemm<float>{m, n, k, a.data(), k, 1, b.data(), n, 1, c.data(), n, 1}, {}, level);
    for (std::size_t i = n; i < c.size(); ++i)
      ASSERT_EQ(c[i], c[i % n]) << name_of(level) << ", row " << i / n << ", column " << i % n;
  }
}

TEST(Bf16Gemm, EveryLayoutAtEveryLevel) {
  std::mt19937 random(4);
  const std::int64_t sizes[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 130};
  const auto size = [&] { return sizes[random() % std::size(sizes)]; };
  for (int round = 0; round < 500; ++round)
    for (const CpuLevel level : levels(bf16_level())) {
      check(Problem<bf16>(random, size(), size(), size()), level, round % 2 == 0, random);
      check(Problem<f16>(random, size(), size(), size()), level, round % 2 == 0, random);
      if (HasFatalFailure()) return;
    }
}

TEST(Bf16Gemm, SeveralBlocksOfEveryExtent) {
  std::mt19937 random(5);
  for (const CpuLevel level : levels(bf16_level()))
    for (const bool packed : {false, true}) {
      check(Problem<bf16>(random, 290, 610, 1100), level, packed, random);
      check(Problem<f16>(random, 290, 610, 1100), level, packed, random);
      check(Problem<bf16>(random, 600, 70, 530, false), level, packed, random);
      if (HasFatalFailure()) return;
    }
}

/// Stored rounded, past the caches or not, at aligned and other addresses.
template <class T> void expect_results_stored_rounded() {
  std::mt19937 random(7);
  struct Case {
    std::int64_t m, n, k, row, col, offset;
  };
  const Case cases[] = {{32, 64, 40, 64, 1, 0}, {33, 65, 130, 70, 1, 1},    {70, 20, 600, 1, 70, 0},
                        {5, 7, 3, 14, 2, 3},    {1060, 512, 40, 512, 1, 0}, {1060, 520, 40, 520, 1, 2},
                        {9, 9, 0, 9, 1, 0}};
  for (const Case& c : cases)
    for (const CpuLevel level : levels(bf16_level())) {
      Problem<T> p(random, c.m, c.n, c.k);
      p.g.accumulate = false, p.g.alpha = 1, p.g.c_row = c.row, p.g.c_col = c.col;
      const auto size = static_cast<std::size_t>(64 + (c.m - 1) * c.row + (c.n - 1) * c.col + 1);
      p.c.assign(size, 0.0f);
      p.g.c = p.c.data();
      const std::vector<float> exact = p.expected();
      std::vector<T> rounded(size + 32, T(-77.0f));
      const auto at = reinterpret_cast<std::uintptr_t>(rounded.data()) / sizeof(T) % 32;
      T* const to = rounded.data() + (32 - at) % 32 + c.offset;  // a cache line begins, or not
      p.g.c = nullptr;
      std::vector<float> bias;
      for (std::int64_t j = 0; j < c.n && c.col == 1; ++j) bias.push_back(static_cast<float>(j % 7));
      half_gemm(p.g, {}, level, RoundedResult<T>{to, bias.empty() ? nullptr : bias.data()});
      for (std::int64_t i = 0; i < c.m; ++i)
        for (std::int64_t j = 0; j < c.n; ++j) {
          const std::int64_t e = i * c.row + j * c.col;
          const float value = exact[static_cast<std::size_t>(e)] + (c.col == 1 ? static_cast<float>(j % 7) : 0.0f);
          ASSERT_EQ(float(to[e]), float(T(value))) << p.what(name_of(level)) << " at " << i << ' ' << j;
        }
    }
}
TEST(Bf16Gemm, ResultsThatAreStoredRounded) {
  expect_results_stored_rounded<bf16>();
  expect_results_stored_rounded<f16>();
}

/// The same of floats: large results go past the caches.
TEST(Bf16Gemm, LargeResults) {
  std::mt19937 random(8);
  constexpr std::int64_t m = 530, n = 512, k = 40;
  Problem<bf16> p(random, m, n, k);
  p.g.accumulate = false, p.g.alpha = 1, p.g.c_row = n, p.g.c_col = 1;
  p.c.assign(static_cast<std::size_t>(m * n), -7.0f);
  p.g.c = p.c.data();
  const std::vector<float> exact = p.expected();
  std::vector<float> result(static_cast<std::size_t>(m * n + 16), -7.0f);
  const auto at = reinterpret_cast<std::uintptr_t>(result.data()) / sizeof(float) % 16;
  p.g.c = result.data() + (16 - at) % 16;
  packed_gemm(p.g, {}, bf16_level());
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_EQ(p.g.c[i], exact[i]);
}

TEST(Bf16Gemm, SumsAreAsPreciseAsFloatsAre) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal;
  constexpr std::int64_t m = 40, n = 50, k = 1000;
  std::vector<bf16> a(m * k), b(k * n);
  for (bf16& value : a) value = bf16(normal(random));
  for (bf16& value : b) value = bf16(normal(random));
  for (const CpuLevel level : levels(bf16_level())) {
    std::vector<float> c(m * n, -1.0f);
    packed_gemm(Gemm<bf16>{m, n, k, a.data(), k, 1, b.data(), n, 1, c.data(), n, 1}, {}, level);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          const double product =
              double(a[static_cast<std::size_t>(i * k + p)]) * double(b[static_cast<std::size_t>(p * n + j)]);
          sum += product, size += std::abs(product);
        }
        ASSERT_NEAR(c[static_cast<std::size_t>(i * n + j)], sum, size * 1e-6) << name_of(level);
      }
  }
}

TEST(PackedGemm, BlocksOfAPackedMatrixAreWhereTheLayoutSays) {
  std::mt19937 random(3);
  const std::int64_t k = 700, n = 75;
  const PackedLayout layout = packed_layout<float>(k, n);
  std::vector<float> b(static_cast<std::size_t>(k * n)), packed(static_cast<std::size_t>(layout.size()), -1);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i);
  pack_matrix(layout, b.data(), n, 1, 0, layout.panels(), packed.data());
  EXPECT_GT(layout.blocks(), 1);
  EXPECT_EQ(
      layout.offset(layout.blocks() - 1, 0) + layout.block_rows(layout.blocks() - 1) * layout.panels() * layout.width,
      layout.size());
  for (std::int64_t row = 0; row < k; ++row)
    for (std::int64_t col = 0; col < layout.panels() * layout.width; ++col) {
      const std::int64_t at = layout.offset(row / layout.depth, col / layout.width) + row % layout.depth * layout.width;
      const float value = packed[static_cast<std::size_t>(at + col % layout.width)];
      if (col < n)
        ASSERT_EQ(value, static_cast<float>(row * n + col));
      else
        ASSERT_EQ(value, 0.0f);
    }
}

TEST(Cpu, TheEnvironmentOnlyLowersTheLevel) {
  using kernels::detail::restricted;
  EXPECT_EQ(restricted(CpuLevel::avx512, nullptr), CpuLevel::avx512);
  EXPECT_EQ(restricted(CpuLevel::avx512, ""), CpuLevel::avx512);
  EXPECT_EQ(restricted(CpuLevel::avx512, "avx2"), CpuLevel::avx2);
  EXPECT_EQ(restricted(CpuLevel::avx2, "avx512"), CpuLevel::avx2);
  EXPECT_EQ(restricted(CpuLevel::avx512, "portable"), CpuLevel::portable);
  EXPECT_EQ(restricted(CpuLevel::amx, "amx"), CpuLevel::amx);
  EXPECT_EQ(restricted(CpuLevel::amx, "avx512"), CpuLevel::avx512);
  EXPECT_EQ(restricted(CpuLevel::amx, "avx512_bf16"), CpuLevel::avx512_bf16);
  EXPECT_EQ(restricted(CpuLevel::avx512, "amx"), CpuLevel::avx512);
  try {
    restricted(CpuLevel::avx512, "sse9");
    FAIL();
  } catch (const error& e) {
    EXPECT_EQ(e.id(), errc::option);
    EXPECT_NE(std::string(e.what()).find("sse9"), std::string::npos);
  }
  EXPECT_LE(cpu_level(), kernels::detail::detect_cpu());
}

}  // namespace
