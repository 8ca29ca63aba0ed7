#include <algorithm>
#include <numeric>
#include <vector>

#include "../base/expect_error.hpp"
#include "random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/sharding_string.hpp>

namespace {

using tessera::errc;
using tessera::hlo_sharding;
using tessera::HloForm;
using tessera::HloSharding;
using tessera::Mesh;
using tessera::none;
using tessera::parse_hlo_sharding;
using tessera::PartitionSpec;
using tessera::resolve;
using tessera::Sharding;
using tessera_test::expect_error;

std::string hlo(const PartitionSpec& spec, const Mesh& mesh, HloForm form) {
  return hlo_sharding(resolve(spec, mesh, 2), mesh).text(form);
}

// The strings that PyTorch/XLA and XLA print for these meshes and specs.
TEST(ShardingStringTest, PrintsWhatXlaPrints) {
  const Mesh mesh({{"data", 2}, {"model", 4}});
  EXPECT_EQ(hlo({"data", "model"}, mesh, HloForm::v1), "{devices=[2,4]0,1,2,3,4,5,6,7}");
  EXPECT_EQ(hlo({"data", "model"}, mesh, HloForm::iota), "{devices=[2,4]<=[8]}");
  EXPECT_EQ(hlo({"model", "data"}, mesh, HloForm::v1), "{devices=[4,2]0,4,1,5,2,6,3,7}");
  EXPECT_EQ(hlo({"model", "data"}, mesh, HloForm::iota), "{devices=[4,2]<=[2,4]T(1,0)}");
  EXPECT_EQ(hlo({"data"}, mesh, HloForm::v1), "{devices=[2,1,4]0,1,2,3,4,5,6,7 last_tile_dim_replicate}");
  EXPECT_EQ(hlo({"data"}, mesh, HloForm::iota), "{devices=[2,1,4]<=[8] last_tile_dim_replicate}");
  EXPECT_EQ(hlo({none, "model"}, mesh, HloForm::v1), "{devices=[1,4,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}");
  EXPECT_EQ(hlo({none, {"data", "model"}}, mesh, HloForm::v1), "{devices=[1,8]0,1,2,3,4,5,6,7}");
  EXPECT_EQ(hlo({none, {"model", "data"}}, mesh, HloForm::iota), "{devices=[1,8]<=[2,4]T(1,0)}");
  EXPECT_EQ(hlo({}, mesh, HloForm::iota), "{replicated}");
  EXPECT_EQ(hlo({"model", "data"}, Mesh({{"data", 4}, {"model", 2}}), HloForm::iota), "{devices=[2,4]<=[4,2]T(1,0)}");
}

TEST(ShardingStringTest, AxesOfSizeOneLeaveNoTrace) {
  const Mesh mesh({{"data", 4}, {"model", 1}});
  EXPECT_EQ(hlo({"data"}, mesh, HloForm::iota), "{devices=[4,1]<=[4]}");
  EXPECT_EQ(hlo({none, "model"}, mesh, HloForm::iota), "{replicated}");
  EXPECT_EQ(hlo({}, Mesh(), HloForm::iota), "{replicated}");
}

TEST(ShardingStringTest, ReplicasAscendWhateverTheDeviceOrder) {
  const Mesh mesh({{"x", 2}, {"y", 2}}, {3, 1, 2, 0});
  EXPECT_EQ(hlo({"x"}, mesh, HloForm::v1), "{devices=[2,1,2]1,3,0,2 last_tile_dim_replicate}");
  EXPECT_EQ(hlo({"x", "y"}, mesh, HloForm::v1), "{devices=[2,2]3,1,2,0}");
  EXPECT_EQ(hlo({"x", "y"}, mesh, HloForm::iota), "{devices=[2,2]3,1,2,0}");
}

TEST(ShardingStringTest, UnreducedAxesAreASubgroup) {
  const Mesh mesh({{"x", 2}, {"y", 2}, {"z", 2}});
  Sharding sharding = resolve({"x"}, mesh, 1);
  sharding.unreduced = 0b010;
  EXPECT_EQ(hlo_sharding(sharding, mesh).text(), "{devices=[2,2,2]<=[8] last_tile_dims={unreduced, replicated}}");
  sharding.unreduced = 0b110;
  EXPECT_EQ(hlo_sharding(sharding, mesh).text(), "{devices=[2,4]<=[8] last_tile_dims={unreduced}}");
  Sharding partial = tessera::replicated(1);
  partial.unreduced = 0b111;
  EXPECT_EQ(hlo_sharding(partial, mesh).text(), "{unreduced}");
}

// A tensor with one index a tile: the box of the device that the string puts at a tile must begin at that tile.
TEST(ShardingStringTest, DevicesHoldTheTilesThatTheStringSays) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    const int rank = 1 + static_cast<int>(random() % 3);
    const Sharding sharding = tessera_test::random_sharding(random, mesh, rank, true);
    const HloSharding hlo = hlo_sharding(sharding, mesh);
    for (HloForm form : {HloForm::iota, HloForm::v1})
      ASSERT_EQ(parse_hlo_sharding(hlo.text(form)), hlo) << hlo.text(form);
    ASSERT_EQ(hlo.canonical(), hlo);
    if (hlo.kind != HloSharding::Kind::tiled) continue;
    ASSERT_EQ(hlo.rank(), static_cast<std::size_t>(rank));
    tessera::Shape shape;
    for (int dim = 0; dim < rank; ++dim) shape.push_back(hlo.tile[static_cast<std::size_t>(dim)]);
    const std::int64_t group = hlo.devices.size() / tessera::volume(shape);
    for (std::int64_t i = 0; i < hlo.devices.size(); ++i) {
      const auto box = tessera::shard_box(shape, sharding, mesh, mesh.coordinates_of(hlo.devices[i]));
      std::int64_t tile = 0;
      for (int dim = 0; dim < rank; ++dim) tile = tile * shape[dim] + box.begin[dim];
      ASSERT_EQ(tile, i / group) << hlo.text(HloForm::v1);
    }
  }
}

TEST(ShardingStringTest, IotaIsAReshapedTransposedRange) {
  const tessera::DeviceOrder expected{0, 2, 4, 6, 1, 3, 5, 7};
  EXPECT_EQ(parse_hlo_sharding("{devices=[2,4]<=[4,2]T(1,0)}").devices, expected);
  EXPECT_EQ(parse_hlo_sharding("{devices=[2,2,2]<=[2,2,2]T(2,0,1)}").devices, expected);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(expected[i], i < 4 ? 2 * i : 2 * i - 7);
  // Two spellings of one order print alike.
  EXPECT_EQ(parse_hlo_sharding("{devices=[2,2,2]<=[2,2,2]T(2,0,1)}").text(), "{devices=[2,2,2]<=[4,2]T(1,0)}");
  EXPECT_EQ(parse_hlo_sharding("{devices=[6]<=[1,2,3]T(0,1,2)}").text(), "{devices=[6]<=[6]}");
}

TEST(ShardingStringTest, IotaIsFoundExactlyWhereThereIsOne) {
  // All orders of six devices, against all transpositions of all ways to factor six.
  std::vector<tessera::DeviceOrder> transposed;
  for (const char* text : {"{devices=[6]<=[6]}", "{devices=[6]<=[2,3]T(1,0)}", "{devices=[6]<=[3,2]T(1,0)}"})
    transposed.push_back(parse_hlo_sharding(text).devices);
  HloSharding sharding = parse_hlo_sharding("{devices=[6]<=[6]}");
  int found = 0;
  std::vector<std::int32_t> ids{0, 1, 2, 3, 4, 5};
  do {
    sharding.devices = tessera::DeviceOrder(ids.data(), ids.size());
    const bool expected = std::find(transposed.begin(), transposed.end(), sharding.devices) != transposed.end();
    ASSERT_EQ(sharding.text().find("<=") != std::string::npos, expected) << sharding.text(HloForm::v1);
    ASSERT_EQ(parse_hlo_sharding(sharding.text()), sharding);
    found += expected;
  } while (std::next_permutation(ids.begin(), ids.end()));
  EXPECT_EQ(found, 3);
}

TEST(ShardingStringTest, ReadsEveryKind) {
  using Kind = HloSharding::Kind;
  EXPECT_EQ(parse_hlo_sharding("").kind, Kind::unannotated);
  EXPECT_EQ(parse_hlo_sharding("{replicated}").kind, Kind::replicated);
  EXPECT_EQ(parse_hlo_sharding("{manual}").kind, Kind::manual);
  EXPECT_EQ(parse_hlo_sharding("{maximal device=3}").devices, tessera::DeviceOrder{3});
  for (const char* text : {"", "{replicated}", "{manual}", "{unreduced}", "{maximal device=3}",
                           "{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}"})
    EXPECT_EQ(parse_hlo_sharding(text).text(), text);
}

TEST(ShardingStringTest, CanonicalForms) {
  const auto canonical = [](const char* text) { return parse_hlo_sharding(text).canonical().text(HloForm::v1); };
  EXPECT_EQ(canonical("{devices=[1,1,4]0,1,2,3 last_tile_dim_replicate}"), "{replicated}");
  EXPECT_EQ(canonical("{devices=[2,2,1]0,1,2,3 last_tile_dim_replicate}"), "{devices=[2,2]0,1,2,3}");
  EXPECT_EQ(canonical("{devices=[2,1,2]3,1,2,0 last_tile_dim_replicate}"),
            "{devices=[2,1,2]1,3,0,2 last_tile_dim_replicate}");
  EXPECT_EQ(canonical("{devices=[2,1,2]0,1,3,2 last_tile_dims={manual, replicated}}"),
            "{devices=[2,2]0,1,2,3 last_tile_dim_replicate}");
  EXPECT_EQ(canonical("{devices=[1,4,1]0,1,2,3 last_tile_dims={manual, replicated}}"), "{manual}");
  EXPECT_EQ(canonical("{devices=[2,2]3,1,2,0}"), "{devices=[2,2]3,1,2,0}");
}

TEST(ShardingStringTest, AnythingElseIsAnError) {
  for (const char* text : {"{",
                           "{}",
                           "replicated",
                           "{replicated",
                           "{replicated}x",
                           "{maximal}",
                           "{maximal device=-1}",
                           "{devices=[]0}",
                           "{devices=[2]}",
                           "{devices=[2]0}",
                           "{devices=[2]0,1,2}",
                           "{devices=[2]0,0}",
                           "{devices=[2]0,2}",
                           "{devices=[0]0}",
                           "{devices=[2]<=[3]}",
                           "{devices=[4]<=[2,2]T(0,0)}",
                           "{devices=[4]<=[2,2]T(0)}",
                           "{devices=[4]<=[2,2]T(0,2)}",
                           "{devices=[4]<=[4] last_tile_dims={}}",
                           "{devices=[4]<=[4] last_tile_dims={up}}",
                           "{devices=[4]<=[4] last_tile_dims={manual, replicated}}",
                           "{{replicated},{replicated}}",
                           "{devices=[2000000000,2000000000]<=[2000000000,2000000000]}"})
    expect_error(
        errc::sharding_string, [&] { (void)parse_hlo_sharding(text); }, text);
}

TEST(ShardingStringTest, SubgroupsMergeAndStandInOneOrder) {
  const auto canonical = [](const char* text) { return parse_hlo_sharding(text).canonical().text(); };
  EXPECT_EQ(canonical("{devices=[2,2,2]<=[8] last_tile_dims={replicated, manual}}"),
            "{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dims={manual, replicated}}");
  EXPECT_EQ(canonical("{devices=[2,2,2]<=[8] last_tile_dims={replicated, replicated}}"),
            "{devices=[2,4]<=[8] last_tile_dim_replicate}");
  EXPECT_EQ(canonical("{devices=[1,1]0}"), "{replicated}");
}

TEST(ShardingStringTest, EqualityIsByMeaning) {
  const char* classes[][3] = {
      {"{replicated}", "{devices=[1,4]<=[4] last_tile_dim_replicate}",
       "{devices=[1,2,2]<=[4] last_tile_dims={replicated, "
       "replicated}}"},
      {"{devices=[2,2]<=[4]}", "{devices=[2,2]0,1,2,3}", "{devices=[2,2,1]<=[4] last_tile_dim_replicate}"},
      {"{devices=[2,1,2]<=[4] last_tile_dim_replicate}", "{devices=[2,1,2]1,0,3,2 last_tile_dim_replicate}",
       "{devices=[2,1,2]0,1,3,2 last_tile_dim_replicate}"},
      {"{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}", "{devices=[2,1,2]0,2,1,3 last_tile_dim_replicate}",
       "{devices=[2,1,2]2,0,3,1 last_tile_dim_replicate}"},
      {"{devices=[4,1]<=[4]}", "{devices=[4,1]0,1,2,3}", "{devices=[4,1]<=[2,2]T(0,1)}"},
      {"{manual}", "{devices=[1,4]<=[4] last_tile_dims={manual}}",
       "{devices=[1,4,1]<=[4] last_tile_dims={manual, "
       "replicated}}"},
      {"", " ", "  "},
      {"{maximal device=1}", "{ maximal device=1 }", "{maximal device= 1}"}};
  for (const auto& a : classes)
    for (const auto& b : classes)
      for (const char* one : a)
        for (const char* other : b) {
          const HloSharding x = parse_hlo_sharding(one), y = parse_hlo_sharding(other);
          EXPECT_EQ(x == y, &a == &b) << one << " and " << other;
          if (&a == &b) EXPECT_EQ(x.hash(), y.hash()) << one << " and " << other;
          if (&a != &b) EXPECT_NE(x.hash(), y.hash()) << one << " and " << other;
        }
}

TEST(ShardingStringTest, PlacementsOnTwoMeshesMayBeOne) {
  const Mesh flat({{"all", 4}}), grid({{"x", 2}, {"y", 2}}), turned({{"y", 2}, {"x", 2}}, {0, 2, 1, 3});
  const auto same = [](const PartitionSpec& a, const Mesh& ma, const PartitionSpec& b, const Mesh& mb) {
    return tessera::same_placement(resolve(a, ma, 2), ma, resolve(b, mb, 2), mb);
  };
  EXPECT_TRUE(same({"all"}, flat, {{"x", "y"}}, grid));
  EXPECT_FALSE(same({"all"}, flat, {{"y", "x"}}, grid));
  EXPECT_TRUE(same({"x", "y"}, grid, {"x", "y"}, turned));
  EXPECT_FALSE(same({"x", "y"}, grid, {"y", "x"}, turned));
  EXPECT_TRUE(same({}, flat, {}, turned));
  EXPECT_FALSE(same({}, flat, {}, Mesh()));
  Sharding sum = resolve({"x"}, grid, 1), max = sum;
  sum.unreduced = max.unreduced = 0b10;
  max.reduction = tessera::Reduction::max;
  EXPECT_TRUE(tessera::same_placement(sum, grid, sum, grid));
  EXPECT_FALSE(tessera::same_placement(sum, grid, max, grid));
}

TEST(ShardingStringTest, HasAType) {
  using tessera::ShardingType;
  const auto type = [](const char* text) { return parse_hlo_sharding(text).type(); };
  EXPECT_EQ(type(""), ShardingType::unannotated);
  EXPECT_EQ(type("{replicated}"), ShardingType::replicated);
  EXPECT_EQ(type("{devices=[1,1,4]<=[4] last_tile_dim_replicate}"), ShardingType::replicated);
  EXPECT_EQ(type("{maximal device=0}"), ShardingType::maximal);
  EXPECT_EQ(type("{devices=[2,2]<=[4]}"), ShardingType::tiled);
  EXPECT_EQ(type("{devices=[2,2,1]<=[4] last_tile_dim_replicate}"), ShardingType::tiled);
  EXPECT_EQ(type("{devices=[2,1,2]<=[4] last_tile_dim_replicate}"), ShardingType::partially_replicated);
  EXPECT_EQ(type("{manual}"), ShardingType::manual);
  EXPECT_EQ(type("{devices=[2,2,2]<=[8] last_tile_dims={manual, replicated}}"), ShardingType::manual);
  EXPECT_EQ(type("{unreduced}"), ShardingType::unreduced);
  EXPECT_EQ(type("{devices=[2,2]<=[4] last_tile_dims={unreduced}}"), ShardingType::unreduced);
}

// Boxes and replica ids of the string are those of the sharding it came from.
TEST(ShardingStringTest, BoxesAndReplicasAreThoseOfTheSharding) {
  std::mt19937 random(10);
  for (int round = 0; round < 300; ++round) {
    const Mesh mesh = tessera_test::random_mesh(random);
    const Sharding sharding = tessera_test::random_sharding(random, mesh, 2, round % 2 == 0);
    const HloSharding hlo = hlo_sharding(sharding, mesh);
    const tessera::Shape shape{static_cast<std::int64_t>(random() % 9), static_cast<std::int64_t>(random() % 9)};
    for (int device = 0; device < mesh.size(); ++device) {
      ASSERT_EQ(tessera::device_box(shape, hlo, device), tessera::device_box(shape, sharding, mesh, device));
      // HLO groups replicas by all axes that no dim uses; ours apart from those that are still to be reduced.
      if (sharding.unreduced == 0)
        ASSERT_EQ(tessera::replica_id(hlo, device), tessera::replica_id(mesh, sharding, device)) << hlo.text();
    }
  }
  const HloSharding one = parse_hlo_sharding("{maximal device=2}");
  EXPECT_EQ(tessera::device_box({4}, one, 2), (tessera::Box{{0}, {4}}));
  EXPECT_TRUE(tessera::device_box({4}, one, 1).empty());
  expect_error(
      errc::mesh_devices, [] { (void)tessera::device_box({4}, parse_hlo_sharding("{devices=[2]<=[2]}"), 2); }, "2");
  expect_error(errc::rank_mismatch, [] {
    (void)tessera::device_box({4, 4}, parse_hlo_sharding("{devices=[2]<=[2]}"), 0);
  });
}

// A mesh of 100,000 devices costs what a mesh of 8 does: everything here is a counter, no list.
TEST(ShardingStringTest, LargeMeshesStaySymbolic) {
  const Mesh mesh({{"data", 100}, {"expert", 10}, {"model", 100}});
  const HloSharding hlo = hlo_sharding(resolve({"model", none, {"expert"}}, mesh, 3), mesh);
  EXPECT_TRUE(hlo.devices.is_counter());
  EXPECT_EQ(hlo.text(), "{devices=[100,1,10,100]<=[100,10,100]T(2,1,0) last_tile_dim_replicate}");
  EXPECT_EQ(parse_hlo_sharding(hlo.text()), hlo);
  EXPECT_TRUE(parse_hlo_sharding(hlo.text()).devices.is_counter());
  const tessera::Shape shape{1000, 7, 25};
  EXPECT_EQ(tessera::device_box(shape, hlo, 54321), (tessera::Box{{210, 0, 9}, {220, 7, 12}}));
  EXPECT_EQ(tessera::replica_id(hlo, 54321), 54);
}

// Two billion devices whose tile doesn't divide the digits of their order: answered without a list, or not at all.
TEST(ShardingStringTest, NothingIsListedForShortTexts) {
  const char* const texts[] = {"{devices=[46341,46340]<=[46340,46341]T(1,0)}",
                               "{devices=[7,30678337,9]<=[9,30678337,7]T(1,0,2) last_tile_dims={manual,replicated}}",
                               "{devices=[7,30678337,9]<=[9,30678337,7]T(2,1,0) last_tile_dims={manual,replicated}}",
                               "{devices=[7,30678337,9]<=[7,30678337,9]T(0,2,1) last_tile_dims={replicated,manual}}",
                               "{devices=[30011,71551]<=[71551,30011]}",
                               "{devices=[2147483647]<=[2147483647]}"};
  for (const char* text : texts) {
    const HloSharding one = parse_hlo_sharding(text);
    EXPECT_EQ(one, parse_hlo_sharding(text));
    EXPECT_EQ(one.hash(), parse_hlo_sharding(text).hash());
    EXPECT_EQ(one.text(), parse_hlo_sharding(one.text()).text());
    (void)one.type();
    expect_error(
        errc::capacity, [&] { (void)one.text(HloForm::v1); }, "[hlo] listed devices", "4194304");
    for (const char* other : texts) {
      const HloSharding two = parse_hlo_sharding(other);
      if (one.tile == two.tile && one.subgroups == two.subgroups && text != other)
        expect_error(
            errc::capacity, [&] { (void)(one == two); }, "such ids can be listed");
      else
        EXPECT_EQ(one == two, text == other);
    }
  }
  // A list is made where it is short, and the same sets of replicas are equal however they are listed.
  const HloSharding one = parse_hlo_sharding("{devices=[5,6]<=[3,2,5]T(1,0,2) last_tile_dim_replicate}"),
                    two = parse_hlo_sharding("{devices=[5,6]10,4,3,2,1,0,21,20,14,13,12,11,7,6,5,24,23,22,"
                                             "18,17,16,15,9,8,29,28,27,26,25,19 last_tile_dim_replicate}");
  EXPECT_EQ(one, two);
  EXPECT_EQ(one.hash(), two.hash());
}

}  // namespace
