// Low-rank adapters of linear layers.
#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/state/init_state.hpp>
#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

using Lora = nn::LoraLinear<>;
using LoraBlock = nn::Block<float, nn::CausalAttention, Lora>;
using nn::detail::AddLora;
template <class T> using adapted_t = ts::detail::recast_t<AddLora, T>;
static_assert(std::is_same_v<adapted_t<nn::Block<>>, LoraBlock>);
static_assert(std::is_same_v<adapted_t<ts::Stack<nn::EncoderLayer<>>>,
                             ts::Stack<nn::EncoderLayer<float, nn::NormPlace::post, nn::Relu, Lora>>>);
static_assert(std::is_same_v<adapted_t<nn::DecoderLayer<double>>,
                             nn::DecoderLayer<double, nn::NormPlace::post, nn::Relu, nn::LoraLinear<double>>>);
static_assert(std::is_same_v<adapted_t<nn::Llama<>>, nn::Llama<float, nn::LoraLinear<float, false>>>);
static_assert(std::is_same_v<adapted_t<nn::GatedBlock<>>, nn::GatedBlock<float, nn::LoraLinear<float, false>>>);
static_assert(std::is_same_v<ts::detail::recast_t<ts::detail::ToElement<ts::bf16>, LoraBlock>,
                             nn::Block<ts::bf16, nn::CausalAttention, nn::LoraLinear<ts::bf16>>>);
static_assert(nn::Names("*.lora_?").others().contain("up.base.weight"));
static_assert(!nn::Names("*.lora_?").others().contain("up.lora_a"));

std::vector<nn::ShardingStrategy> strategies() {
  const ts::Mesh four({{"data", 2}, {"model", 2}});
  return {nn::single(ts::Mesh()), nn::tensor_parallel(ts::Mesh({{"model", 2}})), nn::fsdp(ts::Mesh({{"data", 3}})),
          nn::tensor_parallel(ts::Mesh({{"model", 3}})), nn::fsdp_tensor_parallel(four)};
}

/// A layer of a user, in a block of the library.
struct Doubled {
  nn::Linear<> inner;
  static constexpr std::array field_names{"inner"};
  constexpr auto operator()(const auto& x) const { return inner(x) * 2.0; }
};

constexpr auto call = ts::compile([](const auto& layer, const auto& x) { return layer(x); });
constexpr auto cube = [](const auto& layer, const auto& x) {
  const auto y = layer(x);
  return ts::sum(y * y * y);
};
constexpr auto slope = ts::compile([](const auto& layer, const auto& x) { return ts::grad(cube)(layer, x); });
constexpr auto merge_in_a_trace = ts::compile([](const auto& model) { return nn::merge_lora(model); });

void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance, const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << what << " " << i;
}

// peft's lora.Linear(2, 3, r=1, lora_alpha=2): x W + b + 2 (x A) B, by hand.
TEST(LoraLinear, AddsAProductOfLowRank) {
  const ts::Mesh mesh({{"model", 2}});
  const Lora layer{{ts::shard<float>({{1, 2, 3}, {4, 5, 6}}, mesh, {ts::none, "model"}),
                    ts::shard<float>({10, 20, 30}, mesh, {"model"})},
                   ts::shard<float>({{1}, {-1}}, mesh),
                   ts::shard<float>({{1, 0, 2}}, mesh, {ts::none, "model"}),
                   2.0};
  const auto x = ts::shard<float>({{1, 0}, {2, 3}}, mesh);
  // x A = 1, -1
  EXPECT_EQ(ts::to_host(call(layer, x)), (std::vector<float>{13, 22, 37, 22, 39, 50}));
  const nn::Linear<> merged = layer.merge();
  EXPECT_EQ(ts::to_host(merged.weight), (std::vector<float>{3, 2, 7, 2, 5, 2}));
  EXPECT_EQ(ts::sharded_type_text(merged.weight), "f32[2,3]{-,model}");
  EXPECT_EQ(ts::to_host(call(merged, x)), ts::to_host(call(layer, x)));
  // d sum(y^3) / dA = 2 x^T (3 y^2 B^T), / dB = 2 (x A)^T 3 y^2; exact in f32
  const Lora gradient = slope(layer, x);
  EXPECT_EQ(ts::to_host(gradient.base.weight), std::vector<float>(6, 0));
  EXPECT_EQ(ts::to_host(gradient.base.bias), std::vector<float>(3, 0));
  const double g[2][3] = {{3 * 169, 3 * 484, 3 * 1369}, {3 * 484, 3 * 1521, 3 * 2500}};
  const double first = g[0][0] + 2 * g[0][2], second = g[1][0] + 2 * g[1][2];
  expect_near(ts::to_host(gradient.lora_a),
              {static_cast<float>(2 * (first + 2 * second)), static_cast<float>(2 * 3 * second)}, 0.01, "a");
  std::vector<float> of_b;
  for (std::size_t j = 0; j < 3; ++j) of_b.push_back(static_cast<float>(2 * (g[0][j] - g[1][j])));
  expect_near(ts::to_host(gradient.lora_b), of_b, 0.01, "b");
}

TEST(LoraLinear, BeginsAsPeftsAndIsShardedAsItsWeight) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const Lora up = nn::lora_linear(ts::Key(1), 16, 12, strategy, {.rank = 4, .alpha = 6});
  EXPECT_EQ(ts::sharded_type_text(up.base.weight), "f32[16,12]{data*,model}");
  EXPECT_EQ(ts::sharded_type_text(up.lora_a), "f32[16,4]{data*,-}");
  EXPECT_EQ(ts::sharded_type_text(up.lora_b), "f32[4,12]{-,model}");
  EXPECT_EQ(up.scaling.value(), 1.5);
  double square = 0;
  for (const float v : ts::to_host(up.lora_a)) {
    EXPECT_LE(std::fabs(v), 0.25F);
    square += static_cast<double>(v * v) / 64;
  }
  EXPECT_NEAR(square / (0.0625 / 3), 1, 0.4);
  EXPECT_EQ(ts::to_host(up.lora_b), std::vector<float>(48, 0));
  const nn::LoraLinear<float, false> down =
      nn::lora_linear<float, false>(ts::Key(1), 16, 12, strategy, {}, nn::Role::row);
  EXPECT_EQ(ts::sharded_type_text(down.lora_a), "f32[16,8]{model,-}");
  tessera_test::expect_error(
      ts::errc::option, [&] { nn::lora_linear(ts::Key(1), 4, 4, strategy, {.rank = 0}); },
      "[lora] rank: 0 is not positive", "lora_test.cpp:");
}

ts::Stack<nn::Block<>> make_blocks(const nn::ShardingStrategy& strategy) {
  return ts::Stack<nn::Block<>>(2, [&](int i) {
    return nn::block(ts::fold_in(ts::Key(3), static_cast<std::uint64_t>(i)), 6, 3, 10, strategy, 1, 0.4);
  });
}

struct Train {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x) const {
    constexpr nn::Names frozen = nn::Names("*.lora_?").others();
    const auto loss = [&](const auto& m, const auto& in) { return cube(nn::freeze(m, frozen), in); };
    const auto gradient = ts::grad(loss)(model, x);
    const auto [moved, moved_state] = ts::adamw(model, gradient, state, config);
    return std::tuple_cat(nn::keep_frozen(frozen, model, moved, state, moved_state), std::tuple(gradient));
  }
};

// Adapters of a Stack of blocks: the same as the base at first; then trained, alone; merged, the same without adapters.
TEST(AddLora, TrainsAdaptersOfAModel) {
  std::vector<float> first_base, first_trained;
  for (const nn::ShardingStrategy& strategy : strategies()) {
    const ts::Stack<nn::Block<>> base = make_blocks(strategy);
    auto model = nn::add_lora(base, ts::Key(5), {.rank = 2, .alpha = 4});  // scaling is alpha / rank
    const ts::Stack<LoraBlock> start = model;
    const auto x = ts::normal<float>(ts::Key(4), {4, 5, 6}, strategy.mesh, strategy.batch);
    const std::vector<float> of_base = ts::to_host(call(base, x));
    expect_near(ts::to_host(call(start, x)), of_base, 1e-5, "b is 0");
    EXPECT_NE(ts::to_host(start[0].mlp.up.lora_a), ts::to_host(start[1].mlp.up.lora_a));

    const ts::optim::AdamW config{.learning_rate = 0.05, .weight_decay = 0.1};
    constexpr auto train = ts::compile(Train());
    auto state = ts::optim::init_state(config, model);
    auto gradient = start;
    for (int i = 0; i < 3; ++i) std::tie(model, state, gradient) = train(model, state, config, x);
    EXPECT_TRUE(ts::all_equal(model[1].mlp.up.base.weight, base[1].mlp.up.weight));
    EXPECT_TRUE(ts::all_equal(model[0].attention.qkv.base.bias, base[0].attention.qkv.bias));
    EXPECT_TRUE(ts::all_equal(model[0].mlp_norm.gain, base[0].mlp_norm.gain));
    EXPECT_FALSE(ts::all_equal(model[0].attention.qkv.lora_b, start[0].attention.qkv.lora_b));
    EXPECT_EQ(ts::to_host(gradient[1].mlp.down.base.weight), std::vector<float>(60, 0));
    EXPECT_EQ(ts::to_host(gradient[1].mlp.down.base.bias), std::vector<float>(6, 0));
    for (const float g : ts::to_host(gradient[1].mlp.down.lora_b)) EXPECT_NE(g, 0);

    const std::vector<float> trained = ts::to_host(call(model, x));
    EXPECT_NE(trained, of_base);
    const ts::Stack<nn::Block<>> merged = nn::merge_lora(model);
    expect_near(ts::to_host(call(merged, x)), trained, 2e-5, "merged");
    EXPECT_EQ(ts::sharding(merged[1].mlp.down.weight), ts::sharding(base[1].mlp.down.weight));
    const ts::Stack<nn::Block<>> traced = merge_in_a_trace(model);
    expect_near(ts::to_host(traced[1].mlp.down.weight), ts::to_host(merged[1].mlp.down.weight), 1e-6, "in a trace");
    if (strategy.mesh.has_axis("model") && !strategy.mesh.has_axis("data")) {
      const ts::Plan plan = merge_in_a_trace.plan(model);
      EXPECT_EQ(plan.payload_bytes(ts::all_gather) + plan.payload_bytes(ts::all_reduce), 0);
    }
    if (first_base.empty()) first_base = of_base, first_trained = trained;
    expect_near(of_base, first_base, 1e-4, "on every mesh");
    expect_near(trained, first_trained, 2e-3, "on every mesh");
  }
}

struct Classifier {
  nn::Linear<> up, down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};
struct LoraClassifier {
  nn::LoraLinear<> up;
  nn::Linear<> down;
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};

TEST(AddLora, MakesTheTypeThatIsNamed) {
  const nn::ShardingStrategy strategy = nn::single(ts::Mesh({{"data", 2}}));
  const Classifier model{nn::linear(ts::Key(1), 4, 6, strategy), nn::linear(ts::Key(2), 6, 3, strategy)};
  LoraClassifier adapted = nn::add_lora<LoraClassifier>(model, ts::Key(3), {.rank = 2});
  const auto x = ts::normal<float>(ts::Key(4), {5, 4}, strategy.mesh, {"data"});
  expect_near(ts::to_host(call(adapted, x)), ts::to_host(call(model, x)), 1e-6, "b is 0");
  adapted.up.lora_b = ts::normal<float>(ts::Key(5), {2, 6}, strategy.mesh);
  const Classifier merged = nn::merge_lora<Classifier>(adapted);
  EXPECT_NE(ts::to_host(call(adapted, x)), ts::to_host(call(model, x)));
  expect_near(ts::to_host(call(adapted, x)), ts::to_host(call(merged, x)), 1e-6, "merged");
  // With activations in bf16 the sum is rounded once.
  constexpr auto half = ts::compile([](const auto& m, const auto& in) {
    const auto y = m(ts::cast<ts::bf16>(in));
    static_assert(std::is_same_v<typename std::decay_t<decltype(y)>::element, ts::bf16>);
    return ts::cast<float>(y);
  });
  expect_near(ts::to_host(half(adapted.up, x)), ts::to_host(call(merged.up, x)), 0.03, "bf16");
}

// A linear layer of a user takes part in the layers of the library.
TEST(Projection, IsALayerOfYourOwn) {
  const nn::ShardingStrategy strategy = nn::tensor_parallel(ts::Mesh({{"model", 2}}));
  const nn::Block<> plain = nn::block(ts::Key(3), 6, 2, 10, strategy, 1, 0.4);
  const auto half = [](const nn::Linear<>& layer) {
    return Doubled{{ts::ShardedTensor<float, 2>(layer.weight * 0.5), ts::ShardedTensor<float, 1>(layer.bias * 0.5)}};
  };
  const nn::Block<float, nn::CausalAttention, Doubled> own{
      plain.attention_norm,
      {half(plain.attention.qkv), half(plain.attention.out), plain.attention.heads},
      plain.mlp_norm,
      {half(plain.mlp.up), half(plain.mlp.down)}};
  const auto x = ts::normal<float>(ts::Key(4), {2, 5, 6}, strategy.mesh, strategy.batch);
  expect_near(ts::to_host(call(own, x)), ts::to_host(call(plain, x)), 1e-6, "doubled halves");
}

}  // namespace
