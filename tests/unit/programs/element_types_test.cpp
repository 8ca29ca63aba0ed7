#include "check.hpp"

namespace ts = tessera;
using namespace programs;

// Lookups in a split table combine rows from all devices, for all element types.
template <class T> void expect_equal_lookups(std::uint32_t seed) {
  constexpr auto f = [](auto table, auto index) {
    return std::tuple(ts::embedding(table, index), ts::slice<0>(table, 1, 1));
  };
  expect_equal_on_all_meshes<Tensor<2, T>, Tensor<1, std::int32_t>>(
      f, {.arguments = {values<T>("mn", 0, 60), indices("k", 'm')}, .cases = 40, .extents = {{'m', {2, 3, 5, 8}}}},
      seed);
}
TEST(Programs, LookupsOfBools) { expect_equal_lookups<bool>(3); }
TEST(Programs, LookupsOfSmallIntegers) {
  expect_equal_lookups<std::int8_t>(4);
  expect_equal_lookups<std::uint8_t>(5);
}

TEST(Programs, ElementTypes) {
  constexpr auto f = [](auto i, auto j, auto k, auto u, auto d, auto flag) {
    const auto chosen = ts::logical_and(i >= -2, ts::logical_or(ts::not_equal(i, 1), flag));
    const auto quotient = ts::truncate_div(i * 7 - j, ts::abs(j) + 2) + ts::maximum(i, j) - ts::minimum(i, 3);
    const auto wide = ts::cast<std::int64_t>(i) * 1000000007 + k - ts::sum<0>(k, ts::keepdims);
    const auto real = ts::exp(d) * ts::cast<double>(k) + ts::tanh(d) / 3.0 + ts::pow(ts::abs(d) + 0.5, d) +
                      ts::log(ts::sigmoid(d)) + ts::gelu(d) - ts::sqrt(ts::abs(d)) * ts::rsqrt(ts::abs(d) + 1.0);
    const auto bytes = ts::truncate_div(u, 3) + ts::minimum(u, std::uint8_t{20});
    return std::tuple(chosen, ts::equal(quotient, j), quotient, ts::select(chosen, quotient, -i), wide, real, bytes,
                      ts::cast<bool>(i), ts::cast<std::int32_t>(d * 10.0), ts::cast<float>(k),
                      ts::cast<std::int32_t>(flag), ts::sum(i), ts::max<0>(k), ts::min<1>(i, ts::keepdims),
                      ts::sum<1>(ts::cast<std::int32_t>(u)), ts::max<1>(d), ts::sum<0>(d), ts::sum<0, 1>(d * d));
  };
  expect_equal_on_all_meshes<Tensor<2, std::int32_t>, Tensor<2, std::int32_t>, Tensor<2, std::int64_t>,
                             Tensor<2, std::uint8_t>, Tensor<2, double>, Tensor<2, bool>>(
      f,
      {.arguments = {values<std::int32_t>("mn", -4, 5), values<std::int32_t>("mn", -5, 6),
                     values<std::int64_t>("mn", -1e9, 1e9), values<std::uint8_t>("mn", 0, 60),
                     values<double>("mn", -2, 2), values<bool>("mn")},
       .may_be_empty = true},
      2);
}

// Operands of different types are promoted as in JAX; sums and means of integers neither wrap nor truncate.
TEST(Programs, PromotedElementTypes) {
  constexpr auto f = [](auto i, auto u, auto s, auto x, auto b, auto flag) {
    static_assert(std::is_same_v<typename decltype(i * 0.5)::element, float>);
    static_assert(std::is_same_v<typename decltype(i * 2)::element, std::int32_t>);
    static_assert(std::is_same_v<typename decltype(b * 2.0)::element, ts::bf16>);
    static_assert(std::is_same_v<typename decltype(u + s)::element, std::int16_t>);
    static_assert(std::is_same_v<typename decltype(b + x)::element, float>);
    static_assert(std::is_same_v<typename decltype(i / i)::element, float>);
    static_assert(std::is_same_v<typename decltype(flag + 1)::element, std::int32_t>);
    static_assert(std::is_same_v<typename decltype(ts::select(flag, i, 0.5))::element, float>);
    return std::tuple(i * 0.5, i < 0.5, ts::maximum(i, 0.9), u + s, i + x, x - u, i / (ts::abs(i) + 1), u / 4,
                      ts::select(flag, i, 0.5), flag + i, ts::sqrt(u), ts::exp(flag), ts::pow(u, 0.5), b * i,
                      ts::sum<0>(u), ts::sum(s), ts::sum<1>(flag), ts::mean<0>(u), ts::mean(i), ts::mean<1>(flag),
                      ts::cumsum<0>(u), ts::cumsum<1>(s), ts::max<0>(flag), ts::min<1>(flag), ts::equal(i, x));
  };
  expect_equal_on_all_meshes<Tensor<2, std::int32_t>, Tensor<2, std::uint8_t>, Tensor<2, std::int8_t>, Tensor<2>,
                             Tensor<2, ts::bf16>, Tensor<2, bool>>(
      f,
      {.arguments = {values<std::int32_t>("mn", -4, 5), values<std::uint8_t>("mn", 150, 255),
                     values<std::int8_t>("mn", 90, 127), values("mn"), values<ts::bf16>("mn"), values<bool>("mn")},
       .may_be_empty = true},
      3);
}
