#include "check.hpp"
#include "half_programs.hpp"

#include <tessera/ops/attention/attention.hpp>

namespace ts = tessera;
using namespace programs;
using namespace programs::half;
using ts::bf16;

namespace {

/// bf16 has eight bits of precision: results may differ by one or two roundings of their largest element, and by the
/// effect of roundings of their operands.
constexpr double tolerance = 0x1p-7;

}  // namespace

TEST(ProgramsBf16, ElementwiseAndCasts) {
  constexpr auto f = [](const auto& floats, const auto& rate) {
    const auto& [x, y, row] = floats;  // [m, n] bf16, [m, n] f32, [n] bf16
    const auto narrow = ts::cast<bf16>(y);
    const auto a = ts::exp(x) * ts::tanh(row) + ts::gelu(narrow) - ts::sigmoid(x * rate);
    const auto b = ts::select(x < narrow, x, row) + ts::maximum(x, 0.25) - ts::silu(narrow);
    const auto c = ts::cast<float>(x) * y + ts::cast<float>(row);
    return std::tuple(loss(a, b, c), a, b, c, x < narrow, ts::cast<std::int32_t>(x * 8.0), ts::cast<double>(x));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2, bf16>, Tensor<2>, Tensor<1, bf16>>, ts::Scalar>(
      with_gradient(f),
      {.arguments = {values<bf16>("mn"), values("mn"), values<bf16>("n"), scalar(0.5, 2)},
       .cases = 60,
       .tolerance = tolerance,
       .may_be_empty = true},
      61);
}

TEST(ProgramsBf16, Reductions) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x] = floats;  // [a, b, c]
    return std::tuple(loss(ts::sum<0>(x), ts::mean<1>(x, ts::keepdims), ts::max<2>(x), ts::sum<0, 2>(x)), ts::sum<1>(x),
                      ts::mean<0, 2>(x), ts::min<0>(x), x - ts::mean<2>(x, ts::keepdims));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3, bf16>>>(
      with_gradient(f), {.arguments = {values<bf16>("abc")}, .cases = 60, .tolerance = tolerance}, 62);
}

TEST(ProgramsBf16, SumsAreAsPreciseAsFloats) { expect_sums_of_floats<bf16>(30); }
TEST(ProgramsBf16, Products) { expect_products_of_layers<bf16>(-1, 1, 2 * tolerance); }
TEST(ProgramsBf16, LargeProducts) { expect_large_products<bf16>(tolerance); }

TEST(ProgramsBf16, Rows) {
  constexpr auto f = [](const auto& floats, const auto& targets) {
    const auto& [x, w, gain, bias] = floats;  // [b, t, d], [d, d], [d], [d]
    const auto normed = ts::layer_norm(x, gain, bias, 0.1);
    const auto squared = ts::rms_norm(normed + x, gain, 0.1);
    const auto soft = ts::softmax(squared), logs = ts::log_softmax(squared);
    const auto cost = ts::cross_entropy(ts::matmul(squared, w), targets);
    return std::tuple(cost + loss(soft, logs) + ts::mse(normed, x), normed, squared, soft, logs);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3, bf16>, Tensor<2, bf16>, Tensor<1, bf16>, Tensor<1, bf16>>,
                             Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values<bf16>("btd"), values<bf16>("dd"), values<bf16>("d"), values<bf16>("d"), indices("bt", 'd')},
       .cases = 60,
       .tolerance = 2 * tolerance},
      66);
}

TEST(ProgramsBf16, AttentionAndLookups) {
  constexpr auto f = [](const auto& floats, const auto& tokens) {
    const auto& [table, w] = floats;              // [n, d], [d, h * e * 3]
    const auto x = ts::embedding(table, tokens);  // [b, t, d]
    const auto all = ts::rearrange<"b t (h c e) -> b t h c e">(ts::matmul(x, w), ts::len<"h">(2), ts::len<"c">(3));
    const auto q = ts::squeeze<3>(ts::slice<3>(all, 0, 1)), k = ts::squeeze<3>(ts::slice<3>(all, 1, 1)),
               v = ts::squeeze<3>(ts::slice<3>(all, 2, 1));
    const auto y = ts::causal_attention(q, k, v);
    return std::tuple(loss(y), y, x);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2, bf16>, Tensor<2, bf16>>, Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values<bf16>("nd"), values<bf16>("de"), indices("bt", 'n')},
       .cases = 40,
       .tolerance = 2 * tolerance,
       .extents = {{'6', {6}}},
       .products = {{'e', "6d"}}},
      67);
}

namespace {

template <ts::Precision P>
constexpr auto products = [](const auto& floats) {
  const auto& [a, b] = floats;  // [m, k], [k, n]
  const auto y = ts::matmul<P>(a, b);
  return std::tuple(energy(y), y, ts::einsum<"mk,kn->nm", P>(a, b));
};

template <ts::Precision P> void expect_products(double bound, std::uint32_t seed) {
  // Sums of up to 40 terms of magnitude 1: a result has magnitude 1 as well, its terms 40 times that together.
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>>>(
      with_gradient(products<P>),
      {.arguments = {values("mk"), values("kn")}, .cases = 40, .tolerance = bound, .extents = {{'k', {1, 20, 40}}}},
      seed);
}

}  // namespace

TEST(ProgramsBf16, PrecisionsOfProducts) {
  expect_products<ts::Precision::bf16>(0x1p-6, 68);
  expect_products<ts::Precision::bf16_x3>(0x1p-14, 69);
  expect_products<ts::Precision::bf16_x6>(2e-5, 70);
}

TEST(ProgramsBf16, AutocastOfLayers) { expect_autocast_of_layers<bf16>(4 * tolerance); }
TEST(ProgramsBf16, AutocastOfAttention) { expect_autocast_of_attention<bf16>(2 * tolerance); }
