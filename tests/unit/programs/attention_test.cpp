#include "../../support/threads.hpp"
#include "check.hpp"

#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/attention/rotary_embedding.hpp>

namespace ts = tessera;
using namespace programs;

namespace {

/// Of queries, keys and values.
constexpr auto causal_energy = [](const auto& x) {
  const auto y = ts::causal_attention(std::get<0>(x), std::get<1>(x), std::get<2>(x));
  return std::tuple(energy(y), y);
};

// Random shardings of batch, heads and queries, and of the dims that attention needs whole.
TEST(Programs, AttentionOfPositionsBefore) {
  const Argument part = values("bthe");
  expect_equal_on_all_meshes<std::tuple<Tensor<4>, Tensor<4>, Tensor<4>>>(
      with_gradient(causal_energy), {.arguments = {part, part, part}, .cases = 60, .tolerance = 5e-5}, 31);
}

TEST(Programs, AttentionToOthersInDouble) {
  const auto f = [](const auto& x) {
    const auto y = ts::attention(std::get<0>(x), std::get<1>(x), std::get<2>(x), 0.5);
    return std::tuple(energy(y), y);
  };
  using D = Tensor<4, double>;
  expect_equal_on_all_meshes<std::tuple<D, D, D>>(
      with_gradient(f),
      {.arguments = {values<double>("bthe"), values<double>("bshe"), values<double>("bshv")}, .cases = 60}, 32);
}

// Gradients of keys and values are sums over queries, the only sums of their element type in the program.
TEST(Programs, AttentionWhoseGradientsAreItsOnlySums) {
  const auto f = [](const auto& q, const auto& k, const auto& v) {
    return ts::grad([](const auto& keys, const auto& queries, const auto& values) {
      return energy(ts::cast<double>(ts::attention(queries, keys, values)));
    })(k, q, v);
  };
  const Argument part = values("bthe");
  expect_equal_on_all_meshes<Tensor<4>, Tensor<4>, Tensor<4>>(
      f, {.arguments = {part, part, part}, .cases = 40, .tolerance = 5e-5, .least_axes = 1}, 34);
}

TEST(Programs, AttentionOfShardsThatMayBeEmpty) {
  const auto f = [](const auto& q, const auto& k, const auto& v) { return ts::causal_attention(q, k, v); };
  expect_equal_on_all_meshes<Tensor<4>, Tensor<4>, Tensor<4>>(
      f,
      {.arguments = {values("bthe"), values("bshe"), values("bshv")},
       .cases = 40,
       .tolerance = 5e-5,
       .may_be_empty = true},
      33);
}

// Long enough for several tiles, and for ranges of keys whose results are added up.
TEST(Programs, LongAttention) {
  const Argument part = values("bthe");
  expect_equal_on_all_meshes<std::tuple<Tensor<4>, Tensor<4>, Tensor<4>>>(
      with_gradient(causal_energy),
      {.arguments = {part, part, part},
       .cases = 4,
       .tolerance = 1e-4,
       .extents = {{'b', {1}}, {'t', {530, 640}}, {'h', {1, 2}}, {'e', {8, 20}}}},
      34);
}

// The gradient of each head is cut into ranges of keys, as many as leave several tasks for each of many threads.
TEST(Programs, AttentionOfManyHeadsOnManyThreads) {
  const tessera_test::Threads threads(8);
  const Argument part = values("bthe");
  expect_equal_on_all_meshes<std::tuple<Tensor<4>, Tensor<4>, Tensor<4>>>(
      with_gradient(causal_energy),
      {.arguments = {part, part, part},
       .cases = 2,
       .tolerance = 1e-4,
       .extents = {{'b', {1}}, {'t', {530}}, {'h', {9}}, {'e', {4}}}},
      37);
}

// Positions of queries are global ones, whatever shard they are in; some queries have no keys.
TEST(Programs, AttentionInABandWithRotaryEmbeddings) {
  const auto f = [](const auto& x) {
    const auto q = ts::rotary_embedding(std::get<0>(x), 1), k = ts::rotary_embedding(std::get<1>(x));
    const auto y = ts::band_attention(q, k, std::get<2>(x), 2, 0, 1);
    return std::tuple(energy(y), y);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<4>, Tensor<4>, Tensor<4>>>(
      with_gradient(f),
      {.arguments = {values("bthe"), values("bshe"), values("bshv")},
       .cases = 60,
       .tolerance = 5e-5,
       .extents = {{'e', {2, 4, 6}}}},
      35);
}

TEST(Programs, AttentionWithBiasAndGroupsOfHeads) {
  const auto f = [](const auto& q, const auto& k, const auto& v, const auto& bias) {
    const auto y = ts::biased_attention(q, ts::repeat_heads(k, q), ts::repeat_heads(v, q), bias, 3, 1);
    return std::tuple(energy(y), y);
  };
  expect_equal_on_all_meshes<Tensor<4>, Tensor<4>, Tensor<4>, Tensor<3>>(
      f,
      {.arguments = {values("bthe"), values("bsge"), values("bsgv"), values("bhs")},
       .cases = 40,
       .tolerance = 5e-5,
       .extents = {{'h', {4}}, {'g', {1, 2, 4}}}},
      36);
}

TEST(Programs, AttentionWithABiasForEachPair) {
  const auto f = [](const auto& q, const auto& k, const auto& v, const auto& bias, const auto& of_all) {
    const auto y = ts::causal_attention(q, k, v, bias) + ts::attention(q, k, v, ts::greater(of_all, 0.0f));
    return std::tuple(energy(y), y);
  };
  expect_equal_on_all_meshes<Tensor<4>, Tensor<4>, Tensor<4>, Tensor<4>, Tensor<2>>(
      f,
      {.arguments = {values("bthe"), values("bshe"), values("bshv"), values("bhts"), values("ts")},
       .cases = 40,
       .tolerance = 5e-5},
      38);
}

/// With biases and masks of each head, of a batch, and of all.
constexpr auto masked_energy = [](const auto& x) {
  const auto& [q, k, v, of_all, of_batch, of_pairs] = x;
  const auto shared = ts::unsqueeze<1>(of_batch);
  const auto y = ts::attention(q, k, v, ts::greater(of_all, -0.5)) + ts::causal_attention(q, k, v, shared) +
                 ts::attention(q, k, v, ts::greater(shared, 0.3)) + ts::attention(q, k, v, of_pairs) +
                 ts::attention(q, k, v, ts::less(of_pairs, 0.5), 0.5);
  return std::tuple(energy(y), y);
};
using MaskedArguments = std::tuple<Tensor<4>, Tensor<4>, Tensor<4>, Tensor<4>, Tensor<3>, Tensor<2>>;

TEST(Programs, GradientsOfAttentionWithMasks) {
  expect_equal_on_all_meshes<MaskedArguments>(
      with_gradient(masked_energy),
      {.arguments = {values("bthe"), values("bshe"), values("bshv"), values("bhts"), values("bts"), values("ts")},
       .cases = 40,
       .tolerance = 5e-5},
      40);
}

TEST(Programs, LongAttentionWithMasks) {
  expect_equal_on_all_meshes<MaskedArguments>(
      with_gradient(masked_energy),
      {.arguments = {values("bthe"), values("bshe"), values("bshv"), values("bhts"), values("bts"), values("ts")},
       .cases = 3,
       .tolerance = 1e-4,
       .extents = {{'b', {1}}, {'t', {330, 540}}, {'s', {300, 530}}, {'h', {1, 2}}, {'e', {8}}, {'v', {6}}}},
      41);
}

// A key drops the same weights on every mesh, split however its operands are: a weight that is dropped in one and not
// in another would be a difference of its size.
TEST(Programs, DropoutOfAttentionWeights) {
  const auto f = [](const auto& q, const auto& k, const auto& v, const auto& bias) {
    const auto y = ts::causal_attention(q, k, v, ts::attention_dropout(0.25, 7)) +
                   ts::attention(q, k, v, ts::attention_dropout<1>(0.5, 7), bias);
    return std::tuple(energy(y), y);
  };
  expect_equal_on_all_meshes<Tensor<4>, Tensor<4>, Tensor<4>, Tensor<4>>(
      f,
      {.arguments = {values("bthe"), values("bshe"), values("bshv"), values("bhts")}, .cases = 40, .tolerance = 5e-5},
      39);
}

}  // namespace
