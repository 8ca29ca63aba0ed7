#include <cstdint>

#include "expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/base/integers/narrow.hpp>

namespace ts = tessera;

namespace {

static_assert(ts::narrow<std::uint8_t>(255, "") == 255 && ts::narrow<std::int8_t>(-128, "") == -128);
static_assert(ts::narrow<std::int64_t>(std::uint8_t{255}, "") == 255);

TEST(Narrow, NamesWhatThereIsTooMuchOf) {
  using tessera_test::expect_error;
  expect_error(
      ts::errc::capacity, [] { ts::narrow<std::uint8_t>(256, "[test] items"); }, "items: 256", "255");
  expect_error(
      ts::errc::capacity, [] { ts::narrow<std::uint8_t>(-1, "[test] items"); }, "items: -1");
  expect_error(
      ts::errc::capacity, [] { ts::narrow<std::int8_t>(128, "[test] items"); }, "items: 128", "127");
  expect_error(
      ts::errc::capacity, [] { ts::narrow<std::int32_t>(std::uint32_t{1} << 31, "[test] items"); }, "[test]");
  expect_error(
      ts::errc::capacity, [] { ts::narrow<std::uint16_t>(std::int64_t{1} << 40, "[test] items"); }, "65535");
}

}  // namespace
