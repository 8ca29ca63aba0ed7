#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/partition_spec.hpp>

namespace {

using tessera::errc;
using tessera::none;
using tessera::parse_spec;
using tessera::PartitionSpec;
using tessera_test::expect_error;

std::string text_of(const PartitionSpec& spec) { return spec.text(); }

TEST(PartitionSpecTest, BracesSayWhatTheyLookLike) {
  EXPECT_EQ(text_of({"data", none, {"x", "y"}}), "{data,-,(x,y)}");
  EXPECT_EQ(text_of({}), "{}");
  EXPECT_EQ(text_of({"x"}), "{x}");
  EXPECT_EQ(text_of({none}), "{-}");
  EXPECT_EQ(text_of({"x", "y"}), "{x,y}");
  EXPECT_EQ(text_of({{"x", "y"}}), "{(x,y)}");
  EXPECT_EQ(text_of({{"x", "y"}, {"z"}}), "{(x,y),z}");
  const tessera::Name axis("data");
  EXPECT_EQ(text_of({axis, std::string_view("model")}), "{data,model}");
}

TEST(PartitionSpecTest, OrderInsideAListMatters) {
  EXPECT_NE(PartitionSpec({{"x", "y"}}), PartitionSpec({{"y", "x"}}));
  EXPECT_NE(PartitionSpec({"x"}), PartitionSpec({"x", none}));
  EXPECT_EQ(PartitionSpec({{"x"}}), PartitionSpec({"x"}));
}

TEST(PartitionSpecTest, GatheredOnUseMarksSplitDims) {
  const PartitionSpec spec({"fsdp", none, {"x", "y"}});
  EXPECT_EQ(spec.gathered_on_use().text(), "{fsdp*,-,(x,y)*}");
  EXPECT_EQ(spec.gathered_on_use(0).text(), "{fsdp*,-,(x,y)}");
  EXPECT_EQ(spec.gathered_on_use(1), spec);
  EXPECT_NE(spec.gathered_on_use(), spec);
  expect_error(
      errc::dim_range, [&] { (void)spec.gathered_on_use(3); }, "3");
  expect_error(
      errc::dim_range, [&] { (void)spec.gathered_on_use(-1); }, "-1");
}

TEST(PartitionSpecTest, TextRoundTrips) {
  for (const char* text : {"{}", "{-}", "{data}", "{data,-,(x,y)}", "{(a,b,c,d),-,-,e}", "{fsdp*,model}", "{(x,y)*}",
                           "{x*2}", "{-,-,-,-,-,-,-,-}"})
    EXPECT_EQ(parse_spec(text).text(), text);
  EXPECT_EQ(parse_spec(" { data , - , ( x , y ) } "), PartitionSpec({"data", none, {"x", "y"}}));
  EXPECT_EQ(parse_spec("data,-"), PartitionSpec({"data", none}));
  EXPECT_EQ(parse_spec(""), PartitionSpec());
}

TEST(PartitionSpecTest, TextsThatAreNoSpecAreErrors) {
  for (const char* text : {"{", "{data", "data}", "{data,}", "{,}", "{()}", "{(x,)}", "{(x,-)}", "{((x))}", "{x y}",
                           "{x*0}", "{x*256}", "{-*}", "{x}x"})
    expect_error(
        errc::spec_axis, [&] { (void)parse_spec(text); }, text);
  const char* entries = "[spec] number of entries: 9; a tensor has at most 8 dims";
  const char* axes = "[spec] axes of a dim: 5; at most 4 axes can split a dim";
  expect_error(
      errc::capacity, [] { (void)parse_spec("a,b,c,d,e,f,g,h,i"); }, entries);
  expect_error(
      errc::capacity, [] { PartitionSpec{0, 1, 2, 3, 4, 5, 6, 7, 8}; }, entries);
  expect_error(
      errc::capacity, [] { (void)parse_spec("(a,b,c,d,e)"); }, axes);
  expect_error(
      errc::capacity,
      [] {
        PartitionSpec{{"a", "b", "c", "d", "e"}};
      },
      axes);
  expect_error(errc::capacity, [] { (void)parse_spec("an_axis_of_sixteen"); });
}

TEST(PartitionSpecTest, AxesAreNamedByIndexToo) {
  EXPECT_EQ(text_of({0, none, 1}), "{0,-,1}");
  EXPECT_EQ(text_of({{1, 0}}), "{(1,0)}");
  EXPECT_EQ(text_of({{"x", 0}}), "{(x,0)}");
  EXPECT_EQ(text_of({std::size_t{2}}), "{2}");
  EXPECT_EQ(parse_spec("{0,-,(1,2)}"), PartitionSpec({0, none, {1, 2}}));
  expect_error(
      errc::spec_axis,
      [] {
        (void)PartitionSpec({"x", -1});
      },
      "-1");
  expect_error(
      errc::spec_axis,
      [] {
        (void)PartitionSpec({{"x", -2}});
      },
      "-2");
}

}  // namespace
