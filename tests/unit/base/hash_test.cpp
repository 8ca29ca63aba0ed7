#include <cstdint>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include <tessera/base/integers/hash.hpp>

namespace {

using tessera::hash_mix;

static_assert(hash_mix(0, std::uint64_t{1}) != hash_mix(0, std::uint64_t{2}));

TEST(HashTest, ShortSequencesOfSmallNumbersDoNotCollide) {
  std::set<std::uint64_t> seen;
  std::size_t count = 0;
  for (std::uint64_t a = 0; a < 40; ++a)
    for (std::uint64_t b = 0; b < 40; ++b)
      for (std::uint64_t c = 0; c < 40; ++c, ++count) seen.insert(hash_mix(hash_mix(hash_mix(0, a), b), c));
  EXPECT_EQ(seen.size(), count);
}

TEST(HashTest, TextsDoNotRunIntoEachOther) {
  using namespace std::string_view_literals;
  EXPECT_NE(hash_mix(hash_mix(0, "ab"sv), "c"sv), hash_mix(hash_mix(0, "a"sv), "bc"sv));
  EXPECT_NE(hash_mix(hash_mix(0, ""sv), "a"sv), hash_mix(hash_mix(0, "a"sv), ""sv));
  EXPECT_EQ(hash_mix(7, "data"sv), hash_mix(7, std::string_view("data,model").substr(0, 4)));
}

TEST(HashTest, DoublesHashByTheirBits) {
  EXPECT_NE(hash_mix(0, 0.0), hash_mix(0, -0.0));
  EXPECT_NE(hash_mix(0, 0.1), hash_mix(0, 0.1 + 1e-17 + 1e-16));
  EXPECT_EQ(hash_mix(3, 1.5), hash_mix(3, 1.5));
}

}  // namespace
