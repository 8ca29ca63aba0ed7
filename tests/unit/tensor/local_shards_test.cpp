#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <random>
#include <ranges>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

using Shards = ts::LocalShards<float, 2>;
static_assert(std::random_access_iterator<Shards::iterator>);
static_assert(std::ranges::random_access_range<const Shards>);
static_assert(std::ranges::sized_range<const Shards>);

TEST(local_shards, each_device_shows_its_box_and_data) {
  std::mt19937 random(4);
  for (int round = 0; round < 200; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 2);
    std::vector<int> values;
    for (std::int64_t i = 0; i < ts::volume(layout.shape); ++i) values.push_back(static_cast<int>(i));
    const auto x = ts::shard<2>(values, layout.shape, layout.mesh, layout.spec);
    int device = 0;
    std::vector<std::vector<int>> replicas_of(values.size() + 1);
    for (const auto& shard : ts::local_shards(x)) {
      ASSERT_EQ(shard.device, device++);
      ASSERT_EQ(shard.box,
                ts::shard_box(layout.shape, ts::sharding(x), layout.mesh, layout.mesh.coordinates_of(shard.device)));
      std::vector<int> expected;
      tessera_test::for_each_index(shard.box, [&](const ts::Shape& index) {
        expected.push_back(static_cast<int>(tessera_test::row_major(layout.shape, index)));
      });
      ASSERT_EQ(std::vector<int>(shard.data.begin(), shard.data.end()), expected);
      if (expected.empty()) continue;
      // Replica ids count the devices with one box, in the order of their ids.
      auto& seen = replicas_of[static_cast<std::size_t>(expected[0])];
      ASSERT_EQ(shard.replica_id, static_cast<int>(seen.size()));
      seen.push_back(shard.device);
    }
    ASSERT_EQ(device, layout.mesh.size());
  }
}

// By looking at all replicas for each of them this would be ten thousand million places.
TEST(local_shards, replica_ids_of_100000_devices_in_any_order) {
  const int data = 4, model = 25'000;
  std::vector<std::int32_t> order(static_cast<std::size_t>(data * model));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(11));
  const ts::Mesh mesh({{"data", data}, {"model", model}}, ts::DeviceOrder(order.data(), order.size()));
  const auto x = ts::shard<float>({1, 2, 3, 4}, mesh, {"data"});
  std::vector<int> seen(data, 0);
  const auto shards = ts::local_shards(x);
  for (const auto& shard : shards) {
    int& count = seen[static_cast<std::size_t>(shard.data[0]) - 1];
    ASSERT_EQ(shard.replica_id, count++);
    ASSERT_EQ(shards[static_cast<std::size_t>(shard.device)].replica_id, shard.replica_id);
  }
  EXPECT_EQ(seen, std::vector<int>(data, model));
  for (const int device : {0, 1, 54'321, 99'999})
    EXPECT_EQ(shards[static_cast<std::size_t>(device)].replica_id, ts::replica_id(mesh, ts::sharding(x), device));
}

TEST(local_shards, the_range_keeps_the_tensor_alive) {
  const ts::Mesh mesh({{"x", 2}});
  const auto shards = ts::local_shards(ts::shard<float>({1, 2, 3}, mesh, {"x"}));
  EXPECT_EQ(shards.size(), 2u);
  EXPECT_EQ(shards[1].data[0], 3.f);
  EXPECT_EQ((*(shards.begin() + 1)).device, 1);
  EXPECT_EQ(shards.end() - shards.begin(), 2);
}

TEST(local_shards, replicas_share_memory) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  const auto shards = ts::local_shards(ts::zeros<float>({4}, mesh, {"y"}));
  EXPECT_EQ(shards[0].data.data(), shards[2].data.data());
  EXPECT_NE(shards[0].data.data(), shards[1].data.data());
}

TEST(local_shards, round_trip_on_random_layouts) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 3);
    std::vector<double> values;
    for (std::int64_t i = 0; i < ts::volume(layout.shape); ++i) values.push_back(static_cast<double>(random()));
    const auto x = ts::shard<3>(values, layout.shape, layout.mesh, layout.spec);
    const auto back = ts::from_local_shards(layout.mesh, layout.spec, layout.shape, ts::local_shards(x));
    static_assert(std::is_same_v<decltype(back), const ts::ShardedTensor<double, 3>>);
    ASSERT_EQ(ts::to_host(back), values);

    // Shards with memory of their own, in another order, without boxes.
    std::vector<std::vector<double>> memory;
    std::vector<ts::LocalShard<double, 3>> own;
    for (const auto& shard : ts::local_shards(x)) memory.emplace_back(shard.data.begin(), shard.data.end());
    for (int device = static_cast<int>(memory.size()); device-- > 0;)
      own.push_back({.device = device, .box = {}, .data = memory[static_cast<std::size_t>(device)]});
    ASSERT_EQ(ts::to_host(ts::from_local_shards(layout.mesh, layout.spec, layout.shape, own)), values);
  }
}

TEST(local_shards, shards_that_do_not_fit_are_errors) {
  const ts::Mesh mesh({{"x", 2}, {"y", 2}});
  const auto load = [&](std::vector<ts::LocalShard<float, 1>> shards) {
    return ts::from_local_shards(mesh, {"x"}, {3}, shards);
  };
  const float low[] = {1, 2}, high[] = {3}, other[] = {1, 5};
  const ts::LocalShard<float, 1> first{0, 0, {{0}, {2}}, low}, second{1, 1, {{0}, {2}}, low};
  const ts::LocalShard<float, 1> third{2, 0, {{2}, {3}}, high}, fourth{3, 1, {{2}, {3}}, high};
  EXPECT_EQ(ts::to_host(load({first, second, third, fourth})), (std::vector<float>{1, 2, 3}));

  auto wrong = third;
  expect_error(
      ts::errc::host_data,
      [&] {
        load({first, second, third});
      },
      "no shard for device 3", "local_shards_test.cpp");
  expect_error(
      ts::errc::host_data,
      [&] {
        load({first, second, third, third});
      },
      "two shards for device 2");
  wrong.device = 4;
  expect_error(
      ts::errc::host_data,
      [&] {
        load({first, second, third, wrong});
      },
      "4", "mesh(x=2,y=2)");
  wrong = third;
  wrong.data = low;
  expect_error(
      ts::errc::host_data,
      [&] {
        load({first, second, wrong, fourth});
      },
      "device 2", "2 values", "[2:3]");
  wrong = third;
  wrong.box = {{0}, {1}};
  expect_error(
      ts::errc::host_data,
      [&] {
        load({first, second, wrong, fourth});
      },
      "[0:1]", "[2:3]", "f32[3]{x}");
  // A box of another rank is a wrong box, not one that was left out.
  for (const ts::Box& box : {ts::Box{{2, 0}, {3, 1}}, ts::Box{{2}, {3, 1}}, ts::Box{{}, {3}}, ts::Box{{2}, {}}}) {
    wrong.box = box;
    expect_error(
        ts::errc::host_data,
        [&] {
          load({first, second, wrong, fourth});
        },
        "box of device 2", "[2:3]");
  }
  wrong.box = {};
  EXPECT_EQ(ts::to_host(load({first, second, wrong, fourth})), (std::vector<float>{1, 2, 3}));
  auto unequal = second;
  unequal.data = other;
  expect_error(
      ts::errc::host_data,
      [&] {
        load({first, unequal, third, fourth});
      },
      "devices 0 and 1", "[0:2]");
  expect_error(ts::errc::rank_mismatch, [&] { ts::from_local_shards(mesh, {"x"}, {3, 1}, std::vector{first}); });
}
