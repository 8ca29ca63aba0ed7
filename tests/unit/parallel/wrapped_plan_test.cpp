// What a wrapper costs: a wrapped model sends what the same model sends whose parameters are annotated, and nothing
// but parameters a second time.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/parallel/no_sync.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

/// How often each kind of collective runs, and its bytes on one device.
struct Sent {
  std::int64_t count = 0, bytes = 0;
  bool operator==(const Sent&) const = default;
};
std::map<ts::Collective, Sent> sent(const ts::Plan& plan) {
  std::map<ts::Collective, Sent> all;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    all[c.kind].count += times;
    all[c.kind].bytes += times * c.payload_bytes;
  });
  return all;
}
std::string listed(const ts::Plan& plan) {
  std::string text;
  for (const auto& [kind, own] : sent(plan))
    text +=
        std::string(ts::name_of(kind)) + " " + std::to_string(own.count) + " of " + std::to_string(own.bytes) + "; ";
  return text;
}

/// A training step, so that gradients are reduced to where the parameters are stored.
template <class Loss> struct Step {
  constexpr auto operator()(const auto& model, const auto& x, const auto& y) const {
    const auto [loss, gradient] = ts::value_and_grad(Loss{})(model, x, y);
    return std::tuple(ts::sgd(model, gradient), loss);
  }
};
struct Squares {
  constexpr auto operator()(const auto& m, const auto& x, const auto& y) const { return ts::mse(m(x), y); }
};

std::int64_t parameter_bytes(const auto& model) {
  std::int64_t bytes = 0;
  nn::for_each_named_parameter(model, [&](const std::string&, const auto& leaf) { bytes += 4 * ts::size(leaf); });
  return bytes;
}

constexpr ts::FsdpPolicy stage3{}, stage2{.reshard_after_forward = false};

/// What a wrapped model gathers more than the annotated one: stage 3 gathers the parameters outside of loops for the
/// gradient too, stage 2 those of the layers of a Stack once instead of twice.
struct Difference {
  Sent of_three{}, of_two{};
};
template <class Loss, ts::FsdpPolicy three = stage3, ts::FsdpPolicy two = stage2>
void expect_free(const auto& model, const ts::Mesh& mesh, const auto& x, const auto& y, const Difference& gathered) {
  SCOPED_TRACE(mesh.text());
  constexpr auto program = ts::compile(Step<Loss>{});
  const auto wrapped = ts::fsdp<three>(model, mesh);
  const ts::Plan annotated = program.plan(wrapped.module, x, y);
  const auto expect_same = [&](const ts::Plan& plan, const Sent& more) {
    auto wanted = sent(annotated);
    wanted[ts::all_gather].count += more.count;
    wanted[ts::all_gather].bytes += more.bytes;
    EXPECT_TRUE(sent(plan) == wanted) << "annotated: " << listed(annotated) << "\nwrapped: " << listed(plan);
  };
  expect_same(program.plan(wrapped, x, y), gathered.of_three);
  expect_same(program.plan(ts::fsdp<two>(model, mesh), x, y), gathered.of_two);
}

const nn::ShardingStrategy& one_device() {
  static const nn::ShardingStrategy strategy = nn::single(ts::Mesh{});
  return strategy;
}
std::vector<ts::Mesh> meshes() { return {ts::Mesh({{"fsdp", 2}}), ts::Mesh({{"fsdp", 3}})}; }

struct Gpt {
  nn::Embedding<> tokens;
  ts::Stack<nn::Block<>> blocks;
  nn::LayerNorm<> norm;
  nn::Linear<float, false> head;
  static constexpr std::array field_names{"tokens", "blocks", "norm", "head"};
  constexpr auto operator()(const auto& in) const { return head(norm(blocks(tokens(in)))); }
};
struct Classes {
  constexpr auto operator()(const auto& m, const auto& x, const auto& y) const { return ts::cross_entropy(m(x), y); }
};
TEST(WrappedPlan, Gpt) {
  const Gpt model{
      nn::embedding(ts::Key(1), 11, 16, one_device()),
      {2, [](int i) { return nn::block(ts::Key(2 + static_cast<std::uint64_t>(i)), 16, 4, 32, one_device(), 2); }},
      nn::layer_norm(16, one_device()),
      nn::linear<float, false>(ts::Key(5), 16, 11, one_device(), nn::Role::head)};
  for (const ts::Mesh& mesh : meshes()) {
    const auto x = ts::zeros<std::int32_t>({48, 16}, mesh, {"fsdp"});
    // The gradient needs neither the last bias of a layer nor what is in front of the layers; and of the rest, the head
    // and the gain of the norm.
    const std::int64_t of_layers = 2 * (parameter_bytes(model.blocks[0]) - 4 * 16);
    expect_free<Classes>(model, mesh, x, x, {.of_three = {2, 4 * (16 * 11 + 16)}, .of_two = {-2 * 17, -of_layers}});
  }
}

/// A mixture of experts between two layers.
template <nn::Dispatch How> struct Mixture {
  nn::Linear<> in;
  nn::MoE<float, How> experts;
  nn::Linear<> head;
  static constexpr std::array field_names{"in", "experts", "head"};
  constexpr auto operator()(const auto& x) const {
    const auto h = ts::gelu(in(x));
    const auto [y, balance, z] = experts(h);
    return std::tuple(head(h + y), balance);
  }
};
struct Balanced {
  constexpr auto operator()(const auto& m, const auto& x, const auto& y) const {
    const auto [out, balance] = m(x);
    return ts::mse(out, y) + 0.01 * balance;
  }
};
template <nn::Dispatch How> Mixture<How> mixture(const nn::ShardingStrategy& strategy) {
  return {nn::linear(ts::Key(1), 4, 8, strategy),
          nn::moe<float, How>(ts::Key(2), 8, 16, 4, 2, strategy, 25, "expert", 0.2),
          nn::linear(ts::Key(3), 8, 4, strategy)};
}
constexpr ts::FsdpPolicy over_expert3{.axis = "expert"}, over_expert2{.axis = "expert", .reshard_after_forward = false};
template <nn::Dispatch How> void expect_experts_are_free() {
  for (const ts::Mesh& mesh :
       {ts::Mesh({{"expert", 2}}), ts::Mesh({{"expert", 3}}), ts::Mesh({{"fsdp", 2}, {"expert", 2}})}) {
    const nn::ShardingStrategy by_sequence = nn::data_parallel(mesh, "expert");
    const auto model = mixture<How>(by_sequence);
    const bool both = mesh.has_axis("fsdp");
    const ts::PartitionSpec batch = both ? ts::PartitionSpec{{"fsdp", "expert"}} : ts::PartitionSpec{"expert"};
    const auto x = ts::normal<float>(ts::Key(4), {12, 40, 4}, mesh, batch);
    const Difference router_and_head{.of_three = {2, 4 * (8 * 4 + 8 * 4)}};
    if (both)
      expect_free<Balanced>(model, mesh, x, x, router_and_head);
    else  // the axis of the wrapper is that of the experts, which stay split
      expect_free<Balanced, over_expert3, over_expert2>(model, mesh, x, x, router_and_head);
  }
}
TEST(WrappedPlan, SequenceCapacity) { expect_experts_are_free<nn::Dispatch::sequence_capacity>(); }
TEST(WrappedPlan, Dropless) { expect_experts_are_free<nn::Dispatch::dropless>(); }

// Experts stay split by the axis of the wrapper in every way to use it, and train as on one device.
struct UnsyncedStep {
  constexpr auto operator()(const auto& model, const auto& x, const auto& y) const {
    const auto [loss, gradient] =
        ts::no_sync(model, [&](const auto& m) { return ts::optim::accumulate<2>(Balanced{})(m, x, y); });
    return std::tuple(ts::sgd(model, gradient), loss);
  }
};
TEST(WrappedPlan, ExpertsStaySplitByTheAxisOfTheWrapper) {
  constexpr auto How = nn::Dispatch::sequence_capacity;
  constexpr ts::FsdpPolicy in_bf16{.axis = "expert", .reduce_dtype = ts::DType::bf16};
  constexpr auto step = ts::compile(Step<Balanced>{});
  constexpr auto unsynced = ts::compile(UnsyncedStep{});
  const auto results = [](const auto& next, const auto& loss) {
    std::vector<float> all = ts::to_host(loss);
    nn::for_each_named_parameter(next, [&](const std::string&, const auto& leaf) {
      for (const float value : ts::to_host(leaf)) all.push_back(value);
    });
    return all;
  };
  const auto run = [&](const auto& program, const auto& model, const ts::Mesh& mesh, const ts::PartitionSpec& batch) {
    const auto x = ts::normal<float>(ts::Key(4), {12, 40, 4}, mesh, batch);
    const auto [next, loss] = program(model, x, x);
    return results(next, loss);
  };
  const auto expect_equal = [](const std::vector<float>& got, const std::vector<float>& want, float tolerance) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << i;
  };
  const std::vector<float> want = run(step, mixture<How>(one_device()), ts::Mesh{}, {}),
                           of_halves = run(unsynced, ts::fsdp(mixture<How>(one_device()), ts::Mesh({{"fsdp", 1}})),
                                           ts::Mesh({{"fsdp", 1}}), {});
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"expert", devices}});
    SCOPED_TRACE(mesh.text());
    const auto model = mixture<How>(nn::data_parallel(mesh, "expert"));
    const auto wrapped = ts::fsdp<over_expert3>(model, mesh);
    expect_equal(run(step, wrapped, mesh, {"expert"}), want, 1e-6f);
    expect_equal(run(step, ts::fsdp<in_bf16>(model, mesh), mesh, {"expert"}), want, 1e-4f);
    expect_equal(run(unsynced, wrapped, mesh, {"expert"}), of_halves, 1e-6f);

    const auto x = ts::normal<float>(ts::Key(4), {12, 40, 4}, mesh, {"expert"});
    const ts::Plan plan = step.plan(wrapped, x, x), bf16 = step.plan(ts::fsdp<in_bf16>(model, mesh), x, x),
                   once = unsynced.plan(wrapped, x, x);
    const std::int64_t others = parameter_bytes(model.in) + parameter_bytes(model.head) + 4 * 8 * 4;
    EXPECT_EQ(plan.payload_bytes(ts::reduce_scatter), others) << listed(plan);
    EXPECT_EQ(bf16.payload_bytes(ts::reduce_scatter), others / 2) << listed(bf16);
    EXPECT_EQ(bf16.payload_bytes(ts::all_gather), plan.payload_bytes(ts::all_gather)) << listed(bf16);
    EXPECT_EQ(bf16.payload_bytes(ts::all_to_all), plan.payload_bytes(ts::all_to_all)) << listed(bf16);
    EXPECT_EQ(once.payload_bytes(ts::reduce_scatter), others) << listed(once);
    EXPECT_EQ(once.payload_bytes(ts::all_gather), others) << listed(once);
  }
}

/// Constraints of the user's own: on activations, and on two values that are sharded alike.
struct Annotated {
  nn::Linear<> first, second, third;
  static constexpr std::array field_names{"first", "second", "third"};
  constexpr auto operator()(const auto& x) const {
    const auto a = ts::tanh(ts::mark_sharding(first(x), {{"fsdp", "model"}}));
    const auto b = ts::gelu(ts::with_sharding(second(a), {"fsdp"}, {{"fsdp", "model"}}));
    return third(ts::with_sharding(b, {{"fsdp", "model"}}));
  }
};
struct SharedAs {
  nn::Linear<> first, second, third;
  static constexpr std::array field_names{"first", "second", "third"};
  constexpr auto operator()(const auto& x) const {
    const auto a = ts::tanh(first(x));
    const auto b = ts::gelu(second(ts::with_sharding(a, {{"fsdp", "model"}})));
    return third(std::get<1>(ts::shard_as(a, b)));
  }
};
template <class Model> void expect_constraints_are_free() {
  const auto layer = [](std::uint64_t key) { return nn::linear(ts::Key(key), 12, 12, one_device()); };
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"fsdp", devices}, {"model", 2}});
    const auto x = ts::normal<float>(ts::Key(4), {301, 12}, mesh, {"fsdp"});
    expect_free<Squares>(Model{layer(1), layer(2), layer(3)}, mesh, x, x, {.of_three = {2, 4 * 2 * 144}});
  }
}
TEST(WrappedPlan, WithSharding) { expect_constraints_are_free<Annotated>(); }
TEST(WrappedPlan, ShardAs) { expect_constraints_are_free<SharedAs>(); }

struct Times {
  nn::Lstm<> lstm;
  nn::Linear<> head;
  static constexpr std::array field_names{"lstm", "head"};
  constexpr auto operator()(const auto& xs) const { return head(std::get<0>(lstm(xs))); }
};
// What a loop sums up is reduced once behind it; annotated parameters are gathered by each time instead.
TEST(WrappedPlan, Lstm) {
  constexpr auto program = ts::compile(Step<Squares>{});
  const Times model{nn::lstm(ts::Key(1), 3, 12, one_device()), nn::linear(ts::Key(2), 12, 3, one_device())};
  for (const ts::Mesh& mesh : meshes()) {
    const auto x = ts::normal<float>(ts::Key(4), {5, 301, 3}, mesh, {ts::none, "fsdp"});
    const auto wrapped = ts::fsdp(model, mesh);
    const ts::Plan three = program.plan(wrapped, x, x), two = program.plan(ts::fsdp<stage2>(model, mesh), x, x),
                   annotated = program.plan(wrapped.module, x, x);
    const std::int64_t all = parameter_bytes(model);
    EXPECT_EQ(two.payload_bytes(ts::all_gather), all) << listed(two);
    // Of the layer the weight of h and a bias, and the weight of the head.
    EXPECT_EQ(three.payload_bytes(ts::all_gather), all + 4 * (12 * 48 + 48 + 12 * 3)) << listed(three);
    for (const ts::Plan* plan : {&two, &three}) {
      EXPECT_EQ(plan->payload_bytes(ts::reduce_scatter), all) << listed(*plan);
      EXPECT_EQ(plan->payload_bytes(ts::all_reduce), 4) << "the loss";
      EXPECT_EQ(sent(*plan).size(), 3u);
      EXPECT_LT(plan->payload_bytes(ts::all_gather), annotated.payload_bytes(ts::all_gather));
    }
  }
}

}  // namespace
