#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/sharding_spec.hpp>

namespace {

using tessera::Box;
using tessera::errc;
using tessera::Mesh;
using tessera::none;
using tessera::Shape;
using tessera::ShardingSpec;
using tessera_test::expect_error;

const Mesh mesh({{"data", 4}, {"model", 2}});

TEST(ShardingSpecTest, AppliesWhereTheRanksAgree) {
  const ShardingSpec spec{mesh, {"data", none}};
  EXPECT_TRUE(spec.can_apply(2));
  EXPECT_FALSE(spec.can_apply(3));
  EXPECT_EQ(spec.resolve(2), tessera::resolve({"data"}, mesh, 2));
  // PyTorch/XLA leaves the tensor unsharded without an error.
  for (int rank : {1, 3})
    expect_error(
        errc::rank_mismatch, [&] { (void)spec.resolve(rank); }, "{data,-}", "2 entries", std::to_string(rank));
  EXPECT_EQ(spec.global_shape({6, 3}, 2), (Shape{6, 3}));
}

// Two hosts of four devices: each splits its own 6 rows over the two places along "data" that are its own.
TEST(ShardingSpecTest, AMinibatchIsSplitOverTheDevicesOfItsHost) {
  const ShardingSpec spec{mesh, {"data", none}, true};
  EXPECT_EQ(spec.global_shape({6, 3}, 2), (Shape{12, 3}));
  for (int device = 0; device < 8; ++device) {
    const std::int64_t first = device / 2 % 2 * 3;
    EXPECT_EQ(spec.local_box({6, 3}, 2, device), (Box{{first, 0}, {first + 3, 3}})) << device;
  }
  EXPECT_EQ(spec.global_shape({6, 3}, 4), (Shape{24, 3}));
  EXPECT_EQ(spec.local_box({6, 3}, 4, 5), (Box{{0, 0}, {6, 3}}));
  EXPECT_NE(spec, (ShardingSpec{mesh, {"data", none}}));
  EXPECT_NE(spec.hash(), (ShardingSpec{mesh, {"data", none}}.hash()));
}

TEST(ShardingSpecTest, MinibatchesThatDoNotDivideAreErrors) {
  const ShardingSpec spec{mesh, {"data", none}, true};
  expect_error(
      errc::not_divisible,
      [&] {
        (void)spec.global_shape({5, 3}, 2);
      },
      "5 rows", "2 shards");
  expect_error(
      errc::not_divisible,
      [&] {
        (void)spec.global_shape({6, 3}, 3);
      },
      "8 devices", "3 hosts");
  expect_error(
      errc::not_divisible,
      [&] {
        (void)spec.global_shape({6, 3}, 8);
      },
      "4 shards", "8 hosts");
  expect_error(
      errc::not_divisible,
      [] {
        (void)ShardingSpec{mesh, {none}, true}.global_shape({6}, 2);
      },
      "1 shards");
  expect_error(
      errc::not_divisible,
      [&] {
        (void)spec.global_shape({6, 3}, 0);
      },
      "0 hosts");
  expect_error(errc::rank_mismatch, [] { (void)ShardingSpec{mesh, {}, true}.global_shape({}, 1); });
  // Along "model" the rows of one host would be on the devices of another.
  const ShardingSpec across{mesh, {"model", none}, true};
  expect_error(
      errc::mesh_devices,
      [&] {
        (void)across.local_box({6, 3}, 2, 1);
      },
      "device 1", "{model,-}");
}

}  // namespace
