#include "check.hpp"
#include "half_programs.hpp"

#include <tessera/ops/attention/attention.hpp>

namespace ts = tessera;
using namespace programs;
using namespace programs::half;
using ts::bf16, ts::f16, ts::f8_e4m3, ts::f8_e5m2;

namespace {

/// f16 has eleven bits of precision: results may differ by one or two roundings of their largest element, and by the
/// effect of roundings of their operands.
constexpr double tolerance = 0x1p-10;

}  // namespace

TEST(ProgramsF16, ElementwisePromotionAndCasts) {
  constexpr auto f = [](const auto& floats, const auto& rate, const auto& i) {
    const auto& [x, y, row, wide] = floats;  // [m, n] f16, [m, n] f32, [n] f16, [m, n] bf16
    static_assert(std::is_same_v<typename decltype(ts::cast<f16>(y) * 2.0)::element, f16>);
    static_assert(std::is_same_v<typename decltype(x + wide)::element, float>);
    static_assert(std::is_same_v<typename decltype(x + i)::element, f16>);
    static_assert(std::is_same_v<typename decltype(x + y)::element, float>);
    const auto narrow = ts::cast<f16>(y);
    const auto a = ts::exp(x) * ts::tanh(row) + ts::gelu(narrow) - ts::sigmoid(x * rate);
    const auto b = ts::select(x < narrow, x, row) + ts::maximum(x, 0.25) - ts::silu(narrow);
    const auto c = ts::cast<float>(x) * y + ts::cast<float>(row) + x * wide;
    return std::tuple(loss(a, b, c), a, b, c, x < narrow, x + i, ts::cast<std::int32_t>(x * 8.0), ts::cast<double>(x),
                      ts::cast<bf16>(x), ts::cast<f16>(wide), ts::cast<bool>(x), ts::cast<f16>(i));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2, f16>, Tensor<2>, Tensor<1, f16>, Tensor<2, bf16>>, ts::Scalar,
                             Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values<f16>("mn"), values("mn"), values<f16>("n"), values<bf16>("mn"), scalar(0.5, 2),
                     values<std::int32_t>("mn", -5, 6)},
       .cases = 60,
       .tolerance = 2 * tolerance,
       .may_be_empty = true},
      61);
}

TEST(ProgramsF16, Reductions) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x] = floats;  // [a, b, c]
    return std::tuple(loss(ts::sum<0>(x), ts::mean<1>(x, ts::keepdims), ts::max<2>(x), ts::sum<0, 2>(x)), ts::sum<1>(x),
                      ts::mean<0, 2>(x), ts::min<0>(x), x - ts::mean<2>(x, ts::keepdims), ts::cumsum<1>(x),
                      ts::argmax<2>(x));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3, f16>>>(
      with_gradient(f), {.arguments = {values<f16>("abc")}, .cases = 60, .tolerance = tolerance}, 62);
}

TEST(ProgramsF16, SumsAreAsPreciseAsFloats) { expect_sums_of_floats<f16>(20); }
TEST(ProgramsF16, Products) { expect_products_of_layers<f16>(-0.5, 0.5, 2 * tolerance); }
TEST(ProgramsF16, LargeProducts) { expect_large_products<f16>(tolerance); }
TEST(ProgramsF16, AutocastOfLayers) { expect_autocast_of_layers<f16>(4 * tolerance); }
TEST(ProgramsF16, AutocastOfAttention) { expect_autocast_of_attention<f16>(2 * tolerance); }

TEST(ProgramsF16, RowsAttentionAndLookups) {
  constexpr auto f = [](const auto& floats, const auto& tokens, const auto& targets) {
    const auto& [table, w, gain] = floats;        // [n, d], [d, h * e * 3], [d]
    const auto x = ts::embedding(table, tokens);  // [b, t, d]
    const auto normed = ts::layer_norm(x, gain, gain, 0.1);
    const auto all = ts::rearrange<"b t (h c e) -> b t h c e">(ts::matmul(normed, w), ts::len<"h">(2), ts::len<"c">(3));
    const auto q = ts::squeeze<3>(ts::slice<3>(all, 0, 1)), k = ts::squeeze<3>(ts::slice<3>(all, 1, 1)),
               v = ts::squeeze<3>(ts::slice<3>(all, 2, 1));
    const auto y = ts::causal_attention(q, k, v);
    const auto cost = ts::cross_entropy(normed, targets);
    static_assert(std::is_same_v<typename decltype(cost)::element, float>);
    return std::tuple(loss(y, ts::softmax(x)) + cost, y, x, normed);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2, f16>, Tensor<2, f16>, Tensor<1, f16>>, Tensor<2, std::int32_t>,
                             Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values<f16>("nd"), values<f16>("de"), values<f16>("d"), indices("bt", 'n'), indices("bt", 'd')},
       .cases = 40,
       .tolerance = 4 * tolerance,
       .extents = {{'6', {6}}},
       .products = {{'e', "6d"}}},
      67);
}

// 8-bit floats are cast, moved, looked up and resharded; nothing is computed with them.
template <class T> void expect_equal_storage(std::uint32_t seed) {
  constexpr auto f = [](auto x, auto half, auto q, auto row, auto i, auto at) {
    const auto whole = ts::concat<0>(ts::cast<T>(x), q);  // [2 m, n]
    return std::tuple(whole, ts::cast<T>(half), ts::cast<float>(q) * x, ts::cast<f16>(q) + half,
                      ts::cast<bf16>(ts::transpose<1, 0>(q)), ts::slice<0>(q, 1, 1), ts::embedding(q, i),
                      ts::gather<1>(q, at), ts::scatter<1>(q, at, ts::cast<T>(x)), ts::cast<std::int32_t>(q),
                      ts::cast<double>(row) * ts::cast<double>(q), ts::merge_dims<0, 1>(q), ts::broadcast_like(row, q));
  };
  expect_equal_on_all_meshes<Tensor<2>, Tensor<2, f16>, Tensor<2, T>, Tensor<1, T>, Tensor<1, std::int32_t>,
                             Tensor<2, std::int32_t>>(
      f,
      {.arguments = {values("mn"), values<f16>("mn"), values<T>("mn"), values<T>("n"), indices("k", 'm'),
                     indices("mn", 'n')},
       .cases = 60,
       .tolerance = tolerance,
       .extents = {{'m', {2, 3, 4, 5, 8}}}},
      seed);
}
TEST(ProgramsF8, StorageOfE4m3) { expect_equal_storage<f8_e4m3>(71); }
TEST(ProgramsF8, StorageOfE5m2) { expect_equal_storage<f8_e5m2>(72); }

// The gradient passes a cast to 8 bits unchanged where all uses cast back.
TEST(ProgramsF8, GradientOfARoundingIsThatOfItsResult) {
  constexpr auto f = [](const auto& floats) {
    const auto& [x, w] = floats;  // [m, k], [k, n]
    const auto y = ts::matmul(ts::cast<float>(ts::cast<f8_e5m2>(x)), ts::cast<float>(ts::cast<f8_e4m3>(w)));
    return std::tuple(energy(y), y);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>>>(
      with_gradient(f), {.arguments = {values("mk"), values("kn")}, .cases = 40, .tolerance = 2e-5}, 73);
}
