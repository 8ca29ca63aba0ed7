#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>
#include <range/v3/algorithm/equal.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/reverse.hpp>

#include <tessera/interop/range_v3.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

static_assert(ranges::view_<ts::LocalShards<float, 2>>);
static_assert(ranges::random_access_range<ts::LocalShards<float, 2>>);
static_assert(ranges::sized_range<ts::LocalShards<float, 2>>);

TEST(range_v3, shards_are_a_view) {
  const ts::Mesh mesh({{"x", 2}, {"y", 3}});
  const auto x = ts::arange<int>(7, mesh, {"y"});
  auto sums = ts::local_shards(x) | ranges::views::reverse | ranges::views::transform([](const auto& shard) {
                return std::accumulate(shard.data.begin(), shard.data.end(), 0);
              });
  EXPECT_EQ(ranges::to<std::vector>(sums), (std::vector<int>{6, 12, 3, 6, 12, 3}));
}

TEST(range_v3, distinct_shards_leave_replicas_out) {
  const ts::Mesh mesh({{"x", 2}, {"y", 3}});
  std::vector<int> all;
  for (const auto& shard : ts::views::distinct_shards(ts::arange<int>(7, mesh, {"y"})))
    all.insert(all.end(), shard.data.begin(), shard.data.end());
  EXPECT_EQ(all, (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(range_v3, devices_of_a_mesh) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}}, {3, 2, 1, 0});
  int id = 0;
  for (const ts::Device& device : ts::views::devices(mesh)) {
    EXPECT_EQ(device.id, id++);
    EXPECT_EQ(mesh.device_at(device.coordinates), device.id);
  }
  EXPECT_EQ(id, 4);
}

TEST(range_v3, batches_of_a_number_of_rows) {
  using Rows = std::vector<ts::RowRange>;
  EXPECT_EQ(ranges::to<std::vector>(ts::views::batches(7, 3, ts::Ragged::keep)), (Rows{{0, 3}, {3, 6}, {6, 7}}));
  EXPECT_EQ(ranges::to<std::vector>(ts::views::batches(7, 3, ts::Ragged::drop)), (Rows{{0, 3}, {3, 6}}));
  expect_error(
      ts::errc::not_divisible, [] { ts::views::batches(7, 3); }, "7 rows", "range_v3_test.cpp");
}

TEST(range_v3, batches_of_a_tensor) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard<int>({{1, 2}, {3, 4}, {5, 6}}, mesh, {"x"});
  const std::vector<std::vector<int>> expected{{1, 2, 3, 4}, {5, 6}};
  for (auto [i, batch] : ts::views::batches(x, 2, ts::Ragged::keep) | ranges::views::enumerate) {
    EXPECT_EQ(ts::to_host(batch), expected[static_cast<std::size_t>(i)]);
    EXPECT_EQ(ts::sharding(batch), ts::sharding(x));
  }
}

TEST(range_v3, batches_of_host_values_are_laid_out_when_reached) {
  const ts::Mesh mesh({{"x", 2}});
  std::vector<float> values(14);
  std::iota(values.begin(), values.end(), 0.f);
  std::vector<float> seen;
  for (auto batch : ts::views::batches(values, {7, 2}, 3, mesh, {"x"}, ts::Ragged::drop)) {
    static_assert(std::is_same_v<decltype(batch), ts::ShardedTensor<float, 2>>);
    EXPECT_EQ(ts::shape(batch), (ts::Shape{3, 2}));
    const auto host = ts::to_host(batch);
    seen.insert(seen.end(), host.begin(), host.end());
  }
  EXPECT_TRUE(ranges::equal(seen, std::span(values).first(12)));
  const std::span<const float> span(values);
  EXPECT_EQ(ranges::distance(ts::views::batches(span, {7, 2}, 3, mesh, {}, ts::Ragged::keep)), 3);
  expect_error(
      ts::errc::host_data,
      [&] {
        ts::views::batches(values, {7, 3}, 7, mesh);
      },
      "14 values for f32[7,3]", "21");
  const std::vector<float> none;
  EXPECT_EQ(ranges::distance(ts::views::batches(none, {0, 2}, 3, mesh)), 0);
}
