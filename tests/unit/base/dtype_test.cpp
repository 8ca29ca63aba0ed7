#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

#include <tessera/base/dtype.hpp>

namespace {

using tessera::DType;

template <class T> void expect_type(std::string_view name) {
  EXPECT_EQ(tessera::name_of(tessera::dtype_v<T>), name);
  EXPECT_EQ(tessera::size_of(tessera::dtype_v<T>), sizeof(T));
  EXPECT_EQ(tessera::is_floating(tessera::dtype_v<T>), tessera::is_floating_v<T>);
  const bool same = tessera::dispatch(
      tessera::dtype_v<T>, []<class U>() { return std::is_same_v<T, U>; }, [] { return false; });
  EXPECT_TRUE(same) << name;
}

TEST(DTypeTest, NamesSizesAndDispatchAgreeWithTheCppTypes) {
  expect_type<float>("f32");
  expect_type<double>("f64");
  expect_type<tessera::bf16>("bf16");
  expect_type<std::int8_t>("i8");
  expect_type<std::int16_t>("i16");
  expect_type<std::int32_t>("i32");
  expect_type<std::int64_t>("i64");
  expect_type<std::uint8_t>("u8");
  expect_type<bool>("bool");
}

TEST(DTypeTest, F16IsNamedAndDispatchesToNothing) {
  EXPECT_EQ(tessera::size_of(DType::f16), 2u);
  EXPECT_TRUE(tessera::is_floating(DType::f16));
  EXPECT_TRUE(tessera::dispatch(
      DType::f16, []<class T>() { return false; }, [] { return true; }));
  EXPECT_EQ(tessera::name_of(DType::f16), "f16");
}

static_assert(tessera::Element<float> && tessera::Element<bool>);
// Element types of other widths or signs don't compile: they would be stored as another type than the user wrote.
static_assert(!tessera::Element<std::uint32_t> && !tessera::Element<long double> && !tessera::Element<char*>);
static_assert(!tessera::Element<const float> && !tessera::Element<std::string>);

}  // namespace
