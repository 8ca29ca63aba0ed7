#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/cumulative.hpp>

namespace {

namespace k = tessera::kernels;

/// Lines of every width along each dim of an array [5, n, 3] and of its transpose, from either end.
template <class T> void expect_scans(std::int64_t n) {
  const tessera::Shape shape{5, n, 3};
  std::vector<T> from(static_cast<std::size_t>(15 * n)), start(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = static_cast<T>(static_cast<std::int64_t>(i * 7 % 23) - 11);
    start[i] = static_cast<T>(static_cast<std::int64_t>(i * 5 % 13));
  }
  const k::Strides rows = k::contiguous_strides(shape), columns{1, 5, 5 * n};
  for (const k::Strides& to_strides : {rows, columns})
    for (std::size_t dim = 0; dim < 3; ++dim)
      for (const bool reverse : {false, true})
        for (const bool exclusive : {false, true}) {
          tessera::Shape lines = shape;
          lines[dim] = 1;
          k::CumulativeShape scan{lines,      rows,      to_strides,     k::contiguous_strides(lines),
                                  shape[dim], rows[dim], to_strides[dim]};
          std::int64_t from_at = 0, to_at = 0;
          if (reverse) {
            from_at = (scan.count - 1) * scan.from_step, to_at = (scan.count - 1) * scan.to_step;
            scan.from_step = -scan.from_step, scan.to_step = -scan.to_step;
          }
          std::vector<T> to(from.size(), T{77}), totals(from.size(), T{77});
          k::cumulative_lines<tessera::monoids::Sum, T>(scan, from.data() + from_at, to.data() + to_at, start.data(),
                                                        exclusive);
          k::combine_lines<tessera::monoids::Sum, T>(scan, from.data() + from_at, totals.data());
          std::size_t line = 0;
          for (std::int64_t a = 0; a < lines[0]; ++a)
            for (std::int64_t b = 0; b < lines[1]; ++b)
              for (std::int64_t c = 0; c < lines[2]; ++c, ++line) {
                T sum = start[line], total{};
                for (std::int64_t i = 0; i < shape[dim]; ++i) {
                  const std::int64_t along = reverse ? shape[dim] - 1 - i : i;
                  const T own =
                      from[static_cast<std::size_t>(a * rows[0] + b * rows[1] + c * rows[2] + along * rows[dim])];
                  const T before = sum;
                  sum = static_cast<T>(sum + own);
                  total = static_cast<T>(total + own);
                  ASSERT_EQ(to[static_cast<std::size_t>(a * to_strides[0] + b * to_strides[1] + c * to_strides[2] +
                                                        along * to_strides[dim])],
                            exclusive ? before : sum)
                      << "dim " << dim << " of [5," << n << ",3], element " << i << " of line " << line;
                }
                ASSERT_EQ(totals[line], total);
              }
        }
}

TEST(Cumulative, EveryWayToWalk) {
  for (const std::int64_t n : {1, 2, 9, 33, 70}) {
    expect_scans<float>(n);
    expect_scans<double>(n);
    expect_scans<std::int8_t>(n);
    expect_scans<std::int64_t>(n);
  }
}

TEST(Cumulative, LongLinesKeepTheirPrecision) {
  constexpr std::int64_t count = 1'000'000;
  const std::vector<float> from(count, 0.1f);
  std::vector<float> to(count), total(1);
  const k::CumulativeShape line{{1}, {1}, {1}, {1}, count, 1, 1};
  k::cumulative_lines<tessera::monoids::Sum, float>(line, from.data(), to.data(), nullptr, false);
  k::combine_lines<tessera::monoids::Sum, float>(line, from.data(), total.data());
  for (std::int64_t i = 0; i < count; i += 997) {
    const double exact = static_cast<double>(i + 1) * static_cast<double>(0.1f);
    ASSERT_NEAR(to[static_cast<std::size_t>(i)] / exact, 1, 1e-6) << i;
  }
  EXPECT_NEAR(total[0] / to.back(), 1, 1e-6);
}

TEST(Cumulative, Nothing) {
  float number = 3;
  k::cumulative_lines<tessera::monoids::Sum, float>({{0, 1}, {1, 1}, {1, 1}, {1, 1}, 4, 1, 1}, &number, &number,
                                                    nullptr, false);
  EXPECT_EQ(number, 3);
  k::combine_lines<tessera::monoids::Sum, float>({{1, 1}, {1, 1}, {1, 1}, {1, 1}, 0, 1, 1}, nullptr, &number);
  EXPECT_EQ(number, 0);
  // Lines of nothing, which lie nowhere.
  float totals[]{1, 2, 3};
  const k::CumulativeShape none{{3}, {1}, {1}, {1}, 0, 3, 3};
  k::combine_lines<tessera::monoids::Sum, float>(none, nullptr, totals);
  EXPECT_EQ(totals[0] + totals[1] + totals[2], 0);
  k::cumulative_lines<tessera::monoids::Sum, float>(none, nullptr, nullptr, totals, true);
}

}  // namespace
