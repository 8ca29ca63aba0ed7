#include <functional>
#include <string>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/ops/ops.hpp>

namespace {

namespace ts = tessera;
using ts::tests::Planned;
using ts::tests::tensor;
using Matrix = ts::ShardedTensor<float, 2>;

struct Mlp {
  constexpr auto operator()(auto x, auto up, auto down) const { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};

const ts::Mesh mesh({{"data", 2}, {"model", 4}});

/// The verifier's message for a valid plan after a change.
std::string broken(const std::function<void(ts::GraphPlan&)>& change) {
  Planned made(ts::Traced<Mlp, Matrix, Matrix, Matrix>::program(), mesh,
               {tensor(mesh, {32, 64}, {"data"}), tensor(mesh, {64, 256}, {ts::none, "model"}),
                tensor(mesh, {256, 64}, {"model"})});
  change(made.plan.graphs[0]);
  try {
    ts::verify_plan(made.plan, made.program, made.units.views.data());
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::graph_invalid);
    return e.what();
  }
  return "valid";
}

TEST(VerifyPlan, FindsWhatIsBroken) {
  EXPECT_EQ(broken([](ts::GraphPlan&) {}), "valid");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { std::swap(g.steps[0], g.steps[1]); }),
            "[plan] inputs are computed before they are read: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.steps.push_back(g.steps[0]); }),
            "[plan] a value is computed by one step only: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.steps.back().collectives.clear(); }),
            "[plan] a reshard lists the collectives between its shardings: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[3].sharding.dims[0].clear(); }),
            "[plan] the shardings of results follow from the step's factors: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[3].sharding.dims[0].push_back(1); }),
            "[plan] a value uses each mesh axis once: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[4].offset = g.values[3].offset; }),
            "[plan] values that are needed at the same time do not overlap in memory: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.arena_bytes = 64; }),
            "[plan] values in scratch memory end within the arena: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.outputs[0] = g.steps[2].outputs[0]; }),
            "[plan] results of a program are not partial: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[5].sharding.unreduced = 0; }),
            "[plan] a reshard lists the collectives between its shardings: graph 0");
}

struct Update {
  constexpr auto operator()(auto w, auto x, auto up, auto down) const {
    return w - ts::matmul(ts::matmul(ts::gelu(ts::matmul(x, up)), down), up);
  }
};

/// The verifier's message for a valid schedule after a change. The steps are: an einsum with gelu as its epilogue,
/// gelu, an einsum whose parts are summed in place, the reshard that sums them, a product summed in the memory of the
/// result, the result.
std::string broken_schedule(const std::function<void(ts::GraphPlan&)>& change) {
  Planned made(ts::Traced<Update, Matrix, Matrix, Matrix, Matrix>::program(), mesh,
               {tensor(mesh, {32, 256}, {"data", "model"}), tensor(mesh, {32, 64}, {"data"}),
                tensor(mesh, {64, 256}, {ts::none, "model"}), tensor(mesh, {256, 64}, {"model"})});
  change(made.plan.graphs[0]);
  try {
    ts::verify_plan(made.plan, made.program, made.units.views.data());
  } catch (const ts::error& e) {
    return e.what();
  }
  return "valid";
}

TEST(VerifyPlan, FindsWhatIsBrokenInASchedule) {
  using Graph = ts::GraphPlan;
  const auto made_by = [](Graph& g, std::size_t s) -> ts::PlanValue& {
    return g.values[static_cast<std::size_t>(g.steps[s].outputs[0])];
  };
  std::string fusions;
  EXPECT_EQ(broken_schedule([&](Graph& g) {
              for (const ts::PlanStep& step : g.steps) fusions += std::to_string(static_cast<int>(step.fusion));
            }),
            "valid");
  ASSERT_EQ(fusions, "104020") << "an epilogue, a sum, a product in a result";

  const auto fused = [](std::size_t s, ts::Fusion fusion) { return [=](Graph& g) { g.steps[s].fusion = fusion; }; };
  EXPECT_EQ(broken_schedule(fused(1, ts::Fusion::epilogue)),
            "[plan] the step after a fused step is not itself fused with its next step: graph 0");
  EXPECT_EQ(broken_schedule(fused(5, ts::Fusion::epilogue)),
            "[plan] the step after a fused step is not itself fused with its next step: graph 0");
  EXPECT_EQ(broken_schedule(fused(2, ts::Fusion::apart)),
            "[plan] a value that is not stored is the result of a fused step: graph 0");
  EXPECT_EQ(broken_schedule(fused(0, ts::Fusion::rounding)),
            "[plan] the result of a fused step is stored if and only if the next step is an epilogue: graph 0");
  EXPECT_EQ(broken_schedule(fused(4, ts::Fusion::sum)),
            "[plan] only a product that is summed in the memory of a result has a spare block: graph 0");
  EXPECT_EQ(broken_schedule([](Graph& g) { g.steps[2].fusion = ts::Fusion::rounding; }),
            "[plan] an epilogue is a fused unit that runs at the places of its product: graph 0");
  // A second reader of a value that is not stored.
  EXPECT_EQ(broken_schedule([](Graph& g) {
              ts::PlanStep again = g.steps[3];
              again.outputs[0] = static_cast<std::int32_t>(g.values.size());
              ts::PlanValue copy = g.values[static_cast<std::size_t>(g.steps[3].outputs[0])];
              copy.first_step = -1;
              g.values.push_back(copy);
              g.steps.push_back(again);
            }),
            "[plan] only the next step reads a value that is not stored: graph 0");
  // An epilogue whose result overlaps an operand of the product.
  EXPECT_EQ(broken_schedule([](Graph& g) { g.steps[1].outputs[0] = g.steps[0].inputs[0]; }),
            "[plan] a value is computed by one step only: graph 0");
  EXPECT_EQ(broken_schedule([&](Graph& g) { made_by(g, 1).spare = true; }),
            "[plan] only a value that is not stored has a spare block: graph 0");
  // Arguments that results are written over.
  EXPECT_EQ(broken_schedule([](Graph& g) { g.donated.clear(); }),
            "[plan] the list of donated arguments has an entry for each result: graph 0");
  EXPECT_EQ(broken_schedule([](Graph& g) { g.donated[0] = 1; }),
            "[plan] a result has the layout of the donated argument that it is written over: graph 0");
  EXPECT_EQ(broken_schedule([](Graph& g) { g.donated[0] = 7; }),
            "[plan] a donated argument is an argument of the graph: graph 0");
  EXPECT_EQ(broken_schedule([](Graph& g) { g.outputs.push_back(g.arguments[0]), g.donated.push_back(-1); }),
            "[plan] the last step that reads a donated argument writes over it: graph 0");
}

}  // namespace
