#include <random>

#include "../base/expect_error.hpp"
#include "random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/shardy.hpp>

namespace {

using tessera::errc;
using tessera::Mesh;
using tessera::none;
using tessera::parse_shardy;
using tessera::PartitionSpec;
using tessera::resolve;
using tessera::ShardySharding;
using tessera_test::expect_error;

const Mesh mesh({{"x", 2}, {"y", 4}, {"z", 2}});

// Texts as in Shardy's documentation of its dialect.
TEST(ShardyTest, PrintsAndReadsItsText) {
  EXPECT_EQ(tessera::shardy_text(resolve({"x", none}, mesh, 2), mesh), R"(#sdy.sharding<@mesh, [{"x"}, {}]>)");
  EXPECT_EQ(tessera::shardy_text(resolve({{"y", "x"}}, mesh, 1), mesh), R"(#sdy.sharding<@mesh, [{"y", "x"}]>)");
  EXPECT_EQ(tessera::shardy_text(resolve({}, mesh, 0), mesh), R"(#sdy.sharding<@mesh, []>)");
  for (const char* text :
       {R"(#sdy.sharding<@mesh, [{"x"}, {}]>)", R"(#sdy.sharding<@other, [{"y", "x", ?}, {?}]>)",
        R"(#sdy.sharding<@mesh, [{"x"}p1, {"y", ?}p2], replicated={"z"}>)",
        R"(#sdy.sharding<@mesh, [{}, {"z"}], unreduced={"x", "y"}>)",
        R"(#sdy.sharding<@mesh, [{"x"}], replicated={"y"}, unreduced={"z"}>)", R"(#sdy.sharding<@mesh, []>)"})
    EXPECT_EQ(tessera::shardy_text(parse_shardy(text, mesh), mesh), text);
  const ShardySharding read = parse_shardy(R"( sdy.sharding<@m,[{"y","x",?}p3,{}],unreduced={"z"}> )", mesh);
  EXPECT_EQ(read.mesh_name, tessera::Name("m"));
  EXPECT_EQ(read.sharding.dims[0], (tessera::AxisList{1, 0}));
  EXPECT_EQ(read.sharding.priority[0], 3);
  EXPECT_EQ(read.sharding.unreduced, 0b100);
  EXPECT_EQ(read.open_dims, 0b01);
}

TEST(ShardyTest, MeshesRoundTrip) {
  EXPECT_EQ(tessera::shardy_mesh_text(mesh), R"(sdy.mesh @mesh = <["x"=2, "y"=4, "z"=2]>)");
  EXPECT_EQ(tessera::shardy_mesh_text(Mesh({{"x", 2}, {"y", 2}}, {3, 1, 2, 0}), "m"),
            R"(sdy.mesh @m = <["x"=2, "y"=2], device_ids=[3, 1, 2, 0]>)");
  EXPECT_EQ(tessera::parse_shardy_mesh(R"(<["x"=2]>)"), Mesh({{"x", 2}}));
  EXPECT_EQ(tessera::parse_shardy_mesh("sdy.mesh @empty = <[]>"), Mesh());
}

TEST(ShardyTest, RandomShardingsRoundTrip) {
  std::mt19937 random(12);
  for (int round = 0; round < 500; ++round) {
    const Mesh any = tessera_test::random_mesh(random);
    ASSERT_EQ(tessera::parse_shardy_mesh(tessera::shardy_mesh_text(any)), any);
    ShardySharding sharding;
    sharding.sharding = tessera_test::random_sharding(random, any, static_cast<int>(random() % 4), true);
    for (int dim = 0; dim < sharding.sharding.rank; ++dim) {
      if (random() % 2) sharding.open_dims = static_cast<std::uint8_t>(sharding.open_dims | 1u << dim);
      sharding.sharding.priority[dim] = static_cast<std::uint8_t>(random() % 3);
    }
    for (int axis = 0; axis < any.rank(); ++axis)
      if (!sharding.sharding.uses(axis) && random() % 2)
        sharding.replicated = static_cast<std::uint16_t>(sharding.replicated | 1u << axis);
    const std::string text = tessera::shardy_text(sharding, any);
    ASSERT_EQ(parse_shardy(text, any), sharding) << text;
  }
}

TEST(ShardyTest, OtherTextsAreErrors) {
  for (const char* text :
       {"", "#sdy.sharding", "#sdy.sharding<@mesh>", "#sdy.sharding<mesh, []>", R"(#sdy.sharding<@mesh, [{"x"}>)",
        R"(#sdy.sharding<@mesh, [{x}]>)", R"(#sdy.sharding<@mesh, [{"x",}]>)", R"(#sdy.sharding<@mesh, [{?, "x"}]>)",
        R"(#sdy.sharding<@mesh, [{"x"}]> y)", R"(#sdy.sharding<@mesh, [{"x"}], partial={"y"}>)",
        R"(#sdy.sharding<@mesh, [{"x"}], replicated={}>)", R"(#sdy.sharding<@mesh, [{}p]>)",
        R"(#sdy.sharding<@mesh, [{},{},{},{},{},{},{},{},{}]>)"})
    expect_error(
        errc::sharding_string, [&] { (void)parse_shardy(text, mesh); }, text);
  expect_error(
      errc::spec_axis, [] { (void)parse_shardy(R"(#sdy.sharding<@mesh, [{"w"}]>)", mesh); }, "'w'", "unknown",
      "mesh(x=2");
  for (const char* text :
       {R"(#sdy.sharding<@mesh, [{"x"}, {"x"}]>)", R"(#sdy.sharding<@mesh, [{"x"}], replicated={"x"}>)"})
    expect_error(
        errc::spec_axis, [&] { (void)parse_shardy(text, mesh); }, "'x'", "twice");
  expect_error(
      errc::unsupported, [] { (void)parse_shardy(R"(#sdy.sharding<@mesh, [{"y":(1)2}]>)", mesh); },
      "[shardy] whole axes: 'y' is taken in parts in '#sdy.sharding<@mesh, [{\"y\":(1)2}]>'; give the mesh an axis for "
      "each part, here one of size 2");
  // Which is the same placement.
  const Mesh split({{"x", 2}, {"y_major", 2}, {"y_minor", 2}});
  EXPECT_EQ(device_box({8}, parse_shardy(R"(#sdy.sharding<@mesh, [{"y_major"}]>)", split).sharding, split, 2).begin,
            (tessera::Shape{4}));
  for (const char* text : {"<", "<[x=2]>", R"(<["x"]>)", R"(<["x"=2], device_ids=[]>)", R"(<["x"=2]> y)"})
    expect_error(
        errc::sharding_string, [&] { (void)tessera::parse_shardy_mesh(text); }, text);
}

}  // namespace
