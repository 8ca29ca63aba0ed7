// Names, freezing, tying and summaries of parameters.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/traced.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/base/name_pattern.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compare_models.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using tessera_test::expect_error;

namespace {

static_assert(ts::matches_pattern("blocks.3.mlp.up.weight", "blocks.*.weight"));
static_assert(ts::matches_pattern("blocks.3.mlp.up.weight", "*up*"));
static_assert(ts::matches_pattern("a.b", "?.b") && ts::matches_pattern("", "*") && ts::matches_pattern("ab", "a*b"));
static_assert(!ts::matches_pattern("blocks.3.mlp.up.weight", "blocks") && !ts::matches_pattern("ab", "a?b"));
static_assert(!ts::matches_pattern("weight.b", "*weight") && ts::matches_pattern("weight.weight", "*weight"));
static_assert(nn::Names("tokens.*", "norm.gain").contain("norm.gain"));
static_assert(!nn::Names("tokens.*", "norm.gain").contain("norm.bias"));

/// The table of the tokens is also the output matrix.
struct Tied {
  nn::Embedding<> tokens;
  ts::Stack<nn::Mlp<>> blocks;
  nn::LayerNorm<> norm;
  static constexpr std::array field_names{"tokens", "blocks", "norm"};
  constexpr auto operator()(const auto& x) const { return tokens.attend(norm(blocks(tokens(x)))); }
};
struct Untied {
  nn::Embedding<> tokens;
  ts::Stack<nn::Mlp<>> blocks;
  nn::LayerNorm<> norm;
  nn::Linear<float, false> head;
  constexpr auto operator()(const auto& x) const { return head(norm(blocks(tokens(x)))); }
};

Tied make_tied(const nn::ShardingStrategy& strategy) {
  return {nn::embedding(ts::Key(1), 10, 4, strategy, 0.5),
          ts::Stack<nn::Mlp<>>(2,
                               [&](int i) {
                                 return nn::mlp(ts::fold_in(ts::Key(2), static_cast<std::uint64_t>(i)), 4, 8, strategy,
                                                2, 0.5);
                               }),
          nn::layer_norm(4, strategy)};
}
auto tokens_on(const nn::ShardingStrategy& strategy) {
  return ts::shard(std::vector<std::int32_t>{0, 3, 9, 1, 2, 2, 7, 8}, {4, 2}, strategy.mesh, strategy.batch);
}

constexpr auto loss_of = [](const auto& model, const auto& x) { return ts::cross_entropy(model(x), x); };

// docs/nn.md, "Tied weights": one tensor with two uses. Its gradient is the sum of those of two tensors.
TEST(Tying, AddsTheGradientsOfBothUses) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const Tied tied = make_tied(strategy);
  const auto turned = ts::transpose<1, 0>(tied.tokens.table);
  const Untied untied{tied.tokens, tied.blocks, tied.norm, {ts::eval(turned)}};
  constexpr auto gradient = ts::compile([](auto model, auto x) { return ts::value_and_grad(loss_of)(model, x); });
  const auto [loss, of_tied] = gradient(tied, tokens_on(strategy));
  const auto [same_loss, of_untied] = gradient(untied, tokens_on(strategy));
  EXPECT_NEAR(ts::item(loss), ts::item(same_loss), 1e-6);
  const std::vector<float> got = ts::to_host(of_tied.tokens.table), in = ts::to_host(of_untied.tokens.table);
  const std::vector<float> out = ts::to_host(of_untied.head.weight);  // [4, 10]
  for (std::size_t c = 0; c < 10; ++c)
    for (std::size_t f = 0; f < 4; ++f) EXPECT_NEAR(got[c * 4 + f], in[c * 4 + f] + out[f * 10 + c], 1e-6) << c;
  EXPECT_EQ(nn::parameter_count(tied) + 40, nn::parameter_count(untied)) << "the table counts once";
}

TEST(Parameters, NameEveryLeaf) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const Tied model = make_tied(strategy);
  const std::vector<nn::NamedParameter> leaves = nn::named_parameters(model);
  ASSERT_EQ(leaves.size(), 1 + 2 * 4 + 3u);
  EXPECT_EQ(leaves[1].name, "blocks.0.up.weight");
  EXPECT_EQ(leaves[1].sharding, "{data*,model}");
  EXPECT_EQ(leaves[1].shape, (ts::Shape{4, 8}));
  EXPECT_EQ(leaves[1].elements, 32);
  EXPECT_EQ(leaves[1].bytes, 128);
  EXPECT_EQ(leaves[1].device_bytes, 32);
  EXPECT_EQ(leaves[8].name, "blocks.1.down.bias");
  EXPECT_EQ(leaves[11].name, "norm.epsilon");
  EXPECT_FALSE(leaves[11].is_tensor);
  EXPECT_EQ(leaves[11].value, 1e-5);
  std::vector<std::string> names;
  const auto state = ts::optim::init_state(ts::optim::AdamW{}, model.norm);
  nn::for_each_named_leaf(state, [&](const std::string& name, const auto&) { names.push_back(name); });
  ASSERT_EQ(names.size(), 2 * 3 + 1u) << "moments, and the number of steps";
  EXPECT_EQ(names[0].substr(names[0].find('.')), ".gain");
}

TEST(Summary, IsATableOfTheParameters) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const Tied model = make_tied(strategy);
  const std::string table = R"(name                  type          sharding       elements  bytes  bytes a device
tokens.table          f32[10,4]     {model,data*}        40    160              40
blocks.*.up.weight    2 x f32[4,8]  {data*,model}        64    256              64
blocks.*.up.bias      2 x f32[8]    {model}              16     64              32
blocks.*.down.weight  2 x f32[8,4]  {model,data*}        64    256              64
blocks.*.down.bias    2 x f32[4]    {-}                   8     32              32
norm.gain             f32[4]        {-}                   4     16              16
norm.bias             f32[4]        {-}                   4     16              16
norm.epsilon          Scalar        1e-05
total                                                   200    800             264
)";
  const std::string got = ts::summary(model);
  EXPECT_EQ(got, table);
  constexpr auto forward = ts::compile([](auto m, auto x) { return m(x); });
  const ts::Plan plan = forward.plan(model, tokens_on(strategy));
  EXPECT_GT(plan.flops(), 8 * (2 * 2 * 64 + 2 * 40) - 1);
  const std::string with_flops =
      R"(name                  type          sharding       elements  bytes  bytes a device  flops
tokens.table          f32[10,4]     {model,data*}        40    160              40    640
blocks.*.up.weight    2 x f32[4,8]  {data*,model}        64    256              64  1,024
blocks.*.up.bias      2 x f32[8]    {model}              16     64              32  2,944
blocks.*.down.weight  2 x f32[8,4]  {model,data*}        64    256              64  1,024
blocks.*.down.bias    2 x f32[4]    {-}                   8     32              32     64
norm.gain             f32[4]        {-}                   4     16              16    440
norm.bias             f32[4]        {-}                   4     16              16      0
norm.epsilon          Scalar        1e-05
other operations                                                                        0
total                                                   200    800             264  6,136
)";
  EXPECT_EQ(ts::summary(model, plan), with_flops);
}

struct Net {
  nn::Linear<float, false> up, down;
  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x) const { return down(ts::relu(up(x))); }
};
/// Products that read a weight: x w, and the gradients of x and of w, each of 2 rows in out flops.
TEST(Summary, CountsTheFlopsOfEachTensor) {
  const nn::ShardingStrategy strategy = nn::single(ts::Mesh({{"data", 1}}));
  const Net model{nn::linear<float, false>(ts::Key(1), 8, 16, strategy, nn::Role::column, 1.0),
                  nn::linear<float, false>(ts::Key(2), 16, 4, strategy, nn::Role::row, 1.0)};
  const auto x = ts::full<float>({32, 8}, 1.0f, strategy.mesh, {}),
             y = ts::full<float>({32, 4}, 1.0f, strategy.mesh, {});
  // The model need not be the first argument.
  constexpr auto step = ts::compile([](auto in, auto m, auto target) {
    return ts::grad([](const auto& net, const auto& v, const auto& of) { return ts::mse(net(v), of); })(m, in, target);
  });
  const std::string table = ts::summary(model, step.plan(x, model, y));
  const auto ends = [&](const std::string& name, const std::string& flops) {
    const std::size_t from = table.find(name), to = table.find('\n', from);
    EXPECT_TRUE(table.substr(from, to - from).ends_with(" " + flops)) << name << " " << flops << "\n" << table;
  };
  ends("up.weight", ts::detail::grouped(2 * 2 * 32 * 8 * 16));  // x has no gradient
  ends("down.weight", ts::detail::grouped(3 * 2 * 32 * 16 * 4));
  ends("total", ts::detail::grouped(step.plan(x, model, y).flops()));
}

struct Train {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x) const {
    constexpr nn::Names frozen("tokens.*", "blocks.*.up.*");
    const auto loss = [&](const auto& m, const auto& in) { return loss_of(nn::freeze(m, frozen), in); };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x);
    const auto [moved, moved_state] = ts::adamw(model, gradient, state, config);
    const auto [next, next_state] = nn::keep_frozen(frozen, model, moved, state, moved_state);
    return std::tuple(value, gradient, next, next_state);
  }
};

struct GroupedStep {
  constexpr auto operator()(const auto& model, const auto& gradient, const auto& state, const auto& configs) const {
    constexpr nn::Names gains("norm.gain", "*.bias"), blocks("blocks.*");
    const auto& [others, first, second] = configs;
    const auto step = [&](const auto& config) { return ts::adamw(model, gradient, state, config); };
    // "blocks.*.bias" is in both: the first group has it.
    return ts::optim::by_group(step, others, ts::optim::Group(gains, first), ts::optim::Group(blocks, second));
  }
};
struct OneStep {
  constexpr auto operator()(const auto& model, const auto& gradient, const auto& state, const auto& config) const {
    return ts::adamw(model, gradient, state, config);
  }
};

// torch.optim with param_groups: each parameter moves as an optimizer with its group's hyper-parameters moves it.
TEST(ParameterGroups, MoveAsTheirOwnOptimizers) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const Tied model = make_tied(strategy);
  constexpr auto of_loss = ts::compile([](auto m, auto x) { return ts::grad(loss_of)(m, x); });
  const Tied gradient = of_loss(model, tokens_on(strategy));
  const std::tuple configs(ts::optim::AdamW{.learning_rate = 0.1, .weight_decay = 0.5},
                           ts::optim::AdamW{.learning_rate = 0.01, .beta2 = 0.5, .weight_decay = 0},
                           ts::optim::AdamW{.learning_rate = 0.3, .beta1 = 0.5, .weight_decay = 0.1});
  const auto state = ts::optim::init_state(std::get<0>(configs), model);
  constexpr auto grouped = ts::compile(GroupedStep{});
  constexpr auto one = ts::compile(OneStep{});
  const auto [next, next_state] = grouped(model, gradient, state, configs);
  const auto [by_others, state_of_others] = one(model, gradient, state, std::get<0>(configs));
  const auto [by_first, state_of_first] = one(model, gradient, state, std::get<1>(configs));
  const auto [by_second, state_of_second] = one(model, gradient, state, std::get<2>(configs));
  const auto same = [](const auto& got, const auto& want, const auto& other, const char* name) {
    EXPECT_EQ(ts::to_host(got), ts::to_host(want)) << name;
    EXPECT_NE(ts::to_host(got), ts::to_host(other)) << name;
  };
  same(next.tokens.table, by_others.tokens.table, by_second.tokens.table, "tokens.table");
  same(next.norm.gain, by_first.norm.gain, by_others.norm.gain, "norm.gain");
  same(next.blocks[1].up.weight, by_second.blocks[1].up.weight, by_others.blocks[1].up.weight, "up.weight");
  same(next.blocks[1].up.bias, by_first.blocks[1].up.bias, by_second.blocks[1].up.bias, "up.bias");
  same(next_state.square.norm.gain, state_of_first.square.norm.gain, state_of_others.square.norm.gain, "square");
  same(next_state.mean.blocks[0].up.weight, state_of_second.mean.blocks[0].up.weight,
       state_of_others.mean.blocks[0].up.weight, "mean");
  EXPECT_EQ(next_state.step.value(), 1);
}

struct ZeroStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x) const {
    return ts::adamw(model, ts::grad(loss_of)(model, x), state, config);
  }
};

// ZeRO, stage 1 (Rajbhandari et al., 1910.02054): gradients are reduced into the part of each device, parameters
// gathered.
TEST(ZeroRedundancy, UpdatesAPartOnEachDevice) {
  const nn::ShardingStrategy strategy = nn::data_parallel(ts::Mesh({{"data", 4}}));
  const ts::optim::AdamW config{.learning_rate = 0.05, .weight_decay = 0.1};
  Tied plain = make_tied(strategy), zero = plain;
  auto state = ts::optim::init_state(config, plain);
  auto split = ts::optim::init_state(config, plain, ts::optim::ZeroRedundancy{"data"});
  EXPECT_EQ(nn::parameter_bytes_per_device(state), 2 * 800);
  // Tables of 10 rows and norms are uneven or small; the largest shards are 48, 2 x (16 + 8), 2 x (16 + 4) and 2 x 4.
  EXPECT_LE(nn::parameter_bytes_per_device(split), 2 * 260);
  EXPECT_EQ(ts::sharded_type_text(split.mean.tokens.table), "f32[10,4]{data*,-}");
  EXPECT_EQ(ts::sharded_type_text(split.square.blocks[1].up.weight), "f32[4,8]{data*,-}");
  constexpr auto step = ts::compile(ZeroStep{});
  const ts::Plan plan = step.plan(zero, split, config, tokens_on(strategy));
  EXPECT_EQ(plan.payload_bytes(ts::reduce_scatter), 800 + 160) << "the table's two uses are reduced apart";
  EXPECT_EQ(plan.payload_bytes(ts::all_gather), 800);
  for (int i = 0; i < 3; ++i) {
    std::tie(plain, state) = step(plain, state, config, tokens_on(strategy));
    std::tie(zero, split) = step(zero, split, config, tokens_on(strategy));
  }
  EXPECT_EQ(ts::sharded_type_text(zero.tokens.table), "f32[10,4]{-,-}");
  EXPECT_EQ(ts::sharded_type_text(split.mean.tokens.table), "f32[10,4]{data*,-}");
  const auto near = [](const auto& got, const auto& wanted) {
    const std::vector<float> a = ts::to_host(got), b = ts::to_host(wanted);
    for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-5) << k;
  };
  near(zero.tokens.table, plain.tokens.table);
  near(zero.blocks[0].down.weight, plain.blocks[0].down.weight);
  near(zero.norm.bias, plain.norm.bias);
  tessera_test::expect_error(ts::errc::mesh_axis,
                             [&] { ts::optim::init_state(config, plain, ts::optim::ZeroRedundancy{"model"}); });
}

/// The models after a step of each optimizer.
struct EveryOptimizer {
  constexpr auto operator()(const auto& model, const auto& states, const auto& configs, const auto& x) const {
    const auto gradient = ts::grad(loss_of)(model, x);
    const auto& [a, b, c, d, e, f, g, h, i, j] = states;
    const auto& [first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth] = configs;
    return std::tuple(
        std::get<0>(ts::adamw(model, gradient, a, first)), std::get<0>(ts::adam(model, gradient, b, second)),
        std::get<0>(ts::sgd(model, gradient, c, third)), std::get<0>(ts::lion(model, gradient, d, fourth)),
        std::get<0>(ts::rmsprop(model, gradient, e, fifth)), std::get<0>(ts::adagrad(model, gradient, f, sixth)),
        std::get<0>(ts::adamax(model, gradient, g, seventh)), std::get<0>(ts::adadelta(model, gradient, h, eighth)),
        std::get<0>(ts::nadam(model, gradient, i, ninth)), std::get<0>(ts::radam(model, gradient, j, tenth)));
  }
};

// A state that is stored in another way than its parameters changes neither their values nor their shardings.
TEST(ZeroRedundancy, LeavesTheParametersOfEveryOptimizerWhereTheyAre) {
  constexpr auto step = ts::compile(EveryOptimizer{});
  const std::tuple configs{ts::optim::AdamW{},   ts::optim::Adam{.weight_decay = 0.1},
                           ts::optim::Sgd{},     ts::optim::Lion{},
                           ts::optim::RmsProp{}, ts::optim::Adagrad{},
                           ts::optim::Adamax{},  ts::optim::Adadelta{},
                           ts::optim::NAdam{},   ts::optim::RAdam{}};
  const auto models = [&](const nn::ShardingStrategy& strategy, const auto& state_of) {
    const Tied model = make_tied(strategy);
    const auto states =
        std::apply([&](const auto&... config) { return std::tuple(state_of(config, model)...); }, configs);
    return step(model, states, configs, tokens_on(strategy));
  };
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const auto want = models(one, [](const auto& config, const Tied& m) { return ts::optim::init_state(config, m); });
  for (const auto& strategy :
       {nn::data_parallel(ts::Mesh({{"data", 3}})), nn::tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}))}) {
    const auto got = models(strategy, [](const auto& config, const Tied& m) {
      return ts::optim::init_state(config, m, ts::optim::ZeroRedundancy{"data"});
    });
    const Tied before = make_tied(strategy);
    int index = 0;
    const auto check = [&](const Tied& found, const Tied& wanted) {
      SCOPED_TRACE(index++);
      EXPECT_TRUE(ts::same_sharded_type(found, before));
      const auto near = [](const auto& x, const auto& y) {
        const std::vector<float> a = ts::to_host(x), b = ts::to_host(y);
        for (std::size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-5) << k;
      };
      near(found.tokens.table, wanted.tokens.table);
      near(found.blocks[1].up.weight, wanted.blocks[1].up.weight);
      near(found.norm.gain, wanted.norm.gain);
    };
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (check(std::get<I>(got), std::get<I>(want)), ...);
    }(std::make_index_sequence<10>());
  }
}

// The mean over equal parts of a batch is that of the batch, of a model with a Stack too.
TEST(Accumulation, GivesLossAndGradientOfTheWholeBatch) {
  for (const nn::ShardingStrategy& strategy :
       {nn::single(ts::Mesh{}), nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}))}) {
    const Tied model = make_tied(strategy);
    constexpr auto parts = ts::compile([](auto m, auto x) { return ts::optim::accumulate<2>(loss_of)(m, x); });
    constexpr auto whole = ts::compile([](auto m, auto x) { return ts::value_and_grad(loss_of)(m, x); });
    const auto [loss, gradient] = parts(model, tokens_on(strategy));
    const auto [want_loss, want] = whole(model, tokens_on(strategy));
    EXPECT_NEAR(ts::item(loss), ts::item(want_loss), 1e-6);
    const auto near = [](const auto& got, const auto& wanted) {
      const std::vector<float> a = ts::to_host(got), b = ts::to_host(wanted);
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6) << i;
    };
    near(gradient.tokens.table, want.tokens.table);
    near(gradient.blocks[1].up.weight, want.blocks[1].up.weight);
    near(gradient.norm.gain, want.norm.gain);
    const ts::ShardedTensor<std::int32_t, 2> odd =
        ts::shard(std::vector<std::int32_t>{0, 3, 9}, {3, 1}, strategy.mesh, strategy.batch);
    tessera_test::expect_error(ts::errc::not_divisible, [&] { parts(model, odd); });
  }
}

TEST(Freezing, LeavesTheNamedTensorsAsTheyAre) {
  for (const nn::ShardingStrategy& strategy :
       {nn::single(ts::Mesh{}), nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}))}) {
    Tied model = make_tied(strategy);
    const Tied first = model;
    const ts::optim::AdamW config{.learning_rate = 0.05, .weight_decay = 0.5};
    auto state = ts::optim::init_state(config, model);
    constexpr auto step = ts::compile(Train{});
    constexpr auto all = ts::compile([](auto m, auto x) { return ts::grad(loss_of)(m, x); });
    const auto unfrozen = all(model, tokens_on(strategy));
    float start = 0, end = 0;
    for (int i = 0; i < 5; ++i) {
      auto [loss, gradient, next, next_state] = step(model, state, config, tokens_on(strategy));
      (i == 0 ? start : end) = ts::item(loss);
      for (const float v : ts::to_host(gradient.tokens.table)) EXPECT_EQ(v, 0);
      for (const float v : ts::to_host(gradient.blocks[1].up.weight)) EXPECT_EQ(v, 0);
      if (i == 0) {
        const std::vector<float> got = ts::to_host(gradient.blocks[0].down.weight),
                                 want = ts::to_host(unfrozen.blocks[0].down.weight);
        for (std::size_t k = 0; k < got.size(); ++k) EXPECT_NEAR(got[k], want[k], 1e-6) << "others have their gradient";
      }
      model = std::move(next);
      state = std::move(next_state);
    }
    EXPECT_LT(end, start);
    EXPECT_EQ(ts::to_host(model.tokens.table), ts::to_host(first.tokens.table)) << "no decay either";
    EXPECT_EQ(ts::to_host(model.blocks[1].up.weight), ts::to_host(first.blocks[1].up.weight));
    EXPECT_NE(ts::to_host(model.blocks[1].down.weight), ts::to_host(first.blocks[1].down.weight));
    EXPECT_NE(ts::to_host(model.norm.gain), ts::to_host(first.norm.gain));
    for (const float v : ts::to_host(state.mean.blocks[0].up.weight)) EXPECT_EQ(v, 0);
    EXPECT_EQ(state.step.value(), 5);
    // What only frozen tensors need is not computed.
    EXPECT_LT(step.plan(model, state, config, tokens_on(strategy)).flops(),
              ts::compile([](auto m, auto s, auto c, auto x) {
                const auto [value, gradient] = ts::value_and_grad(loss_of)(m, x);
                return std::tuple(value, gradient, ts::adamw(m, gradient, s, c));
              })
                  .plan(model, state, config, tokens_on(strategy))
                  .flops());
  }
  constexpr auto unknown = [](const auto& m, const auto& x) { return loss_of(nn::freeze(m, nn::Names("token.*")), x); };
  expect_error(
      ts::errc::option,
      [&] { oracle::trace<std::remove_cvref_t<decltype(unknown)>, Tied, ts::ShardedTensor<std::int32_t, 2>>(); },
      "names no floating-point tensor");
}

struct FrozenSteps {
  constexpr auto operator()(const auto& models, const auto& states, const auto& x) const {
    constexpr nn::Names frozen("tokens.*", "blocks.*.up.*");
    const auto one = [&](const auto& model, const auto& state, const auto& step) {
      const auto gradient =
          ts::grad([&](const auto& m, const auto& in) { return loss_of(nn::freeze(m, frozen), in); })(model, x);
      const auto [moved, moved_state] = step(model, gradient, state);
      return nn::keep_frozen(frozen, model, moved, state, moved_state);
    };
    const auto adamw = one(std::get<0>(models), std::get<0>(states),
                           [](const auto&... of) { return ts::adamw(of..., ts::optim::AdamW{}); });
    const auto adafactor = one(std::get<1>(models), std::get<1>(states),
                               [](const auto&... of) { return ts::adafactor(of..., ts::optim::Adafactor{}); });
    const auto muon = one(std::get<2>(models), std::get<2>(states),
                          [](const auto&... of) { return ts::muon(of..., ts::optim::Muon{}); });
    return std::pair(std::tuple(std::get<0>(adamw), std::get<0>(adafactor), std::get<0>(muon)),
                     std::tuple(std::get<1>(adamw), std::get<1>(adafactor), std::get<1>(muon)));
  }
};

// As optax.masked, and PyTorch's optimizers of parameters without requires_grad.
TEST(Freezing, AStateHasNoMomentsOfFrozenTensors) {
  constexpr nn::Names frozen("tokens.*", "blocks.*.up.*");
  for (const nn::ShardingStrategy& strategy :
       {nn::single(ts::Mesh{}), nn::data_parallel(ts::Mesh({{"data", 3}})), nn::fsdp(ts::Mesh({{"data", 2}}))}) {
    const Tied model = make_tied(strategy);
    const auto states_of = [&](const auto&... names) {
      return std::tuple(ts::optim::init_state(ts::optim::AdamW{}, model, names...),
                        ts::optim::init_state(ts::optim::Adafactor{}, model, names...),
                        ts::optim::init_state(ts::optim::Muon{}, model, names...));
    };
    auto whole = states_of(), masked = states_of(frozen);
    EXPECT_EQ(ts::shape(std::get<0>(masked).mean.blocks[1].up.weight), (ts::Shape{0, 0}));
    EXPECT_EQ(ts::shape(std::get<0>(masked).square.blocks[1].down.weight), (ts::Shape{8, 4}));
    // Twice the table of 160 bytes, two weights of 128 and two biases of 32.
    if (strategy.mesh.axes().size() == 0)
      EXPECT_EQ(nn::parameter_bytes(std::get<0>(masked), 0) + 2 * 480, nn::parameter_bytes(std::get<0>(whole), 0));
    const std::tuple models(model, model, model);
    auto got = models, want = models;
    constexpr auto step = ts::compile(FrozenSteps{});
    for (int i = 0; i < 2; ++i) {
      std::tie(want, whole) = step(want, whole, tokens_on(strategy));
      std::tie(got, masked) = step(got, masked, tokens_on(strategy));
    }
    const auto same = [&](const Tied& a, const Tied& b) {
      for (int i : {0, 1}) {
        EXPECT_EQ(ts::to_host(a.blocks[i].down.weight), ts::to_host(b.blocks[i].down.weight));
        EXPECT_NE(ts::to_host(a.blocks[i].down.weight), ts::to_host(model.blocks[i].down.weight));
        EXPECT_EQ(ts::to_host(a.blocks[i].up.weight), ts::to_host(model.blocks[i].up.weight));
      }
      EXPECT_EQ(ts::to_host(a.tokens.table), ts::to_host(model.tokens.table));
      EXPECT_EQ(ts::to_host(a.norm.gain), ts::to_host(b.norm.gain));
    };
    same(std::get<0>(got), std::get<0>(want));
    same(std::get<1>(got), std::get<1>(want));
    same(std::get<2>(got), std::get<2>(want));
    EXPECT_EQ(ts::shape(std::get<0>(masked).mean.tokens.table), (ts::Shape{0, 0}));
    EXPECT_EQ(std::get<0>(masked).step.value(), 2);
    if (strategy.mesh.axes().size() > 0) {
      const auto split = ts::optim::init_state(ts::optim::AdamW{}, model, frozen, ts::optim::ZeroRedundancy{"data"});
      EXPECT_EQ(ts::shape(split.mean.tokens.table), (ts::Shape{0, 0}));
      EXPECT_LE(nn::parameter_bytes_per_device(split), nn::parameter_bytes_per_device(std::get<0>(masked)));
    }
    expect_error(
        ts::errc::option, [&] { ts::optim::init_state(ts::optim::AdamW{}, model, nn::Names("block.0.up.*")); },
        "block.0.up.*", "parameters_test.cpp");
    for (const char* pattern : {"blocks.7.up.*", "blocks.1-7.*"})
      expect_error(
          ts::errc::option, [&] { ts::optim::init_state(ts::optim::AdamW{}, model, nn::Names("tokens.*", pattern)); },
          "[names] layer: a pattern selects layer 7 of a Stack of 2 layers", "parameters_test.cpp");
    EXPECT_NO_THROW(ts::optim::init_state(ts::optim::AdamW{}, model, nn::Names("blocks.0-1.up.*")));
  }
}

struct Sums {
  ts::ShardedTensor<float, 2> matrix;
  ts::ShardedTensor<double, 1> vector;
  ts::Stack<nn::Linear<>> layers;
  ts::ShardedTensor<std::int32_t, 1> counts;  // integers are left out
};

// Whole numbers, so that sums are exact, in uneven and empty shards along one axis, two and none.
TEST(TreeVdot, OnMeshesIsThatOfTheWholeModels) {
  const auto make = [](const ts::Mesh& mesh, const nn::ShardingStrategy& strategy, const ts::PartitionSpec& matrix,
                       const ts::PartitionSpec& vector, int shift) {
    std::vector<float> elements(35);
    for (std::size_t i = 0; i < elements.size(); ++i)
      elements[i] = static_cast<float>((static_cast<int>(i) * 7 + shift) % 11 - 4);
    const auto layer = [&](int i) {
      return nn::Linear<>{ts::shard(std::vector<float>(15, static_cast<float>(i + shift)), {3, 5}, mesh,
                                    strategy.weight(nn::Role::column)),
                          ts::full<float>({5}, static_cast<float>(i - shift), mesh, strategy.bias(nn::Role::column))};
    };
    return Sums{ts::shard(elements, {5, 7}, mesh, matrix), ts::shard<double>({1.0 + shift, -2, 4}, mesh, vector),
                ts::Stack<nn::Linear<>>(2, layer), ts::shard<std::int32_t>({9, 9}, mesh)};
  };
  constexpr auto sums =
      ts::compile([](const auto& a, const auto& b) { return std::tuple(ts::tree_vdot(a, b), ts::tree_sum(a)); });
  double product = 0, sum = 0;
  for (int i = 0; i < 35; ++i) {
    product += ((i * 7 + 1) % 11 - 4) * ((i * 7 + 2) % 11 - 4);
    sum += (i * 7 + 1) % 11 - 4;
  }
  product += 2 * 3 + 4 + 16, sum += 2 - 2 + 4;
  for (int i = 0; i < 2; ++i) {
    product += 15 * (i + 1) * (i + 2) + 5 * (i - 1) * (i - 2);
    sum += 15 * (i + 1) + 5 * (i - 1);
  }
  const ts::Mesh one({{"x", 1}, {"y", 1}}), three({{"x", 3}, {"y", 1}}), four({{"x", 4}, {"y", 1}}),
      six({{"x", 2}, {"y", 3}});
  for (const ts::Mesh& mesh : {one, three, four, six})
    for (const ts::PartitionSpec& spec :
         {ts::PartitionSpec{}, ts::PartitionSpec{"x"}, ts::PartitionSpec{"x", "y"}, ts::PartitionSpec{{"y", "x"}}}) {
      const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(mesh, "x", "y");
      const Sums a = make(mesh, strategy, spec, {"x"}, 1), b = make(mesh, strategy, spec, {"x"}, 2);
      const auto [of_both, of_one] = sums(a, b);
      EXPECT_EQ(ts::item(of_both), product) << mesh.text() << spec.text();
      EXPECT_EQ(ts::item(of_one), sum) << mesh.text() << spec.text();
      const Sums other = make(mesh, strategy, {}, {"y"}, 2);  // in other shardings than a
      EXPECT_EQ(ts::item(std::get<0>(sums(a, other))), product) << mesh.text() << spec.text();
    }
}

}  // namespace
