#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_tensor.hpp"
#include <gtest/gtest.h>

#include <tessera/ops/ops.hpp>
#include <tessera/runtime/transport/communication.hpp>
#include <tessera/tensor/annotation.hpp>
#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

constexpr ts::Mesh mesh({{"x", 2}, {"y", 3}});

std::vector<int> counted(std::int64_t n) {
  std::vector<int> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<int>(i));
  return values;
}

TEST(annotation, a_mark_lays_a_replicated_tensor_out) {
  auto x = ts::shard(counted(20), {5, 4}, mesh);
  ts::CommunicationScope scope;
  const auto& same = ts::mark_sharding(x, {"x", "y"});
  EXPECT_EQ(&same, &x);
  EXPECT_EQ(ts::sharded_type_text(x), "i32[5,4]{x,y}");
  EXPECT_EQ(ts::to_host(x), counted(20));
  EXPECT_EQ(scope.wire_bytes(), 0);
}

TEST(annotation, the_same_mark_again_is_nothing) {
  auto x = ts::shard(counted(20), {5, 4}, mesh, {"x"});
  const auto* before = &ts::storage_of(x);
  ts::mark_sharding(x, {"x"});
  ts::mark_sharding(x, {"x", ts::none});
  EXPECT_EQ(&ts::storage_of(x), before);
}

// It is what was written that is printed, and what it means that is compared, planned and counted.
TEST(annotation, an_axis_of_size_1_splits_nothing) {
  const ts::Mesh one({{"data", 1}, {"model", 8}});
  ts::CommunicationScope scope({.wire_bytes = 0, .collectives = 0, .forbid_implicit_reshards = true});
  auto x = ts::shard(counted(80), {10, 8}, one, {"data"});
  EXPECT_EQ(ts::sharded_type_text(x), "i32[10,8]{data,-}");
  ts::mark_sharding(x, {ts::none, "model"});
  EXPECT_EQ(ts::sharded_type_text(x), "i32[10,8]{-,model}");
  ts::mark_sharding(x, {"data", "model"});
  EXPECT_EQ(ts::sharded_type_text(x), "i32[10,8]{data,model}");
  const auto other = [&] { ts::mark_sharding(x, {"model"}); };
  expect_error(ts::errc::annotation, other, "must be cleared first: i32[10,8]{data,model}");
  const auto y = ts::shard(counted(80), {10, 8}, one, {ts::none, "model"});
  EXPECT_TRUE(ts::same_sharded_type(x, y));
  EXPECT_EQ(ts::sharded_type_hash(x), ts::sharded_type_hash(y));
  EXPECT_TRUE(ts::all_equal(x, y));
  EXPECT_EQ(ts::to_host(ts::reshard(x, {ts::none, {"model", "data"}})), counted(80));

  constexpr auto f = ts::compile([](auto a, auto b) {
    const auto moved = ts::with_sharding(ts::transpose<1, 0>(a + b), {"model", "data"});
    return std::tuple(moved, ts::sum<0>(ts::with_sharding(a - b, {"data", "model"})));
  });
  const auto [moved, total] = f(x, y);
  EXPECT_EQ(ts::sharded_type_text(moved), "i32[8,10]{model,data}");
  EXPECT_EQ(ts::sharded_type_text(total), "i32[8]{model}");
  const auto [again, same] = f(y, x);
  EXPECT_EQ((f.cache_statistics<ts::ShardedTensor<int, 2>, ts::ShardedTensor<int, 2>>().misses), 1)
      << "one plan for all that means the same";
  EXPECT_EQ(scope.text(), "1 slice over model: 40 B, 0 B on the wire\n") << "of the first mark";
}

// A number is on the host: a sharding of it is nothing, and another value is not laid out as it is.
TEST(annotation, numbers_have_no_sharding) {
  constexpr auto f = ts::compile([](auto x, const ts::Scalar& s) {
    const auto two = ts::with_sharding(ts::full<double>({}, 2.0, x), {});
    const auto given = ts::mark_sharding(ts::full<double>({}, s, x), {});
    const auto [size, total] = ts::shard_as(ts::cast<double>(ts::extent<0>(x)) + two, ts::sum(x));
    return std::tuple(two, ts::with_sharding(two * given, {}) * x, size, total);
  });
  const auto x = ts::shard(std::vector<double>{1, 2, 3, 4, 5}, {5}, mesh, {"x"});
  const auto [two, scaled, size, total] = f(x, 3.0);
  EXPECT_EQ(ts::to_host(two), std::vector<double>{2});
  EXPECT_EQ(ts::to_host(scaled), (std::vector<double>{6, 12, 18, 24, 30}));
  EXPECT_EQ(ts::to_host(size), std::vector<double>{7});
  EXPECT_EQ(ts::to_host(total), std::vector<double>{15});
}

TEST(annotation, another_mark_is_an_error_until_the_first_is_cleared) {
  auto x = ts::shard(counted(20), {5, 4}, mesh, {"x"});
  const auto copy = x;
  const auto again = [&] { ts::mark_sharding(x, {ts::none, "y"}); };
  expect_error(ts::errc::annotation, again,
               "[mark_sharding] existing annotation must be cleared first: i32[5,4]{x,-} on mesh(x=2,y=3) to {-,y} on "
               "mesh(x=2,y=3) at annotation_test.cpp:");
  EXPECT_EQ(ts::sharded_type_text(x), "i32[5,4]{x,-}");
  EXPECT_EQ(&ts::clear_sharding(x), &x);
  EXPECT_TRUE(ts::sharding(x).is_replicated());
  again();
  EXPECT_EQ(ts::sharded_type_text(x), "i32[5,4]{-,y}");
  EXPECT_EQ(ts::to_host(x), counted(20));
  EXPECT_EQ(ts::sharded_type_text(copy), "i32[5,4]{x,-}") << "a copy is a value of its own";
}

TEST(annotation, a_replicated_tensor_may_go_to_another_mesh) {
  const ts::Mesh other({{"z", 4}});
  auto x = ts::shard(counted(20), {5, 4}, mesh);
  ts::mark_sharding(x, other, {"z"});
  EXPECT_EQ(ts::mesh(x), other);
  EXPECT_EQ(ts::to_host(x), counted(20));
  expect_error(
      ts::errc::annotation, [&] { ts::mark_sharding(x, mesh, {"x"}); }, "cleared first");
  expect_error(
      ts::errc::spec_axis, [&] { ts::mark_sharding(ts::clear_sharding(x), {"x"}); }, "'x'", "mark_sharding");
}

TEST(annotation, manual_arrays_are_the_shards) {
  const auto x = ts::shard(counted(20), {5, 4}, mesh, {"x"});
  const ts::LocalTensor<int, 2> local = ts::enable_manual_sharding(x);
  ASSERT_EQ(local.size(), 6);
  EXPECT_EQ(local.shape(0), (ts::Shape{3, 4}));
  EXPECT_EQ(local.shape(5), (ts::Shape{2, 4}));
  EXPECT_EQ(local.values(0).data(), ts::local_shards(x)[0].data.data()) << "nothing is copied";
  EXPECT_EQ(local.values(3)[0], 12);
  // Each device works for itself; the result is a tensor again once its full shape is said.
  const ts::LocalTensor<int, 2> doubled(mesh, [&](int device) {
    std::vector<int> values;
    for (const int value : local.values(device)) values.push_back(2 * value);
    return ts::LocalTensor<int, 2>::array(local.shape(device), values);
  });
  const auto y = ts::disable_manual_sharding(doubled, {"x"}, {5, 4});
  std::vector<int> wanted = counted(20);
  for (int& value : wanted) value *= 2;
  EXPECT_EQ(ts::to_host(y), wanted);
  EXPECT_EQ(ts::sharded_type_text(y), "i32[5,4]{x,-}");
}

TEST(annotation, manual_mistakes_are_named) {
  const auto x = ts::shard(counted(20), {5, 4}, mesh);
  expect_error(
      ts::errc::annotation, [&] { ts::enable_manual_sharding(x); },
      "[enable_manual_sharding] sharded tensor: i32[5,4]{-,-} is replicated at annotation_test.cpp:");
  const auto local = ts::enable_manual_sharding(ts::reshard(x, {"x"}));
  expect_error(
      ts::errc::host_data,
      [&] {
        ts::disable_manual_sharding(local, {"x"}, {8, 4});
      },
      "[disable_manual_sharding] shape on device 0: the local array is i32[3,4], but the shard [0:4,0:4] of "
      "i32[8,4]{x,-} is "
      "i32[4,4] at annotation_test.cpp:");
  const ts::LocalTensor<int, 2> differing(mesh, [&](int device) {
    return ts::LocalTensor<int, 2>::array({1, 2}, std::vector<int>{device, device});
  });
  expect_error(
      ts::errc::host_data,
      [&] {
        ts::disable_manual_sharding(differing, {"x"}, {2, 2});
      },
      "equal replicas");
}

TEST(annotation, manual_and_back_is_the_tensor) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const auto layout = tessera_test::random_spec_layout(random, 2);
    const auto x = ts::shard<2>(counted(ts::volume(layout.shape)), layout.shape, layout.mesh, layout.spec);
    if (ts::sharding(x).is_replicated()) continue;
    const auto y = ts::disable_manual_sharding(ts::enable_manual_sharding(x), layout.spec, layout.shape);
    ASSERT_EQ(ts::to_host(y), ts::to_host(x));
    ASSERT_EQ(ts::sharding(y), ts::sharding(x));
  }
}

TEST(annotation, options_of_a_compiled_function_are_part_of_its_plan) {
  constexpr auto product = [](auto x, auto w) { return ts::matmul(x, w); };
  constexpr auto automatic = ts::compile(product), strict = ts::compile(product, {.explicit_axes = {"x"}});
  const auto x = ts::ones<float>({4, 6}, mesh, {ts::none, "x"}), w = ts::ones<float>({6, 2}, mesh, {"x"});
  EXPECT_EQ(ts::to_host(automatic(x, w)), std::vector<float>(8, 6.f));
  expect_error(
      ts::errc::policy, [&] { strict(x, w); }, "[einsum] ambiguous result sharding");
  EXPECT_EQ(ts::to_host(strict(ts::reshard(x, {"x"}), ts::reshard(w, {}))), std::vector<float>(8, 6.f));
}

// The dim that broadcast_to makes is split by a constraint, and by what reads the result; of uneven shards.
TEST(annotation, a_new_dim_of_a_broadcast_is_split) {
  constexpr auto f = ts::compile([](const auto& x, const auto& row) {
    const auto wide = ts::broadcast_to(row, {ts::extent<0>(x), ts::extent<0>(row)});
    return std::tuple(wide * x, ts::with_sharding(wide * 2.0, {"x"}), ts::concat<1>(wide, x));
  });
  const std::vector<double> numbers = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, row = {3, -1};
  for (const int devices : {1, 2, 3, 4}) {
    const ts::Mesh line({{"x", devices}});
    ts::CommunicationScope scope({.wire_bytes = 0, .collectives = 0, .forbid_implicit_reshards = true});
    const auto [product, twice, beside] = f(ts::shard(numbers, {5, 2}, line, {"x"}), ts::shard(row, {2}, line, {}));
    EXPECT_EQ(ts::sharded_type_text(product), devices == 1 ? "f64[5,2]{-,-}" : "f64[5,2]{x,-}");
    EXPECT_EQ(ts::sharded_type_text(twice), "f64[5,2]{x,-}");
    EXPECT_EQ(ts::sharded_type_text(beside), devices == 1 ? "f64[5,4]{-,-}" : "f64[5,4]{x,-}");
    EXPECT_EQ(ts::to_host(product), (std::vector<double>{3, -2, 9, -4, 15, -6, 21, -8, 27, -10}));
    EXPECT_EQ(ts::to_host(twice), (std::vector<double>{6, -2, 6, -2, 6, -2, 6, -2, 6, -2}));
    EXPECT_EQ(ts::to_host(beside),
              (std::vector<double>{3, -1, 1, 2, 3, -1, 3, 4, 3, -1, 5, 6, 3, -1, 7, 8, 3, -1, 9, 10}));
  }
}

}  // namespace
