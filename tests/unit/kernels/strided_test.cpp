#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "../../support/indices.hpp"
#include <gtest/gtest.h>

#include <tessera/kernels/strided.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;
using tessera_test::for_each_index;

struct Box {
  Shape extents;
  Strides strides;
  std::size_t size = 0;   ///< elements to allocate
  std::size_t first = 0;  ///< where index zero lies

  std::size_t at(const Shape& index) const {
    auto offset = static_cast<std::int64_t>(first);
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
    return static_cast<std::size_t>(offset);
  }
};

/// A layout in which every index has its own element: dims in any order, gaps, negative strides.
Box random_box(const Shape& extents, std::mt19937& random) {
  Box box{extents, Strides(extents.size(), 0), 0, 0};
  std::vector<std::size_t> order(extents.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (random() % 3 != 0) std::shuffle(order.begin(), order.end(), random);
  std::int64_t step = random() % 4 == 0 ? 3 : 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    const std::size_t d = order[i];
    const bool back = random() % 12 == 0;
    box.strides[d] = back ? -step : step;
    if (back) box.first += static_cast<std::size_t>(std::max<std::int64_t>(extents[d] - 1, 0) * step);
    step *= std::max<std::int64_t>(extents[d], 1) + (random() % 6 == 0 ? 1 : 0);
  }
  box.size = static_cast<std::size_t>(step) + 1;
  return box;
}

Shape random_extents(std::mt19937& random) {
  Shape extents;
  const std::size_t rank = random() % 6;
  std::int64_t budget = 20000;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t pool[] = {1, 2, 3, 5, 16, 17, 33, 70};
    const std::int64_t extent = random() % 40 == 0 ? 0 : std::min(pool[random() % 8], budget);
    extents.push_back(extent);
    budget /= std::max<std::int64_t>(extent, 1);
  }
  return extents;
}

template <class T> void check_copies() {
  std::mt19937 random(sizeof(T));
  for (int round = 0; round < 400; ++round) {
    const Shape extents = random_extents(random);
    const Box to = random_box(extents, random);
    Box from = random_box(extents, random);
    if (!extents.empty() && random() % 8 == 0) from.strides[random() % extents.size()] = 0;
    std::vector<T> src(from.size), dst(to.size, T(7));
    for (T& value : src) value = static_cast<T>(random());
    std::vector<T> expected = dst;
    for_each_index(extents, [&](const Shape& i) { expected[to.at(i)] = src[from.at(i)]; });
    strided_copy(dst.data() + to.first, to.strides, src.data() + from.first, from.strides, extents, sizeof(T));
    ASSERT_EQ(dst, expected) << "round " << round;

    for_each_index(extents, [&](const Shape& i) { expected[to.at(i)] = T(0); });
    strided_fill_zero(dst.data() + to.first, to.strides, extents, sizeof(T));
    ASSERT_EQ(dst, expected) << "round " << round;
  }
}

TEST(Strided, CopiesEveryLayout) {
  check_copies<std::uint8_t>();
  check_copies<std::uint16_t>();
  check_copies<std::uint32_t>();
  check_copies<std::uint64_t>();
}

TEST(Strided, TransposesWholeAndRaggedBlocks) {
  for (const std::int64_t rows : {1, 15, 16, 17, 64, 100})
    for (const std::int64_t cols : {1, 8, 31, 32, 48, 101}) {
      std::vector<float> src(static_cast<std::size_t>(rows * cols)), dst(src.size());
      for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i);
      strided_copy(DType::f32, dst.data(), {cols, 1}, src.data(), {1, rows}, {rows, cols});
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j)
          ASSERT_EQ(dst[static_cast<std::size_t>(i * cols + j)], static_cast<float>(j * rows + i));
    }
}

TEST(Strided, LoopsMergeWhatLiesTogether) {
  const auto count = [](const Shape& extents, const Strides& a, const Strides& b) {
    return kernels::detail::make_loops(extents, a, b).size();
  };
  EXPECT_EQ(count({4, 5, 6}, {30, 6, 1}, {30, 6, 1}), 1u);
  EXPECT_EQ(count({4, 5, 6}, {60, 6, 1}, {30, 6, 1}), 2u);
  EXPECT_EQ(count({4, 1, 6}, {6, 999, 1}, {6, 5, 1}), 1u);
  EXPECT_EQ(count({6, 5, 4}, {1, 6, 30}, {1, 6, 30}), 1u);
  EXPECT_EQ(count({4, 5, 6}, {30, 6, 1}, {0, 0, 0}), 1u);
  EXPECT_EQ(count({4, 5}, {5, 1}, {1, 4}), 2u);
}

template <class T> void check_reductions() {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Shape extents = random_extents(random);
    const Box to = random_box(extents, random);
    const bool accumulate = random() % 2 == 0;
    const std::size_t count = 1 + random() % 6;
    std::vector<Box> boxes;
    std::vector<std::vector<T>> data;
    std::vector<StridedSource> sources;
    for (std::size_t s = 0; s < count; ++s) {
      boxes.push_back(random() % 2 ? random_box(extents, random) : to);
      if (!extents.empty() && random() % 10 == 0) boxes.back().strides[random() % extents.size()] = 0;
      data.emplace_back(std::max(boxes.back().size, to.size));
      for (T& value : data.back()) value = static_cast<T>(random() % 100);
    }
    for (std::size_t s = 0; s < count; ++s) sources.push_back({data[s].data() + boxes[s].first, boxes[s].strides});
    for (const Reduction op : {Reduction::sum, Reduction::max, Reduction::min}) {
      std::vector<T> dst(to.size, T(50));
      std::vector<T> expected = dst;
      for_each_index(extents, [&](const Shape& i) {
        T result = data[0][boxes[0].at(i)];
        const auto add = [&](T value) {
          result = op == Reduction::sum   ? static_cast<T>(result + value)
                   : op == Reduction::max ? std::max(result, value)
                                          : std::min(result, value);
        };
        for (std::size_t s = 1; s < count; ++s) add(data[s][boxes[s].at(i)]);
        if (accumulate) add(expected[to.at(i)]);
        expected[to.at(i)] = result;
      });
      strided_reduce(dtype_v<T>, op, dst.data() + to.first, to.strides, sources, extents, accumulate);
      ASSERT_EQ(dst, expected) << "round " << round;
    }
  }
}

TEST(Strided, ReducesEveryLayout) {
  check_reductions<float>();
  check_reductions<double>();
  check_reductions<std::int8_t>();
  check_reductions<std::uint8_t>();
  check_reductions<std::int16_t>();
  check_reductions<std::int32_t>();
  check_reductions<std::int64_t>();
}

TEST(Strided, SumsFromLeftToRight) {
  const std::int64_t n = 1500;
  std::vector<std::vector<float>> data(5, std::vector<float>(n));
  std::mt19937 random(6);
  std::vector<StridedSource> sources;
  for (auto& values : data) {
    for (float& value : values)
      value = std::ldexp(static_cast<float>(random() % 1000), static_cast<int>(random() % 60) - 30);
    sources.push_back({values.data(), {1}});
  }
  std::vector<float> expected = data[0];
  for (std::size_t s = 1; s < 5; ++s)
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += data[s][i];
  std::vector<float> dst(n);
  strided_reduce(DType::f32, Reduction::sum, dst.data(), {1}, sources, {n});
  EXPECT_EQ(dst, expected);
  // In place of the fourth source.
  strided_reduce(DType::f32, Reduction::sum, data[3].data(), {1}, sources, {n});
  EXPECT_EQ(data[3], expected);
}

// Of many sources the error does not grow with their number; dst in rows, and with gaps.
TEST(Strided, SumsOfManySources) {
  constexpr std::int64_t n = 9, parts = 2000;
  const std::vector<float> values(2 * n, 0.1f);
  for (const std::int64_t step : {1, 2}) {
    std::vector<float> dst(2 * n, 0.f);
    const std::vector<StridedSource> sources(parts, {values.data(), {step}});
    strided_reduce(DType::f32, Reduction::sum, dst.data(), {step}, sources, {n});
    for (std::int64_t i = 0; i < n; ++i)
      EXPECT_NEAR(dst[static_cast<std::size_t>(i * step)] / (parts * static_cast<double>(0.1f)), 1, 2e-6);
  }
}

template <class T> void check_long_rows() {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t count = static_cast<std::int64_t>(random() % 300),
                       parts = 1 + random() % (round % 8 == 0 ? 70 : 9);
    const std::int64_t at = random() % 20;
    const bool accumulate = random() % 2 == 0, past_caches = random() % 2 == 0;
    const Reduction op = std::array{Reduction::sum, Reduction::max, Reduction::min}[random() % 3];
    std::vector<std::vector<T>> data;
    std::vector<StridedSource> sources;
    std::vector<T> dst(static_cast<std::size_t>(count + at + 9), T(3));
    for (std::int64_t s = 0; s < parts; ++s) {
      const std::int64_t skip = random() % 5;
      data.emplace_back();
      for (std::int64_t i = 0; i < skip + count; ++i) data.back().push_back(static_cast<T>(random() % 1000) / T(7));
      sources.push_back({data.back().data() + skip, {1}});
    }
    std::vector<T> expected = dst;
    for (std::int64_t i = 0; i < count; ++i) {
      T& to = expected[static_cast<std::size_t>(at + i)];
      const auto of = [&](std::int64_t s) {
        return static_cast<const T*>(sources[static_cast<std::size_t>(s)].data)[i];
      };
      const auto combined = [&](T x, T y) {
        return op == Reduction::sum ? x + y : op == Reduction::max ? std::max(x, y) : std::min(x, y);
      };
      // Runs of 32 sources, whose results are combined.
      const T before = to;
      for (std::int64_t first = 0; first < parts; first += 32) {
        T run = accumulate && first == 0 ? combined(before, of(0)) : of(first);
        for (std::int64_t s = first + 1; s < std::min<std::int64_t>(first + 32, parts); ++s) run = combined(run, of(s));
        to = first == 0 ? run : combined(run, to);
      }
    }
    strided_reduce(dtype_v<T>, op, dst.data() + at, {1}, sources, {count}, accumulate, past_caches);
    ASSERT_EQ(dst, expected) << "round " << round;
  }
}

// Rows are combined by whole lines of the cache: wherever they begin, however many there are, and bit for bit as the
// elements one by one would be.
TEST(Strided, ReducesRowsThatBeginAnywhere) {
  check_long_rows<float>();
  check_long_rows<double>();
}

TEST(Strided, CopiesLongRowsPastTheCaches) {
  for (const std::int64_t begin : {0, 1, 5, 16})
    for (const std::int64_t count : {1100, 4096, 5003})
      for (const std::int64_t pitch : {count, count + 3}) {
        std::vector<std::int32_t> from(static_cast<std::size_t>(2 * pitch)),
            to(static_cast<std::size_t>(2 * count + 40));
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::int32_t>(i) + 1;
        std::vector<std::int32_t> expected = to;
        for (std::int64_t row = 0; row < 2; ++row)
          for (std::int64_t i = 0; i < count; ++i)
            expected[static_cast<std::size_t>(begin + row * count + i)] =
                static_cast<std::int32_t>(row * pitch + i) + 1;
        strided_copy(DType::i32, to.data() + begin, {count, 1}, from.data(), {pitch, 1}, {2, count}, true);
        ASSERT_EQ(to, expected) << begin << " " << count << " " << pitch;
      }
}

// Whole registers are reversed, and what is left at both ends: rows of any length that begin anywhere.
template <class T> void check_reversed_rows() {
  const auto line = static_cast<std::int64_t>(64 / sizeof(T)), page = static_cast<std::int64_t>(4096 / sizeof(T));
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{1}, line - 1, line, line + 1, 3 * line + 2, page - 1, page, page + line + 3})
    for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{1}, line - 1})
      for (const bool past_caches : {false, true}) {
        std::vector<T> from(static_cast<std::size_t>(2 * count + 1)),
            to(static_cast<std::size_t>(2 * count + begin + 1));
        for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<T>(i * 40503u >> 4 | 1u);
        std::vector<T> expected = to;
        for (std::int64_t row = 0; row < 2; ++row)
          for (std::int64_t i = 0; i < count; ++i)
            expected[static_cast<std::size_t>(begin + row * count + i)] =
                from[static_cast<std::size_t>((row + 1) * count - 1 - i)];
        strided_copy(dtype_v<T>, to.data() + begin, {count, 1}, from.data() + count - 1, {count, -1}, {2, count},
                     past_caches);
        ASSERT_EQ(to, expected) << count << " " << begin << " " << past_caches;
      }
}
TEST(Strided, ReversesRowsOfAnyLength) {
  check_reversed_rows<std::uint8_t>();
  check_reversed_rows<std::int16_t>();
  check_reversed_rows<std::int32_t>();
  check_reversed_rows<std::int64_t>();
}

TEST(Strided, TransposesReversedRowsAndColumns) {
  for (const std::int64_t rows : {1, 15, 64, 100, 130})
    for (const std::int64_t cols : {1, 31, 64, 101, 128})
      for (const bool reverse_rows : {false, true}) {
        std::vector<float> src(static_cast<std::size_t>(rows * cols)), dst(src.size());
        for (std::size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i);
        const float* const first = src.data() + (reverse_rows ? rows - 1 : (cols - 1) * rows);
        strided_copy(DType::f32, dst.data(), {cols, 1}, first, reverse_rows ? Strides{-1, rows} : Strides{1, -rows},
                     {rows, cols});
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t j = 0; j < cols; ++j) {
            const std::int64_t row = reverse_rows ? rows - 1 - i : i, col = reverse_rows ? j : cols - 1 - j;
            ASSERT_EQ(dst[static_cast<std::size_t>(i * cols + j)], static_cast<float>(col * rows + row));
          }
      }
}

TEST(Strided, ReductionsKeepNaNAndWrapIntegers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {nan, 1, 3}, b = {2, nan, 4};
  const std::vector<StridedSource> sources = {{a.data(), {1}}, {b.data(), {1}}};
  std::vector<float> dst(3);
  for (const Reduction op : {Reduction::max, Reduction::min}) {
    strided_reduce(DType::f32, op, dst.data(), {1}, sources, {3});
    EXPECT_TRUE(std::isnan(dst[0]));
    EXPECT_TRUE(std::isnan(dst[1]));
    EXPECT_EQ(dst[2], op == Reduction::max ? 4.0f : 3.0f);
  }
  const std::vector<float> long_a(100, nan), long_b(100, 1);
  std::vector<float> all(100);
  for (const auto& [x, y] : {std::pair(&long_a, &long_b), std::pair(&long_b, &long_a)})
    for (const Reduction op : {Reduction::max, Reduction::min}) {
      strided_reduce(DType::f32, op, all.data(), {1}, std::vector<StridedSource>{{x->data(), {1}}, {y->data(), {1}}},
                     {100});
      for (const float value : all) ASSERT_TRUE(std::isnan(value));
    }
  const std::int32_t big = std::numeric_limits<std::int32_t>::max(), one = 1;
  const std::vector<StridedSource> integers = {{&big, {}}, {&one, {}}};
  std::int32_t sum = 0;
  strided_reduce(DType::i32, Reduction::sum, &sum, {}, integers, {});
  EXPECT_EQ(sum, std::numeric_limits<std::int32_t>::min());
}

template <class T> void expect_sums_rounded_once(float start) {
  // start + 1 + 1 + ... stays start where each sum is rounded.
  constexpr std::int64_t count = 700, parts = 8;
  std::vector<T> ones(count, T(1)), out(count, T(start));
  const std::vector<StridedSource> sources(parts, {ones.data(), {1}});
  strided_reduce(dtype_v<T>, Reduction::sum, out.data(), {1}, sources, {count}, true);
  for (const T value : out) ASSERT_EQ(static_cast<float>(value), start + 8);
  strided_reduce(dtype_v<T>, Reduction::max, out.data(), {1}, sources, {count}, true);
  EXPECT_EQ(static_cast<float>(out[count - 1]), start + 8);
}
TEST(Strided, SumsOfBf16AndF16AreRoundedOnce) {
  expect_sums_rounded_once<bf16>(256);
  expect_sums_rounded_once<f16>(2048);
}

TEST(Strided, WhatCannotBeReducedIsAnError) {
  const std::uint8_t bits[2] = {1, 0};
  std::uint8_t out[2] = {};
  const std::vector<StridedSource> sources = {{bits, {1}}};
  strided_reduce(DType::bool_, Reduction::max, out, {1}, sources, {2});
  EXPECT_EQ(out[0], 1);
  EXPECT_THROW(strided_reduce(DType::bool_, Reduction::sum, out, {1}, sources, {2}), error);
  EXPECT_THROW(strided_reduce(DType::f8_e4m3, Reduction::sum, out, {1}, sources, {1}), error);
  EXPECT_THROW(strided_reduce(DType::u8, Reduction::bit_or, out, {1}, sources, {1}), error);
  EXPECT_THROW(strided_reduce(DType::u8, Reduction::sum, out, {1}, {}, {1}), error);
  EXPECT_THROW(strided_copy(out, {1}, bits, {1}, {1}, 3), error);
}

}  // namespace
