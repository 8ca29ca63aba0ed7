#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/base/promotion.hpp>

namespace {

using tessera::DType;
using tessera::NumberKind;

DType named(const std::string& name) {
  for (int t = 0; t < tessera::dtype_count; ++t)
    if (tessera::name_of(static_cast<DType>(t)) == name) return static_cast<DType>(t);
  ADD_FAILURE() << name;
  return DType::f32;
}

// JAX's table for the types that we have, https://docs.jax.dev/en/latest/type_promotion.html. Its weak types i* and
// f* are i32 and f32 as results.
constexpr const char* published = R"(
     bool  u8  i8 i16 i32 i64 bf16 f16 f32 f64  i*  f*
bool bool  u8  i8 i16 i32 i64 bf16 f16 f32 f64  i*  f*
  u8   u8  u8 i16 i16 i32 i64 bf16 f16 f32 f64  u8  f*
  i8   i8 i16  i8 i16 i32 i64 bf16 f16 f32 f64  i8  f*
 i16  i16 i16 i16 i16 i32 i64 bf16 f16 f32 f64 i16  f*
 i32  i32 i32 i32 i32 i32 i64 bf16 f16 f32 f64 i32  f*
 i64  i64 i64 i64 i64 i64 i64 bf16 f16 f32 f64 i64  f*
bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 f32 f64 bf16 bf16
 f16  f16 f16 f16 f16 f16 f16 f32 f16 f32 f64 f16 f16
 f32  f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 f32 f32
 f64  f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64
)";

TEST(Promotion, OfEveryPairIsJaxs) {
  std::istringstream text(published);
  std::string line, cell;
  std::getline(text, line);
  std::getline(text, line);
  std::vector<std::string> columns;
  for (std::istringstream head(line); head >> cell;) columns.push_back(cell);
  constexpr int types = 10;  // all but the 8-bit floats
  ASSERT_EQ(columns.size(), types + 2u);
  int rows = 0;
  for (; std::getline(text, line); ++rows) {
    std::istringstream cells(line);
    cells >> cell;
    const DType row = named(cell);
    for (const std::string& column : columns) {
      ASSERT_TRUE(cells >> cell);
      const DType expected = cell == "i*" ? DType::i32 : cell == "f*" ? DType::f32 : named(cell);
      const DType got = column == "i*"   ? tessera::promote(row, NumberKind::integer)
                        : column == "f*" ? tessera::promote(row, NumberKind::floating)
                                         : tessera::promote(row, named(column));
      EXPECT_EQ(tessera::name_of(got), tessera::name_of(expected)) << tessera::name_of(row) << " and " << column;
      if (column.back() != '*') EXPECT_EQ(got, tessera::promote(named(column), row));
    }
  }
  EXPECT_EQ(rows, types);
}

// JAX promotes no 8-bit float; operations refuse them at compile time.
TEST(Promotion, EightBitFloatsArePromotedToNothing) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2}) EXPECT_EQ(tessera::promote(type, type), type);
}

// The table of docs/tensors.md, for all pairs.
TEST(Promotion, TableOfThePage) {
  constexpr DType order[] = {DType::bool_, DType::u8,   DType::i8,  DType::i16, DType::i32,
                             DType::i64,   DType::bf16, DType::f16, DType::f32, DType::f64};
  std::ifstream page(std::filesystem::path(__FILE__).parent_path() / "../../../docs/tensors.md");
  std::ostringstream text;
  text << page.rdbuf();
  for (const DType x : order) {
    std::string row = "\n| " + std::string(tessera::name_of(x)) + " | ";
    const auto add = [&](DType type) { row += std::string(tessera::name_of(type)) + " | "; };
    for (const DType y : order) add(tessera::promote(x, y));
    add(tessera::promote(x, NumberKind::integer));
    add(tessera::promote(x, NumberKind::floating));
    row.back() = '\n';
    EXPECT_NE(text.str().find(row), std::string::npos) << row;
  }
}

TEST(Promotion, SumsAndQuotients) {
  for (const DType narrow : {DType::bool_, DType::i8, DType::u8, DType::i16}) {
    EXPECT_EQ(tessera::sum_type(narrow), DType::i32);
    EXPECT_EQ(tessera::floating_type(narrow), DType::f32);
  }
  for (const DType own : {DType::i32, DType::i64, DType::f32, DType::f64, DType::bf16, DType::f16})
    EXPECT_EQ(tessera::sum_type(own), own);
  for (const DType own : {DType::f32, DType::f64, DType::bf16, DType::f16}) EXPECT_EQ(tessera::floating_type(own), own);
  EXPECT_EQ(tessera::floating_type(DType::i64), DType::f32);
  EXPECT_EQ(tessera::summed_as(DType::bf16), DType::f32);
  EXPECT_EQ(tessera::summed_as(DType::f16), DType::f32);
}

template <class T> void expect_range(DType type) {
  using Limits = std::numeric_limits<T>;
  EXPECT_TRUE(tessera::holds(type, static_cast<double>(Limits::lowest())));
  EXPECT_FALSE(tessera::holds(type, static_cast<double>(Limits::lowest()) * 1.001 - 1));
  EXPECT_FALSE(tessera::holds(type, static_cast<double>(Limits::max()) * 1.001 + 1));
  if (sizeof(T) < 8) EXPECT_TRUE(tessera::holds(type, static_cast<double>(Limits::max())));
}
TEST(Promotion, IntegerTypesHoldTheirValues) {
  expect_range<std::int8_t>(DType::i8);
  expect_range<std::int16_t>(DType::i16);
  expect_range<std::int32_t>(DType::i32);
  expect_range<std::int64_t>(DType::i64);
  expect_range<std::uint8_t>(DType::u8);
  EXPECT_FALSE(tessera::holds(DType::bool_, 2));
  EXPECT_TRUE(tessera::holds(DType::f32, 1e300));
}

}  // namespace
