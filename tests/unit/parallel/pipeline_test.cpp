// Layers shared out among the devices of an axis: the schedules of a pipeline against the layers on one device.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/nn/parameters.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/parallel/pipeline/pipeline_1f1b.hpp>
#include <tessera/parallel/pipeline/pipeline_gpipe.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/deferred_init.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/local_shards.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;

  static constexpr std::array field_names{"weight", "bias"};
  // Of zeros, as a stage without a microbatch could have them, neither the layer nor its gradient is finite.
  constexpr auto operator()(const auto& x) const {
    const auto length = ts::sqrt(ts::mean<-1>(x * x, ts::keepdims));
    return x + ts::tanh(ts::matmul(x / length, weight) + bias);
  }
};
struct Head {
  ts::ShardedTensor<double, 2> weight;
};
using Layers = ts::Stack<Layer>;
template <int Chunks> using Stages = ts::Stack<ts::PipelineStage<"pipe", Layer, Chunks>>;

constexpr auto loss_of = [](const auto& head, const auto& y, const auto& target) {
  const auto z = ts::matmul(y, head.weight);
  return ts::mean(z * (z + target));
};
/// The loss of a schedule, and its gradients with respect to layers, input and head.
template <class F> struct WithGradients {
  constexpr auto operator()(const auto& layers, const auto& x, const Head& head, const auto& target,
                            const ts::Dim& microbatches) const {
    return ts::value_and_grad([&](const auto& all) {
      const auto& [own_layers, own_x, own_head] = all;
      return F{}(own_layers, own_x, own_head, target, microbatches);
    })(std::tuple(layers, x, head));
  }
};
struct Whole {
  constexpr auto operator()(const auto& layers, const auto& x, const auto& head, const auto& target,
                            const auto&) const {
    return loss_of(head, layers(x), target);
  }
};
struct Gpipe {
  constexpr auto operator()(const auto& stages, const auto& x, const auto& head, const auto& target,
                            const auto& microbatches) const {
    return loss_of(head, ts::pipeline_gpipe(stages, x, microbatches), target);
  }
};
struct OneForwardOneBackward {
  constexpr auto operator()(const auto& stages, const auto& x, const auto& head, const auto& target,
                            const auto& microbatches) const {
    return ts::pipeline_1f1b(loss_of, stages, x, microbatches, head, target);
  }
};

constexpr int width = 3, batch = 12;
Layers layers_of(int count, const ts::Mesh& mesh) {
  return Layers(count, [&](int i) {
    const auto key = [&](int j) { return ts::Key(static_cast<std::uint64_t>(2 * i + j)); };
    return Layer{ts::normal<double>(key(0), {width, width}, mesh), ts::normal<double>(key(1), {width}, mesh)};
  });
}
Head head_on(const ts::Mesh& mesh) { return {ts::normal<double>(ts::Key(99), {width, width}, mesh)}; }

void append(std::vector<double>& values, const auto& x) {
  for (const double value : ts::to_host(x)) values.push_back(value);
}
std::vector<double> listed(const auto& loss, const Layers& layers, const auto& x, const Head& head) {
  std::vector<double> values = ts::to_host(loss);
  for (const Layer& layer : layers.layers()) {
    append(values, layer.weight);
    append(values, layer.bias);
  }
  append(values, x);
  append(values, head.weight);
  return values;
}
std::vector<double> on_one_device(int count) {
  static constexpr auto program = ts::compile(WithGradients<Whole>{});
  const ts::Mesh one{};
  const auto [loss, gradient] = program(layers_of(count, one), ts::normal<double>(ts::Key(50), {batch, width}, one),
                                        head_on(one), ts::normal<double>(ts::Key(51), {batch, width}, one), ts::Dim(1));
  return listed(loss, std::get<0>(gradient), std::get<1>(gradient), std::get<2>(gradient));
}
template <class F, int Chunks>
std::vector<double> in_stages(int count, const ts::Mesh& mesh, int microbatches, const ts::PartitionSpec& spec = {}) {
  static constexpr auto program = ts::compile(WithGradients<F>{});
  const auto [loss, gradient] =
      program(ts::pipeline_stages<"pipe", Chunks>(layers_of(count, mesh), mesh),
              ts::normal<double>(ts::Key(50), {batch, width}, mesh, spec), head_on(mesh),
              ts::normal<double>(ts::Key(51), {batch, width}, mesh, spec), ts::Dim(microbatches));
  return listed(loss, ts::unwrap(std::get<0>(gradient)), std::get<1>(gradient), std::get<2>(gradient));
}

void expect_equal(const std::vector<double>& got, const std::vector<double>& want, const ts::Mesh& mesh, int parts) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-13 + 1e-12 * std::abs(want[i])) << i << ", " << mesh.text() << ", " << parts;
}
/// Both schedules on every number of stages and microbatches, among them fewer microbatches than stages.
template <int Chunks> void expect_schedules_equal(int count, std::vector<int> stages) {
  const std::vector<double> want = on_one_device(count);
  for (const int n : stages)
    for (const int microbatches : {1, 2, 3, 6, 12}) {
      const ts::Mesh mesh({{"pipe", n}});
      expect_equal(in_stages<Gpipe, Chunks>(count, mesh, microbatches), want, mesh, microbatches);
      expect_equal(in_stages<OneForwardOneBackward, Chunks>(count, mesh, microbatches), want, mesh, microbatches);
    }
  // Microbatches of 3 examples, unevenly split.
  const ts::Mesh grid({{"pipe", 2}, {"data", 2}}), other({{"data", 2}, {"pipe", 3}});
  for (const ts::Mesh& mesh : {grid, other}) {
    expect_equal(in_stages<Gpipe, Chunks>(count, mesh, 4, {"data"}), want, mesh, 4);
    expect_equal(in_stages<OneForwardOneBackward, Chunks>(count, mesh, 4, {"data"}), want, mesh, 4);
  }
}

TEST(Pipeline, EqualsLayersOnOneDevice) { expect_schedules_equal<1>(12, {1, 2, 3, 4, 6, 12}); }
TEST(Pipeline, EqualsLayersOnOneDeviceInChunks) { expect_schedules_equal<2>(12, {1, 2, 3, 6}); }
// Stages with fewer layers than others, and stages without layers.
TEST(Pipeline, EqualsLayersOnOneDeviceWithUnevenStages) {
  for (const int layers : {1, 5, 7}) {
    const std::vector<double> want = on_one_device(layers);
    for (const int n : {2, 3, 4, 8}) {
      const ts::Mesh mesh({{"pipe", n}});
      expect_equal(in_stages<Gpipe, 1>(layers, mesh, 4), want, mesh, 4);
      expect_equal(in_stages<OneForwardOneBackward, 1>(layers, mesh, 4), want, mesh, 4);
    }
    const ts::Mesh grid({{"data", 2}, {"pipe", 3}});
    expect_equal(in_stages<Gpipe, 2>(layers, grid, 4, {"data"}), want, grid, 4);
    expect_equal(in_stages<OneForwardOneBackward, 2>(layers, grid, 4, {"data"}), want, grid, 4);
  }
}
TEST(Pipeline, EqualsLayersOnOneDeviceInThreeChunks) {
  const ts::Mesh mesh({{"pipe", 4}});
  expect_equal(in_stages<Gpipe, 3>(12, mesh, 6), on_one_device(12), mesh, 6);
}

// ---- plans

struct Communication {
  std::int64_t permutes = 0, reduces = 0, permuted = 0, others = 0;
};
template <class F, int Chunks> Communication communication(int stages, int microbatches, bool with_gradient) {
  static constexpr auto forward =
      ts::compile([](auto layers, auto x, auto parts) { return ts::pipeline_gpipe(layers, x, parts); });
  static constexpr auto training = ts::compile(WithGradients<F>{});
  const ts::Mesh mesh({{"pipe", stages}});
  const auto layers = ts::pipeline_stages<"pipe", Chunks>(layers_of(12, mesh), mesh);
  const auto x = ts::zeros<double>({24, width}, mesh);
  const ts::Plan plan = with_gradient ? training.plan(layers, x, head_on(mesh), x, ts::Dim(microbatches))
                                      : forward.plan(layers, x, ts::Dim(microbatches));
  Communication found;
  plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
    if (c.kind == ts::Collective::permute) {
      found.permutes += times;
      found.permuted += times * c.wire_bytes;
    } else if (c.kind == ts::Collective::all_reduce) {
      found.reduces += times;
    } else {
      found.others += times;
    }
  });
  return found;
}

TEST(PipelineGpipe, SendsEachMicrobatchOncePerTick) {
  constexpr std::int64_t stages = 4, parts = 8, part = 24 / 8 * width * 8;
  const Communication forward = communication<Gpipe, 1>(stages, parts, false);
  EXPECT_EQ(forward.permutes, parts + stages - 1);
  EXPECT_EQ(forward.permuted, (parts + stages - 1) * part);
  EXPECT_EQ(forward.reduces, 1);
  EXPECT_EQ(forward.others, 0);
  const Communication both = communication<Gpipe, 1>(stages, parts, true);
  EXPECT_EQ(both.permutes, 2 * (parts + stages - 1));
  EXPECT_EQ(both.reduces, 2);
  EXPECT_EQ(both.others, 0);
  const Communication chunks = communication<Gpipe, 3>(stages, parts, false);
  EXPECT_EQ(chunks.permutes, 3 * parts + stages - 1);
}

TEST(Pipeline1F1B, SendsEachMicrobatchOncePerTick) {
  constexpr std::int64_t stages = 4, parts = 8, part = 24 / 8 * width * 8, ticks = parts + 2 * (stages - 1);
  const Communication found = communication<OneForwardOneBackward, 1>(stages, parts, true);
  EXPECT_EQ(found.permutes, 2 * ticks);
  EXPECT_EQ(found.permuted, 2 * ticks * part);
  EXPECT_EQ(found.reduces, ticks + 1);
  EXPECT_EQ(found.others, 0);
}

// With microbatches of one size, more of them cost GPipe what the gradient needs of each layer, and 1F1B, beside x and
// its gradient, nothing.
TEST(Pipeline1F1B, KeepsNoMoreForMoreMicrobatches) {
  const ts::Mesh mesh({{"pipe", 2}});
  const auto layers = ts::pipeline_stages<"pipe">(layers_of(12, mesh), mesh);
  const auto scratch = [&](const auto& program, int microbatches) {
    const auto x = ts::zeros<double>({16 * microbatches, width}, mesh);
    return program.plan(layers, x, head_on(mesh), x, ts::Dim(microbatches)).main().arena_bytes / mesh.size();
  };
  static constexpr auto gpipe = ts::compile(WithGradients<Gpipe>{});
  static constexpr auto one = ts::compile(WithGradients<OneForwardOneBackward>{});
  constexpr std::int64_t part = 16 * width * 8;
  EXPECT_GE(scratch(gpipe, 64) - scratch(gpipe, 32), 32 * part * 6);
  EXPECT_LE(scratch(one, 64) - scratch(one, 32), 32 * part * 3);
}

// ---- values

TEST(PipelineStages, HaveTheLayersInOrder) {
  const ts::Mesh mesh({{"pipe", 2}});
  const Layers layers = layers_of(8, mesh);
  const auto stages = ts::pipeline_stages<"pipe">(layers, mesh);
  EXPECT_EQ(stages.size(), 4);
  EXPECT_EQ(ts::sharded_type_text(stages[0].blocks.weight), "f64[6,3]{pipe,-}");
  EXPECT_EQ(ts::nn::parameter_bytes_per_device(stages) * 2, ts::nn::parameter_bytes_per_device(layers));
  const auto chunks = ts::pipeline_stages<"pipe", 2>(layers, mesh);
  EXPECT_EQ(chunks.size(), 2);
  // The second device: its second chunk begins with layer 6.
  std::vector<double> own = ts::to_host(chunks[0].blocks[1].bias);
  EXPECT_EQ(std::vector<double>(own.begin() + width, own.end()), ts::to_host(layers[6].bias));
  for (const Layers& back : {ts::unwrap(stages), ts::unwrap(chunks)}) {
    ASSERT_EQ(back.size(), 8);
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(ts::to_host(back[i].weight), ts::to_host(layers[i].weight)) << i;
      EXPECT_EQ(ts::sharded_type_text(back[i].weight), "f64[3,3]{-,-}");
    }
  }
}

// Of 5 layers, the first stages have one more, and what fills the others' place is no layer of the model.
TEST(PipelineStages, ShareOutLayersUnevenly) {
  const auto names_of = [&](int count, int stages) {
    const ts::Mesh mesh({{"pipe", stages}});
    const Layers layers = layers_of(count, mesh);
    const auto made = ts::pipeline_stages<"pipe">(layers, mesh);
    std::vector<std::vector<int>> found(static_cast<std::size_t>(stages));
    for (int i = 0; i < made.size(); ++i) {
      const std::vector<double> rows = ts::to_host(made[i].blocks.bias);
      for (int stage = 0; stage < stages; ++stage)
        for (int layer = 0; layer < count; ++layer)
          if (std::equal(rows.begin() + stage * width, rows.begin() + (stage + 1) * width,
                         ts::to_host(layers[layer].bias).begin()))
            found[static_cast<std::size_t>(stage)].push_back(layer);
    }
    const Layers back = ts::unwrap(made);
    EXPECT_EQ(back.size(), count);
    for (int i = 0; i < count; ++i) EXPECT_EQ(ts::to_host(back[i].weight), ts::to_host(layers[i].weight)) << i;
    return found;
  };
  using Lists = std::vector<std::vector<int>>;
  EXPECT_EQ(names_of(5, 2), (Lists{{0, 1, 2}, {3, 4, 4}}));
  EXPECT_EQ(names_of(5, 3), (Lists{{0, 1}, {2, 3}, {4, 4}}));
  EXPECT_EQ(names_of(7, 4), (Lists{{0, 1}, {2, 3}, {4, 5}, {6, 6}}));
  EXPECT_EQ(names_of(4, 3), (Lists{{0, 1}, {2, 3}, {3, 3}}));
  EXPECT_EQ(names_of(2, 3), (Lists{{0}, {1}, {1}}));
}

TEST(PipelineStages, KeepOtherAxesAndMayBeDeferred) {
  const ts::Mesh mesh({{"pipe", 2}, {"model", 3}});
  const auto make = [&] {
    return Layers(2, [&](int i) {
      const ts::Key key(static_cast<std::uint64_t>(i));
      return Layer{ts::normal<double>(key, {width, width}, mesh, {"model", ts::none}),
                   ts::normal<double>(key, {width}, mesh)};
    });
  };
  const auto drawn = ts::pipeline_stages<"pipe">(make(), mesh);
  EXPECT_EQ(ts::sharded_type_text(drawn[0].blocks.weight), "f64[6,3]{(pipe,model),-}");
  EXPECT_EQ(ts::sharded_type_text(ts::unwrap(drawn)[1].weight), "f64[3,3]{model,-}");
  const auto deferred = ts::pipeline_stages<"pipe">(ts::deferred_init(make), mesh);
  EXPECT_TRUE(ts::is_deferred(deferred[0].blocks.weight));
  // Of several processes, one may read its shards alone.
  if (ts::process_index() == 1) EXPECT_NE(ts::local_shards(deferred[0].blocks.weight)[0].data[0], 0);
  EXPECT_EQ(ts::to_host(deferred[0].blocks.weight), ts::to_host(drawn[0].blocks.weight));
}

// ---- docs/parallelism.md

struct Linear {
  ts::ShardedTensor<double, 2> weight;
  constexpr auto operator()(const auto& y) const { return ts::matmul(y, weight); }
};
struct Page {
  constexpr auto operator()(const Stages<1>& stages, const auto& x, const Linear& head, const auto& target) const {
    // clang-format off
    const auto y = ts::pipeline_gpipe(stages, x, 8);                      // what blocks(x) is, in 8 microbatches
    const auto loss = ts::pipeline_1f1b(
        [](const auto& last, const auto& out, const auto& wanted) { return ts::mse(last(out), wanted); },
        stages, x, 8, head, target);
    // clang-format on
    return std::tuple(y, loss, ts::mse(head(y), target));
  }
};
struct MaskedLayer {
  ts::ShardedTensor<double, 2> weight;
  constexpr auto operator()(const auto& x, const auto& mask, const auto& table) const {
    return x + ts::tanh(ts::matmul(x * table, weight)) * mask;
  }
};
struct MaskedPage {
  constexpr auto operator()(const auto& blocks, const auto& stages, const auto& x, const auto& mask,
                            const auto& table) const {
    // clang-format off
    const auto masked = ts::pipeline_gpipe(stages, x, 8, mask, table);   // what blocks(x, mask, table) is
    // clang-format on
    return ts::max(ts::abs(masked - blocks(x, mask, table)));
  }
};
TEST(ParallelismDoc, LayersOfPipelinesTakeMoreThanATensor) {
  const ts::Mesh mesh({{"pipe", 3}});
  const ts::Stack<MaskedLayer> blocks(5, [&](int i) {
    return MaskedLayer{ts::normal<double>(ts::Key(static_cast<std::uint64_t>(i)), {width, width}, mesh)};
  });
  static constexpr auto program = ts::compile(MaskedPage{});
  const auto x = ts::normal<double>(ts::Key(1), {16, width}, mesh);
  const ts::ShardedTensor<double, 0> difference =
      program(blocks, ts::pipeline_stages<"pipe">(blocks, mesh), x, x, ts::normal<double>(ts::Key(2), {width}, mesh));
  EXPECT_LT(ts::to_host(difference)[0], 1e-13);
}
TEST(ParallelismDoc, PipelinesAreTheLayers) {
  const Layers blocks = layers_of(8, ts::Mesh{});
  // clang-format off
    const ts::Mesh pipeline({{"pipe", 4}});
    auto stages = ts::pipeline_stages<"pipe">(blocks, pipeline);           // of 8 blocks, each device has 2
  // clang-format on
  static constexpr auto program = ts::compile(Page{});
  const auto x = ts::normal<double>(ts::Key(1), {16, width}, pipeline);
  const Linear head{ts::normal<double>(ts::Key(2), {width, width}, pipeline)};
  const auto [y, loss, want] = program(stages, x, head, x);
  EXPECT_NEAR(ts::to_host(loss)[0], ts::to_host(want)[0], 1e-13);
  tessera_test::expect_lines(
      {.name = "parallelism.md", .section = "Splitting layers among devices (pipelines)", .lines = 10}, __FILE__);
}

TEST(PipelineStages, RefuseWhatCannotBeSharedOut) {
  const ts::Mesh mesh({{"pipe", 2}});
  expect_error(
      ts::errc::structure, [&] { ts::pipeline_stages<"pipe">(Layers(), mesh); }, "among 2 stages");
  expect_error(
      ts::errc::mesh_axis, [&] { ts::pipeline_stages<"stage">(layers_of(2, mesh), mesh); }, "stage");
  Layers unlike = layers_of(2, mesh);
  unlike[1].bias = ts::zeros<double>({4}, mesh);
  expect_error(
      ts::errc::shape_mismatch, [&] { ts::pipeline_stages<"pipe">(unlike, mesh); },
      "f64[3] in one layer and f64[4] in another");
  Layers gathered = layers_of(2, mesh);
  gathered[0].bias = ts::zeros<double>({3}, mesh, ts::PartitionSpec{"pipe"}.gathered_on_use());
  expect_error(
      ts::errc::unsupported, [&] { ts::pipeline_stages<"pipe">(gathered, mesh); }, "gathered on use");
  expect_error(
      ts::errc::not_divisible, [&] { in_stages<Gpipe, 1>(2, mesh, 5); }, "12");
}

}  // namespace
