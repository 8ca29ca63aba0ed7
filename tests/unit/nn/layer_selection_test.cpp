// Single layers of a Stack in parameter groups, in frozen parameters and in layer-wise decay, against the same model
// with its layers in an array, whose tensors are separate.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../support/page.hpp"
#include "../../support/traced.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/base/name_pattern.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using tessera_test::expect_error;

namespace {

constexpr ts::LayerRange range_of(std::string_view name, std::string_view pattern) {
  return ts::selected_layers(name, pattern);
}
static_assert(range_of("blocks.*.up.weight", "blocks.3.*").first == 3);
static_assert(range_of("blocks.*.up.weight", "blocks.3.*").last == 3);
static_assert(range_of("blocks.*.up.weight", "*.10-12.up.weight").first == 10);
static_assert(range_of("blocks.*.up.weight", "*.10-12.up.weight").last == 12);
static_assert(range_of("blocks.*.up.weight", "blocks.0-5.*").dim == 0);
static_assert(range_of("stages.*.blocks.*.gain", "stages.*.blocks.2.gain").dim == 1);
static_assert(range_of("blocks.*.1.weight", "blocks.0.1.weight").first == 0);
static_assert(range_of("blocks.*.up.weight", "blocks.3").dim < 0 && range_of("up.0.weight", "up.0.*").dim < 0);
static_assert(range_of("blocks.*.up.weight", "blocks.5-3.*").dim < 0);
static_assert(range_of("blocks.*.up.weight", "blocks.3-.*").dim < 0);
static_assert(nn::Names("blocks.0-5.*").contain("blocks.5.up.weight"));
static_assert(!nn::Names("blocks.0-5.*").contain("blocks.6.up.weight"));
static_assert(!nn::Names("blocks.0-5.*").contain("blocks.*.up.weight"));
static_assert(nn::Names("blocks.0-5.*").part_of("blocks.*.up.weight") == nn::Names::Part::layers);
static_assert(nn::Names("blocks.0-5.*", "*.weight").contain("blocks.*.up.weight"));
static_assert(!nn::Names("blocks.0-5.*").others().contain("blocks.*.up.weight"));
static_assert(nn::Names("blocks.0-5.*").others().contain("head.weight"));

using Layer = nn::Mlp<double>;
constexpr int layers = 3;
template <class Blocks> struct Net {
  nn::Embedding<double> tokens;
  Blocks blocks;
  nn::LayerNorm<double> norm;
  static constexpr std::array field_names{"tokens", "blocks", "norm"};
  constexpr auto operator()(const auto& x) const {
    const auto inside = tokens(x);
    if constexpr (std::is_same_v<Blocks, ts::Stack<Layer>>)
      return tokens.attend(norm(blocks(inside)));
    else
      return tokens.attend(norm(blocks[2](blocks[1](blocks[0](inside)))));
  }
};
using Stacked = Net<ts::Stack<Layer>>;
using Unrolled = Net<std::array<Layer, layers>>;

Layer make_layer(int i, const nn::ShardingStrategy& strategy) {
  return nn::mlp<double>(ts::fold_in(ts::Key(2), static_cast<std::uint64_t>(i)), 4, 8, strategy, 2, 0.5);
}
template <class Model> Model make(const nn::ShardingStrategy& strategy) {
  const auto tokens = nn::embedding<double>(ts::Key(1), 10, 4, strategy, 0.5);
  const auto norm = nn::layer_norm<double>(4, strategy);
  if constexpr (std::is_same_v<Model, Stacked>)
    return {tokens, ts::Stack<Layer>(layers, [&](int i) { return make_layer(i, strategy); }), norm};
  else
    return {tokens, {make_layer(0, strategy), make_layer(1, strategy), make_layer(2, strategy)}, norm};
}
auto tokens_on(const nn::ShardingStrategy& strategy) {
  return ts::shard(std::vector<std::int32_t>{0, 3, 9, 1, 2, 2, 7, 8}, {4, 2}, strategy.mesh, strategy.batch);
}
const nn::ShardingStrategy strategies[] = {nn::single(ts::Mesh{}), nn::data_parallel(ts::Mesh({{"data", 3}})),
                                           nn::fsdp(ts::Mesh({{"data", 2}})),
                                           nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}))};

void expect_near(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12) << what << " " << i;
}
void expect_same(const Stacked& got, const Unrolled& want) {
  expect_near(ts::to_host(got.tokens.table), ts::to_host(want.tokens.table), "tokens");
  expect_near(ts::to_host(got.norm.gain), ts::to_host(want.norm.gain), "gain");
  ASSERT_EQ(got.blocks.size(), layers);
  for (int i = 0; i < layers; ++i) {
    const Layer &a = got.blocks[i], &b = want.blocks[static_cast<std::size_t>(i)];
    const std::string layer = "layer " + std::to_string(i);
    expect_near(ts::to_host(a.up.weight), ts::to_host(b.up.weight), layer + " up.weight");
    expect_near(ts::to_host(a.up.bias), ts::to_host(b.up.bias), layer + " up.bias");
    expect_near(ts::to_host(a.down.weight), ts::to_host(b.down.weight), layer + " down.weight");
    expect_near(ts::to_host(a.down.bias), ts::to_host(b.down.bias), layer + " down.bias");
  }
}

constexpr auto loss_of = [](const auto& model, const auto& x) { return ts::cross_entropy(model(x), x); };

// The same patterns select a layer of a Stack and an item of an array.
struct Tune {
  constexpr auto operator()(const auto& model, const auto& state, const auto& configs, const auto& x) const {
    constexpr nn::Names frozen("tokens.*", "blocks.0-1.up.*", "blocks.2.down.weight");
    constexpr nn::Names first("blocks.1.*", "norm.*"), second("blocks.0.down.*", "blocks.2.*");
    const auto [loss, gradient] =
        ts::value_and_grad([&](const auto& m, const auto& in) { return loss_of(nn::freeze(m, frozen), in); })(model, x);
    const auto& [others, faster, slower] = configs;
    const auto& own = gradient;
    const auto [moved, moved_state] =
        ts::optim::by_group([&](const auto& config) { return ts::adamw(model, own, state, config); }, others,
                            ts::optim::Group(first, faster), ts::optim::Group(second, slower));
    const auto [next, next_state] = nn::keep_frozen(frozen, model, moved, state, moved_state);
    return std::tuple(gradient, next, next_state);
  }
};
TEST(LayerSelection, GroupsAndFrozenLayersAreThoseOfTheUnrolledModel) {
  const std::tuple configs(ts::optim::AdamW{.learning_rate = 0.1, .weight_decay = 0.5},
                           ts::optim::AdamW{.learning_rate = 0.3, .beta1 = 0.5, .weight_decay = 0.1},
                           ts::optim::AdamW{.learning_rate = 0.01, .beta2 = 0.5, .weight_decay = 0});
  for (const nn::ShardingStrategy& strategy : strategies) {
    constexpr auto tune = ts::compile(Tune{});
    auto stacked = make<Stacked>(strategy);
    auto unrolled = make<Unrolled>(strategy);
    const auto begin = stacked;
    auto state = ts::optim::init_state(std::get<0>(configs), stacked);
    auto unrolled_state = ts::optim::init_state(std::get<0>(configs), unrolled);
    for (int step = 0; step < 3; ++step) {
      auto [gradient, next, next_state] = tune(stacked, state, configs, tokens_on(strategy));
      auto [want_gradient, want, want_state] = tune(unrolled, unrolled_state, configs, tokens_on(strategy));
      expect_same(gradient, want_gradient);
      expect_same(next, want);
      expect_same(next_state.mean, want_state.mean);
      expect_same(next_state.square, want_state.square);
      EXPECT_EQ(ts::sharding(next.blocks[0].up.weight), ts::sharding(stacked.blocks[0].up.weight));
      stacked = next, state = next_state, unrolled = want, unrolled_state = want_state;
    }
    EXPECT_EQ(ts::to_host(stacked.blocks[1].up.weight), ts::to_host(begin.blocks[1].up.weight));
    EXPECT_NE(ts::to_host(stacked.blocks[2].up.weight), ts::to_host(begin.blocks[2].up.weight));
    EXPECT_EQ(ts::to_host(stacked.blocks[2].down.weight), ts::to_host(begin.blocks[2].down.weight));
    EXPECT_NE(ts::to_host(stacked.blocks[1].down.weight), ts::to_host(begin.blocks[1].down.weight));
  }
}

// docs/training_step.md, "Single layers of a Stack".
struct TuneLastLayer {
  constexpr auto operator()(const auto& model, const auto& state, const auto& configs, const auto& x) const {
    constexpr nn::Names frozen("tokens.*", "blocks.0-1.*"), last("blocks.2.*");
    const auto loss = [&](const auto& m, const auto& in) { return loss_of(nn::freeze(m, frozen), in); };
    const auto gradient = ts::grad(loss)(model, x);
    const auto step = [&](const auto& config) { return ts::adamw(model, gradient, state, config); };
    const auto [moved, moved_state] = ts::optim::by_group(step, configs.first, ts::optim::Group(last, configs.second));
    return nn::keep_frozen(frozen, model, moved, state, moved_state);
  }
};
TEST(LayerSelection, TheLastLayer) {
  const std::pair configs(ts::optim::AdamW{.learning_rate = 0.1}, ts::optim::AdamW{.learning_rate = 0.3});
  const nn::ShardingStrategy strategy = nn::fsdp(ts::Mesh({{"data", 2}}));
  const auto stacked = make<Stacked>(strategy);
  const auto unrolled = make<Unrolled>(strategy);
  const auto state = ts::optim::init_state(configs.first, stacked);
  const auto unrolled_state = ts::optim::init_state(configs.first, unrolled);
  constexpr auto tune = ts::compile(TuneLastLayer{});
  const auto [got, got_state] = tune(stacked, state, configs, tokens_on(strategy));
  const auto [want, want_state] = tune(unrolled, unrolled_state, configs, tokens_on(strategy));
  expect_same(got, want);
  expect_same(got_state.mean, want_state.mean);
}
TEST(LayerSelection, ThePageHoldsTheLinesOfThisFile) {
  tessera_test::expect_lines({.name = "training_step.md",
                              .section = "Single layers of a Stack",
                              .lines = 15,
                              .left_out = tessera_test::is_message},
                             __FILE__);
}

// Everything but one layer is frozen.
struct TuneOneLayer {
  constexpr auto operator()(const auto& model, const auto& x) const {
    constexpr nn::Names frozen = nn::Names("blocks.1.*").others();
    return ts::grad([&](const auto& m, const auto& in) { return loss_of(nn::freeze(m, frozen), in); })(model, x);
  }
};
TEST(LayerSelection, AllButOneLayer) {
  const nn::ShardingStrategy strategy = nn::fsdp(ts::Mesh({{"data", 2}}));
  const auto got = ts::compile(TuneOneLayer{})(make<Stacked>(strategy), tokens_on(strategy));
  expect_same(got, ts::compile(TuneOneLayer{})(make<Unrolled>(strategy), tokens_on(strategy)));
  const auto zero = [](const auto& x) {
    double sum = 0;
    for (const double element : ts::to_host(x)) sum += std::fabs(element);
    return sum == 0;
  };
  EXPECT_TRUE(zero(got.tokens.table) && zero(got.blocks[0].up.weight) && zero(got.blocks[2].up.weight));
  EXPECT_FALSE(zero(got.blocks[1].up.weight));
}

// layer_decay against one optimizer for each layer of the unrolled model, with its own learning rate.
struct DecayedStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x) const {
    const auto gradient = ts::grad(loss_of)(model, x);
    const auto [moved, next_state] = ts::adamw(model, gradient, state, config);
    return std::tuple(ts::optim::layer_decay(model, moved, 0.75, nn::Names("tokens.*")), next_state);
  }
};
struct RatesByHand {
  constexpr auto operator()(const auto& model, const auto& state, const auto& configs, const auto& x) const {
    const auto gradient = ts::grad(loss_of)(model, x);
    constexpr nn::Names tokens("tokens.*"), first("blocks.0.*"), second("blocks.1.*"), third("blocks.2.*");
    const auto& [head, c, b, a, before] = configs;
    return ts::optim::by_group([&](const auto& config) { return ts::adamw(model, gradient, state, config); }, head,
                               ts::optim::Group(tokens, before), ts::optim::Group(first, a),
                               ts::optim::Group(second, b), ts::optim::Group(third, c));
  }
};
TEST(LayerDecay, IsALearningRateOfEachLayer) {
  const double rate = 0.1, decay = 0.75;
  const auto config = [&](int power) {
    return ts::optim::AdamW{.learning_rate = rate * std::pow(decay, power), .weight_decay = 0.3};
  };
  for (const nn::ShardingStrategy& strategy : strategies) {
    auto stacked = make<Stacked>(strategy);
    auto unrolled = make<Unrolled>(strategy);
    auto state = ts::optim::init_state(config(0), stacked);
    auto unrolled_state = ts::optim::init_state(config(0), unrolled);
    const std::tuple configs(config(0), config(1), config(2), config(3), config(4));
    for (int step = 0; step < 3; ++step) {
      std::tie(stacked, state) = ts::compile(DecayedStep{})(stacked, state, config(0), tokens_on(strategy));
      std::tie(unrolled, unrolled_state) =
          ts::compile(RatesByHand{})(unrolled, unrolled_state, configs, tokens_on(strategy));
      expect_same(stacked, unrolled);
      expect_same(state.square, unrolled_state.square);
    }
  }
}

struct FreezeLayerThree {
  constexpr auto operator()(const auto& model, const auto& x) const {
    return loss_of(nn::freeze(model, nn::Names("blocks.1-3.*")), x);
  }
};
TEST(LayerSelection, ALayerThatTheStackLacksIsAnError) {
  const nn::ShardingStrategy strategy = nn::single(ts::Mesh{});
  constexpr auto frozen =
      ts::compile([](const auto& model, const auto& x) { return ts::grad(FreezeLayerThree{})(model, x); });
  expect_error(
      ts::errc::option, [&] { frozen(make<Stacked>(strategy), tokens_on(strategy)); },
      "[names] layer: a pattern selects layer 3 of a Stack of 3 layers", "layer_selection_test.cpp");
  constexpr auto grouped = ts::compile([](const auto& model) {
    const auto step = [&](const auto& by) { return ts::optim::tree_map([&](auto p) { return p * by; }, model); };
    return ts::optim::by_group(step, ts::Scalar(1.0), ts::optim::Group(nn::Names("blocks.3.*"), ts::Scalar(2.0)));
  });
  expect_error(
      ts::errc::option, [&] { grouped(make<Stacked>(strategy)); }, "[names] layer: a pattern selects layer 3",
      "layer_selection_test.cpp");
  constexpr auto unknown = [](const auto& m, const auto& x) {
    return loss_of(nn::freeze(m, nn::Names("block.0.*")), x);
  };
  expect_error(
      ts::errc::option,
      [&] { oracle::trace<std::remove_cvref_t<decltype(unknown)>, Stacked, ts::ShardedTensor<std::int32_t, 2>>(); },
      "names no floating-point tensor");
}

TEST(LayerDecay, AModelWithoutAStackIsAnError) {
  expect_error(
      ts::errc::structure,
      [] {
        oracle::trace<DecayedStep, Unrolled, ts::optim::AdamWState<Unrolled>, ts::optim::AdamW,
                      ts::ShardedTensor<std::int32_t, 2>>();
      },
      "[layer_decay] model: it has no Stack");
}

// Moments of a tensor with frozen layers are stored for all layers.
TEST(LayerSelection, StatesHaveAllLayers) {
  const Stacked model = make<Stacked>(nn::single(ts::Mesh{}));
  constexpr nn::Names frozen("blocks.0-1.up.*", "tokens.*");
  const auto state = ts::optim::init_state(ts::optim::AdamW{}, model, frozen);
  EXPECT_EQ(ts::shape(state.mean.blocks[0].up.weight), (ts::Shape{4, 8}));
  EXPECT_EQ(ts::shape(state.mean.tokens.table), (ts::Shape{0, 0}));
}

}  // namespace
