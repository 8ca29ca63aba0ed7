#include <string>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

// What the plan of one transformer layer must contain, against the published counts and bytes: ZeRO 1910.02054,
// Megatron 1909.08053, sequence parallelism 2205.05198. Elements have 4 bytes here, twice those of the bf16 numbers in
// the papers.

namespace {

namespace ts = tessera;
using namespace ts::tests;
using Cube = ts::ShardedTensor<float, 3>;

const ts::Mesh mesh({{"n", 4}});

/// Attention and an MLP without norms and biases, so that the weights are the only parameters.
template <bool SequenceParallel> struct Layer {
  Matrix qkv, out, up, down;
  ts::Dim heads;

  static constexpr auto stream(const auto& x) {
    if constexpr (SequenceParallel)
      return ts::with_sharding(x, {ts::none, "n"});
    else
      return x;
  }
  constexpr auto attention(const auto& x) const {
    const auto all =
        ts::rearrange<"b t (h c e) -> b t h c e">(ts::matmul(x, qkv), ts::len<"h">(heads), ts::len<"c">(3));
    const auto q = ts::squeeze<3>(ts::slice<3>(all, 0, 1));
    const auto k = ts::squeeze<3>(ts::slice<3>(all, 1, 1));
    const auto v = ts::squeeze<3>(ts::slice<3>(all, 2, 1));
    return ts::matmul(ts::rearrange<"b t h e -> b t (h e)">(ts::causal_attention(q, k, v)), out);
  }
  constexpr auto operator()(const auto& x) const {
    const auto first = stream(x);
    const auto middle = stream(first + attention(ts::tanh(first)));
    return stream(middle + ts::matmul(ts::gelu(ts::matmul(ts::tanh(middle), up)), down));
  }
};

struct Gradient {
  constexpr auto operator()(auto layers, auto x) const {
    return ts::grad([](const auto& m, auto in) {
      const auto y = m(in);
      return ts::sum(y * y);
    })(layers, x);
  }
};

struct Weights {
  ts::PartitionSpec column, row;
};

/// Layers of width h on a batch of 8 x 128; gradients have the shardings of the weights.
template <bool SequenceParallel = false>
Planned plan_of_layers(std::int64_t depth, std::int64_t h, Weights specs, const ts::PartitionSpec& x) {
  specs.column.entries.insert(0, ts::SpecEntry(ts::none));
  specs.row.entries.insert(0, ts::SpecEntry(ts::none));
  const std::vector<ts::ArgumentInfo> arguments{tensor(mesh, {depth, h, 3 * h}, specs.column),
                                                tensor(mesh, {depth, h, h}, specs.row),
                                                tensor(mesh, {depth, h, 4 * h}, specs.column),
                                                tensor(mesh, {depth, 4 * h, h}, specs.row),
                                                number(8),
                                                tensor(mesh, {8, 128, h}, x)};
  std::vector<ts::OutputRequest> requests(5);
  for (std::size_t k = 0; k < 4; ++k) requests[k] = {true, arguments[k].sharding};
  ts::PlanOptions options;
  options.outputs = requests.data();
  options.forbid_implicit_reshards = !SequenceParallel;  // it needs implicit reshards
  return Planned(ts::Traced<Gradient, ts::Stack<Layer<SequenceParallel>>, Cube>::program(), mesh, arguments, options);
}

/// The collectives of the forward (0) or the backward (1) body.
std::string body(const Planned& made, int which) {
  for (const ts::PlanStep& step : made.plan.main().steps)
    if (step.kind == ts::StepKind::repeat && which-- == 0) return made.collectives(step.body);
  return "no such body";
}

TEST(TransformerPlan, DataParallel) {
  const Planned made = plan_of_layers(3, 256, {{}, {}}, {"n"});
  EXPECT_EQ(body(made, 0), "");
  EXPECT_EQ(body(made, 1), "all_reduce n 1048576\nall_reduce n 1048576\nall_reduce n 262144\nall_reduce n 786432\n");
  EXPECT_EQ(made.plan.wire_bytes(), 3 * 2 * 3 * (12 * 256 * 256 * 4) / 4);  // 2(d-1)/d e P a layer
}

TEST(TransformerPlan, FullySharded) {
  const ts::PartitionSpec stored = ts::PartitionSpec({"n"}).gathered_on_use();
  const Planned made = plan_of_layers(3, 256, {stored, stored}, {"n"});
  EXPECT_EQ(made.plan.count(ts::all_gather), 3 * 8);
  EXPECT_EQ(made.plan.count(ts::reduce_scatter), 3 * 4);
  EXPECT_EQ(made.plan.count(ts::all_reduce), 0);
  EXPECT_EQ(made.plan.payload_bytes(ts::all_gather), 3 * 2 * 3145728);
  EXPECT_EQ(made.plan.payload_bytes(ts::reduce_scatter), 3 * 2 * 1572864);
  EXPECT_EQ(made.plan.wire_bytes(), 3 * 3 * 3 * (12 * 256 * 256 * 4) / 4);  // 3(d-1)/d e P a layer
}

TEST(TransformerPlan, TensorParallel) {
  const Planned made = plan_of_layers(2, 1024, {{ts::none, "n"}, {"n"}}, {});
  EXPECT_EQ(body(made, 0), "all_reduce n 4194304\nall_reduce n 4194304\n");
  EXPECT_EQ(body(made, 1), "all_reduce n 4194304\nall_reduce n 4194304\n");
  EXPECT_EQ(made.plan.wire_bytes(), 2 * 4 * 2 * 3145728);
}

TEST(TransformerPlan, TensorParallelWithSequenceParallel) {
  const Planned made = plan_of_layers<true>(2, 1024, {{ts::none, "n"}, {"n"}}, {});
  const std::string pair = "all_gather n 4194304\nreduce_scatter n 4194304\n";
  EXPECT_EQ(body(made, 0), pair + pair) << made.text();
  EXPECT_EQ(made.plan.count(ts::all_reduce), 0);
  EXPECT_EQ(made.plan.count(ts::reduce_scatter), 2 * 4);
  // The same backward; inputs are gathered again for the gradients of the weights, since only shards were kept.
  EXPECT_EQ(made.plan.count(ts::all_gather), 2 * (4 + 2));
  EXPECT_EQ(made.plan.payload_bytes(ts::reduce_scatter), 2 * 4 * 4194304);
}

TEST(TransformerPlan, FlopsAreThoseOfTheProducts) {
  const Planned made = plan_of_layers(3, 256, {{ts::none, "n"}, {"n"}}, {});
  // A step of a body counts once for each layer.
  std::int64_t flops = 0;
  for (const ts::PlanStep& step : made.plan.main().steps) flops += step.flops;
  const std::int64_t tokens = 8 * 128, weights = 12 * 256 * 256, scores = 2 * 8 * 128 * 128 * 256;
  // Causal attention computes half of the scores: two products forward, five backward.
  const std::int64_t products = 3 * 2 * tokens * weights + (2 + 5) * scores / 2;
  EXPECT_GE(flops, 3 * products);
  EXPECT_LE(flops, 3 * products * 11 / 10);
}

}  // namespace
