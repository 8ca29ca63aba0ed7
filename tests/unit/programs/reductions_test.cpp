#include <cmath>

#include "check.hpp"

namespace ts = tessera;
using namespace programs;

TEST(Programs, Reductions) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, y] = floats;  // [a, b, c]
    using ts::keepdims;
    return std::tuple(
        energy(ts::sum<0>(x), ts::sum<1>(x, keepdims), ts::sum<2>(x), ts::sum<0, 1>(x, keepdims), ts::sum<0, 2>(x),
               ts::sum<1, 2>(x), ts::mean<0>(y), ts::mean<-1>(y, keepdims), ts::mean<0, -1>(y), ts::max<2>(y),
               ts::max<0>(x * y, keepdims), ts::min<1>(y), ts::max<0, 1>(x), ts::min<0, 2>(y, keepdims)) +
            ts::max(x) * ts::min(y) + ts::mean(x) + ts::sum(x * y),
        ts::sum<0, 1, 2>(x, keepdims), ts::mean<1>(x * y), ts::max<1, 2>(x - y), x - ts::mean<1>(x, keepdims));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>>>(with_gradient(f),
                                                               {.arguments = {values("abc"), values("abc")}}, 3);
}

// With few distinct values, equal elements are common: the first one is found, whichever device has it.
TEST(Programs, PositionsOfExtremes) {
  constexpr auto f = [](const auto& floats, const auto& integers) {
    const auto& [x] = floats;  // [a, b, c]
    using ts::keepdims;
    return std::tuple(ts::argmax<0>(integers), ts::argmin<1>(integers, keepdims), ts::argmax(integers),
                      ts::argmax<1, std::int64_t>(x), ts::argmin<2>(x), ts::argmin(x), ts::any<0>(integers),
                      ts::all<1>(integers), ts::any<1, 2>(x > 1.0), ts::all(x < 2.0), ts::logsumexp<1>(x),
                      ts::logsumexp<0, 2>(x, keepdims));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>>, Tensor<2, std::int8_t>>(
      f, {.arguments = {values("abc"), values<std::int8_t>("ij", -2, 2)}}, 5);
}

// Few distinct values make equal elements common, which sorts and medians may take in any order; distinct floats have
// gradients.
TEST(Programs, Statistics) {
  constexpr auto f = [](const auto& floats, const auto& integers) {
    const auto& [x, y, w] = floats;  // [a, b, c], [m, d], [n, d]
    using ts::keepdims;
    const auto [variance, mean] = ts::var_mean<0>(x);
    const auto [least, most] = ts::aminmax<1>(integers);
    return std::tuple(
        energy(ts::median<1>(x), ts::nanmedian<0>(x), ts::quantile<2>(x, 0.3), ts::kthvalue<1>(x, 1).values,
               ts::nanmean<0, 2>(x), ts::norm<1>(x, 3), ts::norm<0>(x, keepdims, 1), ts::norm(x, INFINITY),
               ts::cdist(y, w), ts::cosine_similarity(x, x + 1.0), ts::normalize<1>(x), variance * mean,
               ts::outer(ts::sum<0>(y), ts::sum<1>(w)), ts::dot(ts::sum<0>(y), ts::sum<0>(w))),
        ts::median<0>(integers), ts::kthvalue<1>(integers, 1).indices, ts::bincount(integers, 4),
        ts::bincount(integers, 3, ts::cast<float>(integers) * 0.5), ts::histogram(x, 5, -0.75, 1.0),
        ts::count_nonzero<1>(integers), most - least, ts::nanmax<1>(ts::log(x)), ts::nanmin<0, 2>(ts::sqrt(x)),
        ts::nanprod<2>(ts::sqrt(x)), ts::nanstd<0>(ts::sqrt(x)), ts::nanargmax<1>(ts::log(x)));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<2>>, Tensor<2, std::int8_t>>(
      with_gradient(f),
      {.arguments = {values("abc"), values("md"), values("nd"), values<std::int8_t>("ij", -2, 6)}, .cases = 40}, 7);
}

// A product of many elements is usually far from 1: these elements are near 1, and one row has a zero.
TEST(Programs, ProductsOfElements) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x] = floats;  // [a, b, c]
    using ts::keepdims;
    const auto near = 1.0 + x * 0.25;
    return std::tuple(
        energy(ts::prod<0>(near), ts::prod<1>(near, keepdims), ts::prod<0, 2>(near), ts::prod<2>(x * near)) +
            ts::prod(near),
        ts::prod<1, 2>(near), near / ts::prod<2>(near, keepdims), ts::prod<0>(ts::relu(x)));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>>>(with_gradient(f), {.arguments = {values("abc")}}, 4);
}

// Differences, integrals, covariances and Kronecker products, with split and uneven dims.
TEST(Programs, DifferencesAndCovariances) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, y, w] = floats;  // [a, b, c], [m, d], [n, d]
    const auto steps = ts::diff<0>(x), twice = ts::diff<2>(x);
    const auto area = ts::trapezoid<1>(x, 0.5);
    const auto areas = ts::cumulative_trapezoid<0>(x);
    const auto spread = ts::cov(y, 0), product = ts::kron(y, w);
    return std::tuple(energy(steps, twice, area, areas, spread, product), steps, twice, area, areas, spread, product,
                      ts::trapezoid<0>(x, ts::cumsum<0>(x * x)), ts::deg2rad(x));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<2>>>(
      with_gradient(f), {.arguments = {values("abc"), values("md"), values("nd")}, .cases = 40}, 9);
}
