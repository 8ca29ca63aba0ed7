// Layers of a pipeline that take more than one tensor: values of each microbatch, and values that are the same for all.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/parallel/pipeline/pipeline_1f1b.hpp>
#include <tessera/parallel/pipeline/pipeline_gpipe.hpp>
#include <tessera/parallel/pipeline/pipeline_stage.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;

namespace {

constexpr int width = 3, batch = 12;

/// A layer that reads an encoder's output and a mask of its examples, and a table of one row and numbers that all
/// share.
struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;

  constexpr auto operator()(const auto& x, const auto& encoded, const auto& keeps, const auto& table, const auto& gain,
                            const auto& scale) const {
    const auto y = ts::tanh(ts::matmul(x * table, weight) + encoded * bias);
    return x + ts::select(ts::unsqueeze<1>(keeps), y, 0.0) * gain * scale;
  }
};
struct Head {
  ts::ShardedTensor<double, 2> weight;
};
using Layers = ts::Stack<Layer>;

constexpr auto loss_of = [](const auto& head, const auto& y, const auto& target) {
  const auto z = ts::matmul(y, head.weight);
  return ts::mean(z * (z + target));
};
/// The loss, and its gradients with respect to layers, input, head, encoder's output and table.
template <class F> struct WithGradients {
  constexpr auto operator()(const auto& layers, const auto& x, const Head& head, const auto& encoded, const auto& keeps,
                            const auto& table, const ts::Scalar& scale, const ts::Dim& microbatches) const {
    return ts::value_and_grad([&](const auto& all) {
      const auto& [own_layers, own_x, own_head, own_encoded, own_table] = all;
      return F{}(own_layers, own_x, own_head, own_encoded, keeps, own_table, scale, microbatches);
    })(std::tuple(layers, x, head, encoded, table));
  }
};
struct Whole {
  constexpr auto operator()(const auto& layers, const auto& x, const auto& head, const auto& encoded, const auto& keeps,
                            const auto& table, const auto& scale, const auto&) const {
    return loss_of(head, layers(x, encoded, keeps, ts::unsqueeze<0>(table), ts::mean(table), scale), encoded);
  }
};
struct Gpipe {
  constexpr auto operator()(const auto& stages, const auto& x, const auto& head, const auto& encoded, const auto& keeps,
                            const auto& table, const auto& scale, const auto& microbatches) const {
    return loss_of(head,
                   ts::pipeline_gpipe(stages, x, microbatches, std::tuple(encoded, keeps),
                                      std::tuple(ts::unsqueeze<0>(table), ts::mean(table), scale)),
                   encoded);
  }
};
// The targets of 1F1B have no gradient, so the loss that is compared here has none of its targets.
constexpr auto square_loss = [](const auto& head, const auto& y, const auto&) {
  const auto z = ts::matmul(y, head.weight);
  return ts::mean(z * (z + 1.0));
};
struct WholeSquare {
  constexpr auto operator()(const auto& layers, const auto& x, const auto& head, const auto& encoded, const auto& keeps,
                            const auto& table, const auto& scale, const auto&) const {
    return square_loss(head, layers(x, encoded, keeps, ts::unsqueeze<0>(table), ts::mean(table), scale), x);
  }
};
struct OneForwardOneBackward {
  constexpr auto operator()(const auto& stages, const auto& x, const auto& head, const auto& encoded, const auto& keeps,
                            const auto& table, const auto& scale, const auto& microbatches) const {
    return ts::pipeline_1f1b(square_loss, stages, x, microbatches, head, x, std::tuple(encoded, keeps),
                             std::tuple(ts::unsqueeze<0>(table), ts::mean(table), scale));
  }
};

ts::ShardedTensor<double, 2> drawn(std::uint64_t key, const ts::Shape& shape, const ts::Mesh& mesh,
                                   const ts::PartitionSpec& spec = {}) {
  return ts::normal<double, 2>(ts::Key(key), shape, mesh, spec);
}
Layers layers_of(int count, const ts::Mesh& mesh) {
  return Layers(count, [&](int i) {
    const auto key = static_cast<std::uint64_t>(i);
    return Layer{drawn(key, {width, width}, mesh), ts::normal<double>(ts::Key(100 + key), {width}, mesh)};
  });
}
void append(std::vector<double>& values, const auto& x) {
  for (const double value : ts::to_host(x)) values.push_back(value);
}
/// The loss and all gradients; `back` makes the layers of what the program took.
template <class F, class Make, class Back>
std::vector<double> results(const Make& make, const Back& back, const ts::Mesh& mesh, int microbatches,
                            const ts::PartitionSpec& spec) {
  static constexpr auto program = ts::compile(WithGradients<F>{});
  std::vector<std::int32_t> keeps(batch);
  for (std::size_t i = 0; i < keeps.size(); ++i) keeps[i] = i % 3 != 1;
  const ts::ShardedTensor<bool, 1> mask = ts::cast<bool>(
      ts::shard(keeps, {batch}, mesh, spec.entries.empty() ? ts::PartitionSpec{} : ts::PartitionSpec{"data"}));
  const auto [loss, gradient] =
      program(make(), drawn(50, {batch, width}, mesh, spec), Head{drawn(99, {width, width}, mesh)},
              drawn(51, {batch, width}, mesh, spec), mask, ts::normal<double>(ts::Key(52), {width}, mesh),
              ts::Scalar(0.75), ts::Dim(microbatches));
  std::vector<double> values = ts::to_host(loss);
  const Layers layers = back(std::get<0>(gradient));
  for (const Layer& layer : layers.layers()) {
    append(values, layer.weight);
    append(values, layer.bias);
  }
  append(values, std::get<1>(gradient));
  append(values, std::get<2>(gradient).weight);
  append(values, std::get<3>(gradient));
  append(values, std::get<4>(gradient));
  return values;
}
template <class F> std::vector<double> on_one_device(int count) {
  return results<F>([&] { return layers_of(count, ts::Mesh{}); }, [](const auto& layers) { return layers; }, ts::Mesh{},
                    1, {});
}
template <class F, int Chunks>
void expect_equal(int count, const ts::Mesh& mesh, int microbatches, const std::vector<double>& want,
                  const ts::PartitionSpec& spec = {}) {
  const std::vector<double> got =
      results<F>([&] { return ts::pipeline_stages<"pipe", Chunks>(layers_of(count, mesh), mesh); },
                 [](const auto& stages) { return ts::unwrap(stages); }, mesh, microbatches, spec);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], 1e-13 + 1e-12 * std::abs(want[i])) << i << ", " << mesh.text() << ", " << microbatches;
}

TEST(PipelineArguments, GpipeEqualsLayersOnOneDevice) {
  for (const int layers : {4, 5}) {
    const std::vector<double> want = on_one_device<Whole>(layers);
    for (const int stages : {1, 2, 3, 4})
      for (const int microbatches : {1, 3, 6}) {
        const ts::Mesh mesh({{"pipe", stages}});
        expect_equal<Gpipe, 1>(layers, mesh, microbatches, want);
      }
    expect_equal<Gpipe, 2>(layers, ts::Mesh({{"pipe", 2}}), 6, want);
    expect_equal<Gpipe, 1>(layers, ts::Mesh({{"data", 2}, {"pipe", 3}}), 4, want, {"data"});
  }
}
TEST(PipelineArguments, OneForwardOneBackwardEqualsLayersOnOneDevice) {
  for (const int layers : {4, 5}) {
    const std::vector<double> want = on_one_device<WholeSquare>(layers);
    for (const int stages : {1, 2, 3, 4})
      for (const int microbatches : {1, 3, 6}) {
        const ts::Mesh mesh({{"pipe", stages}});
        expect_equal<OneForwardOneBackward, 1>(layers, mesh, microbatches, want);
      }
    expect_equal<OneForwardOneBackward, 2>(layers, ts::Mesh({{"pipe", 2}}), 6, want);
    expect_equal<OneForwardOneBackward, 1>(layers, ts::Mesh({{"data", 2}, {"pipe", 3}}), 4, want, {"data"});
  }
}

// What microbatches have is on all devices of the axis: no permutes but those of activations. Its gradient is reduced
// once, after the loop, as is that of what all share.
TEST(PipelineArguments, SendNothingButTheirGradients) {
  const ts::Mesh mesh({{"pipe", 4}});
  const auto stages = ts::pipeline_stages<"pipe">(layers_of(8, mesh), mesh);
  const auto x = ts::zeros<double>({24, width}, mesh);
  constexpr std::int64_t parts = 8, part = 24 / 8 * width * 8;
  const auto permuted = [&](const auto& program) {
    const ts::Plan plan =
        program.plan(stages, x, Head{ts::zeros<double>({width, width}, mesh)}, x, ts::zeros<bool>({24}, mesh),
                     ts::zeros<double>({width}, mesh), ts::Scalar(1), ts::Dim(parts));
    std::array<std::int64_t, 4> found{};
    plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
      if (c.kind == ts::Collective::permute) {
        found[0] += times;
        found[1] += times * c.wire_bytes;
      } else if (c.kind == ts::Collective::all_reduce) {
        found[2] += times;
      } else {
        found[3] += times;
      }
    });
    return found;
  };
  static constexpr auto gpipe = ts::compile(WithGradients<Gpipe>{});
  static constexpr auto one = ts::compile(WithGradients<OneForwardOneBackward>{});
  EXPECT_EQ(permuted(gpipe), (std::array<std::int64_t, 4>{2 * (parts + 3), 2 * (parts + 3) * part, 2 + 3, 0}));
  constexpr std::int64_t ticks = parts + 6;
  EXPECT_EQ(permuted(one), (std::array<std::int64_t, 4>{2 * ticks, 2 * ticks * part, ticks + 1 + 2, 0}));
}

// ---- dropout

struct Dropping {
  ts::ShardedTensor<double, 1> gain;
  constexpr auto operator()(const auto& x, const auto& key) const { return x + ts::dropout(x * gain, 0.5, key); }
};
struct DropGpipe {
  constexpr auto operator()(const auto& stages, const auto& x, const ts::Scalar& key) const {
    return ts::value_and_grad(
        [&](const auto& own) { return ts::sum(ts::pipeline_gpipe(stages, own, 3, std::tuple(), key)); })(x);
  }
};
// The layers are linear in x, so the result is the sum of x times its gradient, if both drop the same elements.
TEST(PipelineArguments, DropoutDropsTheSameInBothPasses) {
  const ts::Mesh mesh({{"pipe", 2}});
  const ts::Stack<Dropping> layers(
      3, [&](int i) { return Dropping{ts::uniform<double>(ts::Key(static_cast<std::uint64_t>(i)), {width}, mesh)}; });
  static constexpr auto program = ts::compile(DropGpipe{});
  const auto stages = ts::pipeline_stages<"pipe">(layers, mesh);
  const auto x = drawn(5, {batch, width}, mesh);
  const auto [sum, gradient] = program(stages, x, ts::Key(3));
  const std::vector<double> values = ts::to_host(x), slopes = ts::to_host(gradient);
  double want = 0;
  std::vector<double> distinct;
  for (std::size_t i = 0; i < values.size(); ++i) {
    want += values[i] * slopes[i];
    if (i % width == 0) distinct.push_back(slopes[i]);
  }
  EXPECT_NEAR(ts::to_host(sum)[0], want, 1e-12);
  std::sort(distinct.begin(), distinct.end());
  EXPECT_GE(std::unique(distinct.begin(), distinct.end()) - distinct.begin(), 4);  // examples drop different elements
  EXPECT_NE(ts::to_host(std::get<0>(program(stages, x, ts::Key(4))))[0], ts::to_host(sum)[0]);
}

}  // namespace
