#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/svg.hpp>

namespace {

using tessera::Mesh;
using tessera::none;
using tessera::resolve;
using tessera::sharding_svg;

const Mesh mesh({{"data", 2}, {"model", 4}});

/// Fails unless every tag is closed, in order, and attributes and text hold no bare `<` or `&`.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < svg.size(); ++at) {
    if (svg[at] == '&') {
      const std::string entity = svg.substr(at, svg.find(';', at) + 1 - at);
      ASSERT_TRUE(entity == "&lt;" || entity == "&gt;" || entity == "&amp;" || entity == "&quot;") << entity;
    }
    if (svg[at] != '<') continue;
    const std::size_t end = svg.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = svg.substr(at + 1, end - at - 1);
    ASSERT_EQ(tag.find('<'), std::string::npos) << tag;
    ASSERT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag.substr(1));
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end;
  }
  ASSERT_TRUE(open.empty());
}
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}
bool has(const std::string& svg, const std::string& part) { return svg.find(part) != std::string::npos; }

TEST(SvgTest, ShowsDevicesIndicesAndEmptyShards) {
  const std::string svg = sharding_svg({5, 9}, resolve({"data", "model"}, mesh, 2), mesh);
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "stroke=\"#333333\""), 8u);
  for (int device = 0; device < 8; ++device) EXPECT_TRUE(has(svg, ">CPU " + std::to_string(device) + "<"));
  for (const char* part : {">0:3<", ">3:5<", ">6:9<", ">empty<", ">dim 0 over data<", ">dim 1 over model<",
                           ">[5,9] {data,model} on mesh(data=2,model=4)<"})
    EXPECT_TRUE(has(svg, part)) << part;
  EXPECT_EQ(count(svg, "stroke-dasharray"), 2u);
}

TEST(SvgTest, DrawsEveryKind) {
  for (const char* text : {"", "{replicated}", "{manual}", "{unreduced}", "{maximal device=3}", "{devices=[8]<=[8]}",
                           "{devices=[2,2,2]<=[8]}", "{devices=[2,1,2,2]<=[8] last_tile_dims={manual, unreduced}}"}) {
    const std::string svg = sharding_svg(tessera::parse_hlo_sharding(text), 8);
    expect_well_formed(svg);
    EXPECT_TRUE(has(svg, ">CPU ")) << text;
  }
  const std::string three = sharding_svg({4, 4, 4}, resolve({"data", none, "model"}, mesh, 3), mesh);
  expect_well_formed(three);
  EXPECT_TRUE(has(three, ">dim 2: shard 3 of 4<"));
  expect_well_formed(sharding_svg({}, resolve({}, mesh, 0), mesh));
  tessera_test::expect_error(
      tessera::errc::rank_mismatch, [] { (void)sharding_svg({4}, resolve({}, mesh, 2), mesh); }, "rank");
}

TEST(SvgTest, LargeMeshesAreSummarizedAndNamesEscaped) {
  const Mesh large({{"x", 100}, {"y<&", 1000}});
  const std::string svg = sharding_svg({5000, 5000}, resolve({"x", "y<&"}, large, 2), large, {.device_kind = "<TPU>"});
  expect_well_formed(svg);
  EXPECT_LT(svg.size(), 100'000u);
  EXPECT_TRUE(has(svg, ">&lt;TPU&gt; 99999<"));
  EXPECT_TRUE(has(svg, ">100 x 1000 shards on 100000 devices<"));
  EXPECT_TRUE(has(svg, "y&lt;&amp;"));
}

TEST(SvgTest, IsThePictureOfThePage) {
  const std::filesystem::path here(__FILE__);
  std::ifstream file(here.parent_path() / "../../../docs/images/shardings.svg", std::ios::binary);
  const std::string shown((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(shown, sharding_svg({5, 9}, resolve({"data", "model"}, mesh, 2), mesh));
}

}  // namespace
