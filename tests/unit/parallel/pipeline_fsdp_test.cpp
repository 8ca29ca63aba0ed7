// FSDP around the stages of a pipeline: how often weights are gathered and gradients reduced.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/parallel/no_sync.hpp>
#include <tessera/parallel/pipeline/pipeline_1f1b.hpp>
#include <tessera/parallel/pipeline/pipeline_gpipe.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;

namespace {

// Activations are larger than weights, so that no plan gathers the batch instead of them.
constexpr int width = 6, batch = 96, layers = 4;

struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
  static constexpr std::array field_names{"weight", "bias"};
  constexpr auto operator()(const auto& x) const { return x + ts::tanh(ts::matmul(x, weight) + bias); }
};
struct Head {
  ts::ShardedTensor<double, 2> weight;
  static constexpr std::array field_names{"weight"};
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, weight); }
};
struct LossOf {
  constexpr auto operator()(const auto& head, const auto& y, const auto& target) const {
    return ts::mse(head(y), target);
  }
};
struct Plain {
  ts::Stack<Layer> blocks;
  Head head;
  constexpr auto operator()(const auto& x, const auto& target) const { return LossOf{}(head, blocks(x), target); }
};
template <bool OneForwardOneBackward> struct Pipelined {
  ts::Stack<ts::PipelineStage<"pipe", Layer>> blocks;
  Head head;
  static constexpr std::array field_names{"blocks", "head"};
  constexpr auto operator()(const auto& x, const auto& target) const {
    if constexpr (OneForwardOneBackward)
      return ts::pipeline_1f1b(LossOf{}, blocks, x, 4, head, target);
    else
      return LossOf{}(head, ts::pipeline_gpipe(blocks, x, 4), target);
  }
};

struct Gradient {
  constexpr auto operator()(const auto& model, const auto& x, const auto& target) const {
    return ts::value_and_grad([](const auto& m, const auto& in, const auto& out) { return m(in, out); })(model, x,
                                                                                                         target);
  }
};
struct GradientOnce {
  constexpr auto operator()(const auto& model, const auto& x, const auto& target) const {
    return ts::no_sync(model, [&](const auto& m) { return Gradient{}(m, x, target); });
  }
};

Plain plain(const ts::Mesh& mesh) {
  return {ts::Stack<Layer>(layers,
                           [&](int i) {
                             const auto key = static_cast<std::uint64_t>(2 * i);
                             return Layer{ts::normal<double>(ts::Key(key), {width, width}, mesh),
                                          ts::normal<double>(ts::Key(key + 1), {width}, mesh)};
                           }),
          {ts::normal<double>(ts::Key(99), {width, width}, mesh)}};
}
auto data(std::uint64_t key, const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
  return ts::normal<double>(ts::Key(key), {batch, width}, mesh, spec);
}
std::vector<double> listed(const auto& loss, const ts::Stack<Layer>& blocks, const Head& head) {
  std::vector<double> values = ts::to_host(loss);
  const auto append = [&](const auto& x) {
    for (const double value : ts::to_host(x)) values.push_back(value);
  };
  for (const Layer& layer : blocks.layers()) append(layer.weight), append(layer.bias);
  append(head.weight);
  return values;
}
// The dim of biases is split among the stages, so they are not split further.
constexpr std::int64_t of_layer = 8 * width * width, of_head = 8 * width * width;

template <bool OneForwardOneBackward, ts::FsdpPolicy policy> void expect_gathers_once() {
  constexpr auto whole = ts::compile(Gradient{});
  constexpr auto once = ts::compile(GradientOnce{});
  const ts::Mesh one;
  const auto [loss, gradient] = whole(plain(one), data(50, one, {}), data(51, one, {}));
  const std::vector<double> want = listed(loss, gradient.blocks, gradient.head);
  for (const int devices : {1, 2, 4}) {
    const ts::Mesh mesh({{"fsdp", devices}, {"pipe", 2}});
    SCOPED_TRACE(mesh.text());
    Plain model = plain(mesh);
    const auto wrapped =
        ts::fsdp<policy>(Pipelined<OneForwardOneBackward>{ts::pipeline_stages<"pipe">(model.blocks, mesh), model.head},
                         mesh, {.split_sharded = true});
    const auto x = data(50, mesh, {"fsdp"}), target = data(51, mesh, {"fsdp"});
    const auto expect_values = [&](const auto& program) {
      const auto [own_loss, own] = program(wrapped, x, target);
      const std::vector<double> got = listed(own_loss, ts::unwrap(own.module.blocks), own.module.head);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 1e-13 + 1e-12 * std::fabs(want[i])) << i;
    };
    expect_values(once);
    if (devices == 1) continue;
    // Of a stage's layers and of the head: each is gathered once, and its gradient reduced once, in no loop over ticks.
    const ts::Plan made = once.plan(wrapped, x, target);
    std::int64_t gathered = 0, scattered = 0;
    made.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
      if (c.kind == ts::all_gather) gathered += times * c.payload_bytes;
      if (c.kind == ts::reduce_scatter) scattered += times * c.payload_bytes;
    });
    EXPECT_EQ(gathered, layers / 2 * of_layer + of_head);
    EXPECT_EQ(scattered, layers / 2 * of_layer + of_head);
    // Without no_sync the plan gathers in each tick.
    expect_values(whole);
    EXPECT_GT(whole.plan(wrapped, x, target).payload_bytes(ts::all_gather), 2 * gathered);
  }
}

constexpr ts::FsdpPolicy stage3{}, stage2{.reshard_after_forward = false};
TEST(PipelineFsdp, OneForwardOneBackwardGathersOnce) { expect_gathers_once<true, stage3>(); }
TEST(PipelineFsdp, GPipeGathersOnce) { expect_gathers_once<false, stage3>(); }
// With reshard_after_forward = false the wrapper itself gathers once.
template <bool OneForwardOneBackward> void expect_stage_2_gathers_once() {
  constexpr auto whole = ts::compile(Gradient{});
  const ts::Mesh mesh({{"fsdp", 2}, {"pipe", 2}});
  Plain model = plain(mesh);
  const auto wrapped =
      ts::fsdp<stage2>(Pipelined<OneForwardOneBackward>{ts::pipeline_stages<"pipe">(model.blocks, mesh), model.head},
                       mesh, {.split_sharded = true});
  const ts::Plan made = whole.plan(wrapped, data(50, mesh, {"fsdp"}), data(51, mesh, {"fsdp"}));
  EXPECT_EQ(made.payload_bytes(ts::all_gather), layers / 2 * of_layer + of_head);
  made.for_each_collective([](const ts::CollectiveInfo& c, std::int64_t times) {
    if (c.kind == ts::all_gather) {
      EXPECT_EQ(times, 1);
    }
  });
}
TEST(PipelineFsdp, Stage2GathersOnce) {
  expect_stage_2_gathers_once<false>();
  expect_stage_2_gathers_once<true>();
}

}  // namespace
