#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/sharding.hpp>

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

/// The position of these axis coordinates in the sorted list of all coordinates: the meaning of "merged, major first".
std::int64_t merged_index(const Mesh& mesh, const tessera::AxisList& axes, const Coordinates& place) {
  std::set<std::vector<int>> all;
  const auto key = [&](const Coordinates& c) {
    std::vector<int> k;
    for (std::uint8_t axis : axes) k.push_back(c[axis]);
    return k;
  };
  for (int device = 0; device < mesh.size(); ++device) all.insert(key(mesh.coordinates_of(device)));
  return std::distance(all.begin(), all.find(key(place)));
}

// Every device's box against the definition: index i of a dim of n over k shards is in shard i / ceil(n/k).
TEST(ShardBoxTest, HoldsWhatTheDefinitionSays) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    const int rank = static_cast<int>(random() % 4);
    const Sharding sharding = tessera_test::random_sharding(random, mesh, rank, true);
    Shape shape;
    for (int dim = 0; dim < rank; ++dim) shape.push_back(static_cast<std::int64_t>(random() % 14));
    for (int device = 0; device < mesh.size(); ++device) {
      const Coordinates place = mesh.coordinates_of(device);
      const Box box = tessera::shard_box(shape, sharding, mesh, place);
      for (int dim = 0; dim < rank; ++dim) {
        std::int64_t k = 1;
        for (std::uint8_t axis : sharding.dims[dim]) k *= mesh.axis_size(axis);
        const std::int64_t chunk = (shape[dim] + k - 1) / k;
        const std::int64_t mine = merged_index(mesh, sharding.dims[dim], place);
        ASSERT_LE(0, box.begin[dim]);
        ASSERT_LE(box.begin[dim], box.end[dim]);
        ASSERT_LE(box.end[dim], shape[dim]);
        for (std::int64_t i = 0; i < shape[dim]; ++i)
          ASSERT_EQ(box.begin[dim] <= i && i < box.end[dim], i / chunk == mine)
              << tessera::text(sharding, mesh) << " dim " << dim << " of " << shape[dim] << " index " << i;
      }
    }
  }
}

// All small extents, axis sizes and orders, against rows dealt out one at a time: a shard is filled before the next
// shard begins.
TEST(ShardBoxTest, AllSmallCases) {
  for (int x = 1; x <= 4; ++x)
    for (int y = 1; y <= 4; ++y)
      for (const PartitionSpec& spec : {PartitionSpec({"x"}), PartitionSpec({{"x", "y"}}), PartitionSpec({{"y", "x"}})})
        for (std::int64_t n = 0; n <= 20; ++n) {
          const Mesh mesh({{"x", x}, {"y", y}});
          const Sharding sharding = resolve(spec, mesh, 1);
          const std::int64_t shards = tessera::shard_count(sharding, mesh, 0);
          std::int64_t chunk = 0;
          while (chunk * shards < n) ++chunk;  // the least that holds all rows
          std::vector<std::int64_t> begin(static_cast<std::size_t>(shards), n), end = begin;
          for (std::int64_t row = 0, shard = 0; row < n; ++row) {
            const auto at = static_cast<std::size_t>(shard);
            if (begin[at] == n) begin[at] = row;
            end[at] = row + 1;
            if (end[at] - begin[at] == chunk) ++shard;
          }
          for (int i = 0; i < x; ++i)
            for (int j = 0; j < y; ++j) {
              const auto& axes = spec.entries[0].axes;
              const int shard = axes.size() == 1 ? i : axes[0] == tessera::Name("x") ? i * y + j : j * x + i;
              const Box box = tessera::shard_box({n}, sharding, mesh, {i, j});
              ASSERT_EQ(box, (Box{{begin[static_cast<std::size_t>(shard)]}, {end[static_cast<std::size_t>(shard)]}}))
                  << spec.text() << " of " << n << " on " << mesh.text() << " at " << i << "," << j;
              ASSERT_EQ(tessera::device_box({n}, sharding, mesh, i * y + j), box);
            }
        }
}

TEST(ShardBoxTest, DistinctShardsTileTheTensor) {
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    const int rank = static_cast<int>(random() % 4);
    const Sharding sharding = tessera_test::random_sharding(random, mesh, rank, false);
    Shape shape;
    for (int dim = 0; dim < rank; ++dim) shape.push_back(static_cast<std::int64_t>(random() % 9));
    std::vector<int> covered(static_cast<std::size_t>(tessera::volume(shape)), 0);
    const ShardGrid grid(mesh, sharding);
    for (int shard = 0; shard < grid.count(); ++shard) {
      const Box box = tessera::shard_box(shape, sharding, mesh, grid.coordinates(shard));
      for (std::size_t flat = 0; flat < covered.size(); ++flat) {
        bool inside = true;
        auto rest = static_cast<std::int64_t>(flat);
        for (int dim = rank - 1; dim >= 0; --dim) {
          const std::int64_t i = rest % shape[dim];
          rest /= shape[dim];
          inside = inside && box.begin[dim] <= i && i < box.end[dim];
        }
        covered[flat] += inside;
      }
    }
    for (int times : covered) ASSERT_EQ(times, 1) << tessera::text(sharding, mesh);
  }
}

TEST(ShardBoxTest, TrailingShardsMayBeShortOrEmpty) {
  const Mesh mesh({{"x", 4}});
  const Sharding sharding = resolve({"x"}, mesh, 1);
  const auto range = [&](std::int64_t n, int x) {
    const Box box = tessera::shard_box({n}, sharding, mesh, {x});
    return std::pair(box.begin[0], box.end[0]);
  };
  EXPECT_EQ(range(10, 2), std::pair(std::int64_t{6}, std::int64_t{9}));
  EXPECT_EQ(range(10, 3), std::pair(std::int64_t{9}, std::int64_t{10}));
  EXPECT_EQ(range(5, 2), std::pair(std::int64_t{4}, std::int64_t{5}));
  EXPECT_EQ(range(5, 3), std::pair(std::int64_t{5}, std::int64_t{5}));
  EXPECT_EQ(range(0, 3), std::pair(std::int64_t{0}, std::int64_t{0}));
  EXPECT_TRUE(tessera::shard_box({5}, sharding, mesh, {3}).empty());
}

TEST(ShardBoxTest, RanksMustAgree) {
  const Mesh mesh({{"x", 4}});
  const Sharding sharding = resolve({"x"}, mesh, 1);
  expect_error(
      errc::rank_mismatch,
      [&] {
        (void)tessera::shard_box({4, 4}, sharding, mesh, {0});
      },
      "2", "1");
  expect_error(
      errc::mesh_devices, [&] { (void)tessera::shard_box({4}, sharding, mesh, {}); }, "0 given for 1");
}

TEST(ShardGridTest, DevicesShareAShardIffTheirUsedCoordinatesAgree) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    const Sharding sharding = tessera_test::random_sharding(random, mesh, 2, true);
    const ShardGrid grid(mesh, sharding);
    std::map<std::vector<int>, std::vector<int>> holders;  // sorted by the used coordinates in mesh order
    for (int device = 0; device < mesh.size(); ++device) {
      std::vector<int> used;
      for (int axis = 0; axis < mesh.rank(); ++axis)
        if (sharding.uses(axis)) used.push_back(mesh.coordinates_of(device)[axis]);
      holders[used].push_back(device);
    }
    ASSERT_EQ(static_cast<std::size_t>(grid.count()), holders.size());
    ASSERT_EQ(grid.count() * grid.replicas(), mesh.size());
    int index = 0;
    for (const auto& [used, devices] : holders) {
      for (std::size_t replica = 0; replica < devices.size(); ++replica) {
        ASSERT_EQ(grid.index_of(mesh.coordinates_of(devices[replica])), index);
        ASSERT_EQ(tessera::replica_id(mesh, sharding, devices[replica]), static_cast<int>(replica));
      }
      std::set<int> found;
      for (int replica = 0; replica < grid.replicas(); ++replica) {
        const Coordinates place = grid.coordinates(index, replica);
        ASSERT_EQ(grid.index_of(place), index);
        ASSERT_EQ(grid.replica_of(place), replica);
        found.insert(mesh.device_at(place));
      }
      ASSERT_EQ(std::vector<int>(found.begin(), found.end()), devices);
      ++index;
    }
  }
}

TEST(ShardGridTest, ReplicaIdsOfTheThreeKinds) {
  const Mesh mesh({{"x", 2}, {"y", 2}});
  for (int device = 0; device < 4; ++device) {
    EXPECT_EQ(tessera::replica_id(mesh, resolve({"x", "y"}, mesh, 2), device), 0);
    EXPECT_EQ(tessera::replica_id(mesh, resolve({"x"}, mesh, 2), device), device % 2);
    EXPECT_EQ(tessera::replica_id(mesh, resolve({}, mesh, 2), device), device);
  }
}

TEST(ShardGridTest, AShardingOfAnotherMeshIsAnError) {
  const Mesh large({{"x", 2}, {"y", 2}});
  const Mesh small({{"x", 2}});
  expect_error(errc::spec_axis, [&] { ShardGrid(small, resolve({"y"}, large, 1)); });
}

TEST(BoxTest, IntersectIsTheCommonIndices) {
  for (std::int64_t a = 0; a < 5; ++a)
    for (std::int64_t b = a; b < 5; ++b)
      for (std::int64_t c = 0; c < 5; ++c)
        for (std::int64_t d = c; d < 5; ++d) {
          const Box both = tessera::intersect({{a}, {b}}, {{c}, {d}});
          std::int64_t common = 0;
          for (std::int64_t i = 0; i < 5; ++i) {
            const bool inside = a <= i && i < b && c <= i && i < d;
            common += inside;
            ASSERT_EQ(both.begin[0] <= i && i < both.end[0], inside);
          }
          ASSERT_EQ(tessera::extents(both)[0], common);
          ASSERT_EQ(both.empty(), common == 0);
        }
  EXPECT_EQ(tessera::intersect({{0, 2}, {4, 8}}, {{3, 0}, {9, 5}}), (Box{{3, 2}, {4, 5}}));
  expect_error(errc::rank_mismatch, [] { (void)tessera::intersect({{0}, {1}}, {{0, 0}, {1, 1}}); });
  EXPECT_FALSE((Box{}.empty()));
}

// Each element is in the box of the shard that locate returns, at the returned index.
TEST(LocateTest, AgreesWithTheBoxes) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    const Sharding sharding = tessera_test::random_sharding(random, mesh, 2, true);
    const Shape shape{1 + static_cast<std::int64_t>(random() % 9), 1 + static_cast<std::int64_t>(random() % 9)};
    const ShardGrid grid(mesh, sharding);
    for (std::int64_t i = 0; i < shape[0]; ++i)
      for (std::int64_t j = 0; j < shape[1]; ++j) {
        const tessera::ElementLocation place = tessera::locate({i, j}, shape, sharding, mesh);
        const Box box = tessera::shard_box(shape, sharding, mesh, grid.coordinates(place.shard));
        ASSERT_FALSE(box.empty());
        ASSERT_EQ(box.begin[0] + place.index[0], i);
        ASSERT_EQ(box.begin[1] + place.index[1], j);
        ASSERT_LT(i, box.end[0]);
        ASSERT_LT(j, box.end[1]);
      }
  }
}

TEST(LocateTest, IndicesOutsideAreErrors) {
  const Mesh mesh({{"x", 4}});
  const Sharding sharding = resolve({"x"}, mesh, 1);
  EXPECT_EQ(tessera::locate({4}, {5}, sharding, mesh), (tessera::ElementLocation{2, {0}}));
  EXPECT_EQ(tessera::locate({}, {}, tessera::replicated(0), mesh), (tessera::ElementLocation{0, {}}));
  expect_error(
      errc::dim_range, [&] { (void)tessera::locate({5}, {5}, sharding, mesh); }, "5", "dim 0");
  expect_error(
      errc::dim_range, [&] { (void)tessera::locate({-1}, {5}, sharding, mesh); }, "-1");
  expect_error(
      errc::rank_mismatch,
      [&] {
        (void)tessera::locate({0, 0}, {5}, sharding, mesh);
      },
      "2", "1");
}

}  // namespace
