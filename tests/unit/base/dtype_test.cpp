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
  EXPECT_EQ(tessera::is_floating(tessera::dtype_v<T>), tessera::is_floating_v<T> || tessera::is_float8_v<T>);
  EXPECT_EQ(tessera::is_half(tessera::dtype_v<T>), tessera::is_half_v<T>);
  EXPECT_EQ(tessera::is_float8(tessera::dtype_v<T>), tessera::is_float8_v<T>);
  EXPECT_EQ(tessera::computed_as(tessera::dtype_v<T>), tessera::dtype_v<tessera::computed_t<T>>);
  const bool same = tessera::dispatch(
      tessera::dtype_v<T>, []<class U>() { return std::is_same_v<T, U>; }, [] { return false; });
  EXPECT_TRUE(same) << name;
}

TEST(DTypeTest, NamesSizesAndDispatchAgreeWithTheCppTypes) {
  expect_type<float>("f32");
  expect_type<double>("f64");
  expect_type<tessera::bf16>("bf16");
  expect_type<tessera::f16>("f16");
  expect_type<tessera::f8_e4m3>("f8_e4m3");
  expect_type<tessera::f8_e5m2>("f8_e5m2");
  expect_type<std::int8_t>("i8");
  expect_type<std::int16_t>("i16");
  expect_type<std::int32_t>("i32");
  expect_type<std::int64_t>("i64");
  expect_type<std::uint8_t>("u8");
  expect_type<bool>("bool");
}

TEST(DTypeTest, TypesOutsideOfTheSetDispatchToNothing) {
  for (const DType type : {DType::f8_e4m3, DType::f8_e5m2})
    EXPECT_TRUE(tessera::dispatch<tessera::computed_dtypes>(
        type, []<class T>() { return false; }, [] { return true; }));
}

static_assert(tessera::Element<float> && tessera::Element<bool>);
// Element types of other widths or signs don't compile: they would be stored as another type than the user wrote.
static_assert(!tessera::Element<std::uint32_t> && !tessera::Element<long double> && !tessera::Element<char*>);
static_assert(!tessera::Element<const float> && !tessera::Element<std::string>);

}  // namespace
