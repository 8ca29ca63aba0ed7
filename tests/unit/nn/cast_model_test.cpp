// Models of other element types.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

template <ts::Element T> struct Mixed {
  nn::Embedding<T> tokens;
  ts::Stack<nn::Block<T>> blocks;
  nn::Conv1d<ts::Conv<1>{.padding = {1}}, T> conv;
  std::array<nn::Linear<T, false>, 2> heads;
  std::tuple<ts::ShardedTensor<std::int32_t, 1>, ts::ShardedTensor<T, 1>> rest;
  ts::Scalar scale = 0.5;

  constexpr auto operator()(const auto& x) const {
    return heads[1](heads[0](conv(blocks(tokens(x)))) + std::get<1>(rest)) * scale;
  }
};
static_assert(std::is_same_v<ts::detail::recast_t<ts::detail::UseBf16, Mixed<float>>, Mixed<ts::bf16>>);
static_assert(std::is_same_v<ts::detail::recast_t<ts::detail::UseBf16, Mixed<double>>, Mixed<double>>);
static_assert(std::is_same_v<ts::detail::recast_t<ts::detail::DowncastBf16, std::tuple<Mixed<double>, nn::Mlp<float>>>,
                             std::tuple<Mixed<float>, nn::Mlp<ts::bf16>>>);
static_assert(
    std::is_same_v<ts::detail::recast_t<ts::detail::ToElement<double>, nn::Lstm<float, 2>>, nn::Lstm<double, 2>>);
static_assert(std::is_same_v<ts::detail::recast_t<ts::detail::ToElement<float>, ts::ShardedTensor<std::int64_t, 2>>,
                             ts::ShardedTensor<std::int64_t, 2>>);

Mixed<float> make_mixed(const ts::Mesh& mesh) {
  const nn::ShardingStrategy strategy = mesh.rank() > 0 ? nn::fsdp(mesh) : nn::single(mesh);
  const ts::Key key(5);
  return {nn::embedding(ts::fold_in(key, 0), 9, 8, strategy, 0.5),
          ts::Stack<nn::Block<>>(2,
                                 [&](int i) {
                                   return nn::block(ts::fold_in(key, 1 + static_cast<std::uint64_t>(i)), 8, 2, 16,
                                                    strategy, 2, 0.3);
                                 }),
          nn::conv1d<ts::Conv<1>{.padding = {1}}>(ts::fold_in(key, 3), 8, 8, {3}, strategy),
          {nn::linear<float, false>(ts::fold_in(key, 4), 8, 8, strategy, nn::Role::column, 0.3),
           nn::linear<float, false>(ts::fold_in(key, 5), 8, 9, strategy, nn::Role::head, 0.3)},
          {ts::full<std::int32_t>({3}, 7, mesh), ts::full<float>({8}, 0.7f, mesh)}};
}

constexpr auto mixed_loss = [](const auto& model, const auto& x, const auto& t) {
  return ts::cross_entropy(ts::cast<float>(model(x)), t);
};
constexpr auto plain_step =
    ts::compile([](const auto& m, const auto& x, const auto& t) { return ts::value_and_grad(mixed_loss)(m, x, t); });
constexpr auto cast_step = ts::compile([](const auto& m, const auto& x, const auto& t) {
  return ts::value_and_grad([](const auto& own, const auto& in, const auto& out) {
    return mixed_loss(ts::cast_model<ts::bf16>(own), in, out);
  })(m, x, t);
});
constexpr auto all_in_bf16 = ts::compile([](const auto& m, const auto& x) {
  const auto run = [](const auto& own, const auto& in) {
    const auto y = own(in);
    static_assert(std::is_same_v<typename std::decay_t<decltype(y)>::element, ts::bf16>);
    return std::tuple(y, ts::sum(ts::cast<std::int32_t>(in)));
  };
  return ts::use_bf16(run)(m, x);
});
constexpr auto run_model = ts::compile([](const auto& m, const auto& x) { return m(x); });

// A copy rounds every floating tensor and keeps the rest; in a traced function it has a gradient.
TEST(CastModel, RoundsItsTensorsAndHasAGradient) {
  std::vector<float> one_device;
  for (const ts::Mesh& mesh : {ts::Mesh(), ts::Mesh({{"data", 3}})}) {
    const Mixed<float> model = make_mixed(mesh);
    const Mixed<ts::bf16> small = ts::cast_model<ts::bf16>(model);
    const auto weight = ts::to_host(model.blocks[1].mlp.up.weight);
    const auto rounded = ts::to_host(small.blocks[1].mlp.up.weight);
    ASSERT_EQ(weight.size(), rounded.size());
    for (std::size_t i = 0; i < weight.size(); ++i) EXPECT_EQ(rounded[i], ts::bf16(weight[i]));
    EXPECT_EQ(small.blocks.size(), 2);
    EXPECT_EQ(ts::to_host(std::get<0>(small.rest)), (std::vector<std::int32_t>{7, 7, 7}));
    EXPECT_EQ(small.scale.value(), 0.5);
    EXPECT_EQ(ts::sharding(small.heads[1].weight), ts::sharding(model.heads[1].weight));
    const Mixed<float> back = ts::cast_model<Mixed<float>>(small);
    EXPECT_EQ(ts::to_host(back.tokens.table)[3], static_cast<float>(ts::to_host(small.tokens.table)[3]));

    const auto tokens = ts::shard(std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3}, {3, 4}, mesh);
    const auto [loss, gradient] = plain_step(model, tokens, tokens);
    const auto [low_loss, low_gradient] = cast_step(model, tokens, tokens);
    static_assert(std::is_same_v<std::decay_t<decltype(low_gradient)>, Mixed<float>>);
    EXPECT_NEAR(ts::to_host(low_loss)[0], ts::to_host(loss)[0], 0.02);
    EXPECT_NE(ts::to_host(low_loss)[0], ts::to_host(loss)[0]);
    const auto of = ts::to_host(gradient.heads[1].weight), low = ts::to_host(low_gradient.heads[1].weight);
    double largest = 0;
    for (float v : of) largest = std::max(largest, std::fabs(static_cast<double>(v)));
    for (std::size_t i = 0; i < of.size(); ++i) EXPECT_NEAR(low[i], of[i], 0.03 * largest);

    // The whole function in bf16: as the rounded model computes.
    const auto [y, count] = all_in_bf16(model, tokens);
    static_assert(std::is_same_v<std::decay_t<decltype(y)>, ts::ShardedTensor<float, 3>>);
    const auto of_small = ts::to_host(run_model(small, tokens));
    const auto values = ts::to_host(y);
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<float>(of_small[i]));
    if (one_device.empty()) one_device = values;
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], one_device[i], 0.02);
  }
}

}  // namespace
