#ifndef TESSERA_TESTS_UNIT_PROGRAMS_HALF_PROGRAMS_HPP
#define TESSERA_TESTS_UNIT_PROGRAMS_HALF_PROGRAMS_HPP

#include <tuple>

#include "check.hpp"

#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/contraction/autocast.hpp>

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

// Products of f32 tensors under autocast, on all meshes, against the function without autocast in double.
struct CastBlock {
  Tensor<2> weight;  // [d, d]
  Tensor<1> gain;    // [d]
  constexpr auto operator()(const auto& x) const {
    return ts::rms_norm(x + ts::gelu(ts::matmul(x, weight)) * 0.5, gain, 0.1);
  }
};
inline constexpr auto cast_layers = [](const auto& floats, const auto& targets) {
  const auto& [blocks, x, w, filter] = floats;  // [d, d] and [d] of each layer, [b, t, d], [d, d], [3, d, d]
  const auto stacked = blocks(x);
  const auto step = [&](const auto& h, const auto& in) {
    return std::tuple(ts::tanh(ts::matmul(h, std::get<2>(floats)) + in), ts::sum<1>(h));
  };
  const auto [last, sums] = ts::scan(step, ts::mean<0>(stacked), stacked);
  const auto convolved = ts::conv1d(stacked, filter, {.padding = {1}});
  const auto logits = ts::matmul(ts::layer_norm(convolved + stacked, ts::mean<0, 1>(x), ts::sum<0>(w), 0.1), w);
  return std::tuple(ts::cross_entropy(logits, targets) + energy(last, sums, ts::softmax(logits)), last, sums, convolved,
                    logits);
};

template <class T> void expect_autocast_of_layers(double tolerance) {
  constexpr auto f = [](const auto& blocks, const auto& x, const auto& w, const auto& filter, const auto& targets) {
    return ts::value_and_grad([](const auto& floats, const auto& t) {
      return ts::autocast<T>(cast_layers)(floats, t);
    })(std::tuple(blocks, x, w, filter), targets);
  };
  expect_equal_on_all_meshes<ts::Stack<CastBlock>, Tensor<3>, Tensor<2>, Tensor<3>, Tensor<2, std::int32_t>>(
      f,
      {.arguments = {stacked(values("dd")), stacked(values("d")), values("btd"), values("dd"), values("3dd"),
                     indices("bt", 'd')},
       .cases = 40,
       .tolerance = tolerance,
       .extents = {{'3', {3}}, {'t', {1, 2, 3, 5}}}},
      71);
}

template <class T> void expect_autocast_of_attention(double tolerance) {
  constexpr auto f = [](const auto& floats) {
    return ts::autocast<T>([](const auto& all) {
      const auto& [q, k, v] = all;
      const auto y = ts::attention(q, k, v), z = ts::causal_attention(q, k, v);
      const auto scores = ts::einsum<"bthe,bshe->bhts">(q, k);
      const auto band = ts::band_attention(q, k, v, 2, 1, 0);
      const auto masked = ts::causal_attention(q, k, v, ts::greater(scores, 0.0));
      return std::tuple(energy(y, z, masked), y, z, band, masked, ts::attention(q, k, v, scores));
    })(floats);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<4>, Tensor<4>, Tensor<4>>>(
      with_gradient(f),
      {.arguments = {values("bthe"), values("bshe"), values("bshe")}, .cases = 40, .tolerance = tolerance}, 72);
}

}  // namespace programs::half

#endif
