#include <cstdint>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/batches.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

TEST(batches, counts_follow_the_policy) {
  EXPECT_EQ(ts::batch_count(12, 4, ts::Ragged::error), 3);
  EXPECT_EQ(ts::batch_count(14, 4, ts::Ragged::drop), 3);
  EXPECT_EQ(ts::batch_count(14, 4, ts::Ragged::keep), 4);
  EXPECT_EQ(ts::batch_count(3, 4, ts::Ragged::drop), 0);
  EXPECT_EQ(ts::batch_count(0, 4, ts::Ragged::keep), 0);
  EXPECT_EQ(ts::batch_rows(14, 4, 2), (ts::RowRange{8, 12}));
  EXPECT_EQ(ts::batch_rows(14, 4, 3), (ts::RowRange{12, 14}));
  expect_error(
      ts::errc::not_divisible, [] { ts::batch_count(14, 4, ts::Ragged::error); }, "14 rows", "4", "batches_test.cpp");
  expect_error(
      ts::errc::option, [] { ts::batch_count(14, 0, ts::Ragged::drop); }, "0", "batches_test.cpp");
}

TEST(batches, rows_of_random_layouts) {
  std::mt19937 random(9);
  for (int round = 0; round < 300; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 3);
    std::vector<int> values;
    for (std::int64_t i = 0; i < ts::volume(layout.shape); ++i) values.push_back(static_cast<int>(i));
    const auto x = ts::shard<3>(values, layout.shape, layout.mesh, layout.spec);
    const auto n = layout.shape[0];
    ts::RowRange range;
    range.begin = static_cast<std::int64_t>(random() % static_cast<unsigned>(n + 1));
    range.end = range.begin + static_cast<std::int64_t>(random() % static_cast<unsigned>(n - range.begin + 1));
    const auto y = ts::rows_of(x, range);
    const std::int64_t row = layout.shape[1] * layout.shape[2];
    const std::vector<int> expected(values.begin() + range.begin * row, values.begin() + range.end * row);
    ASSERT_EQ(ts::to_host(y), expected) << ts::sharded_type_text(x);
    ASSERT_EQ(ts::sharding(y), ts::sharding(x));
    ASSERT_EQ(ts::shape(y)[0], range.size());
  }
}

TEST(batches, rows_outside_are_errors) {
  const auto x = ts::zeros<float>({4, 2}, ts::Mesh({{"x", 2}}), {"x"});
  expect_error(
      ts::errc::dim_range,
      [&] {
        ts::rows_of(x, {2, 5});
      },
      "2 to 5", "f32[4,2]{x,-}", "batches_test.cpp");
  expect_error(ts::errc::dim_range, [&] { ts::rows_of(x, {-1, 2}); });
  expect_error(ts::errc::dim_range, [&] { ts::rows_of(x, {3, 2}); });
}
