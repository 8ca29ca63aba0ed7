#include <string>
#include <tuple>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using tessera::tests::Planned;
using tessera::tests::tensor;

namespace {

using Cube = ts::ShardedTensor<float, 4>;
constexpr ts::Mesh mesh{{"data", 2}, {"model", 4}};

/// The loss is linear in the result, so that only attention communicates.
struct Training {
  constexpr auto operator()(const Cube& q, const Cube& k, const Cube& v) const {
    return ts::grad([](const auto& all) {
      const auto& [a, b, c] = all;
      return ts::sum(ts::causal_attention(a, b, c) * a);
    })(std::tuple(q, k, v));
  }
};

Planned plan_of(const ts::PartitionSpec& queries, const ts::PartitionSpec& keys) {
  const ts::Shape shape{4, 64, 8, 16};
  return Planned(ts::Traced<Training, Cube, Cube, Cube>::program(), mesh,
                 {tensor(mesh, shape, queries), tensor(mesh, shape, keys), tensor(mesh, shape, keys)});
}

int steps_of(const Planned& made, ts::UnitKind kind) {
  int n = 0;
  for (const ts::PlanStep& step : made.plan.main().steps)
    n += step.kind == ts::StepKind::compute && made.units.views[0][step.unit].kind == kind ? 1 : 0;
  return n;
}

TEST(AttentionPlan, HeadsAndBatchSplitWithoutCommunication) {
  const ts::PartitionSpec split{"data", ts::none, "model"};
  const Planned made = plan_of(split, split);
  EXPECT_EQ(made.collectives(), "") << made.text();
  EXPECT_EQ(steps_of(made, ts::UnitKind::attention), 2);
  EXPECT_NE(made.text().find(" = attention %"), std::string::npos) << made.text();
  EXPECT_NE(made.text().find(" = attention_grad %"), std::string::npos) << made.text();
}

// Queries are split, so rows of scores are whole: keys and values are gathered, and their gradients are partial sums.
TEST(AttentionPlan, SplitQueriesGatherKeysAndReduceTheirGradients) {
  const ts::PartitionSpec time{"data", "model"};
  const Planned made = plan_of(time, time);
  EXPECT_EQ(made.plan.count(ts::all_gather), 2) << made.text();
  EXPECT_EQ(made.plan.count(ts::reduce_scatter) + made.plan.count(ts::all_reduce), 2) << made.text();
  EXPECT_EQ(made.plan.count(ts::all_to_all), 0) << made.text();
}

/// The gradients of queries, keys and values with a mask of all heads.
struct MaskedTraining {
  constexpr auto operator()(const Cube& q, const Cube& k, const Cube& v, const ts::ShardedTensor<bool, 4>& mask,
                            const ts::ShardedTensor<float, 2>& bias) const {
    return ts::grad([&](const auto& all) {
      const auto& [a, b, c] = all;
      return ts::sum((ts::attention(a, b, c, mask) + ts::causal_attention(a, b, c, bias)) * a);
    })(std::tuple(q, k, v));
  }
};

// A mask is split as batch, heads and queries are.
TEST(AttentionPlan, MasksAreReadByTiles) {
  for (const ts::PartitionSpec& split : {ts::PartitionSpec{}, ts::PartitionSpec{"data", ts::none, "model"}}) {
    const ts::Shape shape{4, 64, 8, 16};
    const ts::PartitionSpec of_mask = split.entries.empty() ? split : ts::PartitionSpec{"data", "model"};
    const Planned made(ts::Traced<MaskedTraining, Cube, Cube, Cube, ts::ShardedTensor<bool, 4>,
                                  ts::ShardedTensor<float, 2>>::program(),
                       mesh,
                       {tensor(mesh, shape, split), tensor(mesh, shape, split), tensor(mesh, shape, split),
                        tensor(mesh, {4, 8, 64, 64}, of_mask), tensor(mesh, {64, 64}, {})});
    EXPECT_EQ(made.collectives(), "") << made.text();
    EXPECT_EQ(steps_of(made, ts::UnitKind::attention), 4);
    int masks = 0;
    for (const ts::PlanValue& value : made.plan.main().values)
      masks += ts::volume(value.shape) > 4 * 64 * 8 * 16 ? 1 : 0;
    EXPECT_EQ(masks, 1) << "of all values only the mask is as large as scores\n" << made.text();
  }
}

TEST(AttentionPlan, NothingAsLargeAsScoresIsStored) {
  const Planned made = plan_of({}, {});
  for (const ts::PlanValue& value : made.plan.main().values)
    EXPECT_LE(ts::volume(value.shape), 4 * 64 * 8 * 16) << made.text();
}

}  // namespace
