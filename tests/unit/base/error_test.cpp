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

TEST(ErrorTest, KnowsTheLineApartFromTheText) {
  const auto thrown = [](const auto&... parts) {
    try {
      tessera::fail(errc::option, parts...);
    } catch (const tessera::error& e) {
      return e;
    }
  };
  const tessera::Source train{"/home/train.cpp", 41}, model{"model.cpp", 7};
  const tessera::error with_line = thrown("[sum] rule: x", train, ", and more");
  EXPECT_STREQ(with_line.what(), "[sum] rule: x at train.cpp:41, and more");
  EXPECT_EQ(with_line.source().text(), "train.cpp:41");
  EXPECT_EQ(thrown("[sum] rule: x", train, " for its use", model).source().text(), "model.cpp:7");
  EXPECT_EQ(thrown("[sum] rule: x", train, " for its use", tessera::Source{}).source().text(), "train.cpp:41");
  // A text that reads like a line is none.
  const tessera::error without = thrown("[mesh] unknown axis: 'left at train.cpp:41'", tessera::Source{});
  EXPECT_STREQ(without.what(), "[mesh] unknown axis: 'left at train.cpp:41'");
  EXPECT_EQ(without.source().line, 0u);
}

TEST(ErrorTest, IsARuntimeError) { EXPECT_THROW(tessera::fail(errc::file, "[file] missing"), std::runtime_error); }

// Programs and docs/errors.md use ids: the meaning of a number must never change.
static_assert(static_cast<int>(errc::capacity) == 1 && static_cast<int>(errc::spec_rank) == 5);
static_assert(static_cast<int>(errc::dim_range) == 10 && static_cast<int>(errc::policy) == 15);
static_assert(static_cast<int>(errc::unsupported) == 20 && static_cast<int>(errc::annotation) == 21);
static_assert(static_cast<int>(errc::oracle) == 22);
static_assert(static_cast<int>(errc::processes) == 23);

}  // namespace
