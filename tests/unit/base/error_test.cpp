#include <string>

#include "expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/base/error.hpp>

namespace {

using tessera::errc;

TEST(ErrorTest, CarriesItsIdAndJoinsTextsAndNumbers) {
  const std::string name = "w";
  try {
    tessera::fail(errc::shape_mismatch, "[matmul] inner dims differ: ", name, " ", 3, std::string_view(" x "),
                  std::int64_t{-5});
    FAIL();
  } catch (const tessera::error& e) {
    EXPECT_EQ(e.id(), errc::shape_mismatch);
    EXPECT_STREQ(e.what(), "[matmul] inner dims differ: w 3 x -5");
  }
}

TEST(ErrorTest, IsARuntimeError) { EXPECT_THROW(tessera::fail(errc::file, "[file] missing"), std::runtime_error); }

// Ids are in programs and in docs/errors.md: a number must never come to mean something else.
static_assert(static_cast<int>(errc::capacity) == 1 && static_cast<int>(errc::spec_rank) == 5);
static_assert(static_cast<int>(errc::dim_range) == 10 && static_cast<int>(errc::policy) == 15);
static_assert(static_cast<int>(errc::unsupported) == 20 && static_cast<int>(errc::annotation) == 21);
static_assert(static_cast<int>(errc::oracle) == 22);

}  // namespace
