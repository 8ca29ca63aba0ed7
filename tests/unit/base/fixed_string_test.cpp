#include <string>

#include "expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/base/fixed_string.hpp>

namespace {

using tessera::Name;

template <tessera::FixedString Text> constexpr std::size_t length() { return Text.view().size(); }
static_assert(length<"bik,kj->bij">() == 11 && length<"">() == 0);

template <Name N> struct Tag {};
static_assert(std::is_same_v<Tag<Name("data")>, Tag<Name("data")>>);
static_assert(!std::is_same_v<Tag<Name("data")>, Tag<Name("model")>>);
static_assert(sizeof(Name) == 16);

TEST(NameTest, HoldsUpToFifteenCharacters) {
  EXPECT_TRUE(Name().empty());
  EXPECT_EQ(Name("").view(), "");
  EXPECT_EQ(Name("abcdefghijklmno").view(), "abcdefghijklmno");
  EXPECT_EQ(Name(std::string_view("data,model").substr(0, 4)), Name("data"));
  EXPECT_NE(Name("data"), Name("dat"));
  tessera_test::expect_error(
      tessera::errc::capacity, [] { Name("abcdefghijklmnop"); }, "abcdefghijklmnop", "15");
}

}  // namespace
