#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/compare_models.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/update_shards.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

constexpr ts::Mesh mesh({{"x", 2}, {"y", 3}});

struct Deep {
  ts::Stack<ts::ShardedTensor<float, 1>> layers;
  ts::Dim heads;
  static constexpr std::array field_names{"layers", "heads"};
};

TEST(compare, values_are_equal_however_they_lie) {
  std::mt19937 random(21);
  for (int round = 0; round < 200; ++round) {
    const auto a = tessera_test::random_spec_layout(random, 2);
    const ts::Mesh other = tessera_test::random_mesh(random);
    const ts::PartitionSpec spec = ts::spec_of(tessera_test::random_sharding(random, other, 2, false), other);
    std::vector<int> values;
    for (std::int64_t i = 0; i < ts::volume(a.shape); ++i) values.push_back(static_cast<int>(random() % 9));
    const auto x = ts::shard<2>(values, a.shape, a.mesh, a.spec), y = ts::shard<2>(values, a.shape, other, spec);
    ASSERT_TRUE(ts::all_equal(x, y));
    ASSERT_TRUE(ts::all_equal(x, x));
    if (values.empty()) continue;
    values[random() % values.size()] += 1;
    ASSERT_FALSE(ts::all_equal(x, ts::shard<2>(values, a.shape, other, spec)));
  }
}

TEST(compare, of_floats_as_floats_compare) {
  const auto x = ts::shard<float>({1, 0, 3}, mesh, {"y"}), y = ts::shard<float>({1, -0.f, 3}, mesh, {"y"});
  EXPECT_TRUE(ts::all_equal(x, y));
  const auto nan = ts::shard<float>({1, NAN, 3}, mesh, {"y"});
  EXPECT_FALSE(ts::all_equal(nan, nan));
  const auto small = [&](auto type) {
    const auto x = ts::full<decltype(type)>({3}, decltype(type)(NAN), mesh, {"y"});
    return ts::all_equal(x, x);
  };
  EXPECT_FALSE(small(ts::bf16()));
  EXPECT_FALSE(small(ts::f16()));
  EXPECT_FALSE(small(ts::f8_e4m3()));
  EXPECT_FALSE(small(ts::f8_e5m2()));
  EXPECT_FALSE(ts::all_equal(x, ts::shard<float>({1, 0}, mesh, {"y"})));
}

TEST(compare, ways_to_store_make_no_difference) {
  const ts::PartitionSpec specs[]{{"x", "y"}, {}, ts::PartitionSpec{"x", "y"}.gathered_on_use(), {{"y", "x"}}};
  for (const auto& a : specs)
    for (const auto& b : specs)
      EXPECT_TRUE(ts::all_equal(ts::ones<float>({5, 4}, mesh, a), ts::ones<float>({5, 4}, mesh, b)));
}

TEST(compare, tensors_that_lie_alike_need_no_communication) {
  const auto x = ts::ones<float>({6, 6}, mesh, {"x", "y"});
  ts::CommunicationScope scope;
  EXPECT_TRUE(ts::all_equal(x, ts::full<float>({6, 6}, 1, mesh, {"x", "y"})));
  EXPECT_EQ(scope.wire_bytes(), 0);
  EXPECT_TRUE(ts::all_equal(x, ts::full<float>({6, 6}, 1, mesh, {ts::none, "y"})));
  EXPECT_FALSE(ts::all_equal(ts::full<float>({6, 6}, 2, mesh), x));
  EXPECT_GT(scope.wire_bytes(), 0);
}

TEST(compare, layouts_have_a_hash) {
  const auto x = ts::ones<float>({6, 6}, mesh, {"x", "y"}), same = ts::zeros<float>({6, 6}, mesh, {"x", "y"});
  EXPECT_TRUE(ts::same_sharded_type(x, same));
  EXPECT_EQ(ts::sharded_type_hash(x), ts::sharded_type_hash(same));
  const auto differs = [&](const auto& y) {
    return !ts::same_sharded_type(x, y) && ts::sharded_type_hash(x) != ts::sharded_type_hash(y);
  };
  EXPECT_TRUE(differs(ts::ones<float>({6, 6}, mesh, {"y", "x"})));
  EXPECT_TRUE(differs(ts::ones<float>({6, 6}, mesh, {{"x", "y"}})));
  EXPECT_TRUE(differs(ts::ones<float>({6, 6}, mesh, {{"y", "x"}})));
  EXPECT_TRUE(differs(ts::ones<float>({6, 6}, mesh, ts::PartitionSpec{"x", "y"}.gathered_on_use())));
  EXPECT_TRUE(differs(ts::ones<double>({6, 6}, mesh, {"x", "y"})));
  EXPECT_TRUE(differs(ts::ones<float>({6, 7}, mesh, {"x", "y"})));
  EXPECT_TRUE(differs(ts::ones<float>({6, 6}, ts::Mesh({{"x", 3}, {"y", 2}}), {"x", "y"})));
  EXPECT_TRUE(differs(ts::ones<float>({6, 6, 1}, mesh, {"x", "y"})));
}

// Where one model has a number, a deeper model has a tensor.
TEST(compare, models_of_other_depths_differ) {
  const auto deep = [](int layers, int heads) {
    return Deep{ts::Stack<ts::ShardedTensor<float, 1>>(layers, [](int) { return ts::ones<float>({4}, mesh); }),
                ts::Dim(heads)};
  };
  EXPECT_TRUE(ts::all_equal(deep(2, 5), deep(2, 5)));
  EXPECT_FALSE(ts::all_equal(deep(2, 5), deep(2, 6)));
  EXPECT_TRUE(ts::same_sharded_type(deep(2, 5), deep(2, 6)));
  EXPECT_FALSE(ts::all_equal(deep(2, 5), deep(1, 5)));
  EXPECT_FALSE(ts::all_equal(deep(1, 5), deep(2, 5)));
  EXPECT_FALSE(ts::same_sharded_type(deep(2, 5), deep(1, 5)));
  EXPECT_FALSE(ts::same_sharded_type(deep(1, 5), deep(2, 5)));
}

TEST(update_shards, writes_in_place_when_nobody_else_looks) {
  auto x = ts::ones<float>({4, 6}, mesh, {"x", "y"});
  const auto* before = &ts::storage_of(x);
  int shards = 0;
  ts::update_shards(x, [&](const ts::Box& box, std::span<float> values) {
    ++shards;
    EXPECT_EQ(ts::extents(box), (ts::Shape{2, 2}));
    for (float& value : values) value += static_cast<float>(box.begin[0]);
  });
  EXPECT_EQ(shards, 6);
  EXPECT_EQ(&ts::storage_of(x), before);
  EXPECT_EQ(ts::to_host(x)[0], 1.f);
  EXPECT_EQ(ts::to_host(x)[23], 3.f);
}

TEST(update_shards, copies_keep_what_they_have) {
  auto x = ts::ones<float>({4, 6}, mesh, {"x"});
  const auto copy = x;
  const auto shards = ts::local_shards(x);
  const auto set = [&](const ts::Box&, std::span<float> values) { values[0] = 9; };
  ts::update_shards(x, set);
  EXPECT_EQ(ts::to_host(x)[0], 9.f);
  EXPECT_EQ(ts::to_host(copy), std::vector<float>(24, 1.f));
  EXPECT_EQ(shards[0].data[0], 1.f);
  const auto thrower = [](const ts::Box&, std::span<float>) { throw 1; };
  EXPECT_THROW(ts::update_shards(x, thrower), int);
  EXPECT_EQ(ts::to_host(x)[0], 9.f) << "a tensor that was not updated is still there";
  ts::ShardedTensor<float, 2> nothing;
  expect_error(ts::errc::empty_tensor, [&] { ts::update_shards(nothing, set); });
}

TEST(load_local_shards, replaces_the_elements) {
  auto x = ts::zeros<int>({5, 4}, mesh, {"x"});
  const auto copy = x;
  std::vector<int> values(20);
  for (int i = 0; i < 20; ++i) values[static_cast<std::size_t>(i)] = i;
  const auto other = ts::shard(values, {5, 4}, mesh, {"x"});
  ts::load_local_shards(x, ts::local_shards(other));
  EXPECT_EQ(ts::to_host(x), values);
  EXPECT_TRUE(ts::same_sharded_type(x, copy));
  EXPECT_EQ(ts::to_host(copy), std::vector<int>(20, 0));

  std::vector<ts::LocalShard<int, 2>> few;
  for (const auto& shard : ts::local_shards(other)) few.push_back(shard);
  few.pop_back();
  expect_error(
      ts::errc::host_data, [&] { ts::load_local_shards(x, few); }, "number of shards: no shard for device 5",
      "compare_test.cpp:");
  const auto elsewhere = ts::shard(values, {5, 4}, mesh, {ts::none, "x"});
  expect_error(
      ts::errc::host_data, [&] { ts::load_local_shards(x, ts::local_shards(elsewhere)); }, "box of device 0");
  EXPECT_EQ(ts::to_host(x), values);
}

TEST(full_tensor, is_on_every_device) {
  const auto x = ts::arange<int>(7, mesh, {"y"});
  const auto whole = ts::full_tensor(x);
  EXPECT_EQ(ts::local_shards(whole)[5].data.size(), 7u);
  EXPECT_EQ(&ts::storage_of(ts::full_tensor(whole)), &ts::storage_of(whole));
  const auto like = ts::zeros<int>({7}, mesh, {"x"});
  EXPECT_TRUE(ts::same_sharded_type(ts::reshard(x, ts::sharding(like)), like));
  ts::Sharding partial = ts::replicated(1);
  partial.unreduced = 1;
  expect_error(
      ts::errc::unsupported, [&] { ts::reshard(x, partial); }, "partial sharding", "compare_test.cpp:");
  expect_error(
      ts::errc::rank_mismatch, [&] { ts::reshard(x, ts::replicated(2)); }, "i32[7]{y}");
}

}  // namespace
