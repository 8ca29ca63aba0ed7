// Options of wrapped models: element types of reductions, no_sync, checkpoints, outputs, policies by name, metadata;
// and clipping, tables and losses over parts.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include "model_results.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/auto_wrap_policy.hpp>
#include <tessera/parallel/checkpoint_module.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/parallel/no_sync.hpp>
#include <tessera/parallel/parallelize_module.hpp>
#include <tessera/parallel/prepare_module.hpp>
#include <tessera/parallel/state/shard_metadata.hpp>
#include <tessera/tensor/compare_models.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using tessera_test::expect_error;
using tessera_test::expect_near;

namespace {

constexpr ts::FsdpPolicy zero2{.reshard_after_forward = false}, reduced{.reduce_dtype = ts::DType::bf16},
    reduced2{.reshard_after_forward = false, .reduce_dtype = ts::DType::bf16},
    all_bf16{.compute_dtype = ts::DType::bf16, .reduce_dtype = ts::DType::bf16};
constexpr double infinity = std::numeric_limits<double>::infinity();

struct Layer {
  nn::Linear<> up, down;
  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x) const { return x + down(ts::gelu(up(x))); }
};
template <class Block> struct Net {
  Block first, second;
  nn::Linear<> head;
  static constexpr std::array field_names{"first", "second", "head"};
  constexpr auto operator()(const auto& x) const { return head(second(first(x))); }
};

Layer layer(std::uint64_t seed) {
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  return {nn::linear(ts::Key(seed), 6, 20, one), nn::linear(ts::Key(seed + 1), 20, 6, one)};
}
template <class Block = Layer> Net<Block> net() {
  return {Block{layer(1)}, Block{layer(3)}, nn::linear(ts::Key(5), 6, 6, nn::single(ts::Mesh{}))};
}
template <> Net<Layer> net<Layer>() {
  return {layer(1), layer(3), nn::linear(ts::Key(5), 6, 6, nn::single(ts::Mesh{}))};
}

struct Loss {
  constexpr auto operator()(const auto& m, const auto& x, const auto& y) const {
    return ts::mse(ts::cast<float>(m(x)), y);
  }
};
struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& y) const {
    const auto [loss, gradient] = ts::value_and_grad(Loss{})(model, x, y);
    const auto [next, next_state] = ts::adamw(model, gradient, state, config);
    return std::tuple(next, next_state, loss);
  }
};
struct AccumulatedStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& y) const {
    const auto [loss, gradient] = ts::optim::accumulate<4>(Loss{})(model, x, y);
    const auto [next, next_state] = ts::adamw(model, gradient, state, config);
    return std::tuple(next, next_state, loss);
  }
};
struct UnsyncedStep {
  constexpr auto operator()(const auto& wrapped, const auto& state, const auto& config, const auto& x,
                            const auto& y) const {
    constexpr Loss loss_of;
    // clang-format off
    const auto [loss, gradient] = ts::no_sync(wrapped, [&](const auto& m) {   // in a traced function
      return ts::optim::accumulate<4>(loss_of)(m, x, y);
    });
    // clang-format on
    const auto [clipped, norm] = ts::clip_grad_norm(gradient, 100.0);
    const auto [next, next_state] = ts::adamw(wrapped, clipped, state, config);
    return std::tuple(next, next_state, loss);
  }
};
template <bool Clips> struct UnsyncedZeroStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& y) const {
    const auto accumulated = [&](const auto& m) { return ts::optim::accumulate<4>(Loss{})(m, x, y); };
    if constexpr (Clips) {
      const auto [loss, gradient] = ts::no_sync<"data">(model, state.mean, accumulated);
      const auto [clipped, norm] = ts::clip_grad_norm(gradient, 100.0);
      const auto [next, next_state] = ts::adamw(model, clipped, state, config);
      return std::tuple(next, next_state, loss);
    } else {
      const auto [loss, gradient] = ts::no_sync<"data">(model, accumulated);
      const auto [next, next_state] = ts::adamw(model, gradient, state, config);
      return std::tuple(next, next_state, loss);
    }
  }
};
constexpr auto step = ts::compile(Step{});
constexpr auto accumulated_step = ts::compile(AccumulatedStep{});
constexpr auto unsynced_step = ts::compile(UnsyncedStep{});
constexpr ts::optim::AdamW config{.learning_rate = 0.02, .weight_decay = 0.1};

auto data(std::uint64_t seed, const ts::Mesh& mesh, const ts::PartitionSpec& batch, std::int64_t rows = 24) {
  return ts::reshard(ts::normal<float>(ts::Key(seed), {rows, 6}, ts::Mesh{}), mesh, batch);
}
/// Losses of eight steps.
std::vector<double> trained(const auto& program, auto model, const ts::Mesh& mesh, const ts::PartitionSpec& batch) {
  auto state = ts::optim::init_state(config, model);
  const auto x = data(1, mesh, batch), y = data(2, mesh, batch);
  std::vector<double> losses;
  for (int i = 0; i < 8; ++i) {
    auto [next, next_state, loss] = program(model, state, config, x, y);
    model = next, state = next_state;
    losses.push_back(static_cast<double>(ts::item(loss)));
  }
  return losses;
}
ts::Plan plan_of(const auto& program, const auto& model, const ts::Mesh& mesh, const ts::PartitionSpec& batch,
                 std::int64_t rows = 24) {
  return program.plan(model, ts::optim::init_state(config, model), config, data(1, mesh, batch, rows),
                      data(2, mesh, batch, rows));
}
const std::vector<double>& losses_of_one_device() {
  static const std::vector<double> losses = trained(step, net(), ts::Mesh{}, {});
  return losses;
}
// Bytes of the parameters of a net: 2 x (6 x 20 + 20 + 20 x 6 + 6) + 6 x 6 + 6.
constexpr std::int64_t parameters = 4 * (2 * 266 + 42);

TEST(Wrapper, ReducesInBf16) {
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"fsdp", devices}});
    SCOPED_TRACE(mesh.text());
    const auto wrapped = ts::fsdp<reduced>(net(), mesh);
    const std::vector<double> losses = trained(step, wrapped, mesh, {"fsdp"});
    expect_near(losses, losses_of_one_device(), 0.02);
    EXPECT_NE(losses, losses_of_one_device());
    expect_near(trained(step, ts::fsdp<reduced2>(net(), mesh), mesh, {"fsdp"}), losses_of_one_device(), 0.02);
    expect_near(trained(step, ts::fsdp<all_bf16>(net(), mesh), mesh, {"fsdp"}), losses_of_one_device(), 0.05);
    if (devices == 1) continue;
    const ts::Plan made = plan_of(step, wrapped, mesh, {"fsdp"}),
                   f32 = plan_of(step, ts::fsdp(net(), mesh), mesh, {"fsdp"});
    EXPECT_EQ(f32.payload_bytes(ts::reduce_scatter), parameters);
    EXPECT_EQ(made.payload_bytes(ts::reduce_scatter), parameters / 2);
    EXPECT_EQ(made.payload_bytes(ts::all_gather), f32.payload_bytes(ts::all_gather));
    EXPECT_EQ(made.payload_bytes(ts::all_reduce), f32.payload_bytes(ts::all_reduce));
  }
}

struct Slope {
  ts::ShardedTensor<float, 1> w;
  constexpr auto operator()(const auto& x) const { return x * w; }
};
// The cotangent of a mean is divided by the size of the batch before any product, so sums over devices have the size of
// one example's gradient: division before and after the reduction, as PyTorch does, has nothing left to do.
TEST(Wrapper, GradientsOfMeansDoNotOverflow) {
  const ts::Mesh mesh({{"fsdp", 8}});
  constexpr auto gradient_of = ts::compile([](auto model, auto x) {
    return ts::grad([](const auto& m, const auto& in) { return ts::mean(ts::cast<float>(m(in))); })(model, x);
  });
  // 2e38 is in the range of bf16 and f32, whose largest is 3.4e38; the sum of two is not.
  const Slope slope{ts::ones<float>({8}, ts::Mesh{})};
  const auto x = ts::full<float>({16, 8}, 2e38f, mesh, {"fsdp"});
  const std::vector<float> wanted(8, 2e38f / 8);
  const auto expect_finite = [&](const auto& wrapped, double relative) {
    const std::vector<float> got = ts::to_host(gradient_of(wrapped, x).module.w);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(got[i] / wanted[i], 1, relative);
  };
  expect_finite(ts::fsdp(slope, mesh), 1e-6);
  expect_finite(ts::fsdp<reduced>(slope, mesh), 0.01);
  expect_finite(ts::fsdp<all_bf16>(slope, mesh), 0.01);
}

TEST(Wrapper, NoSyncCommunicatesOnce) {
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"fsdp", devices}});
    SCOPED_TRACE(mesh.text());
    const auto wrapped = ts::fsdp(net(), mesh);
    expect_near(trained(unsynced_step, wrapped, mesh, {"fsdp"}), losses_of_one_device(), 2e-5);
    expect_near(trained(unsynced_step, ts::fsdp<zero2>(net(), mesh), mesh, {"fsdp"}), losses_of_one_device(), 2e-5);
    expect_near(trained(unsynced_step, ts::fsdp<reduced>(net(), mesh), mesh, {"fsdp"}), losses_of_one_device(), 0.02);
    if (devices == 1) continue;
    const ts::Plan made = plan_of(unsynced_step, wrapped, mesh, {"fsdp"});
    EXPECT_EQ(made.payload_bytes(ts::all_gather), parameters);
    EXPECT_EQ(made.payload_bytes(ts::reduce_scatter), parameters);
    made.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
      EXPECT_EQ(times, 1) << "nothing is sent in the loop over microbatches: " << c.payload_bytes;
    });
    EXPECT_EQ(plan_of(accumulated_step, wrapped, mesh, {"fsdp"}).payload_bytes(ts::reduce_scatter), 4 * parameters);
    EXPECT_EQ(plan_of(unsynced_step, ts::fsdp<reduced>(net(), mesh), mesh, {"fsdp"}).payload_bytes(ts::reduce_scatter),
              parameters / 2);
  }
}

// ZeRO-1: the state is split, the parameters are whole.
template <bool Clips> void expect_split_state_reduces_once() {
  constexpr auto unsynced = ts::compile(UnsyncedZeroStep<Clips>{});
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"data", devices}});
    SCOPED_TRACE(mesh.text());
    auto model = ts::parallelize_module(net(), mesh, "data", {});
    auto state = ts::optim::init_state(config, model, ts::optim::ZeroRedundancy{"data"});
    const auto x = data(1, mesh, {"data"}), y = data(2, mesh, {"data"});
    const ts::Plan made = unsynced.plan(model, state, config, x, y);
    EXPECT_EQ(made.payload_bytes(ts::reduce_scatter), parameters);
    // The loss, and with clipping the square of the norm.
    EXPECT_EQ(made.payload_bytes(ts::all_reduce), Clips ? 8 : 4);
    made.for_each_collective([](const ts::CollectiveInfo&, std::int64_t times) { EXPECT_EQ(times, 1); });
    std::vector<double> losses;
    for (int i = 0; i < 8; ++i) {
      auto [next, next_state, loss] = unsynced(model, state, config, x, y);
      model = next, state = next_state;
      losses.push_back(static_cast<double>(ts::item(loss)));
    }
    expect_near(losses, losses_of_one_device(), 2e-5);
  }
}
TEST(Wrapper, NoSyncOfASplitStateReducesOnce) { expect_split_state_reduces_once<false>(); }
TEST(Wrapper, NoSyncOfASplitStateReducesOnceWithClipping) { expect_split_state_reduces_once<true>(); }

template <class Block> struct Tall {
  ts::Stack<Block> layers;
  nn::Linear<> head;
  static constexpr std::array field_names{"layers", "head"};
  constexpr auto operator()(const auto& x) const { return head(layers(x)); }
};
template <class Block> Tall<Block> tall(auto wrap) {
  return {ts::Stack<Block>(3, [&](int i) { return wrap(layer(10 + 2 * static_cast<std::uint64_t>(i))); }),
          nn::linear(ts::Key(5), 6, 6, nn::single(ts::Mesh{}))};
}
// The layers of a Stack: reductions in the element type of the block's wrapper, and one gather for all microbatches.
TEST(Wrapper, StacksReduceInBf16AndOnceForAllMicrobatches) {
  using Wrapped = ts::Fsdp<Layer, reduced>;
  constexpr std::int64_t of_layers = 4 * 3 * 266, of_head = 4 * 42;
  const auto plain = [](Layer own) { return own; };
  const std::vector<double> wanted = trained(step, tall<Layer>(plain), ts::Mesh{}, {});
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"fsdp", devices}});
    SCOPED_TRACE(mesh.text());
    const auto in_bf16 = ts::fsdp(tall<Wrapped>([](Layer own) { return Wrapped{own}; }), mesh);
    expect_near(trained(step, in_bf16, mesh, {"fsdp"}), wanted, 0.02);
    EXPECT_EQ(plan_of(step, in_bf16, mesh, {"fsdp"}).payload_bytes(ts::reduce_scatter), of_layers / 2 + of_head);
    const auto once = ts::fsdp(tall<Layer>(plain), mesh);
    expect_near(trained(unsynced_step, once, mesh, {"fsdp"}), wanted, 2e-5);
    const ts::Plan made = plan_of(unsynced_step, once, mesh, {"fsdp"});
    EXPECT_EQ(made.payload_bytes(ts::all_gather), of_layers + of_head);
    EXPECT_EQ(made.payload_bytes(ts::reduce_scatter), of_layers + of_head);
  }
}

TEST(Wrapper, CheckpointedModulesComputeAgain) {
  const ts::Mesh mesh({{"fsdp", 2}});
  using Block = ts::CheckpointModule<Layer>;
  const auto inside = ts::fsdp(net<Block>(), mesh);
  const auto around = ts::fsdp(ts::checkpoint_module(net()), mesh);
  const auto plain = ts::fsdp(net(), mesh);
  EXPECT_TRUE(ts::all_equal(ts::unwrap(around).module, net()));
  expect_near(trained(step, inside, mesh, {"fsdp"}), losses_of_one_device(), 2e-5);
  expect_near(trained(step, around, mesh, {"fsdp"}), losses_of_one_device(), 2e-5);
  expect_near(trained(step, ts::fsdp<zero2>(net<Block>(), mesh), mesh, {"fsdp"}), losses_of_one_device(), 2e-5);
  expect_near(trained(step, net<Block>(), ts::Mesh{}, {}), losses_of_one_device(), 1e-6);
  // A large batch: activations are most of the memory.
  const ts::Plan kept = plan_of(step, plain, mesh, {"fsdp"}, 4096), again = plan_of(step, inside, mesh, {"fsdp"}, 4096);
  EXPECT_LT(again.main().arena_bytes, 0.85 * static_cast<double>(kept.main().arena_bytes));
  // Every parameter whose values are computed again is gathered again, and none more often.
  EXPECT_LE(again.payload_bytes(ts::all_gather), 2 * parameters);
  EXPECT_GE(again.payload_bytes(ts::all_gather), kept.payload_bytes(ts::all_gather));
  EXPECT_EQ(again.payload_bytes(ts::reduce_scatter), parameters);
}

TEST(Wrapper, OutputsAreShardedOnDemand) {
  const ts::Mesh mesh({{"data", 2}, {"fsdp", 3}});
  constexpr auto forward = ts::compile([](auto model, auto x) { return model(x); });
  const auto x = data(1, mesh, {});
  const std::vector<float> wanted = ts::to_host(ts::eval(net()(data(1, ts::Mesh{}, {}))));
  const auto expect_output = [&](const auto& wrapped, const ts::PartitionSpec& spec) {
    const auto y = forward(wrapped, x);
    EXPECT_EQ(ts::sharding(y), ts::resolve(spec, mesh, 2));
    const std::vector<float> got = ts::to_host(y);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5);
  };
  const auto on_rows = ts::fsdp(net(), mesh, {}, ts::ShardOutput<>());
  expect_output(on_rows, {"fsdp"});
  expect_output(ts::fsdp(net(), mesh, {}, ts::ShardOutput<"fsdp", 1>()), {ts::none, "fsdp"});
  expect_output(ts::fsdp(net(), mesh, {},
                         [](const auto& y) {
                           return ts::with_sharding(y, {"fsdp", "data"});
                         }),
                {"fsdp", "data"});
  expect_output(ts::prepare_module_output(ts::parallelize_module(net(), mesh, "fsdp", {}),
                                          [](const auto& y) { return ts::with_sharding(y, {"data"}); }),
                {"data"});
  expect_output(ts::prepare_module_input(ts::parallelize_module(net(), mesh, "fsdp", {}),
                                         [](const auto& in) { return ts::with_sharding(in, {"fsdp"}); }),
                {"fsdp"});
  EXPECT_TRUE(ts::all_equal(ts::unwrap(on_rows), net()));
  const ts::Mesh line({{"fsdp", 3}});
  expect_near(trained(step, ts::fsdp(net(), line, {}, ts::ShardOutput<>()), line, {"fsdp"}), losses_of_one_device(),
              2e-5);
}

// A parameter is gathered at its use, so that it does not matter which wrapper it is in.
TEST(Wrapper, WrappedLayersHaveThePlanOfOneWrapper) {
  const ts::Mesh mesh({{"fsdp", 2}});
  const ts::Plan one = plan_of(step, ts::fsdp(net(), mesh), mesh, {"fsdp"}),
                 each = plan_of(step, ts::fsdp(net<ts::Fsdp<Layer>>(), mesh), mesh, {"fsdp"});
  EXPECT_EQ(one.payload_bytes(ts::all_gather), each.payload_bytes(ts::all_gather));
  EXPECT_EQ(one.count(ts::all_gather), each.count(ts::all_gather));
  EXPECT_EQ(one.count(ts::reduce_scatter), each.count(ts::reduce_scatter));
  EXPECT_EQ(one.main().arena_bytes, each.main().arena_bytes);
}

TEST(Wrapper, PoliciesByNameChooseLayers) {
  using List = std::vector<std::string>;
  const auto model = net();
  EXPECT_EQ(ts::size_based_auto_wrap_policy(model, 126).layers,
            (List{"first.up", "first.down", "second.up", "second.down"}));
  EXPECT_EQ(ts::size_based_auto_wrap_policy(model, 140).layers, (List{"first.up", "second.up"}));
  EXPECT_EQ(ts::size_based_auto_wrap_policy(model, 200).layers, (List{"first", "second"}));
  EXPECT_EQ(ts::size_based_auto_wrap_policy(model).layers, List{});
  EXPECT_EQ(ts::transformer_auto_wrap_policy<Layer>(model).layers, (List{"first", "second"}));
  EXPECT_EQ((ts::transformer_auto_wrap_policy<Layer, nn::Linear<>>(model).layers.size()), 7u);
  EXPECT_EQ(
      ts::lambda_auto_wrap_policy(model, [](const std::string& path, const auto&) { return path == "head"; }).layers,
      List{"head"});
  const ts::Mesh mesh({{"fsdp", 3}});
  const auto split = [&](const auto& policy) {
    const auto wrapped = ts::fsdp(model, mesh, {.wraps = policy});
    List names;
    for (const ts::ShardMetadata& tensor : ts::get_shard_metadata(wrapped))
      if (tensor.shards.size() > 1) names.push_back(tensor.name);
    return names;
  };
  EXPECT_EQ(split(ts::transformer_auto_wrap_policy<nn::Linear<>>(model)).size(), 10u);
  EXPECT_EQ(split(ts::always_wrap_policy(model)).size(), 10u);
  EXPECT_EQ(
      split(ts::lambda_auto_wrap_policy(model, [](const std::string& path, const auto&) { return path == "head"; })),
      (List{"head.weight", "head.bias"}));
  // Attention is taken as a whole; the layers of a Stack are layers.
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const ts::Stack<nn::Block<>> blocks(
      2, [&](int i) { return nn::block(ts::fold_in(ts::Key(1), static_cast<std::uint64_t>(i)), 8, 2, 16, one); });
  EXPECT_EQ(ts::size_based_auto_wrap_policy(blocks, 100).layers,
            (List{"0.attention", "0.mlp.up", "0.mlp.down", "1.attention", "1.mlp.up", "1.mlp.down"}));
  // The layers of wrappers are those of their models.
  EXPECT_EQ(ts::transformer_auto_wrap_policy<Layer>(net<ts::Fsdp<Layer>>()).layers, (List{"first", "second"}));
}

TEST(ShardMetadata, SaysWhatIsWhere) {
  const ts::Mesh mesh({{"data", 2}, {"fsdp", 3}});
  const auto wrapped = ts::fsdp(net(), mesh, {.min_elements = 20});
  const std::vector<ts::ShardMetadata> all = ts::get_shard_metadata(wrapped);
  ASSERT_EQ(all.size(), 10u);
  const ts::ShardMetadata& up = all[0];
  EXPECT_EQ(up.name, "first.up.weight");
  EXPECT_EQ(up.dtype, ts::DType::f32);
  EXPECT_EQ(up.shape, (ts::Shape{6, 20}));
  EXPECT_EQ(up.world_size(), 6);
  EXPECT_EQ(up.spec, (ts::PartitionSpec{ts::none, "fsdp"}.gathered_on_use()));
  EXPECT_EQ(up.shards, (std::vector<ts::ShardInfo>{
                           {{{0, 0}, {6, 7}}, {0, 3}}, {{{0, 7}, {6, 14}}, {1, 4}}, {{{0, 14}, {6, 20}}, {2, 5}}}));
  EXPECT_EQ(up.box_of(4), (ts::Box{{0, 7}, {6, 14}}));
  expect_error(
      ts::errc::mesh_devices, [&] { (void)up.box_of(6); }, "device: 6");
  EXPECT_EQ(all[3].name, "first.down.bias");
  EXPECT_EQ(all[3].shards, (std::vector<ts::ShardInfo>{{{{0}, {6}}, {0, 1, 2, 3, 4, 5}}}));
  // A part is read where it is stored, without a gather.
  const auto shards = ts::local_shards(wrapped.module.first.up.weight);
  const std::vector<float> whole = ts::to_host(wrapped.module.first.up.weight);
  EXPECT_EQ(shards[4].box, up.box_of(4));
  EXPECT_EQ(shards[4].data[8], whole[1 * 20 + 7 + 1]);
  expect_error(ts::errc::empty_tensor, [] { (void)ts::get_shard_metadata(ts::Fsdp<Layer>{}); });
}

template <int Type> struct Clip {
  constexpr auto operator()(const auto& gradient, const auto& limit) const {
    return ts::clip_grad_norm(gradient, limit, Type == 0 ? infinity : Type == 3 ? 2.5 : Type);
  }
};
/// The norm and the clipped elements, in double, by the formulas of torch.nn.utils.clip_grad_norm_.
template <int Type> void expect_clipped() {
  static constexpr auto clip = ts::compile(Clip<Type>{});
  const double p = Type == 0 ? infinity : Type == 3 ? 2.5 : Type;
  const auto elements_of = [](const auto& model) {
    std::vector<double> all;
    nn::for_each_named_parameter(model, [&](const std::string&, const auto& leaf) {
      for (const float value : ts::to_host(leaf)) all.push_back(value);
    });
    return all;
  };
  const std::vector<double> g = elements_of(net());
  double norm = 0;
  for (const double value : g)
    norm = Type == 0 ? std::max(norm, std::fabs(value)) : norm + std::pow(std::fabs(value), p);
  if (Type != 0) norm = std::pow(norm, 1 / p);
  for (const int devices : {1, 2, 3}) {
    const auto wrapped = ts::fsdp(net(), ts::Mesh({{"fsdp", devices}}));
    for (const double limit : {0.3 * norm, 2 * norm}) {
      const auto [clipped, found] = clip(wrapped, ts::Scalar(limit));
      EXPECT_NEAR(ts::item(found), norm, 1e-5 * norm);
      const std::vector<double> got = elements_of(clipped);
      const double scale = std::min(limit / (norm + 1e-6), 1.0);
      for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(got[i], scale * g[i], 1e-5 * std::fabs(g[i]));
    }
    if (devices == 1) continue;
    const ts::Plan made = clip.plan(wrapped, ts::Scalar(1));
    EXPECT_EQ(made.count(ts::all_reduce), Type == 0 ? 10 : 1);
    EXPECT_EQ(made.payload_bytes(ts::all_reduce), Type == 0 ? 40 : 4);
    EXPECT_EQ(made.count(ts::all_gather), 0);
  }
}
TEST(ClipGradNorm, OverPartsIsPyTorchs) {
  expect_clipped<2>();
  expect_clipped<1>();
  expect_clipped<0>();
  expect_clipped<3>();
}

TEST(ParallelismDoc, MoreAboutWrappedModels) {
  const ts::Mesh mesh({{"fsdp", 3}});
  const auto model = net();
  const auto wrapped = ts::fsdp(model, mesh);
  const tessera_test::Output output;
  // clang-format off
    constexpr ts::FsdpPolicy in_halves{.reduce_dtype = ts::DType::bf16};
    auto reduced_in_bf16 = ts::fsdp<in_halves>(model, mesh);               // half the bytes of reduce-scatters
    auto computed_again = ts::fsdp(ts::checkpoint_module(model), mesh);    // values are not kept for the gradient
    auto on_rows = ts::fsdp(model, mesh, {}, ts::ShardOutput<"fsdp", 0>());   // or a function of the output
    auto large_layers = ts::fsdp(model, mesh, {.wraps = ts::size_based_auto_wrap_policy(model, 100'000)});
    auto of_a_class = ts::fsdp(model, mesh, {.wraps = ts::transformer_auto_wrap_policy<Layer>(model)});
    for (const ts::ShardMetadata& tensor : ts::get_shard_metadata(wrapped))
      std::cout << tensor.name << " " << ts::text(tensor.box_of(1)) << "\n";
  // clang-format on
  EXPECT_TRUE(output.text().starts_with("first.up.weight [0:6,7:14]\n")) << output.text();
  EXPECT_TRUE(ts::same_sharded_type(reduced_in_bf16.module, on_rows.module));
  EXPECT_TRUE(ts::same_sharded_type(computed_again.module.module, on_rows.module));
  EXPECT_FALSE(ts::same_sharded_type(large_layers, of_a_class));
  tessera_test::expect_lines({.name = "parallelism.md", .section = "More about wrapped models", .lines = 10}, __FILE__);
}

}  // namespace
