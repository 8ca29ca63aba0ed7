#ifndef TESSERA_TESTS_UNIT_PROGRAMS_HALF_PROGRAMS_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_HALF_PROGRAMS_HPP

#include <tuple>

#include "check.hpp"

/// Programs of floating types of 16 bits, which bf16_test.cpp and f16_test.cpp run on their own type.
namespace programs::half {

namespace ts = tessera;

inline constexpr auto loss = [](const auto&... results) { return energy(ts::cast<float>(results)...); };

/// Two thousand ones beside a large number would vanish in sums of 16 bits.
template <class T> void expect_sums_of_floats(int cases) {
  constexpr auto f = [](auto x, auto w) {
    return std::tuple(ts::sum<0>(ts::cast<float>(x)), ts::matmul<float>(ts::transpose<1, 0>(x), w));
  };
  expect_equal_on_all_meshes<Tensor<2, T>, Tensor<2, T>>(f,
                                                         {.arguments = {values<T>("kn"), values<T>("km")},
                                                          .cases = cases,
                                                          .tolerance = 1e-5,
                                                          .extents = {{'k', {1000, 2000}}}},
                                                         63);
}

/// `low`, `high`: the range of what is multiplied.
template <class T> void expect_products_of_layers(double low, double high, double tolerance) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, w, b] = floats;  // [b, t, d], [d, e], [e]
    const auto y = ts::relu(ts::matmul(x, w) + b);
    const auto scores = ts::einsum<"bte,bse->bts", float>(y, y);
    const auto outer = ts::einsum<"btd,bte->de">(x, y);
    return std::tuple(loss(y, scores, outer), y, scores, outer);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3, T>, Tensor<2, T>, Tensor<1, T>>>(
      with_gradient(f),
      {.arguments = {values<T>("btd", low, high), values<T>("de", low, high), values<T>("e")},
       .cases = 60,
       .tolerance = tolerance,
       .may_be_empty = true},
      64);
}

template <class T> void expect_large_products(double tolerance) {
  constexpr auto f = [](auto x, auto w, auto b) { return ts::matmul(x, w) + b; };
  expect_equal_on_all_meshes<Tensor<2, T>, Tensor<2, T>, Tensor<1, T>>(
      f,
      {.arguments = {values<T>("md"), values<T>("de"), values<T>("e")},
       .cases = 6,
       .tolerance = tolerance,
       .extents = {{'m', {130, 300}}, {'d', {64, 700}}, {'e', {100, 257}}}},
      65);
}

}  // namespace programs::half

#endif
