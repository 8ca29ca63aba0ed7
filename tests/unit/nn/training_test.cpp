// A small GPT trained on every strategy: one loss curve, that of the same program in double by plain loops.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/traced.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using oracle::Array;

namespace {

constexpr int vocabulary = 13, context = 6, features = 8, heads = 2, layers = 2, batch = 6, steps = 50;

struct Gpt {
  nn::Embedding<> tokens;
  nn::Positions<> positions;
  ts::Stack<nn::Block<>> blocks;
  nn::LayerNorm<> norm;
  nn::Linear<float, false> head;
  constexpr auto operator()(const auto& x) const { return head(norm(blocks(positions(tokens(x))))); }
};

Gpt make_gpt(const nn::ShardingStrategy& strategy) {
  const ts::Key key{3};
  return {nn::embedding(ts::fold_in(key, 0), vocabulary, features, strategy, 0.5),
          nn::positions(ts::fold_in(key, 1), context, features, strategy, 0.5),
          ts::Stack<nn::Block<>>(layers,
                                 [&](int i) {
                                   const auto own = ts::fold_in(key, 10 + static_cast<std::uint64_t>(i));
                                   return nn::block(own, features, heads, 4 * features, strategy, layers, 0.2);
                                 }),
          nn::layer_norm(features, strategy),
          nn::linear<float, false>(ts::fold_in(key, 2), features, vocabulary, strategy, nn::Role::head, 0.2)};
}

struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& t) const {
    const auto loss = [](const auto& gpt, const auto& in, const auto& out) { return ts::cross_entropy(gpt(in), out); };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x, t);
    const auto [clipped, norm] = ts::clip_by_global_norm(gradient, 0.5);
    const auto [next, next_state] = ts::adamw(model, clipped, state, config);
    return std::tuple(value, norm, next, next_state);
  }
};
constexpr auto train = ts::compile(Step{});

/// The leaves of a model as the oracle takes them: the layers of a stack are one array.
struct CollectArrays {
  std::vector<Array> arrays;
  std::size_t cursor = 0, base = 0;
  int layer = -1;
  template <class Leaf> void leaf(const Leaf& x) {
    if (layer <= 0) arrays.emplace_back();
    Array& to = arrays[cursor++];
    if constexpr (ts::StoredOperand<Leaf>) {
      for (const auto& v : ts::to_host(x)) to.data.push_back(static_cast<double>(v));
      to.shape = ts::shape(x);
      if (layer >= 0) to.shape.insert(0, layer + 1);
    } else {
      to = Array::number(static_cast<double>(x.value()));
    }
  }
  void enter_stack(const auto&) { base = cursor; }
  void enter_layer(int i) {
    layer = i;
    cursor = base;
  }
  void leave_stack() { layer = -1; }
};
template <class Tree> std::vector<Array> arrays_of(const Tree& tree) {
  CollectArrays collect;
  ts::for_each_leaf(tree, collect);
  return collect.arrays;
}

ts::optim::AdamW config_at(int step) {
  ts::optim::AdamW config;
  config.learning_rate = ts::optim::warmup_cosine(step, 5, steps, 2e-2, 1e-3);
  config.weight_decay = 0.1;
  return config;
}
std::vector<std::int32_t> sequence(int step, int shift) {
  std::vector<std::int32_t> tokens;
  for (int b = 0; b < batch; ++b)
    for (int t = 0; t < context; ++t) tokens.push_back(((b + step) * 5 + (t + shift) * (b % 3 + 1)) % vocabulary);
  return tokens;
}
Array tokens_array(const std::vector<std::int32_t>& tokens) {
  return Array({batch, context}, std::vector<double>(tokens.begin(), tokens.end()));
}

/// Losses and norms of the steps, in double.
std::vector<std::array<double, 2>> reference_curve() {
  using Tokens = ts::ShardedTensor<std::int32_t, 2>;
  const oracle::Program program =
      oracle::trace<Step, Gpt, ts::optim::AdamWState<Gpt>, ts::optim::AdamW, Tokens, Tokens>();
  const Gpt gpt = make_gpt(nn::single(ts::Mesh{}));
  std::vector<Array> carried = arrays_of(gpt);
  for (const Array& leaf : arrays_of(ts::optim::init_state(ts::optim::AdamW{}, gpt))) carried.push_back(leaf);
  std::vector<std::array<double, 2>> curve;
  for (int step = 0; step < steps; ++step) {
    std::vector<Array> arguments = carried;
    for (const Array& number : arrays_of(config_at(step))) arguments.push_back(number);
    arguments.push_back(tokens_array(sequence(step, 0)));
    arguments.push_back(tokens_array(sequence(step, 1)));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    curve.push_back({results[0].data[0], results[1].data[0]});
    carried.assign(results.begin() + 2, results.end());
  }
  return curve;
}

TEST(Training, GivesOneLossCurveOnEveryLayout) {
  const std::vector<std::array<double, 2>> want = reference_curve();
  EXPECT_NEAR(want.front()[0], std::log(vocabulary), 0.7);
  EXPECT_LT(want.back()[0], 0.65 * want.front()[0]) << "it learns";

  const auto mesh = [](int data, int model) { return ts::Mesh({{"data", data}, {"model", model}}); };
  const std::vector<std::pair<std::string, nn::ShardingStrategy>> strategies = {
      {"single", nn::single(ts::Mesh{})},
      {"data 2", nn::data_parallel(mesh(2, 1))},
      {"data 4, uneven, one shard empty", nn::data_parallel(mesh(4, 1))},
      {"fsdp 2", nn::fsdp(mesh(2, 1))},
      {"fsdp 3, uneven weights", nn::fsdp(mesh(3, 1))},
      {"model 2", nn::tensor_parallel(ts::Mesh({{"model", 2}}))},
      {"model 4, more than heads", nn::tensor_parallel(ts::Mesh({{"model", 4}}))},
      {"data 3, model 2", nn::tensor_parallel(mesh(3, 2))},
      {"fsdp 2, model 2", nn::fsdp_tensor_parallel(mesh(2, 2))},
      {"fsdp 8, model 2", nn::fsdp_tensor_parallel(mesh(8, 2))},
  };
  for (const auto& [name, strategy] : strategies) {
    SCOPED_TRACE(name);
    Gpt gpt = make_gpt(strategy);
    auto state = ts::optim::init_state(ts::optim::AdamW{}, gpt);
    EXPECT_EQ(ts::sharding(state.mean.head.weight), ts::sharding(gpt.head.weight));
    const ts::Sharding before = ts::sharding(gpt.blocks[1].mlp.down.weight);
    for (int step = 0; step < steps; ++step) {
      const auto x = ts::shard(sequence(step, 0), {batch, context}, strategy.mesh, strategy.batch);
      const auto t = ts::shard(sequence(step, 1), {batch, context}, strategy.mesh, strategy.batch);
      auto [loss, norm, next, next_state] = train(std::move(gpt), std::move(state), config_at(step), x, t);
      gpt = std::move(next);
      state = std::move(next_state);
      const auto [want_loss, want_norm] = want[static_cast<std::size_t>(step)];
      ASSERT_NEAR(ts::item(loss), want_loss, 1e-4 * want_loss) << step;
      ASSERT_NEAR(ts::item(norm), want_norm, 1e-3 * want_norm) << step;
    }
    EXPECT_EQ(state.step.value(), steps);
    EXPECT_EQ(gpt.blocks[0].attention.heads.value(), heads);
    EXPECT_EQ(ts::sharding(gpt.blocks[1].mlp.down.weight), before) << "a step leaves parameters where they lie";
  }
  using Tokens = ts::ShardedTensor<std::int32_t, 2>;
  const ts::CacheStatistics plans =
      train.cache_statistics<Gpt, ts::optim::AdamWState<Gpt>, ts::optim::AdamW, Tokens, Tokens>();
  EXPECT_EQ(plans.misses, static_cast<std::int64_t>(strategies.size())) << "a learning rate changes no plan";
}

// Lion for 20 steps in f32 on strategies with uneven and empty shards, against its formula in double.
struct LionSteps {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x) const {
    const auto loss = [](const auto& of, const auto& in) { return ts::sum(of(in) * of(in)); };
    const auto gradient = ts::grad(loss)(model, x);
    return ts::lion(model, gradient, state, config);
  }
};

TEST(Training, LionKeepsItsStateWhereTheParametersAre) {
  constexpr int in = 5, out = 3, rows = 4;
  const double rate = 0.03, b1 = 0.9, b2 = 0.99, decay = 0.1;
  for (const nn::ShardingStrategy& strategy : {nn::single(ts::Mesh{}), nn::fsdp(ts::Mesh({{"data", 8}, {"model", 1}})),
                                               nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}))}) {
    nn::Linear<> model = nn::linear(ts::Key(1), in, out, strategy, nn::Role::column, 0.5);
    const ts::Sharding laid_out = ts::sharding(model.weight);
    const ts::optim::Lion config{rate, b1, b2, decay};
    auto state = ts::optim::init_state(config, model);
    const auto x = ts::normal<float>(ts::Key(5), {rows, in}, strategy.mesh, strategy.batch);
    const std::vector<float> inputs = ts::to_host(x), first = ts::to_host(model.weight);
    std::vector<double> w(first.begin(), first.end()), b(out, 0), mw(in * out, 0), mb(out, 0);
    const auto step = ts::compile(LionSteps{});
    for (int t = 0; t < 20; ++t) {
      auto [next, next_state] = step(std::move(model), std::move(state), config, x);
      model = std::move(next);
      state = std::move(next_state);
      std::vector<double> gw(in * out, 0), gb(out, 0);
      for (int r = 0; r < rows; ++r)
        for (int j = 0; j < out; ++j) {
          double y = b[j];
          for (int i = 0; i < in; ++i) y += static_cast<double>(inputs[r * in + i]) * w[i * out + j];
          gb[j] += 2 * y;
          for (int i = 0; i < in; ++i) gw[i * out + j] += 2 * y * static_cast<double>(inputs[r * in + i]);
        }
      const auto update = [&](std::vector<double>& p, const std::vector<double>& g, std::vector<double>& m, double d) {
        for (std::size_t i = 0; i < p.size(); ++i) {
          const double c = b1 * m[i] + (1 - b1) * g[i];
          p[i] -= rate * ((c > 0) - (c < 0) + d * p[i]);
          m[i] = b2 * m[i] + (1 - b2) * g[i];
        }
      };
      update(w, gw, mw, decay);
      update(b, gb, mb, 0);
    }
    const std::vector<float> got = ts::to_host(model.weight), got_m = ts::to_host(state.momentum.weight);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], w[i], 1e-5) << i;
      EXPECT_NEAR(got_m[i], mw[i], 1e-5 * (1 + std::fabs(mw[i]))) << i;
    }
    EXPECT_EQ(ts::sharding(state.momentum.weight), ts::sharding(model.weight));
    EXPECT_EQ(ts::sharding(state.momentum.bias), ts::sharding(model.bias));
    EXPECT_EQ(ts::sharding(model.weight), laid_out) << "a step leaves parameters where they are";
  }
}

}  // namespace
