#include <random>

#include "../base/expect_error.hpp"
#include "random_layout.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/sharding_string.hpp>
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
        R"(#sdy.sharding<@mesh, [{"x"}], replicated={"y"}, unreduced={"z"}>)", R"(#sdy.sharding<@mesh, []>)",
        R"(#sdy.sharding<@mesh, [{}], unreduced=max{"x", "z"}>)", R"(#sdy.sharding<@mesh, [{}], unreduced=min{"y"}>)",
        R"(#sdy.sharding<mesh<["x"=2, "y"=4, "z"=2]>, [{"x"}, {"y", ?}], unreduced={"z"}>)"})
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

// What a sharding says without the module around it: its mesh, and how unreduced parts combine.
TEST(ShardyTest, MeshesInTheTextAndKindsOfReductions) {
  const auto kind = [](const char* text) { return parse_shardy(text, mesh).sharding.reduction; };
  EXPECT_EQ(kind(R"(#sdy.sharding<@mesh, [{}], unreduced={"x"}>)"), tessera::Reduction::sum);
  EXPECT_EQ(kind(R"(#sdy.sharding<@mesh, [{}], unreduced=sum{"x"}>)"), tessera::Reduction::sum);
  EXPECT_EQ(kind(R"(#sdy.sharding<@mesh, [{}], unreduced=max{"x"}>)"), tessera::Reduction::max);
  EXPECT_EQ(kind(R"(#sdy.sharding<@mesh, [{}], unreduced=min{"x"}>)"), tessera::Reduction::min);
  const char* const turned = R"(#sdy.sharding<mesh<["a"=2, "b"=2], device_ids=[3, 1, 2, 0]>, [{"b"}, {"a"}]>)";
  const Mesh own = tessera::parse_shardy_mesh(turned);
  EXPECT_EQ(own, Mesh({{"a", 2}, {"b", 2}}, {3, 1, 2, 0}));
  EXPECT_EQ(tessera::shardy_text(parse_shardy(turned, own), own), turned);
  expect_error(
      errc::mesh_mismatch, [&] { (void)parse_shardy(turned, mesh); }, "mesh(a=2,b=2;order=3,1,2,0)", "mesh(x=2");
  // Parts of the axes of a mesh in the text are read on the mesh that is cut into them.
  const char* const part = R"(#sdy.sharding<mesh<["x"=4]>, [{"x":(2)2}, {"x":(1)2}]>)";
  const Mesh cut = tessera::shardy_mesh(tessera::parse_shardy_mesh(part), {part});
  EXPECT_EQ(tessera::shardy_text(parse_shardy(part, cut), cut), part);
  for (const char* text : {R"(#sdy.sharding<mesh<["x"=2], [{"x"}]>)", R"(#sdy.sharding<["x"=2], [{"x"}]>)",
                           R"(#sdy.sharding<@mesh, [{}], unreduced=mul{"x"}>)"})
    expect_error(
        errc::sharding_string, [&] { (void)parse_shardy(text, mesh); }, text);
}

// The mesh of a tensor that is on one device alone.
TEST(ShardyTest, MaximalMeshes) {
  const Mesh third = tessera::parse_shardy_mesh("sdy.mesh @maximal = <[], device_ids=[3]>");
  EXPECT_EQ(third.size(), 1);
  EXPECT_EQ(third.device_at({}), 3);
  EXPECT_EQ(third.coordinates_of(3), tessera::Coordinates{});
  EXPECT_EQ(third.text(), "mesh(;order=3)");
  EXPECT_EQ(tessera::parse_mesh(third.text()), third);
  EXPECT_NE(third, Mesh());
  EXPECT_EQ(tessera::shardy_mesh_text(third, "maximal"), "sdy.mesh @maximal = <[], device_ids=[3]>");
  EXPECT_EQ(tessera::parse_shardy_mesh("<[], device_ids=[0]>"), Mesh());
  const char* const text = "#sdy.sharding<mesh<[], device_ids=[3]>, [{}, {}]>";
  EXPECT_EQ(tessera::shardy_text(parse_shardy(text, third), third), text);
  expect_error(
      errc::mesh_devices, [&] { (void)third.coordinates_of(0); }, "mesh(;order=3) has id 0");
  for (const char* other : {"<[], device_ids=[-1]>", "<[], device_ids=[0, 1]>", R"(<["x"=1], device_ids=[3]>)"})
    expect_error(errc::mesh_devices, [&] { (void)tessera::parse_shardy_mesh(other); });
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

// What is written of sub-axes reads back as the same placement, however finely the mesh was cut.
TEST(ShardyTest, RandomSubAxesRoundTrip) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const Mesh any({{"x", 1 << random() % 4}, {"y", 12}, {"z", 1 + static_cast<int>(random() % 3)}});
    tessera::AxisCuts cuts;
    for (const auto& [axis, before] : {std::pair{0, 2}, {0, 4}, {1, 2}, {1, 3}, {1, 6}}) {
      tessera::AxisCuts more = cuts;
      if (random() % 2 && more.add(axis, before) && tessera::can_cut(any, more)) cuts = more;
    }
    const Mesh refined = tessera::refined_mesh(any, cuts);
    ShardySharding sharding;
    sharding.sharding = tessera_test::random_sharding(random, refined, static_cast<int>(random() % 4), true);
    for (int axis = 0; axis < refined.rank(); ++axis)
      if (!sharding.sharding.uses(axis) && random() % 2)
        sharding.replicated = static_cast<std::uint16_t>(sharding.replicated | 1u << axis);
    sharding.sharding.cuts = cuts;
    const std::string text = tessera::shardy_text(sharding, any);
    const ShardySharding read = parse_shardy(text, any);
    ASSERT_EQ(tessera::shardy_text(read, any), text);
    ASSERT_TRUE(same_placement(read.sharding, any, sharding.sharding, any)) << text;
    ASSERT_EQ(parse_shardy(tessera::shardy_text(read, any), any), read) << text;
  }
}

// `"x":(2)4`: of the axis x of 16 devices the part of size 4 after one of size 2.
TEST(ShardyTest, PartsOfAxes) {
  const Mesh plain({{"x", 16}, {"y", 2}});
  const char* const text = R"(#sdy.sharding<@mesh, [{"x":(2)4, "y"}, {"x":(1)2}], unreduced={"x":(8)2}>)";
  const Mesh refined = tessera::shardy_mesh(plain, {text});
  EXPECT_EQ(refined.text(), "mesh(x:(1)2=2,x:(2)4=4,x:(8)2=2,y=2)");
  EXPECT_EQ(tessera::parse_mesh(refined.text()), refined);
  EXPECT_EQ(tessera::parse_spec("{(x:(2)4,y),x:(1)2}").text(), "{(x:(2)4,y),x:(1)2}");
  EXPECT_EQ(refined, tessera::split_axis(plain, "x", {2, 4, 2}));
  const ShardySharding read = parse_shardy(text, refined);
  EXPECT_EQ(read.sharding.dims[0], (tessera::AxisList{1, 3}));
  EXPECT_EQ(read.sharding.unreduced, 0b100);
  EXPECT_EQ(tessera::shardy_text(read, refined), text);
  EXPECT_EQ(tessera::shardy_mesh_text(refined), tessera::shardy_mesh_text(plain));
  // Element by element: device x * 2 + y holds row block (x / 2 % 4) * 2 + y, column block x / 8.
  const tessera::Sharding tiles =
      parse_shardy(R"(#sdy.sharding<@mesh, [{"x":(2)4, "y"}, {"x":(1)2}]>)", refined).sharding;
  for (int device = 0; device < 32; ++device) {
    const tessera::Box box = device_box({8, 2}, tiles, refined, device);
    EXPECT_EQ(box.begin, (tessera::Shape{device / 2 / 2 % 4 * 2 + device % 2, device / 2 / 8}));
  }
  EXPECT_EQ(hlo_sharding(tiles, refined).text(), "{devices=[8,2,2]<=[2,4,2,2]T(1,3,0,2) last_tile_dim_replicate}");
  // Parts that follow each other are one; all of them are the axis. Meaning does not depend on how finely it is cut.
  const Mesh finer = tessera::shardy_mesh(plain, {text, R"(["x":(4)2])"});
  EXPECT_EQ(finer.text(), "mesh(x:(1)2=2,x:(2)2=2,x:(4)2=2,x:(8)2=2,y=2)");
  const tessera::Sharding fine = parse_shardy(R"(#sdy.sharding<@mesh, [{"x":(2)4, "y"}, {"x":(1)2}]>)", finer).sharding;
  EXPECT_TRUE(same_placement(fine, finer, tiles, refined));
  EXPECT_EQ(tessera::shardy_text(fine, finer), tessera::shardy_text(tiles, refined));
  const tessera::Sharding whole = parse_shardy(R"(#sdy.sharding<@mesh, [{"x"}]>)", refined).sharding;
  EXPECT_EQ(tessera::shardy_text(whole, refined), R"(#sdy.sharding<@mesh, [{"x"}]>)");
  EXPECT_TRUE(same_placement(whole, refined, resolve({"x"}, plain, 1), plain));
  expect_error(
      errc::not_divisible, [&] { (void)tessera::shardy_mesh(plain, {R"({"x":(1)3})"}); }, "\"x\":(1)3", "size 16");
  expect_error(
      errc::not_divisible,
      [] {
        (void)tessera::shardy_mesh(Mesh({{"x", 6}}), {R"({"x":(1)2}, {"x":(1)3})"});
      },
      "overlap partly");
  expect_error(
      errc::mesh_axis, [&] { (void)tessera::shardy_mesh(plain, {R"({"w":(1)2})"}); }, "'w'");
  expect_error(
      errc::not_divisible,
      [&] {
        (void)tessera::split_axis(plain, "x", {3, 4});
      },
      "is not the size of axis 'x'");
  for (const char* other : {R"(#sdy.sharding<@mesh, [{"x":(0)2}]>)", R"(#sdy.sharding<@mesh, [{"x":2}]>)"})
    expect_error(
        errc::sharding_string, [&] { (void)parse_shardy(other, refined); }, other);
}

// The examples of Shardy's page on the representation of shardings, on a mesh whose axes are whole.
TEST(ShardyTest, SubAxes) {
  const Mesh full({{"devices", 8}}), xy({{"x", 4}, {"y", 2}});
  const auto read = [](const char* text, const Mesh& on) {
    const ShardySharding made = parse_shardy(text, on);
    EXPECT_EQ(tessera::shardy_text(made, on), text);
    EXPECT_EQ(parse_shardy(tessera::shardy_text(made, on), on), made) << text;
    return made.sharding;
  };
  const tessera::Sharding tiles = read(R"(#sdy.sharding<@mesh, [{"devices":(1)4}, {"devices":(4)2}]>)", full);
  EXPECT_TRUE(same_placement(tiles, full, resolve({"x", "y"}, xy, 2), xy));
  EXPECT_EQ(text(tiles, full), "{devices:(1)4,devices:(4)2}");

  const Mesh xyz({{"x", 2}, {"y", 8}, {"z", 2}});
  const tessera::Sharding part = read(R"(#sdy.sharding<@mesh, [{"x"}, {"y":(2)2}]>)", xyz);
  EXPECT_EQ(tessera::extents(shard_box({4, 8}, part, xyz, {0, 0, 0})), (tessera::Shape{2, 4}));
  EXPECT_EQ(shard_box({4, 8}, part, xyz, {1, 3, 1}).begin, (tessera::Shape{2, 4}));  // 3 is 011: the middle bit
  EXPECT_EQ(shard_box({4, 8}, part, xyz, {1, 5, 1}).begin, (tessera::Shape{2, 0}));
  read(R"(#sdy.sharding<@mesh, [{"x"}, {"y":(2)2}], replicated={"y":(1)2}>)", xyz);
  EXPECT_EQ(tessera::shardy_text(
                parse_shardy(R"(#sdy.sharding<@mesh, [{}], replicated={"y":(4)2, "x", "y":(1)2}>)", xyz), xyz),
            R"(#sdy.sharding<@mesh, [{}], replicated={"x", "y":(1)2, "y":(4)2}>)");
  // Sub-axes are as large as they can be, and all of an axis is the axis.
  EXPECT_EQ(parse_shardy(R"(#sdy.sharding<@mesh, [{"y":(1)2, "y":(2)4}]>)", xyz),
            parse_shardy(R"(#sdy.sharding<@mesh, [{"y"}]>)", xyz));
  EXPECT_EQ(parse_shardy(R"(#sdy.sharding<@mesh, [{"y":(1)2, "y":(2)2}]>)", xyz),
            parse_shardy(R"(#sdy.sharding<@mesh, [{"y":(1)4}]>)", xyz));
  expect_error(
      errc::spec_axis, [&] { (void)parse_shardy(R"(#sdy.sharding<@mesh, [{"y":(1)4}, {"y":(2)4}]>)", xyz); }, "'y'",
      "twice");
  EXPECT_EQ(parse_shardy(R"(#sdy.sharding<@mesh, [{}], replicated={"y":(2)2, "x", "y":(1)2}>)", xyz),
            parse_shardy(R"(#sdy.sharding<@mesh, [{}], replicated={"x", "y":(1)4}>)", xyz));
  read(R"(#sdy.sharding<@mesh, [{"y":(1)2}, {}], unreduced=max{"x", "y":(4)2}>)", xyz);
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
  const Mesh cut = tessera::split_axis(mesh, "y", {2, 2});
  expect_error(
      errc::spec_axis, [&] { (void)parse_shardy(R"(#sdy.sharding<@mesh, [{"y":(1)3}]>)", cut); },
      "[shardy] sub-axis: 'y':(1)3 does not consist of axes of mesh(x=2,y:(1)2=2,y:(2)2=2,z=2)", "ts::shardy_mesh");
  for (const char* text : {R"(#sdy.sharding<@mesh, [{"y":(1)3}]>)", R"(#sdy.sharding<@mesh, [{"y":(1)1}]>)",
                           R"(#sdy.sharding<@mesh, [{"y":(4)2}]>)"})
    expect_error(
        errc::not_divisible, [&] { (void)parse_shardy(text, mesh); }, "'y:(", "mesh(x=2");
  expect_error(
      errc::spec_axis, [] { (void)parse_shardy(R"(#sdy.sharding<@mesh, [{"y"}, {"y":(1)2}]>)", mesh); }, "'y'",
      "twice");
  // Which is the same placement.
  const Mesh split({{"x", 2}, {"y_major", 2}, {"y_minor", 2}});
  EXPECT_EQ(device_box({8}, parse_shardy(R"(#sdy.sharding<@mesh, [{"y_major"}]>)", split).sharding, split, 2).begin,
            (tessera::Shape{4}));
  for (const char* text : {"<", "<[x=2]>", R"(<["x"]>)", R"(<["x"=2], device_ids=[]>)", R"(<["x"=2]> y)"})
    expect_error(
        errc::sharding_string, [&] { (void)tessera::parse_shardy_mesh(text); }, text);
}

}  // namespace
