#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/indexed.hpp>

namespace {

using namespace tessera;
using namespace tessera::kernels;

constexpr std::int64_t vocabulary = 23;

/// A lookup of [2, 5] indices into rows of [3, 4], with arrays laid out one way or another.
IndexedShape make_shape(int layout) {
  IndexedShape shape = IndexedShape::contiguous({2, 5}, {3, 4});
  if (layout == 1) {
    shape.index_strides = {1, 2};
    shape.rows_strides = {12, 24, 1, 3};
    shape.table_strides = {12, 1, 3};
  } else if (layout == 2) {
    shape.rows_strides = {60, 12, 1, 3};
    shape.table_strides = {1, 4 * vocabulary, vocabulary};
  } else if (layout == 3) {
    shape.index_strides = {10, 2};
    shape.rows_strides = {1, 2, 10, 30};
  }
  return shape;
}

template <class F> void for_each_element(const IndexedShape& shape, F f) {
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 5; ++j)
      for (std::int64_t p = 0; p < 3; ++p)
        for (std::int64_t q = 0; q < 4; ++q)
          f(static_cast<std::size_t>(i * shape.index_strides[0] + j * shape.index_strides[1]),
            static_cast<std::size_t>(i * shape.rows_strides[0] + j * shape.rows_strides[1] + p * shape.rows_strides[2] +
                                     q * shape.rows_strides[3]),
            p * shape.table_strides[1] + q * shape.table_strides[2]);
}

template <class T, class I> void check_lookups() {
  std::mt19937 random(1);
  for (int round = 0; round < 40; ++round) {
    const IndexedShape shape = make_shape(round % 4);
    std::vector<T> table(12 * vocabulary), rows(128), gathered(128);
    for (T& value : table) value = static_cast<T>(1 + random() % 50);
    for (T& value : rows) value = static_cast<T>(1 + random() % 50);
    std::vector<I> index(32);
    for (I& i : index) i = static_cast<I>(random() % (round < 20 ? vocabulary : 4));

    // Shards of the table, one of them empty: lookups add up to the whole one, and gradients fill each its rows.
    std::vector<T> total(128, T(0)), sums(12 * vocabulary, T(0)), expected_sums(12 * vocabulary, T(0));
    const std::int64_t cuts[] = {0, 9, 9, vocabulary};
    for (int shard = 0; shard < 3; ++shard) {
      const RowWindow window{vocabulary, cuts[shard], cuts[shard + 1] - cuts[shard]};
      const std::int64_t offset = window.offset * shape.table_strides[0];
      gathered.assign(128, T(99));
      ASSERT_EQ(gather_rows(gathered.data(), table.data() + offset, index.data(), shape, window), std::nullopt);
      for_each_element(shape, [&](std::size_t at, std::size_t row, std::int64_t in_row) {
        const std::int64_t wanted = index[at];
        const bool here = wanted >= window.offset && wanted < window.offset + window.count;
        const T value = here ? table[static_cast<std::size_t>(wanted * shape.table_strides[0] + in_row)] : T(0);
        ASSERT_EQ(gathered[row], value);
        total[row] = static_cast<T>(total[row] + gathered[row]);
      });
      ASSERT_EQ(scatter_add_rows(sums.data() + offset, rows.data(), index.data(), shape, window), std::nullopt);
    }
    for_each_element(shape, [&](std::size_t at, std::size_t row, std::int64_t in_row) {
      const auto place = static_cast<std::size_t>(index[at] * shape.table_strides[0] + in_row);
      ASSERT_EQ(total[row], table[place]);
      expected_sums[place] = static_cast<T>(expected_sums[place] + rows[row]);
    });
    ASSERT_EQ(sums, expected_sums);
  }
}

TEST(Indexed, ShardedLookupsAndGradients) {
  check_lookups<float, std::int32_t>();
  check_lookups<double, std::int64_t>();
  check_lookups<std::int32_t, std::int64_t>();
}

// Rows of 1 to 9 elements, contiguous or along columns, have loops of their own.
template <class T, class I> void check_short_rows() {
  std::mt19937 random(2);
  for (const std::int64_t count : {5, 70})
    for (const std::int64_t row : {1, 2, 3, 4, 8, 9})
      for (const bool columns : {false, true}) {
        IndexedShape shape = IndexedShape::contiguous({count}, {row});
        if (columns) shape.rows_strides = {1, count}, shape.table_strides = {1, vocabulary};
        std::vector<T> table(static_cast<std::size_t>(row * vocabulary)), rows(static_cast<std::size_t>(row * count));
        for (T& value : table) value = static_cast<T>(1 + random() % 50);
        std::vector<I> index(static_cast<std::size_t>(count));
        for (I& i : index) i = static_cast<I>(random() % vocabulary);
        const RowWindow window{vocabulary, 6, 11};
        rows.assign(rows.size(), T(99));
        ASSERT_EQ(gather_rows(rows.data(), table.data() + 6 * shape.table_strides[0], index.data(), shape, window),
                  std::nullopt);
        std::vector<T> sums(table.size(), T(0)), expected = sums;
        ASSERT_EQ(scatter_add_rows(sums.data() + 6 * shape.table_strides[0], rows.data(), index.data(), shape, window),
                  std::nullopt);
        for (std::int64_t i = 0; i < count; ++i)
          for (std::int64_t j = 0; j < row; ++j) {
            const std::int64_t wanted = index[static_cast<std::size_t>(i)];
            const bool here = wanted >= 6 && wanted < 17;
            const auto from = static_cast<std::size_t>(wanted * shape.table_strides[0] + j * shape.table_strides[1]);
            const T value = here ? table[from] : T(0);
            ASSERT_EQ(rows[static_cast<std::size_t>(i * shape.rows_strides[0] + j * shape.rows_strides[1])], value);
            expected[from] = static_cast<T>(expected[from] + value);
          }
        ASSERT_EQ(sums, expected);
        index[1] = static_cast<I>(-3);
        ASSERT_EQ(gather_rows(rows.data(), table.data(), index.data(), shape, {vocabulary, 0, vocabulary}), -3);
        ASSERT_EQ(scatter_add_rows(sums.data(), rows.data(), index.data(), shape, {vocabulary, 0, vocabulary}), -3);
      }
}

TEST(Indexed, ShortRows) {
  check_short_rows<std::int8_t, std::int32_t>();
  check_short_rows<std::int16_t, std::int64_t>();
  check_short_rows<float, std::int32_t>();
  check_short_rows<double, std::int64_t>();
}

TEST(Indexed, IndicesOutsideTheTableAreReported) {
  const IndexedShape shape = IndexedShape::contiguous({4}, {2});
  std::vector<float> table(20, 1.0f), rows(8, 5.0f);
  for (const std::int64_t wrong :
       {std::int64_t{-1}, std::int64_t{10}, std::int64_t{1} << 62, -(std::int64_t{1} << 62)}) {
    const std::vector<std::int64_t> index = {3, wrong, 2, 99};
    EXPECT_EQ(gather_rows(rows.data(), table.data(), index.data(), shape, {10, 0, 10}), wrong);
    EXPECT_EQ(scatter_add_rows(table.data(), rows.data(), index.data(), shape, {10, 0, 10}), wrong);
  }
  const std::vector<std::int32_t> index = {0, 1, 2, -2147483648};
  EXPECT_EQ(gather_rows(rows.data(), table.data(), index.data(), shape, {10, 5, 2}), -2147483648ll);
}

TEST(Indexed, SumsComeInTheOrderOfTheIndices) {
  // Float addition is not associative: 1e8 + 1 - 1e8 tells the orders apart. The index array is stored transposed.
  IndexedShape shape = IndexedShape::contiguous({3, 1}, {1});
  shape.index = {1, 3};
  shape.index_strides = {3, 1};
  shape.rows_strides = {3, 1, 1};
  const std::vector<std::int32_t> index = {0, 0, 0};
  std::vector<float> table = {0}, rows = {1e8f, 1.0f, -1e8f};
  scatter_add_rows(table.data(), rows.data(), index.data(), shape, {1, 0, 1});
  EXPECT_EQ(table[0], (0.0f + 1e8f + 1.0f) - 1e8f);

  // Dims [2, 2] whose memory order is the reverse: the sum is still that of (0,0), (0,1), (1,0), (1,1).
  shape.index = {2, 2};
  shape.index_strides = {1, 2};
  shape.rows_strides = {1, 2, 1};
  const std::vector<std::int32_t> zeros(4, 0);
  rows = {1e8f, -1e8f, 1.0f, 0.0f};  // (0,0), (1,0), (0,1), (1,1)
  table = {0};
  scatter_add_rows(table.data(), rows.data(), zeros.data(), shape, {1, 0, 1});
  EXPECT_EQ(table[0], ((1e8f + 1.0f) - 1e8f) + 0.0f);
}

// Rows that get many additions are summed in f64 from run to run; others are added to as ever.
TEST(Indexed, LongSumsOfRows) {
  constexpr std::int64_t additions = 200'000, rows_of_table = 5;
  for (const bool apart : {false, true}) {  // two dims of a row that do not merge
    IndexedShape shape = IndexedShape::contiguous({additions}, {2, 3});
    if (apart) shape.rows_strides = {6, 1, 2};
    std::vector<std::int32_t> index(additions);
    std::vector<float> rows(6 * additions), table(6 * rows_of_table, 0.f);
    std::vector<double> expected(table.size(), 0.0);
    std::mt19937 random(4);
    for (std::size_t i = 0; i < index.size(); ++i) {
      index[i] = i % 1000 == 0 ? static_cast<std::int32_t>(random() % 5) : 3;
      for (std::size_t p = 0; p < 2; ++p)
        for (std::size_t q = 0; q < 3; ++q) {
          float& value = rows[6 * i + (apart ? p + 2 * q : 3 * p + q)];
          value = i % 2 == 0 ? 0.1f : std::uniform_real_distribution<float>(0, 1)(random);
          expected[6 * static_cast<std::size_t>(index[i]) + 3 * p + q] += static_cast<double>(value);
        }
    }
    const RowWindow window{rows_of_table, 0, rows_of_table};
    EXPECT_TRUE(has_long_sums(index.data(), shape, window));
    EXPECT_FALSE(has_long_sums(index.data(), shape, {rows_of_table, 0, 3}));
    scatter_add_rows(table.data(), rows.data(), index.data(), shape, window, LongSums::on_zeros);
    for (std::size_t i = 0; i < table.size(); ++i) EXPECT_NEAR(table[i] / expected[i], 1, 1e-6) << i;
    // On top of what is there already.
    for (int more = 0; more < 7; ++more)
      scatter_add_rows(table.data(), rows.data(), index.data(), shape, window, LongSums::on_others);
    for (std::size_t i = 0; i < table.size(); ++i) EXPECT_NEAR(table[i] / (8 * expected[i]), 1, 1e-6) << i;
  }
}

TEST(Indexed, EmptyShapes) {
  std::vector<float> table(4, 1.0f), rows(4, 2.0f);
  const std::vector<std::int32_t> index = {0, 7};
  EXPECT_EQ(gather_rows(rows.data(), table.data(), index.data(), IndexedShape::contiguous({0}, {2}), {2, 0, 2}),
            std::nullopt);
  // Rows without elements are still checked.
  EXPECT_EQ(gather_rows(rows.data(), table.data(), index.data(), IndexedShape::contiguous({2}, {0}), {2, 0, 2}), 7);
  EXPECT_EQ(rows, std::vector<float>(4, 2.0f));
  EXPECT_EQ(gather_rows(rows.data(), table.data(), index.data(), IndexedShape::contiguous({}, {2}), {2, 0, 2}),
            std::nullopt);
  EXPECT_EQ(rows, (std::vector<float>{1, 1, 2, 2}));
}

TEST(Indexed, DtypesAtRunTime) {
  const IndexedShape shape = IndexedShape::contiguous({2}, {2});
  const std::vector<std::int64_t> index = {2, 0};
  const std::vector<std::uint16_t> table = {1, 2, 3, 4, 5, 6};
  std::vector<std::uint16_t> rows(4);
  EXPECT_EQ(gather_rows(DType::bf16, DType::i64, rows.data(), table.data(), index.data(), shape, {3, 0, 3}),
            std::nullopt);
  EXPECT_EQ(rows, (std::vector<std::uint16_t>{5, 6, 1, 2}));
  std::vector<double> sums(6, 1.0);
  const std::vector<double> gradients = {10, 20, 30, 40};
  EXPECT_EQ(scatter_add_rows(DType::f64, DType::i64, sums.data(), gradients.data(), index.data(), shape, {3, 0, 3}),
            std::nullopt);
  EXPECT_EQ(sums, (std::vector<double>{31, 41, 1, 1, 11, 21}));
  EXPECT_THROW(scatter_add_rows(DType::bf16, DType::i64, rows.data(), rows.data(), index.data(), shape, {3, 0, 3}),
               error);
  EXPECT_THROW(gather_rows(DType::f32, DType::f32, rows.data(), rows.data(), index.data(), shape, {3, 0, 3}), error);
}

}  // namespace
