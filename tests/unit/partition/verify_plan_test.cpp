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

/// What the verifier says of a good plan in which something was changed.
std::string broken(const std::function<void(ts::GraphPlan&)>& change) {
  Planned made(ts::Traced<Mlp, Matrix, Matrix, Matrix>::program(), mesh,
               {tensor(mesh, {32, 64}, {"data"}), tensor(mesh, {64, 256}, {ts::none, "model"}),
                tensor(mesh, {256, 64}, {"model"})});
  change(made.plan.graphs[0]);
  try {
    ts::verify_plan(made.plan, made.program, made.views.data());
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::graph_invalid);
    return e.what();
  }
  return "valid";
}

TEST(VerifyPlan, FindsWhatIsBroken) {
  EXPECT_EQ(broken([](ts::GraphPlan&) {}), "valid");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { std::swap(g.steps[0], g.steps[1]); }),
            "[plan] inputs are made before they are read: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.steps.push_back(g.steps[0]); }), "[plan] a value is made once: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.steps.back().collectives.clear(); }),
            "[plan] a reshard lists the collectives between its shardings: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[3].sharding.dims[0].clear(); }),
            "[plan] results have the shardings of the factors: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[3].sharding.dims[0].push_back(1); }),
            "[plan] a value uses each mesh axis once: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[4].offset = g.values[3].offset; }),
            "[plan] values that are needed at once have memory of their own: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.arena_bytes = 64; }), "[plan] scratch fits the arena: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.outputs[0] = g.steps[2].outputs[0]; }),
            "[plan] results are reduced: graph 0");
  EXPECT_EQ(broken([](ts::GraphPlan& g) { g.values[5].sharding.unreduced = 0; }),
            "[plan] a reshard lists the collectives between its shardings: graph 0");
}

}  // namespace
