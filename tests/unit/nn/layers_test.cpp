#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"
#include "plain.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;
using oracle::random_array;

namespace {

struct Apply {
  constexpr auto operator()(const auto& layer, const auto& x) const { return layer(x); }
};
using Tensor3 = ts::ShardedTensor<float, 3>;

/// What a layer means: its trace, run by the oracle. The leaves of the layer come first, then x.
template <class Layer, class X = Tensor3> Array meaning(const std::vector<Array>& arguments) {
  const oracle::Program program = oracle::trace<Apply, Layer, X>();
  return oracle::run(program.view(), arguments).at(0);
}

TEST(Linear, IsAProductPlusABias) {
  const Array w = random_array({5, 7}, 1), b = random_array({7}, 2), x = random_array({2, 3, 5}, 3),
              m = random_array({4, 5}, 4);
  oracle::expect_near(meaning<nn::Linear<>>({w, b, x}), plain::linear(x, w, &b), 1e-12);
  oracle::expect_near(meaning<nn::Linear<float, false>>({w, x}), plain::linear(x, w, nullptr), 1e-12);
  oracle::expect_near(meaning<nn::Linear<double>, ts::ShardedTensor<double, 2>>({w, b, m}), plain::linear(m, w, &b),
                      1e-12);
}

TEST(Embedding, IsTheRowOfEachToken) {
  const Array table = random_array({6, 3}, 1), tokens({2, 4}, {0, 5, 2, 2, 1, 0, 3, 5});
  const Array got = meaning<nn::Embedding<>, ts::ShardedTensor<std::int32_t, 2>>({table, tokens});
  Array want({2, 4, 3});
  for (std::size_t i = 0; i < 8; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      want.data[i * 3 + j] = table.data[static_cast<std::size_t>(tokens.data[i]) * 3 + j];
  oracle::expect_near(got, want, 0);
}

TEST(Positions, AddsARowForEachPositionThatThereIs) {
  const Array table = random_array({6, 3}, 1), x = random_array({2, 4, 3}, 2);  // 4 of 6 positions
  Array want = x;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t t = 0; t < 4; ++t)
      for (std::int64_t j = 0; j < 3; ++j) want.at({b, t, j}) += table.at({t, j});
  oracle::expect_near(meaning<nn::Positions<>>({table, x}), want, 1e-12);
}

TEST(LayerNorm, CentersAndScalesRows) {
  const Array gain = random_array({5}, 1), bias = random_array({5}, 2), x = random_array({2, 3, 5}, 3);
  oracle::expect_near(meaning<nn::LayerNorm<>>({gain, bias, Array::number(0.3), x}),
                      plain::layer_norm(x, gain, bias, 0.3), 1e-12);
}

TEST(RmsNorm, ScalesRows) {
  const Array gain = random_array({5}, 1), x = random_array({2, 3, 5}, 3);
  oracle::expect_near(meaning<nn::RmsNorm<>>({gain, Array::number(0.3), x}), plain::rms_norm(x, gain, 0.3), 1e-12);
}

TEST(Attention, AttendsToThePastOfEveryHead) {
  for (const int heads : {1, 2, 3}) {
    const Array qkv = random_array({6, 18}, 1), qb = random_array({18}, 2), out = random_array({6, 6}, 3),
                ob = random_array({6}, 4), x = random_array({2, 5, 6}, 5);
    oracle::expect_near(meaning<nn::Attention<>>({qkv, qb, out, ob, Array::number(heads), x}),
                        plain::attention(x, heads, qkv, &qb, out, &ob), 1e-12);
    oracle::expect_near(meaning<nn::Attention<float, false>>({qkv, out, Array::number(heads), x}),
                        plain::attention(x, heads, qkv, nullptr, out, nullptr), 1e-12);
  }
}

TEST(Mlp, IsGeluBetweenTwoProducts) {
  const Array up = random_array({4, 6}, 1), ub = random_array({6}, 2), down = random_array({6, 4}, 3),
              db = random_array({4}, 4), x = random_array({2, 3, 4}, 5);
  const Array hidden = plain::map(plain::linear(x, up, &ub), plain::gelu);
  oracle::expect_near(meaning<nn::Mlp<>>({up, ub, down, db, x}), plain::linear(hidden, down, &db), 1e-12);
}

TEST(GatedMlp, MultipliesByTheGate) {
  const Array gate = random_array({4, 6}, 1), up = random_array({4, 6}, 2), down = random_array({6, 4}, 3),
              x = random_array({2, 3, 4}, 5);
  const Array hidden = plain::zip(plain::map(plain::linear(x, gate, nullptr), plain::silu),
                                  plain::linear(x, up, nullptr), [](double a, double b) { return a * b; });
  oracle::expect_near(meaning<nn::GatedMlp<>>({gate, up, down, x}), plain::linear(hidden, down, nullptr), 1e-12);
}

/// The leaves of a Block<> of 6 features, 3 heads and 8 hidden features.
std::vector<Array> block_leaves(unsigned seed) {
  return {random_array({6}, seed),      random_array({6}, seed + 1),
          Array::number(1e-3),          random_array({6, 18}, seed + 2),
          random_array({18}, seed + 3), random_array({6, 6}, seed + 4),
          random_array({6}, seed + 5),  Array::number(3),
          random_array({6}, seed + 6),  random_array({6}, seed + 7),
          Array::number(1e-3),          random_array({6, 8}, seed + 8),
          random_array({8}, seed + 9),  random_array({8, 6}, seed + 10),
          random_array({6}, seed + 11)};
}
Array plain_block(const Array& x, const std::vector<Array>& p) {
  const Array middle =
      plain::sum(x, plain::attention(plain::layer_norm(x, p[0], p[1], 1e-3), 3, p[3], &p[4], p[5], &p[6]));
  const Array hidden =
      plain::map(plain::linear(plain::layer_norm(middle, p[8], p[9], 1e-3), p[11], &p[12]), plain::gelu);
  return plain::sum(middle, plain::linear(hidden, p[13], &p[14]));
}

TEST(Block, AddsAttentionAndMlpToTheResidual) {
  std::vector<Array> arguments = block_leaves(1);
  const Array x = random_array({2, 4, 6}, 99), want = plain_block(x, arguments);
  arguments.push_back(x);
  oracle::expect_near(meaning<nn::Block<>>(arguments), want, 1e-12);
}

TEST(GatedBlock, HasNoBiases) {
  const std::vector<Array> p = {random_array({6}, 1),    Array::number(1e-3),       random_array({6, 18}, 2),
                                random_array({6, 6}, 3), Array::number(2),          random_array({6}, 4),
                                Array::number(1e-3),     random_array({6, 8}, 5),   random_array({6, 8}, 6),
                                random_array({8, 6}, 7), random_array({2, 4, 6}, 8)};
  const Array& x = p[10];
  const Array middle = plain::sum(x, plain::attention(plain::rms_norm(x, p[0], 1e-3), 2, p[2], nullptr, p[3], nullptr));
  const Array normed = plain::rms_norm(middle, p[5], 1e-3);
  const Array hidden = plain::zip(plain::map(plain::linear(normed, p[7], nullptr), plain::silu),
                                  plain::linear(normed, p[8], nullptr), [](double a, double b) { return a * b; });
  oracle::expect_near(meaning<nn::GatedBlock<>>(p), plain::sum(middle, plain::linear(hidden, p[9], nullptr)), 1e-12);
}

TEST(StackOfBlocks, IsOneBlockAfterTheOther) {
  const std::vector<Array> first = block_leaves(1), second = block_leaves(50);
  const Array x = random_array({2, 4, 6}, 99);
  std::vector<Array> arguments;
  for (std::size_t i = 0; i < first.size(); ++i) {
    Array both = first[i];
    if (!both.shape.empty()) {  // numbers are those of the stack
      both.shape.insert(0, 2);
      both.data.insert(both.data.end(), second[i].data.begin(), second[i].data.end());
    }
    arguments.push_back(both);
  }
  arguments.push_back(x);
  oracle::expect_near(meaning<ts::Stack<nn::Block<>>>(arguments), plain_block(plain_block(x, first), second), 1e-12);
}

// torch.nn.functional.huber_loss(x, 0, reduction, delta), element by element as its documentation has it.
TEST(Huber, IsASquareNearAndALineFarAway) {
  const Array x({7}, {-3, -0.5, 0, 0.25, 0.5, 2, -40}), y({7}, {0, 0, 0, 0, 0, 0, 2});
  const auto huber = [](double d) { return d < 0.5 ? d * d / 2 : 0.5 * (d - 0.25); };
  Array each({7});
  double total = 0;
  for (std::size_t i = 0; i < 7; ++i) total += each.data[i] = huber(std::fabs(x.data[i] - y.data[i]));
  const auto run = []<class F>(F, const std::vector<Array>& arguments) {
    return oracle::run(oracle::trace<F, oracle::Float<1>, oracle::Float<1>>().view(), arguments).at(0);
  };
  constexpr auto mean = [](const auto& a, const auto& b) { return ts::huber(a, b, 0.5); };
  constexpr auto sum = [](const auto& a, const auto& b) { return ts::huber<ts::LossReduction::sum>(a, b, 0.5); };
  constexpr auto each_one = [](const auto& a, const auto& b) { return ts::huber<ts::LossReduction::each>(a, b, 0.5); };
  oracle::expect_near(run(mean, {x, y}), Array::number(total / 7), 1e-12);
  oracle::expect_near(run(sum, {x, y}), Array::number(total), 1e-12);
  oracle::expect_near(run(each_one, {x, y}), each, 1e-12);
  EXPECT_TRUE(std::isnan(run(mean, {Array(ts::Shape{0}), Array(ts::Shape{0})}).data[0])) << "as in PyTorch";
  EXPECT_EQ(run(sum, {Array(ts::Shape{0}), Array(ts::Shape{0})}).data[0], 0);
  EXPECT_EQ(run(each_one, {Array({2}, {INFINITY, NAN}), Array({2}, 0.0)}).data[0], INFINITY);

  // The slope is the difference, clipped; at delta both branches have one slope.
  using Inputs = std::tuple<oracle::Float<1>, oracle::Float<1>>;
  using Gradient = oracle::FirstGradient<std::remove_cvref_t<decltype(each_one)>>;
  const auto slopes = oracle::run(oracle::trace<Gradient, Inputs, oracle::Float<1>>().view(), {x, y, Array({7}, 1)});
  oracle::expect_near(slopes[1], Array({7}, {-0.5, -0.5, 0, 0.25, 0.5, 0.5, -0.5}), 1e-12);
  const Array p = random_array({3, 4}, 1, -2, 2), q = random_array({3, 4}, 2, -2, 2);
  oracle::check_gradient<oracle::Float<2>, oracle::Float<2>>(
      [](const auto& a, const auto& b) { return ts::huber<ts::LossReduction::each>(a, b); }, {p, q});
  oracle::check_gradient<oracle::Float<2>, oracle::Float<2>>(
      [](const auto& a, const auto& b) { return ts::huber(a, b, 0.75); }, {p, q});
  const auto flat = [](const auto& a) { return ts::huber(a, a, 0.0); };
  tessera_test::expect_error(ts::errc::option, [&] { oracle::trace<decltype(flat), oracle::Float<1>>(); });
}

}  // namespace
