// Wrapped models: values and training as without the wrapper, and the collectives of ZeRO's stages.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include "model_results.hpp"
#include "wrapped_models.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/mesh/hybrid_mesh.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/parallel/parallelize_module.hpp>
#include <tessera/parallel/state/state_dict.hpp>
#include <tessera/tensor/compare_models.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/deferred_init.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using tessera_test::Deep;
using tessera_test::deep;
using tessera_test::expect_error;
using tessera_test::expect_near;
using tessera_test::Mlp;
using tessera_test::mlp;
using tessera_test::types;

namespace {

constexpr ts::FsdpPolicy zero2{.reshard_after_forward = false}, in_bf16{.compute_dtype = ts::DType::bf16},
    in_f16{.compute_dtype = ts::DType::f16};

struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& x,
                            const auto& y) const {
    const auto loss = [](const auto& m, const auto& in, const auto& out) {
      return ts::mse(ts::cast<float>(m(in)), out);
    };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x, y);
    const auto [clipped, norm] = ts::clip_by_global_norm(gradient, 0.05);
    const auto [next, next_state] = ts::adamw(model, clipped, state, config);
    return std::tuple(next, next_state, value, norm);
  }
};
constexpr auto train_step = ts::compile(Step{});
constexpr ts::optim::AdamW config{.learning_rate = 0.02, .weight_decay = 0.1};

auto data(std::uint64_t seed, const ts::Mesh& mesh, const ts::PartitionSpec& batch) {
  return ts::reshard(ts::normal<float>(ts::Key(seed), {14, 6}, ts::Mesh{}), mesh, batch);
}

/// Losses and norms of gradients of ten steps.
template <class Model> std::vector<double> trained(Model& model, const ts::Mesh& mesh, const ts::PartitionSpec& batch) {
  auto state = ts::optim::init_state(config, model);
  const auto x = data(1, mesh, batch), y = data(2, mesh, batch);
  std::vector<double> found;
  for (int i = 0; i < 10; ++i) {
    auto [next, next_state, loss, norm] = train_step(model, state, config, x, y);
    model = next, state = next_state;
    found.push_back(static_cast<double>(ts::item(loss)));
    found.push_back(static_cast<double>(ts::item(norm)));
  }
  return found;
}

struct Case {
  ts::Mesh mesh;
  ts::PartitionSpec batch;
};
std::vector<Case> cases() {
  return {{ts::Mesh({{"fsdp", 2}}), {"fsdp"}},
          {ts::Mesh({{"fsdp", 3}}), {"fsdp"}},
          {ts::Mesh({{"fsdp", 4}}), {"fsdp"}},
          {ts::Mesh({{"fsdp", 8}}), {"fsdp"}},
          {ts::Mesh({{"data", 2}, {"fsdp", 2}}), {{"data", "fsdp"}}},
          {ts::Mesh({{"data", 3}, {"fsdp", 2}}), {"data"}}};
}

TEST(DeferredInit, ModelsAreDrawnStraightIntoShards) {
  const ts::Mesh mesh({{"fsdp", 4}});
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  const auto make = [&] { return Mlp{nn::linear(ts::Key(1), 6, 20'000, one), nn::linear(ts::Key(2), 20'000, 6, one)}; };
  const std::int64_t before = ts::memory_use().in_use;
  const Mlp model = ts::deferred_init(make);
  auto wrapped = ts::fsdp(model, mesh);
  auto state = ts::deferred_init([&] { return ts::optim::init_state(config, wrapped); });
  const auto x = data(1, mesh, {"fsdp"}), y = data(2, mesh, {"fsdp"});
  const std::int64_t batches = ts::memory_use().in_use - before;
  EXPECT_LT(batches, 8192) << "of 2 MB of parameters and state nothing";
  EXPECT_EQ(nn::parameter_bytes_per_device(wrapped), 4 * (2 * 6 * 5000 + 5000 + 2));
  EXPECT_GT(train_step.plan(wrapped, state, config, x, y).main().arena_bytes, 0);
  EXPECT_TRUE(ts::is_deferred(model) && ts::is_deferred(wrapped) && ts::is_deferred(state));
  EXPECT_LT(ts::memory_use().in_use - before, 8192);

  const auto expected = ts::fsdp(make(), mesh);
  EXPECT_FALSE(ts::is_deferred(expected));
  EXPECT_TRUE(ts::all_equal(wrapped, expected));
  EXPECT_FALSE(ts::is_deferred(wrapped));
  EXPECT_TRUE(ts::is_deferred(model)) << "the model itself was never drawn";
  auto expected_state = ts::optim::init_state(config, expected);
  const auto next = train_step(wrapped, state, config, x, y);
  const auto wanted = train_step(expected, expected_state, config, x, y);
  EXPECT_TRUE(ts::all_equal(std::get<0>(next), std::get<0>(wanted)));
}

TEST(Fsdp, WrappedModelsAreComparedAndPrinted) {
  const ts::Mesh mesh({{"fsdp", 3}});
  const auto whole = ts::fsdp(deep(), ts::Mesh({{"fsdp", 1}}));
  const auto wrapped = ts::fsdp(deep(), mesh), again = ts::fsdp(deep(), mesh);
  EXPECT_TRUE(ts::all_equal(wrapped, again));
  EXPECT_TRUE(ts::all_equal(wrapped, whole)) << "shardings may differ";
  EXPECT_TRUE(ts::same_sharded_type(wrapped, again));
  EXPECT_FALSE(ts::same_sharded_type(wrapped, whole));
  EXPECT_EQ(ts::sharded_type_hash(wrapped), ts::sharded_type_hash(again));
  EXPECT_NE(ts::sharded_type_hash(wrapped), ts::sharded_type_hash(whole));
  auto other = wrapped;
  other.module.half = 0.25;
  EXPECT_FALSE(ts::all_equal(wrapped, other));
  other = wrapped;
  other.module.blocks[2].module.up.bias = ts::reshard(ts::ones<float>({20}, ts::Mesh{}), mesh, {"fsdp"});
  EXPECT_FALSE(ts::all_equal(wrapped, other));
  other.module.blocks.layers().pop_back();
  EXPECT_FALSE(ts::all_equal(wrapped, other)) << "one layer less";
  const std::string table = ts::summary(wrapped);
  EXPECT_NE(table.find("blocks.*.up.weight"), std::string::npos) << table;
  EXPECT_NE(table.find("mix.weight"), std::string::npos) << table;
}

TEST(Fsdp, TrainsAsTheModelOnOneDevice) {
  const ts::Mesh one({{"fsdp", 1}});
  Mlp plain = mlp(5);
  const std::vector<double> wanted = trained(plain, ts::Mesh{}, {});
  EXPECT_LT(wanted[18], 0.9 * wanted[0]) << "the losses fall";
  const auto of_deep = [](const ts::Mesh& mesh, const ts::PartitionSpec& batch) {
    auto wrapped = ts::fsdp(deep(), mesh);
    return trained(wrapped, mesh, batch);
  };
  const std::vector<double> wanted_deep = of_deep(one, {});
  for (const auto& [mesh, batch] : cases()) {
    SCOPED_TRACE(mesh.text());
    auto three = ts::fsdp(mlp(5), mesh);
    auto two = ts::fsdp<zero2>(mlp(5), mesh);
    const std::vector<std::string> before = types(three);
    expect_near(trained(three, mesh, batch), wanted, 2e-5);
    expect_near(trained(two, mesh, batch), wanted, 2e-5);
    EXPECT_EQ(types(three), before) << "parameters stay split";
    expect_near(of_deep(mesh, batch), wanted_deep, 2e-5);
    EXPECT_EQ(ts::mesh(ts::unwrap(three).up.weight), mesh);
    const std::vector<float> got = ts::to_host(ts::unwrap(three).down.weight), last = ts::to_host(plain.down.weight);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], last[i], 2e-5);
  }
}

TEST(Fsdp, SplitsTheLargestDimOrTheFirst) {
  const ts::Mesh mesh({{"fsdp", 4}});
  EXPECT_EQ(types(ts::fsdp(mlp(5), mesh)),
            (std::vector<std::string>{"up.weight f32[6,20]{-,fsdp*}", "up.bias f32[20]{fsdp*}",
                                      "down.weight f32[20,6]{fsdp*,-}", "down.bias f32[6]{fsdp*}"}));
  EXPECT_EQ(types(ts::fsdp(mlp(5), mesh, {.dim = ts::StorageDim::outermost, .min_elements = 20})),
            (std::vector<std::string>{"up.weight f32[6,20]{fsdp*,-}", "up.bias f32[20]{fsdp*}",
                                      "down.weight f32[20,6]{fsdp*,-}", "down.bias f32[6]{-}"}));
  const auto chosen = ts::fsdp(mlp(5), mesh, {.wraps = [](const std::string& path, const ts::Shape& shape) {
                                 return path.starts_with("down.") && shape.size() == 2;
                               }});
  EXPECT_EQ(types(chosen), (std::vector<std::string>{"up.weight f32[6,20]{-,-}", "up.bias f32[20]{-}",
                                                     "down.weight f32[20,6]{fsdp*,-}", "down.bias f32[6]{-}"}));
  // 120 + 20 + 120 + 6 elements: 30 + 5 + 30 + 2 on the first device.
  EXPECT_EQ(nn::parameter_bytes_per_device(ts::fsdp(mlp(5), mesh)), 67 * 4);
  EXPECT_EQ(types(ts::fsdp(deep(), mesh))[8], "blocks.2.up.weight f32[6,20]{-,fsdp*}");
  expect_error(ts::errc::mesh_axis, [] { ts::fsdp(mlp(5), ts::Mesh({{"data", 2}})); });
}

TEST(Fsdp, ParametersThatAreSplitAlreadyAreLeft) {
  const ts::Mesh mesh({{"model", 2}, {"fsdp", 2}});
  const nn::ShardingStrategy tensor = nn::tensor_parallel(mesh);
  const Mlp split{nn::linear(ts::Key(5), 6, 20, tensor), nn::linear(ts::Key(6), 20, 6, tensor, nn::Role::row)};
  EXPECT_EQ(types(ts::fsdp(split, mesh)),
            (std::vector<std::string>{"up.weight f32[6,20]{-,model}", "up.bias f32[20]{model}",
                                      "down.weight f32[20,6]{model,-}", "down.bias f32[6]{fsdp*}"}));
  auto both = ts::fsdp(split, mesh, {.split_sharded = true});
  EXPECT_EQ(types(both), (std::vector<std::string>{"up.weight f32[6,20]{fsdp*,model}", "up.bias f32[20]{model}",
                                                   "down.weight f32[20,6]{model,fsdp*}", "down.bias f32[6]{fsdp*}"}));
  Mlp plain = mlp(5);
  const std::vector<double> wanted = trained(plain, ts::Mesh{}, {});
  auto again = ts::fsdp(both.module, mesh).module;  // what the axis splits already stays so
  EXPECT_EQ(types(again), types(both));
  expect_near(trained(both, mesh, {"fsdp"}), wanted, 2e-5);
  EXPECT_EQ(types(ts::unwrap(both)), types(split));
}

// Indices move with the model, and are not split.
TEST(Fsdp, IntegersAreMovedWhole) {
  struct Lookup {
    nn::Embedding<> table;
    ts::ShardedTensor<std::int32_t, 1> order;
  };
  const ts::Mesh mesh({{"fsdp", 2}});
  const auto wrapped = ts::fsdp(Lookup{nn::embedding(ts::Key(1), 5, 4, nn::single(ts::Mesh{})),
                                       ts::shard(std::vector<std::int32_t>{3, 1, 2}, ts::Mesh{})},
                                mesh);
  EXPECT_EQ(types(wrapped), (std::vector<std::string>{"0.table f32[5,4]{fsdp*,-}", "1 i32[3]{-}"}));
  EXPECT_EQ(ts::mesh(wrapped.module.order), mesh);
}

TEST(Fsdp, UnwrapGivesTheModelBack) {
  const Mlp model = mlp(5);
  const ts::Mesh mesh({{"fsdp", 3}});
  const ts::Fsdp<Mlp> wrapped = ts::fsdp(model, mesh), copy = wrapped;
  EXPECT_TRUE(ts::all_equal(copy.module.up.weight, wrapped.module.up.weight));
  const Mlp back = ts::unwrap(copy);
  EXPECT_TRUE(ts::sharding(back.down.weight).is_replicated());
  EXPECT_EQ(ts::to_host(back.up.weight), ts::to_host(model.up.weight));
  EXPECT_EQ(ts::to_host(back.down.bias), ts::to_host(model.down.bias));
  // Called outside of a traced function too.
  const auto x = data(1, mesh, {"fsdp"});
  const auto wanted = ts::to_host(ts::eval(model(data(1, ts::Mesh{}, {}))));
  const auto got = ts::to_host(ts::eval(wrapped(x)));
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-5);
}

// Bytes of the MLP's parameters: 6 x 20 and 20 x 6 weights, 20 and 6 biases.
constexpr std::int64_t weight = 480, parameters = 2 * 480 + 80 + 24;

ts::Plan plan_of(const auto& wrapped, const ts::Mesh& mesh, const ts::PartitionSpec& batch) {
  return train_step.plan(wrapped, ts::optim::init_state(config, wrapped), config, data(1, mesh, batch),
                         data(2, mesh, batch));
}

TEST(Fsdp, GathersTwiceAndScattersOnce) {
  const ts::Mesh mesh({{"fsdp", 2}});
  const ts::Plan three = plan_of(ts::fsdp(mlp(5), mesh), mesh, {"fsdp"});
  // The gradient needs only the second weight: the inputs of the first layer have no gradient.
  EXPECT_EQ(three.payload_bytes(ts::all_gather), parameters + weight);
  EXPECT_EQ(three.count(ts::all_gather), 5);
  EXPECT_EQ(three.payload_bytes(ts::reduce_scatter), parameters);
  EXPECT_EQ(three.count(ts::reduce_scatter), 4);
  const ts::Plan two = plan_of(ts::fsdp<zero2>(mlp(5), mesh), mesh, {"fsdp"});
  EXPECT_EQ(two.payload_bytes(ts::all_gather), parameters);
  EXPECT_EQ(two.payload_bytes(ts::reduce_scatter), parameters);
  EXPECT_EQ(two.count(ts::all_reduce), three.count(ts::all_reduce));
  // Rounded before they are gathered; gradients are reduced in f32.
  const ts::Plan half = plan_of(ts::fsdp<in_bf16>(mlp(5), mesh), mesh, {"fsdp"});
  EXPECT_EQ(half.payload_bytes(ts::all_gather), (parameters + weight) / 2);
  EXPECT_EQ(half.payload_bytes(ts::reduce_scatter), parameters);
}

TEST(Fsdp, LayersOfAStackAreGatheredOneAtATime) {
  const ts::Mesh mesh({{"fsdp", 2}});
  const ts::Plan made = plan_of(ts::fsdp(deep(), mesh, {.min_elements = 100}), mesh, {"fsdp"});
  std::int64_t largest = 0;
  made.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t) {
    if (c.kind == ts::all_gather) largest = std::max(largest, c.payload_bytes);
  });
  EXPECT_EQ(largest, weight) << "one layer";
  EXPECT_EQ(made.payload_bytes(ts::all_gather), 2 * 3 * 2 * weight);
  EXPECT_EQ(made.payload_bytes(ts::reduce_scatter), 3 * 2 * weight);
}

TEST(Fsdp, AnotherAxisKeepsCopies) {
  const ts::Mesh mesh({{"data", 2}, {"fsdp", 2}});
  const ts::Plan made = plan_of(ts::fsdp(mlp(5), mesh), mesh, {{"data", "fsdp"}});
  std::int64_t gathered = 0, scattered = 0, reduced = 0;
  made.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    const bool over_fsdp = c.axes == 1u << made.mesh.axis_index("fsdp"),
               over_data = c.axes == 1u << made.mesh.axis_index("data");
    if (c.kind == ts::all_gather && over_fsdp) gathered += times * c.payload_bytes;
    if (c.kind == ts::reduce_scatter && over_fsdp) scattered += times * c.payload_bytes;
    if (c.kind == ts::all_reduce && over_data) reduced += times * c.payload_bytes;
  });
  EXPECT_EQ(gathered, parameters + weight);
  EXPECT_EQ(scattered, parameters);
  EXPECT_EQ(reduced, parameters / 2) << "the all_reduces over copies send the parts that are left";
}

TEST(Fsdp, ComputesInF16) {
  const ts::Mesh mesh({{"fsdp", 2}});
  auto wrapped = ts::fsdp<in_f16>(mlp(5), mesh);
  Mlp plain = mlp(5);
  const auto found = trained(wrapped, mesh, {"fsdp"}), wanted = trained(plain, ts::Mesh{}, {});
  EXPECT_NE(found, wanted);
  expect_near(found, wanted, 0.01);
  EXPECT_EQ(types(wrapped)[0], "up.weight f32[6,20]{-,fsdp*}");
}

TEST(Fsdp, ComputesInBf16) {
  const ts::Mesh mesh({{"fsdp", 2}});
  auto wrapped = ts::fsdp<in_bf16>(mlp(5), mesh);
  Mlp plain = mlp(5);
  const auto found = trained(wrapped, mesh, {"fsdp"}), wanted = trained(plain, ts::Mesh{}, {});
  EXPECT_NE(found, wanted);
  expect_near(found, wanted, 0.05);
  EXPECT_EQ(types(wrapped)[0], "up.weight f32[6,20]{-,fsdp*}");
}

// The layouts of nn::tensor_parallel, given to models that exist. A Megatron MLP has one all_reduce forward, and one
// backward where its input has a gradient.
TEST(ParallelizeModule, SplitsLayersByTheirPaths) {
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  using enum ts::ParallelStyle;
  auto split = ts::parallelize_module(mlp(5), mesh, "model", {{"up", colwise}, {"down", rowwise}});
  const nn::ShardingStrategy tensor = nn::tensor_parallel(mesh);
  EXPECT_EQ(types(split),
            types(Mlp{nn::linear(ts::Key(5), 6, 20, tensor), nn::linear(ts::Key(6), 20, 6, tensor, nn::Role::row)}));
  Mlp plain = mlp(5);
  const std::vector<double> wanted = trained(plain, ts::Mesh{}, {});
  expect_near(trained(split, mesh, {"data"}), wanted, 2e-5);
  const ts::Plan made = plan_of(split, mesh, {"data"});
  int over_model = 0;
  made.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    if (c.axes == 1u << made.mesh.axis_index("model") && c.payload_bytes > 64) over_model += static_cast<int>(times);
  });
  EXPECT_EQ(over_model, 1);

  const auto layers = ts::parallelize_module(
      deep(), mesh, "model", {{"blocks.*.up", colwise}, {"blocks.*.down.weight", rowwise}, {"gain", sequence}});
  EXPECT_EQ(types(layers)[8], "blocks.2.up.weight f32[6,20]{-,model}");
  EXPECT_EQ(types(layers)[10], "blocks.2.down.weight f32[20,6]{model,-}");
  EXPECT_EQ(types(layers)[11], "blocks.2.down.bias f32[6]{-}");
  // Split over the axis before, and over another one, which stays.
  constexpr ts::FsdpPolicy over_data{.axis = "data"};
  const auto again = ts::parallelize_module(ts::fsdp<over_data>(split, mesh, {.split_sharded = true}).module, mesh,
                                            "model", {{"up.*", rowwise}});
  EXPECT_EQ(types(again)[0], "up.weight f32[6,20]{model,-}");
  EXPECT_EQ(types(again)[1], "up.bias f32[20]{-}");
  EXPECT_EQ(types(again)[2], "down.weight f32[20,6]{model,data*}");
  // Split over another axis in the same dim, which stays too.
  Mlp over_both = split;
  over_both.up.weight = ts::reshard(split.up.weight, {ts::none, {"data", "model"}});
  over_both.down.weight = ts::reshard(split.down.weight, {ts::none, "data"});
  over_both = ts::parallelize_module(over_both, mesh, "model", {{"up", sequence}, {"down", colwise}});
  EXPECT_EQ(types(over_both)[0], "up.weight f32[6,20]{-,data}");
  EXPECT_EQ(types(over_both)[2], "down.weight f32[20,6]{-,(data,model)}");
  expect_error(
      ts::errc::option,
      [&] {
        ts::parallelize_module(mlp(5), mesh, "model", {{"upp", colwise}});
      },
      "\"upp\" names no layer", "fsdp_test.cpp");
  expect_error(ts::errc::mesh_axis, [&] { ts::parallelize_module(mlp(5), mesh, "expert", {{"up", colwise}}); });
}

TEST(ParallelismDoc, TensorParallelism) {
  Deep model = deep();
  const ts::Mesh mesh({{"model", 2}});
  // clang-format off
    model = ts::parallelize_module(model, mesh, "model",
                                   {{"blocks.*.up", ts::ParallelStyle::colwise}, {"blocks.*.down", ts::ParallelStyle::rowwise}});
  // clang-format on
  EXPECT_EQ(types(model)[1], "blocks.0.up.bias f32[20]{model}");
}

TEST(ParallelismDoc, CodeOnThePageIsInThisFile) {
  const auto step = [](const auto& m, const auto& s, const auto&, const auto& x, const auto& y) {
    const auto [next, next_state, loss, norm] = train_step(m, s, config, x, y);
    return std::tuple(next, next_state, loss);
  };
  const Mlp model = mlp(5);
  ts::ShardedTensor<float, 0> loss;
  const nn::ShardingStrategy tensor = nn::tensor_parallel(ts::Mesh({{"model", 2}, {"fsdp", 4}}));
  const Mlp split_by_model{nn::linear(ts::Key(5), 6, 20, tensor), nn::linear(ts::Key(6), 20, 6, tensor, nn::Role::row)};
  // clang-format off
    const ts::Mesh mesh({{"fsdp", 4}});
    auto wrapped = ts::fsdp(model, mesh);                               // ts::Fsdp<Mlp>
    auto state = ts::optim::init_state(config, wrapped);                // stored in parts too
    const auto x = data(1, mesh, {"fsdp"}), y = data(2, mesh, {"fsdp"});
    std::tie(wrapped, state, loss) = step(wrapped, state, config, x, y);   // x and y split along "fsdp"
    ts::fsdp(model, mesh, {.min_elements = 10'000});                    // small ones stay replicated
    ts::fsdp(model, mesh, {.dim = ts::StorageDim::outermost});          // dim 0 instead of the largest
    ts::fsdp(model, mesh, {.wraps = [](const std::string& path, const ts::Shape& shape) {
               return shape.size() == 2 && !path.starts_with("tokens.");
             }});
    const ts::Mesh& grid = tensor.mesh;
    ts::fsdp(split_by_model, grid, {.split_sharded = true});            // tensor parallelism and FSDP together
    const ts::Mesh pods =
        ts::hybrid_mesh({.inner = {1, 4}, .outer = {2, 1}, .axes = {"data", "fsdp"}}, ts::Torus{{2, 2}, 2});
    auto in_slices = ts::fsdp(model, pods);                             // batch: {{"data", "fsdp"}}
    constexpr ts::FsdpPolicy stage2{.reshard_after_forward = false};    // gathered once for both passes
    constexpr ts::FsdpPolicy half{.axis = "shards", .compute_dtype = ts::DType::bf16};
    auto two = ts::fsdp<stage2>(model, mesh);
    auto of_half = ts::fsdp<half>(model, ts::Mesh({{"shards", 4}}));
    const auto make_model = [&] { return model; };
    auto large = ts::fsdp(ts::deferred_init(make_model), mesh);         // laid out, not drawn
    const ts::StateDict full = ts::full_state_dict(wrapped);            // name, dtype, shape, bytes of each tensor
    const ts::StateDict parts = ts::sharded_state_dict(wrapped);        // the parts that are stored, with their boxes
    const ts::StateDict joined = ts::consolidate(parts);                // equal to full
    wrapped = ts::load_state_dict(wrapped, full);                       // onto any mesh, into any wrapper
  // clang-format on
  EXPECT_EQ(joined.size(), full.size());
  EXPECT_EQ(types(of_half)[0], "up.weight f32[6,20]{-,shards*}");
  EXPECT_EQ(types(two), types(wrapped));
  EXPECT_EQ(types(in_slices), types(wrapped));
  EXPECT_NO_THROW(ts::load_state_dict(model, full));
  for (const char* section : {"Wrapping a model (FSDP)", "Splitting layers (tensor parallelism)", "State dicts"})
    tessera_test::expect_lines({.name = "parallelism.md",
                                .section = section,
                                .lines = 2,
                                .left_out = [](std::string_view line) { return line.find("#include") != line.npos; }},
                               __FILE__);
}

}  // namespace
