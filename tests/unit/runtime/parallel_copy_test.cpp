#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/runtime/threads/parallel_copy.hpp>

namespace {

using namespace tessera;

/// Calls `f` with each index of a box.
template <class F> void for_each_index(const Shape& extent, F f) {
  if (volume(extent) == 0) return;
  Shape index(extent.size(), 0);
  while (true) {
    f(index);
    std::size_t d = extent.size();
    while (d > 0 && ++index[d - 1] == extent[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}
std::int64_t offset(const Shape& index, const kernels::Strides& strides) {
  std::int64_t at = 0;
  for (std::size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return at;
}

/// A copy whose dims have another order in the operand, where some are reversed or broadcast.
struct Copy {
  Shape extent;
  kernels::Strides to, from;
  std::int64_t first = 0;  // of the element 0 in the operand
  std::int64_t operand_size = 1;

  Copy(Shape of, std::mt19937& random) : extent(of), to(kernels::contiguous_strides(of)), from(of.size(), 0) {
    std::vector<std::size_t> order(of.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t d : order) {
      const unsigned kind = random() % 8;
      if (kind == 0) continue;
      from[d] = operand_size;
      operand_size *= std::max<std::int64_t>(extent[d], 1);
      if (kind == 1 && extent[d] > 0) first += (extent[d] - 1) * from[d], from[d] = -from[d];
    }
  }
};

template <class T> void check(const Copy& copy, DType type) {
  std::vector<T> operand(static_cast<std::size_t>(copy.operand_size));
  for (std::size_t i = 0; i < operand.size(); ++i) operand[i] = static_cast<T>(i * 2654435761u >> 7);
  const auto size = static_cast<std::size_t>(volume(copy.extent));
  std::vector<T> result(size + 2, T(77)), expected = result;
  for_each_index(copy.extent, [&](const Shape& index) {
    expected[static_cast<std::size_t>(1 + offset(index, copy.to))] =
        operand[static_cast<std::size_t>(copy.first + offset(index, copy.from))];
  });
  runtime::parallel_copy(type, result.data() + 1, copy.to, operand.data() + copy.first, copy.from, copy.extent);
  EXPECT_EQ(result, expected);
}

TEST(ParallelCopy, CopiesBoxesOfAnyStrides) {
  std::mt19937 random(1);
  for (int repeat = 0; repeat < 60; ++repeat) {
    Shape extent;
    const std::size_t rank = random() % 5;
    const int most = rank <= 2 ? 900 : rank == 3 ? 90 : 30;
    for (std::size_t d = 0; d < rank; ++d) extent.push_back(static_cast<std::int64_t>(random() % (most + 1)));
    check<float>(Copy(extent, random), DType::f32);
    check<double>(Copy(extent, random), DType::f64);
    check<std::int8_t>(Copy(extent, random), DType::i8);
  }
}

TEST(ParallelCopy, CopiesWhatIsLargerThanTheCaches) {
  std::mt19937 random(2);
  check<float>(Copy({3, 1500, 2100}, random), DType::f32);
  check<float>(Copy({3100, 3200}, random), DType::f32);
}

TEST(ParallelCopy, PartsCoverTheBoxOnceAndKeepRowsOfTranspositions) {
  const Shape extent{4096, 64, 48};
  const kernels::Strides to = kernels::contiguous_strides(extent), from{1, 4096 * 48, 4096};
  std::vector<int> covered(static_cast<std::size_t>(volume(extent)), 0);
  const auto parts = runtime::parts_of_copy(extent, to, from, 4);
  EXPECT_GT(parts.size(), 100u);
  for (const runtime::CopyPart& part : parts) {
    EXPECT_EQ(part.extent[0] % 64, 0);  // the operand's rows
    EXPECT_EQ(part.extent[2], 48);      // the result's rows
    std::int64_t places = 0;
    for_each_index(part.extent, [&](const Shape& index) {
      ++covered[static_cast<std::size_t>(part.to + offset(index, to))];
      places += part.from + offset(index, from) < volume(extent) ? 1 : 0;
    });
    EXPECT_EQ(places, volume(part.extent));
  }
  EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), volume(extent));
}

}  // namespace
