#include <cstdint>
#include <random>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/sharding.hpp>
#include <tessera/mesh/sharding_string.hpp>

namespace {

using tessera::Box;
using tessera::Coordinates;
using tessera::errc;
using tessera::Mesh;
using tessera::none;
using tessera::PartitionSpec;
using tessera::resolve;
using tessera::Shape;
using tessera::ShardGrid;
using tessera::Sharding;
using tessera_test::expect_error;

TEST(ShardingTest, ResolveLooksNamesUp) {
  const Mesh mesh({{"x", 2}, {"y", 4}, {"z", 3}});
  const Sharding sharding = resolve({"z", none, {"y", "x"}}, mesh, 4);
  EXPECT_EQ(sharding.rank, 4);
  EXPECT_EQ(sharding.dims[0], (tessera::AxisList{2}));
  EXPECT_TRUE(sharding.dims[1].empty());
  EXPECT_EQ(sharding.dims[2], (tessera::AxisList{1, 0}));
  EXPECT_TRUE(sharding.dims[3].empty());
  EXPECT_EQ(sharding.used_axes(), 0b111);
  EXPECT_EQ(tessera::shard_count(sharding, mesh, 2), 8);
  EXPECT_EQ(tessera::shard_count(sharding, mesh, 3), 1);
  expect_error(
      errc::dim_range, [&] { (void)tessera::shard_count(sharding, mesh, 4); }, "4");
}

TEST(ShardingTest, ResolveErrorsNameTheSpecTheRankAndTheMesh) {
  const Mesh mesh({{"data", 2}, {"model", 4}});
  expect_error(
      errc::spec_axis,
      [&] {
        (void)resolve({"data", "modle"}, mesh, 2);
      },
      "'modle'", "unknown", "{data,modle}", "rank 2", "mesh(data=2,model=4)");
  expect_error(
      errc::spec_axis,
      [&] {
        (void)resolve({"data", {"model", "data"}}, mesh, 3);
      },
      "'data'", "twice", "{data,(model,data)}", "rank 3", "mesh(data=2,model=4)");
  expect_error(
      errc::spec_axis,
      [&] {
        (void)resolve({{"data", "data"}}, mesh, 1);
      },
      "twice");
  expect_error(
      errc::spec_axis, [&] { (void)resolve({"data"}, Mesh(), 1); }, "unknown", "mesh()");
  expect_error(
      errc::spec_rank,
      [&] {
        (void)resolve({"data", none}, mesh, 1);
      },
      "{data,-}", "rank 1", "mesh(data=2,model=4)");
  expect_error(
      errc::spec_rank, [&] { (void)resolve({none}, mesh, 0); }, "{-}", "rank 0");
  expect_error(
      errc::capacity, [&] { (void)resolve({}, mesh, 9); }, "9");
  EXPECT_TRUE(resolve({}, mesh, 0).is_replicated());
}

TEST(ShardingTest, ResolveCarriesPriorities) {
  const Mesh mesh({{"fsdp", 2}, {"model", 4}});
  const Sharding stored = resolve(PartitionSpec({"fsdp", "model", none}).gathered_on_use(0), mesh, 3);
  EXPECT_EQ(stored.priority[0], 1);
  EXPECT_EQ(stored.priority[1], 0);
  const Sharding plain = resolve({"fsdp", "model", none}, mesh, 3);
  EXPECT_NE(stored, plain);
  EXPECT_NE(stored.hash(), plain.hash());
  EXPECT_EQ(stored.without_priority(), plain);
}

TEST(ShardingTest, SpecOfInvertsResolve) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    const int rank = static_cast<int>(random() % 4);
    const Sharding sharding = tessera_test::random_sharding(random, mesh, rank, false);
    ASSERT_EQ(resolve(tessera::spec_of(sharding, mesh), mesh, rank), sharding);
    ASSERT_EQ(resolve(tessera::parse_spec(tessera::text(sharding, mesh)), mesh, rank), sharding);
  }
}

TEST(ShardingTest, TextShowsUnreducedAxes) {
  const Mesh mesh({{"x", 2}, {"y", 4}, {"z", 3}});
  Sharding sharding = resolve({"y", none}, mesh, 2);
  sharding.unreduced = 0b101;
  EXPECT_EQ(tessera::text(sharding, mesh), "{y,-}+sum(x,z)");
  sharding.reduction = tessera::Reduction::max;
  EXPECT_EQ(tessera::text(sharding, mesh), "{y,-}+max(x,z)");
  EXPECT_TRUE(sharding.uses(0) && sharding.uses(1) && sharding.uses(2));
  EXPECT_EQ(sharding.without_unreduced(), resolve({"y", none}, mesh, 2));
  EXPECT_FALSE(sharding.without_unreduced().uses(0));
}

TEST(ShardingTest, HashesTellLayoutsApart) {
  const Mesh mesh({{"x", 2}, {"y", 2}, {"z", 2}});
  std::vector<Sharding> all;
  const PartitionSpec entries[] = {{none}, {"x"}, {"y"}, {"z"}, {{"x", "y"}}, {{"y", "x"}}, {{"x", "z"}}};
  for (const PartitionSpec& a : entries)
    for (const PartitionSpec& b : entries)
      for (std::uint16_t unreduced : {0, 1, 2, 4}) {
        Sharding sharding = resolve(a, mesh, 2);
        sharding.dims[1] = resolve(b, mesh, 1).dims[0];
        sharding.unreduced = unreduced;
        all.push_back(sharding);
      }
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < all.size(); ++j) {
      ASSERT_EQ(all[i] == all[j], i == j);
      ASSERT_EQ(all[i].hash() == all[j].hash(), i == j);
    }
  EXPECT_NE(tessera::replicated(1).hash(), tessera::replicated(2).hash());
}

TEST(ShardingTest, ResolveLooksIndicesUp) {
  const Mesh named({{"x", 2}, {"y", 4}, {"z", 3}});
  EXPECT_EQ(resolve({2, none, {1, "x"}}, named, 4), resolve({"z", none, {"y", "x"}}, named, 4));
  const Mesh plain = tessera::unnamed_mesh({2, 4, 3});
  EXPECT_EQ(resolve({2, none, {1, 0}}, plain, 4), resolve({"z", none, {"y", "x"}}, named, 4));
  EXPECT_EQ(tessera::spec_of(resolve({2, none, {1, 0}}, plain, 3), plain), PartitionSpec({2, none, {1, 0}}));
  // The name and the index of an axis mean the same axis.
  expect_error(
      errc::spec_axis,
      [&] {
        (void)resolve({"y", 1}, named, 2);
      },
      "'1'", "twice");
  expect_error(
      errc::spec_axis, [&] { (void)resolve({3}, named, 1); }, "'3'", "unknown", "mesh(x=2,y=4,z=3)");
}

// A sub-axis is a part of the coordinate along its axis: of x = 4 the devices 0 to 3 are (0,0), (0,1), (1,0), (1,1).
TEST(ShardingTest, SubAxesSplitDims) {
  const Mesh mesh({{"x", 4}});
  const Sharding tiles = resolve({tessera::sub_axis("x", 1, 2), tessera::sub_axis("x", 2, 2)}, mesh, 2);
  for (int device = 0; device < 4; ++device)
    EXPECT_EQ(device_box({2, 4}, tiles, mesh, device),
              (Box{{device / 2, device % 2 * 2}, {device / 2 + 1, device % 2 * 2 + 2}}));
  EXPECT_EQ(tessera::text(tiles, mesh), "{x:(1)2,x:(2)2}");
  EXPECT_EQ(resolve({"x:(1)2", "x:(2)2"}, mesh, 2), tiles);
  EXPECT_EQ(resolve(tessera::parse_spec("{x:(1)2,x:(2)2}"), mesh, 2), tiles);
  EXPECT_EQ(resolve(tessera::spec_of(tiles, mesh), mesh, 2), tiles);
  EXPECT_NE(resolve({"x:(2)2", "x:(1)2"}, mesh, 2), tiles);
  EXPECT_NE(resolve({"x:(2)2", "x:(1)2"}, mesh, 2).hash(), tiles.hash());
  // Sub-axes that make up a whole axis are that axis.
  EXPECT_EQ(resolve({{"x:(1)2", "x:(2)2"}}, mesh, 1), resolve({"x"}, mesh, 1));
  EXPECT_NE(resolve({{"x:(2)2", "x:(1)2"}}, mesh, 1), resolve({"x"}, mesh, 1));
  EXPECT_EQ(resolve({"x:(1)4"}, mesh, 1), resolve({"x"}, mesh, 1));
  EXPECT_EQ(tessera::text(resolve({{"x:(2)2", "x:(1)2"}}, mesh, 1), mesh), "{(x:(2)2,x:(1)2)}");
  // Of axes without names, by their indices.
  const Mesh plain = tessera::unnamed_mesh({4, 2});
  const Sharding by_index = resolve({tessera::sub_axis(0, 2, 2), 1}, plain, 2);
  EXPECT_EQ(tessera::text(by_index, plain), "{0:(2)2,1}");
  EXPECT_EQ(resolve(tessera::spec_of(by_index, plain), plain, 2), by_index);
  static_assert(resolve({tessera::sub_axis("x", 1, 2)}, Mesh({{"x", 4}}), 1).cuts.size() == 1);
}

TEST(ShardingTest, SubAxesThatAreNoneAreErrors) {
  const Mesh mesh({{"x", 12}, {"y", 2}});
  expect_error(
      errc::spec_axis,
      [&] {
        (void)resolve({"x:(1)4", "x:(2)2"}, mesh, 2);
      },
      "'x'", "twice", "{x:(1)4,x:(2)2}");
  expect_error(
      errc::spec_axis,
      [&] {
        (void)resolve({"x", "x:(2)2"}, mesh, 2);
      },
      "'x'", "twice");
  expect_error(
      errc::spec_axis, [&] { (void)resolve({"z:(1)2"}, mesh, 2); }, "'z:(1)2'", "unknown");
  for (const char* name : {"x:(1)5", "x:(5)2", "x:(1)1", "x:(12)2", "y:(2)2"})
    expect_error(
        errc::not_divisible, [&] { (void)resolve({name}, mesh, 2); }, name, "mesh(x=12,y=2)");
  expect_error(
      errc::not_divisible,
      [&] {
        (void)resolve({"x:(1)2", "x:(3)2"}, mesh, 2);
      },
      "mesh(x=12,y=2)");
  for (const int size : {-1, 0, 1})
    expect_error(
        errc::spec_axis, [&] { (void)tessera::sub_axis("x", 1, size); }, "'x'");
  expect_error(
      errc::spec_axis, [&] { (void)tessera::sub_axis("x", 0, 2); }, "'x'");
  expect_error(errc::capacity, [&] {
    (void)resolve({"x:(1)2", "x:(2)2", "x:(4)2", "x:(8)2", "x:(16)2"}, Mesh({{"x", 64}}), 5);
  });
  expect_error(errc::capacity, [&] { (void)resolve({"x:(16384)2"}, Mesh({{"x", 1 << 16}}), 1); });
}

// Every function of a sharding with sub-axes agrees with that on the mesh in which these are axes.
TEST(ShardingTest, SubAxesAreAxesOfTheRefinedMesh) {
  std::mt19937 random(17);
  for (int round = 0; round < 400; ++round) {
    const Mesh base = tessera_test::random_mesh(random);
    tessera::AxisTable larger = base.axes();
    std::int64_t size = base.size();
    for (tessera::Axis& axis : larger)
      if (size <= 16 && random() % 2) {
        axis.size *= 4;
        size *= 4;
      }
    const Mesh mesh(larger);
    tessera::AxisCuts cuts;
    for (int axis = 0; axis < mesh.rank(); ++axis)
      for (int before = 2; before < mesh.axis_size(axis); ++before) {
        tessera::AxisCuts more = cuts;
        if (random() % 2 && more.add(axis, before) && tessera::can_cut(mesh, more)) cuts = more;
      }
    const Mesh refined = tessera::refined_mesh(mesh, cuts);
    const int rank = static_cast<int>(random() % 4);
    const Sharding fine = tessera_test::random_sharding(random, refined, rank, true);
    Sharding cut = fine;
    cut.cuts = cuts;
    const Sharding least = canonical(cut, mesh);
    ASSERT_EQ(canonical(least, mesh), least);
    ASSERT_EQ(tessera::text(cut, mesh), tessera::text(fine, refined));
    const Sharding split = least.without_unreduced();
    ASSERT_EQ(canonical(resolve(spec_of(split, mesh), mesh, rank), mesh), canonical(split, mesh)) << text(split, mesh);
    ASSERT_TRUE(same_placement(least, mesh, fine, refined));
    ASSERT_EQ(canonical(tessera::refined_sharding(least, mesh, cuts), refined), canonical(fine, refined));
    Shape shape;
    for (int dim = 0; dim < rank; ++dim) {
      shape.push_back(static_cast<std::int64_t>(random() % 9));
      ASSERT_EQ(shard_count(least, mesh, dim), shard_count(fine, refined, dim));
    }
    const ShardGrid grid(mesh, cut), expected(refined, fine);
    ASSERT_EQ(grid.count(), expected.count());
    ASSERT_EQ(ShardGrid(mesh, least).count(), expected.count());
    for (int device = 0; device < mesh.size(); ++device) {
      const Coordinates at = mesh.coordinates_of(device), place = refined.coordinates_of(device);
      ASSERT_EQ(device_box(shape, least, mesh, device), device_box(shape, fine, refined, device));
      ASSERT_EQ(grid.index_of(at), expected.index_of(place));
      ASSERT_EQ(ShardGrid(mesh, least).index_of(at), expected.index_of(place));
      ASSERT_EQ(grid.replica_of(at), expected.replica_of(place));
      ASSERT_EQ(replica_id(mesh, least, device), replica_id(refined, fine, device));
      ASSERT_EQ(mesh.device_at(grid.coordinates(grid.index_of(at), grid.replica_of(at))), device);
    }
    Shape index = shape;
    bool inside = true;
    for (std::int64_t& i : index) {
      inside = inside && i > 0;
      if (i > 0) i = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(i));
    }
    if (inside) {
      ASSERT_EQ(locate(index, shape, least, mesh), locate(index, shape, fine, refined));
    }
  }
}

}  // namespace
