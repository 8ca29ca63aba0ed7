// The collectives of one training step of a transformer, layer by layer, against the published counts and bytes.
#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/optim/sgd.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

using Blocks = ts::Stack<nn::Block<>>;
using Tensor3 = ts::ShardedTensor<float, 3>;

struct Step {
  constexpr auto operator()(const auto& model, const auto& x, const auto& target) const {
    const auto loss = [](const auto& blocks, const auto& in, const auto& out) { return ts::mse(blocks(in), out); };
    const auto [value, gradient] = ts::value_and_grad(loss)(model, x, target);
    return std::tuple(value, ts::sgd(model, gradient, {.learning_rate = 0.1}));
  }
};

struct Sizes {
  std::int64_t layers, batch, time, features, heads;
};

constexpr ts::Plan plan(const nn::ShardingStrategy& strategy, const Sizes& n) {
  const std::int64_t d = n.features;
  const auto leaf = [&](ts::Shape shape, const ts::PartitionSpec& spec) {
    return ts::stacked(n.layers, {shape, spec});
  };
  const auto linear_weight = [&](std::int64_t in, std::int64_t out, nn::Role role) {
    return leaf({in, out}, strategy.weight(role));
  };
  const auto linear_bias = [&](std::int64_t out, nn::Role role) { return leaf({out}, strategy.bias(role)); };
  const auto vector = leaf({d}, strategy.vector);
  const auto epsilon = ts::Abstract::dim(0);
  using enum nn::Role;
  const auto blocks = ts::abstract<Blocks>(
      {vector, vector, epsilon, linear_weight(d, 3 * d, column), linear_bias(3 * d, column), linear_weight(d, d, row),
       linear_bias(d, row), ts::Abstract::dim(n.heads), vector, vector, epsilon, linear_weight(d, 4 * d, column),
       linear_bias(4 * d, column), linear_weight(4 * d, d, row), linear_bias(d, row)});
  const auto stream = ts::abstract<float>({n.batch, n.time, d}, strategy.batch);
  return ts::plan(Step{}, strategy.mesh, blocks, stream, stream);
}

/// Payloads of a kind of collective, the largest first, each as often as it runs.
std::vector<std::int64_t> payloads(const ts::Plan& plan, ts::Collective kind, std::string_view axis) {
  std::vector<std::int64_t> found;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    if (c.kind == kind && c.axes == 1u << plan.mesh.axis_index(axis))
      found.insert(found.end(), static_cast<std::size_t>(times), c.payload_bytes);
  });
  std::sort(found.rbegin(), found.rend());
  return found;
}
std::vector<std::int64_t> repeated(int times, const std::vector<std::int64_t>& list) {
  std::vector<std::int64_t> all;
  for (int i = 0; i < times; ++i) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.rbegin(), all.rend());
  return all;
}
using Bytes = std::vector<std::int64_t>;

constexpr std::int64_t f32 = 4;
// Gains and biases: 4 of a norm's features, and 3 h, h, 4 h, h of the linear layers.
Bytes vectors(std::int64_t h, std::int64_t parts = 1) {
  return {3 * h / parts * f32, h * f32, 4 * h / parts * f32, h * f32, h * f32, h * f32, h * f32, h * f32};
}
Bytes joined(Bytes a, const Bytes& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.rbegin(), a.rend());
  return a;
}
const Bytes loss = {f32};

// 12 h^2 parameters in four weights; h = 256, in f32 twice the bytes of the worked numbers, which are in bf16.
const Bytes weights = {4 * 262144, 4 * 262144, 4 * 196608, 4 * 65536};
static_assert(2 * 393216 == 4 * 196608 && 2 * 131072 == 4 * 65536 && 2 * 524288 == 4 * 262144);

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, OnOneDeviceThereAreNone) {
  const ts::Plan made = plan(nn::single(ts::Mesh{}), {GetParam(), 4, 16, 32, 4});
  int count = 0;
  made.for_each_collective([&](const ts::CollectiveInfo&, std::int64_t) { ++count; });
  EXPECT_EQ(count, 0);
}

TEST_P(Collectives, DataParallelReducesEachGradient) {
  const ts::Plan made = plan(nn::data_parallel(ts::Mesh({{"data", 4}})), {GetParam(), 8, 128, 256, 4});
  EXPECT_EQ(payloads(made, ts::all_reduce, "data"), joined(repeated(GetParam(), joined(weights, vectors(256))), loss));
  EXPECT_EQ(made.count(ts::all_reduce), 12 * GetParam() + 1);
  EXPECT_EQ(made.count(ts::all_gather) + made.count(ts::reduce_scatter) + made.count(ts::all_to_all), 0);
  // 2 (d - 1) / d of the bytes of the parameters.
  const std::int64_t parameters = 12 * 256 * 256 + 13 * 256;
  EXPECT_EQ(made.wire_bytes(), GetParam() * 2 * 3 * parameters * f32 / 4 + 2 * 3 * f32 / 4);
}

TEST_P(Collectives, FsdpGathersTwiceAndScattersOnce) {
  const ts::Plan made = plan(nn::fsdp(ts::Mesh({{"data", 4}})), {GetParam(), 8, 128, 256, 4});
  EXPECT_EQ(payloads(made, ts::all_gather, "data"), repeated(2 * GetParam(), weights));
  EXPECT_EQ(payloads(made, ts::reduce_scatter, "data"), repeated(GetParam(), weights));
  EXPECT_EQ(made.payload_bytes(ts::all_gather), GetParam() * 2 * 3145728);
  EXPECT_EQ(made.payload_bytes(ts::reduce_scatter), GetParam() * 2 * 1572864);
  EXPECT_EQ(payloads(made, ts::all_reduce, "data"), joined(repeated(GetParam(), vectors(256)), loss));
  EXPECT_EQ(made.count(ts::all_to_all), 0);
}

TEST_P(Collectives, TensorParallelReducesActivationsTwiceEachWay) {
  const ts::Plan made = plan(nn::tensor_parallel(ts::Mesh({{"model", 4}})), {GetParam(), 8, 128, 1024, 16});
  EXPECT_EQ(payloads(made, ts::all_reduce, "model"), repeated(4 * GetParam(), {2 * 2097152}));
  EXPECT_EQ(made.wire_bytes(), GetParam() * 4 * 2 * 3145728);
  EXPECT_EQ(made.count(ts::all_gather) + made.count(ts::reduce_scatter) + made.count(ts::all_to_all), 0);
}

// What tensor parallelism all-reduces is scattered by time, and gathered in front of the next weight (2205.05198): two
// gathers and two scatters forward, as many backward, and two more gathers, of x again for the gradients of weights.
TEST_P(Collectives, SequenceParallelGathersAndScattersActivations) {
  const std::int64_t h = 256, b = 8, s = 128, activations = b * s * h * f32;
  const ts::Plan made = plan(nn::sequence_parallel(ts::Mesh({{"model", 4}})), {GetParam(), b, s, h, 4});
  EXPECT_EQ(payloads(made, ts::all_gather, "model"), repeated(6 * GetParam(), {activations}));
  EXPECT_EQ(payloads(made, ts::reduce_scatter, "model"), repeated(4 * GetParam(), {activations}));
  for (const std::int64_t bytes : payloads(made, ts::all_reduce, "model")) EXPECT_LE(bytes, 4 * h * f32);
  EXPECT_EQ(made.count(ts::all_to_all), 0);
}

TEST_P(Collectives, BothSplitActivationsByDataAndWeightsByModel) {
  const std::int64_t h = 256, b = 8, s = 128;
  const ts::Plan made = plan(nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}})), {GetParam(), b, s, h, 4});
  Bytes halves = weights;
  for (std::int64_t& bytes : halves) bytes /= 2;
  EXPECT_EQ(payloads(made, ts::all_gather, "data"), repeated(2 * GetParam(), halves));
  EXPECT_EQ(payloads(made, ts::reduce_scatter, "data"), repeated(GetParam(), halves));
  EXPECT_EQ(payloads(made, ts::all_reduce, "model"), repeated(4 * GetParam(), {b / 2 * s * h * f32}));
  EXPECT_EQ(payloads(made, ts::all_reduce, "data"), joined(repeated(GetParam(), vectors(h, 2)), loss));
  EXPECT_EQ(made.count(ts::all_to_all), 0);
}

TEST_P(Collectives, DataAndTensorParallelAreTheSumOfTheTwo) {
  const std::int64_t h = 256, b = 8, s = 128;
  const ts::Plan made = plan(nn::tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}})), {GetParam(), b, s, h, 4});
  Bytes halves = weights;
  for (std::int64_t& bytes : halves) bytes /= 2;
  EXPECT_EQ(payloads(made, ts::all_reduce, "data"), joined(repeated(GetParam(), joined(halves, vectors(h, 2))), loss));
  EXPECT_EQ(payloads(made, ts::all_reduce, "model"), repeated(4 * GetParam(), {b / 2 * s * h * f32}));
  EXPECT_EQ(made.count(ts::all_gather) + made.count(ts::reduce_scatter) + made.count(ts::all_to_all), 0);
}

INSTANTIATE_TEST_SUITE_P(Layers, Collectives, testing::Values(1, 2, 12));

struct TrainNorm {
  constexpr auto operator()(const auto& norm, const auto& running, const auto& x) const {
    return norm.train(x, running);
  }
};
struct OwnStatistics {
  constexpr auto operator()(const auto& norm, const auto& x) const { return norm(x); }
};
struct Evaluate {
  constexpr auto operator()(const auto& norm, const auto& running, const auto& x) const { return norm(x, running); }
};

// Over a split batch, or split rows, only sums of each feature are sent, and running statistics need no others.
TEST(BatchNorm, RunningStatisticsShareTheSumsOfTheNorm) {
  const ts::Mesh mesh({{"data", 4}});
  const ts::Abstract features(ts::Shape{16}), number(ts::Shape{});
  const auto norm = ts::abstract<nn::BatchNorm<>>({features, features, number, number});
  const auto running = ts::abstract<nn::RunningStatistics<>>({features, features});
  for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"data"}, ts::PartitionSpec{ts::none, "data"}}) {
    const auto x = ts::abstract<float>({8, 6, 5, 16}, spec);
    const ts::Plan trained = ts::plan(TrainNorm{}, mesh, norm, running, x);
    const ts::Plan alone = ts::plan(OwnStatistics{}, mesh, norm, x);
    EXPECT_EQ(payloads(trained, ts::all_reduce, "data"), payloads(alone, ts::all_reduce, "data"));
    EXPECT_EQ(trained.wire_bytes(), alone.wire_bytes());
    EXPECT_GE(alone.count(ts::all_reduce), 1);
    EXPECT_LE(alone.count(ts::all_reduce), 3);
    for (const std::int64_t bytes : payloads(alone, ts::all_reduce, "data")) EXPECT_EQ(bytes, 16 * f32);
    EXPECT_EQ(ts::plan(Evaluate{}, mesh, norm, running, x).wire_bytes(), 0);
  }
}

// The same by the compiler.
static_assert([] {
  const ts::Plan made = plan(nn::tensor_parallel(ts::Mesh({{"model", 4}})), {1, 8, 128, 1024, 16});
  return made.count(ts::all_reduce) == 4 && made.payload_bytes(ts::all_reduce) == 4 * 2 * 2097152;
}());
static_assert([] {
  const ts::Plan made = plan(nn::fsdp(ts::Mesh({{"data", 4}})), {1, 8, 128, 256, 4});
  return made.count(ts::all_gather) == 8 && made.payload_bytes(ts::all_gather) == 2 * 3145728 &&
         made.count(ts::reduce_scatter) == 4 && made.payload_bytes(ts::reduce_scatter) == 2 * 1572864;
}());
static_assert(plan(nn::data_parallel(ts::Mesh({{"data", 4}})), {1, 8, 128, 256, 4}).count(ts::all_reduce) == 4 + 8 + 1);

}  // namespace
