// Layers and losses that are loops or choose experts, on random meshes.
#include <string>
#include <tuple>
#include <vector>

#include "check.hpp"

#include <tessera/nn/nn.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using namespace programs;

namespace {

void add_cell(std::vector<Argument>& all, char in, char gates) {
  for (const std::string& dims :
       {std::string{in, gates, 'h'}, std::string{gates, 'h'}, std::string{'h', gates, 'h'}, std::string{gates, 'h'}})
    all.push_back(values(dims));
}

TEST(Programs, RecurrentLayers) {
  using Lstm = nn::Lstm<float, 2, nn::Direction::both>;
  using Gru = nn::Gru<float, 1, nn::Direction::reverse>;
  constexpr auto f = [](const auto& lstm, const auto& gru, const auto& rnn, const auto& xs) {
    const auto loss = [](const auto& layers, const auto& in) {
      const auto& [first, second, third] = layers;
      const auto a = first(in);
      const auto b = second(in, ts::slice<0>(std::get<0>(std::get<1>(a)), 1, 1));
      const auto c = third(std::get<0>(b), std::get<1>(b));
      return std::tuple(energy(std::get<0>(a), std::get<1>(std::get<1>(a)), std::get<0>(c)), a, b, c);
    };
    return ts::value_and_grad(loss)(std::tuple(lstm, gru, rnn), xs);
  };
  std::vector<Argument> arguments;
  for (const char in : {'e', 'e', 'w', 'w'}) add_cell(arguments, in, 'f');
  add_cell(arguments, 'e', 'g');
  add_cell(arguments, 'h', 'o');
  arguments.push_back(values("tbe"));
  expect_equal_on_all_meshes<Lstm, Gru, nn::Rnn<>, Tensor<3>>(
      f,
      {.arguments = arguments,
       .cases = 40,
       .may_be_empty = true,
       .extents = {{'t', {0, 1, 2, 3, 5}}, {'h', {1, 2, 3, 4, 8}}, {'f', {4}}, {'g', {3}}, {'o', {1}}, {'d', {2}}},
       .products = {{'w', "dh"}}},
      101);
}

TEST(Programs, SequenceAndMarginLosses) {
  constexpr auto f = [](const auto& floats, const auto& targets, const auto& frames, const auto& lengths,
                        const auto& signs) {
    const auto loss = [](const auto& all, const auto& t, const auto& from, const auto& to, const auto& s) {
      constexpr auto each = ts::LossReduction::each;
      const auto& [logits, x, y, z] = all;
      const auto ctc = ts::ctc_loss<each>(ts::log_softmax<2>(logits), t, from + 1, to, ts::Ctc{.zero_infinity = true});
      const auto margins = ts::cosine_embedding_loss<each>(x, y, s, 0.25) + ts::triplet_margin_loss<each>(x, y, z) +
                           ts::info_nce<each>(x, y) + ts::info_nce<each>(x, y, z, 0.5);
      return std::tuple(energy(ctc, margins) + ts::smooth_l1_loss(x, y, 0.5) + ts::gaussian_nll_loss(x, y, z * z + 0.5),
                        ctc, margins);
    };
    return ts::value_and_grad(loss)(floats, targets, frames, lengths, signs);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<2>, Tensor<2>>, Tensor<2, std::int32_t>,
                             Tensor<1, std::int32_t>, Tensor<1, std::int32_t>, Tensor<1, std::int32_t>>(
      f,
      {.arguments = {values("tbc"), values("be", 0.5, 1), values("be", -1, 1), values("be", 0.25, 2),
                     indices("bs", 'c'), indices("b", 't'), indices("b", 's'), values<std::int32_t>("b", -1, 1)},
       .cases = 40,
       .tolerance = 5e-5,
       .extents = {{'t', {1, 2, 3, 5}}, {'c', {2, 3, 4}}, {'s', {1, 2, 3}}}},
      102);
}

TEST(Programs, MixturesOfExperts) {
  constexpr auto f = [](const auto& dense, const auto& limited, const auto& x) {
    const auto loss = [](const auto& both, const auto& in) {
      const auto a = std::get<0>(both)(in), b = std::get<1>(both)(in);
      return std::tuple(energy(std::get<0>(a), std::get<0>(b)) + std::get<1>(a) + std::get<2>(b), a, b);
    };
    return ts::value_and_grad(loss)(std::tuple(dense, limited), x);
  };
  std::vector<Argument> arguments;
  for (int i = 0; i < 2; ++i)
    for (const Argument& a : {values("fe", -3, 3), values("efh"), values("efh"), values("ehf"), size('k'), size('c')})
      arguments.push_back(a);
  arguments.push_back(values("btf"));
  expect_equal_on_all_meshes<nn::MoE<>, nn::MoE<float, nn::Dispatch::capacity>, Tensor<3>>(
      f,
      {.arguments = arguments,
       .cases = 25,
       .tolerance = 5e-5,
       .extents = {{'e', {2, 3, 4}}, {'k', {1, 2}}, {'c', {1, 2, 3}}, {'f', {2, 3, 4, 8}}}},
      103);
}

TEST(Programs, ImageLayers) {
  static constexpr ts::Conv<2> halved{.strides = {2, 1}, .padding = {1, 1}};
  static constexpr ts::ConvTranspose<2> doubled{.strides = {2, 1}};
  using Norm = nn::BatchNorm<>;
  constexpr auto f = [](const auto& first, const auto& second, const auto& norm, const auto& groups,
                        const auto& running, const auto& x) {
    const auto loss = [](const auto& layers, const auto& statistics, const auto& in) {
      const auto& [down, up, batch, group] = layers;
      const auto features = down(in);
      const auto trained = batch.train(features, statistics);
      const auto y = group(up(ts::tanh(std::get<0>(trained))));
      return std::tuple(energy(y, batch(features, statistics)), y, std::get<1>(trained));
    };
    return ts::value_and_grad(loss)(std::tuple(first, second, norm, groups), running, x);
  };
  expect_equal_on_all_meshes<nn::Conv2d<halved>, nn::ConvTranspose2d<doubled>, Norm, nn::GroupNorm<>,
                             nn::RunningStatistics<>, Tensor<4>>(
      f,
      {.arguments = {values("rsco"), values("o"), values("rsou"), values("u"), values("o"), values("o"),
                     scalar(0.25, 0.5), scalar(0.1, 0.9), values("u"), values("u"), size('g'), scalar(0.25, 0.5),
                     values("o"), values("o", 0.5, 2), values("nhwc")},
       .cases = 40,
       .tolerance = 5e-5,
       .extents = {{'n', {1, 2, 3, 5}},
                   {'h', {3, 4, 7}},
                   {'w', {3, 5}},
                   {'r', {1, 2, 3}},
                   {'s', {1, 2, 3}},
                   {'c', {1, 2, 4}},
                   {'o', {1, 2, 4}},
                   {'g', {1, 2, 3}},
                   {'v', {1, 2}}},
       .products = {{'u', "gv"}}},
      104);
}

}  // namespace
