// The code of docs/gradients.md.
#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "../../support/gradients.hpp"
#include "../../support/page.hpp"

#include <tessera/optim/gradients/clip.hpp>

namespace {

namespace ts = tessera;
using namespace oracle;

constexpr auto gradient_of_a_model = [](const auto& model, const auto& x) {
  const auto [loss, gradient] =
      ts::value_and_grad([](const auto& m, const auto& in) { return ts::mean(m(in)); })(model, x);
  return std::tuple(loss, gradient);
};
struct Weight {
  ts::ShardedTensor<float, 2> weight;
  constexpr auto operator()(const auto& in) const { return ts::matmul(in, weight); }
};

constexpr auto several_arguments = [](const auto& x, const auto& w, const auto& cotangent, const auto& dx,
                                      const auto& dw) {
  const auto f = [](const auto& a, const auto& b) { return ts::matmul(a, b); };
  const auto [y, pullback] = ts::vjp(f, x, w);
  const auto [of_x, of_w] = pullback(cotangent);
  const auto [same, tangent] = ts::jvp(f, std::tuple(x, w), std::tuple(dx, dw));
  return std::tuple(y, of_x, of_w, same, tangent);
};

constexpr auto jacobians = [](const auto& model, const auto& x) {
  const auto by_model = ts::jacrev([](const auto& m, const auto& in) { return m(in); })(model, x);
  const auto& of_weight = std::get<0>(by_model);  // [B, out] by [in, out]: [B, out, in, out]
  const auto by_both = ts::jacrev<0, 1>([](const auto& m, const auto& in) { return m(in); })(model, x);
  const auto& of_input = std::get<1>(by_both);  // [B, out, B, in]
  return std::tuple(of_weight, of_input);
};

constexpr auto own_gradients = [](const auto& values, const auto& rows, const auto& index) {
  const auto clipped = ts::custom_vjp([](const auto& x) { return std::tuple(x * 1.0, std::tuple()); },
                                      [](const auto&, const auto& g) { return ts::clamp(g, -1.0, 1.0); });
  const auto row_and_norm = ts::custom_vjp(
      [](const auto& table, const auto& token) {
        const auto row = ts::dynamic_index<0>(table, token);
        return std::tuple(std::pair(row, ts::sum(row * row)), std::tuple(table, token, row));
      },
      [](const auto& kept, const auto& cotangents) {
        const auto& [table, token, row] = kept;
        const auto of_row = cotangents.first + cotangents.second * row * 2.0;
        return std::tuple(ts::dynamic_update_index<0>(ts::zeros_like(table), of_row, token), std::tuple());
      });
  const auto log1pexp = ts::custom_jvp([](const auto& x) { return ts::log(1.0 + ts::exp(x)); },
                                       [](const auto& primals, const auto& tangents) {
                                         return ts::sigmoid(std::get<0>(primals)) * std::get<0>(tangents);
                                       });
  const auto of_row = [&](const auto& own) {
    const auto [row, norm] = row_and_norm(own, index);
    return ts::sum(row) * 3.0 + norm;
  };
  return std::tuple(ts::grad([&](const auto& x) { return ts::sum(clipped(x) * 7.0); })(values),
                    ts::value_and_grad(of_row)(rows),
                    ts::grad([&](const auto& x) { return ts::sum(log1pexp(x)); })(values),
                    std::get<1>(ts::jvp(log1pexp, values, values)));
};

constexpr auto checkpoints = [](const auto& x, const auto& w1, const auto& w2) {
  const auto block = ts::checkpoint([](const auto& h, const auto& w) { return h + ts::gelu(ts::matmul(h, w)); });
  const auto h = block(block(x, w1), w2);
  return h;
};

using Model = Weight;
constexpr auto loss = [](const auto& m, const auto& x) { return ts::sum(ts::tanh(m(ts::unsqueeze<0>(x)))); };
constexpr auto examples = [](const auto& model, const auto& xs) {
  const auto each = ts::vmap([](const auto& m, const auto& x) { return ts::grad(loss)(m, x); },
                             ts::in_axes<ts::not_mapped, 0>)(model, xs);  // a gradient for each example
  return ts::all_layers(each, &Model::weight);
};
constexpr auto clipped_examples = [](const auto& model, const auto& xs) {
  const auto clipped = ts::vmap(
      [](const auto& m, const auto& x) { return std::get<0>(ts::clip_by_global_norm(ts::grad(loss)(m, x), 1.0)); },
      ts::in_axes<ts::not_mapped, 0>)(model, xs);
  const auto of_weight = ts::all_layers(clipped, &Model::weight);  // [examples, in, out]
  const auto gradient = ts::mean<0>(clipped);                      // a Model
  return std::tuple(of_weight, gradient);
};

constexpr auto standardized_examples = [](const auto& xs) {
  const auto standardized = ts::vmap(
      [](const auto& x) {
        const auto centered = x - ts::pmean<"batch">(x);
        return centered * ts::rsqrt(ts::pmean<"batch">(centered * centered) + 1e-5);
      },
      ts::axis_name<"batch">)(xs);
  return standardized;
};

TEST(DocGradients, CodeOfThePage) {
  tessera_test::expect_lines({.name = "gradients.md", .lines = 24}, __FILE__);
  const Array x = random_array({2, 3}, 1), w = random_array({3, 3}, 2), v = random_array({3, 3}, 3);
  EXPECT_EQ((results_of<Weight, Float<2>>(gradient_of_a_model, {w, x}).size()), 2u);
  const auto products =
      results_of<Float<2>, Float<2>, Float<2>, Float<2>, Float<2>>(several_arguments, {x, w, x, x, w});
  expect_near(
      products[4],
      [&] {
        Array twice = products[0];
        for (double& own : twice.data) own *= 2;
        return twice;
      }(),
      1e-12);
  const auto jacobian = results_of<Weight, Float<2>>(jacobians, {w, x});
  ASSERT_EQ(jacobian[0].shape, (ts::Shape{2, 3, 3, 3}));
  ASSERT_EQ(jacobian[1].shape, (ts::Shape{2, 3, 2, 3}));
  for_each_index(jacobian[0].shape, [&](const ts::Shape& i) {
    EXPECT_NEAR(jacobian[0].at(i), i[1] == i[3] ? x.at({i[0], i[2]}) : 0, 1e-12);
  });
  for_each_index(jacobian[1].shape, [&](const ts::Shape& i) {
    EXPECT_NEAR(jacobian[1].at(i), i[0] == i[2] ? w.at({i[3], i[1]}) : 0, 1e-12);
  });
  const auto own = results_of<Float<1>, Float<2>, Int<0>>(own_gradients, {Array({2}, {0.5, -1}), x, Array::number(1)});
  expect_near(own[0], Array({2}, {1, 1}), 1e-12);
  Array of_rows({2, 3});
  for (std::int64_t d = 0; d < 3; ++d) of_rows.at({1, d}) = 3 + 2 * x.at({1, d});
  expect_near(own[2], of_rows, 1e-12);
  const double half = 1 / (1 + std::exp(-0.5)), one = 1 / (1 + std::exp(1.0));
  expect_near(own[3], Array({2}, {half, one}), 1e-12);
  expect_near(own[4], Array({2}, {half * 0.5, -one}), 1e-12);
  EXPECT_EQ((results_of<Float<2>, Float<2>, Float<2>>(checkpoints, {x, w, v})[0].shape), x.shape);
  const Array each = run(compiled<decltype(examples), Model, Float<2>>().view(), {w, x})[0];
  ASSERT_EQ(each.shape, (ts::Shape{2, 3, 3}));
  const auto clipped = run(compiled<decltype(clipped_examples), Model, Float<2>>().view(), {w, x});
  Array mean({3, 3});
  for (std::size_t n = 0; n < 2; ++n) {
    double squares = 0;
    for (std::size_t i = 0; i < 9; ++i) squares += each.data[9 * n + i] * each.data[9 * n + i];
    const double scale = 1 / std::max(1.0, std::sqrt(squares));
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_NEAR(clipped[0].data[9 * n + i], each.data[9 * n + i] * scale, 1e-5);
      mean.data[i] += clipped[0].data[9 * n + i] / 2;
    }
  }
  expect_near(clipped[1], mean, 1e-12);
  const Array standardized = results_of<Float<2>>(standardized_examples, {x})[0];
  for (std::size_t i = 0; i < 3; ++i) {  // of two examples, the mean is in the middle
    const double half_distance = (x.data[i] - x.data[3 + i]) / 2;
    EXPECT_NEAR(standardized.data[i], half_distance / std::sqrt(half_distance * half_distance + 1e-5), 1e-10);
    EXPECT_NEAR(standardized.data[3 + i], -standardized.data[i], 1e-10);
  }
}

}  // namespace
