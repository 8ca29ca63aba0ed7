#include "check.hpp"

namespace ts = tessera;
using namespace programs;

TEST(Programs, Elementwise) {
  constexpr auto f = [](const auto& floats, const auto& rate) {
    const auto& [x, y, row, column] = floats;  // [m, n], [m, n], [n], [m]
    const auto positive = ts::abs(x) + 0.5;
    const auto a = ts::exp(x) + ts::log(positive) - ts::sqrt(positive) * ts::rsqrt(positive + ts::abs(row));
    const auto b = ts::tanh(x * row) + ts::sigmoid(y) / (ts::abs(ts::unit<1>(column)) + 1.5) +
                   ts::relu(x) * ts::gelu(y) - ts::silu(-x);
    const auto c = ts::pow(positive, y) + ts::minimum(x, y) * ts::maximum(x, row) + ts::sign(y) * ts::pow(x, 2);
    const auto d = ts::select(x < y, x * rate, row) +
                   ts::select(ts::logical_or(x <= y, ts::logical_not(x > 0.25)), 1.0, 2.0 / (y + 3.0));
    const auto e = ts::unit<1>(column) * row - 0.5;
    const auto g =
        ts::broadcast_like(column * rate, ts::transpose<1, 0>(x)) + ts::iota<0, float>(ts::transpose<1, 0>(x)) * 0.125;
    return std::tuple(energy(a, b, c, d, e, g), a, b, c, d, e, g);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<1>, Tensor<1>>, ts::Scalar>(
      with_gradient(f),
      {.arguments = {values("mn"), values("mn"), values("n"), values("m"), scalar(0.5, 2)}, .may_be_empty = true}, 1);
}

TEST(Programs, ElementTypes) {
  constexpr auto f = [](auto i, auto j, auto k, auto u, auto d, auto flag) {
    const auto chosen = ts::logical_and(i >= -2, ts::logical_or(ts::not_equal(i, 1), flag));
    const auto quotient = (i * 7 - j) / (ts::abs(j) + 2) + ts::maximum(i, j) - ts::minimum(i, 3);
    const auto wide = ts::cast<std::int64_t>(i) * 1000000007 + k - ts::sum<0>(k, ts::keepdims);
    const auto real = ts::exp(d) * ts::cast<double>(k) + ts::tanh(d) / 3.0 + ts::pow(ts::abs(d) + 0.5, d) +
                      ts::log(ts::sigmoid(d)) + ts::gelu(d) - ts::sqrt(ts::abs(d)) * ts::rsqrt(ts::abs(d) + 1.0);
    const auto bytes = u / std::uint8_t{3} + ts::minimum(u, std::uint8_t{20});
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

TEST(Programs, Rows) {
  constexpr auto f = [](const auto& floats, const auto& targets, const auto& eps) {
    const auto& [x, w, gain, bias] = floats;  // [b, t, d], [d, d], [d], [d]
    const auto normed = ts::layer_norm(x, gain, bias, eps);
    const auto squared = ts::rms_norm(normed * 2.0 + x, gain);
    const auto soft = ts::softmax(squared * 3.0), across = ts::softmax<1>(x * 2.0), logs = ts::log_softmax<0>(squared);
    const auto loss = ts::cross_entropy(ts::matmul(squared, w), targets);
    return std::tuple(loss + energy(soft, across, logs) + ts::mse(normed, x), normed, squared, soft, across, logs,
                      ts::log_softmax(x));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<1>, Tensor<1>>, Tensor<2, std::int32_t>,
                             ts::Scalar>(
      with_gradient(f),
      {.arguments = {values("btd"), values("dd"), values("d"), values("d"), indices("bt", 'd'), scalar(0.05, 0.2)}}, 4);
}

TEST(Programs, RandomNumbers) {
  constexpr auto f = [](auto x, auto d, auto key, auto rate) {
    const auto normal = ts::normal_like(x, key);
    const auto uniform = ts::uniform_like<3>(d, key);
    return std::tuple(normal, uniform, ts::uniform_like(ts::sum<0>(x), 7), ts::dropout(x, rate, key),
                      ts::dropout<2>(ts::transpose<1, 0>(x), 0.5, key), ts::sum<0>(ts::normal_like<1>(x, key)),
                      x * ts::normal_like<1>(x, key));
  };
  expect_equal_on_all_meshes<Tensor<2>, Tensor<3, double>, ts::Scalar, ts::Scalar>(
      f, {.arguments = {values("mn"), values<double>("mnk"), scalar(0, 1e9), scalar(0, 0.9)}, .may_be_empty = true}, 5);
}
