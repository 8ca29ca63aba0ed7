#include <set>

#include "../../support/random_program.hpp"

#include <tessera/graph/group.hpp>
#include <tessera/graph/lower_fused.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

/// What every pass after grouping relies on.
void expect_valid(const GraphView& graph) {
  const ts::Units owned = ts::group_units(graph);
  const ts::UnitsView units = owned.view();
  const tessera::Growable<std::uint8_t> host = ts::host_scalars(graph);
  std::vector<int> unit_of(static_cast<std::size_t>(graph.size), -1), made(static_cast<std::size_t>(graph.size), 0);
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const auto take = [&](int id, int u) {
    EXPECT_EQ(unit_of[at(id)], -1) << "node " << id << " in two units";
    unit_of[at(id)] = u;
  };
  for (int u = 0; u < units.count; ++u) {
    const ts::Unit& unit = units[u];
    std::set<int> inputs;
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units.input(u, i).node;
      inputs.insert(node);
      EXPECT_TRUE(graph[node].op == Op::argument || made[at(node)] ||
                  (host[at(node)] && unit.kind == ts::UnitKind::repeat))
          << "unit " << u << " reads node " << node << " before it is made";
    }
    if (unit.kind == ts::UnitKind::fused) {
      std::set<int> members(units.members + unit.first_member, units.members + unit.first_member + unit.member_count);
      std::set<int> uniforms(units.members + unit.first_uniform,
                             units.members + unit.first_uniform + unit.uniform_count);
      for (int id : members) take(id, u);
      for (int id : uniforms) EXPECT_TRUE(host[at(id)]);
      for (int id : members)
        for (int i = 0; i < graph[id].arity; ++i) {
          const int operand = graph.operand(id, i);
          if ((ts::row_of(graph[id].op).shape_only >> i & 1) != 0) continue;
          EXPECT_EQ(members.contains(operand) + uniforms.contains(operand) + inputs.contains(operand), 1) << id;
        }
    } else {
      take(unit.root, u);
      if (unit.space != unit.root) take(unit.space, u);
    }
    for (int o = 0; o < unit.output_count; ++o)
      if (const int node = units.output(u, o).node; node >= 0) made[at(node)] = 1;
  }
  for (int id = 0; id < graph.size; ++id) {
    const bool computed = !host[at(id)] && graph[id].op != Op::argument && graph[id].op != Op::project;
    EXPECT_EQ(unit_of[at(id)] >= 0, computed) << id;
  }
  for (int k = 0; k < graph.output_count; ++k) {
    const int id = graph.outputs[k];
    EXPECT_TRUE(host[at(id)] || graph[id].op == Op::argument || made[at(id)]) << "result " << k << " is never made";
  }
}

TEST(Group, RandomProgramsAreCoveredOnceAndRunnable) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const bool gradients = seed % 2 == 0;
    expect_valid(RandomProgram(seed).finish(gradients).main());
    if (HasFailure()) return;
  }
}

struct Block {
  Float<1> gain, bias;
  Float<2> up, down;
  constexpr auto operator()(const auto& x) const {
    return x + ts::matmul(ts::gelu(ts::matmul(ts::layer_norm(x, gain, bias), up)), down);
  }
};
struct Model {
  ts::Stack<Block> blocks;
  Block last;
};
constexpr auto train = [](const auto& model, const auto& x, const auto& t) {
  return ts::value_and_grad([](const auto& m, const auto& a, const auto& b) {
    return ts::cross_entropy(m.last(m.blocks(a)), b);
  })(model, x, t);
};

TEST(Group, TrainingStep) {
  const Program program = trace<decltype(train), Model, Float<3>, Int<2>>();
  for (const GraphView& graph : program.graphs) expect_valid(graph);
}

int fused_units(const GraphView& graph) {
  int n = 0;
  for (const ts::Unit& unit : ts::group_units(graph).units) n += unit.kind == ts::UnitKind::fused ? 1 : 0;
  return n;
}

TEST(Group, EqualGroupsShareAKernel) {
  const auto f = [](const auto& x, const auto& y) {
    const auto a = ts::tanh(ts::matmul(x, y) * 2 + 1), b = ts::tanh(ts::matmul(y, x) * 3 + 5);
    return ts::matmul(a, b);
  };
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  EXPECT_EQ(fused_units(program.main()), 2);
  // Numbers reach a kernel as uniforms: they don't tell kernels apart.
  EXPECT_EQ(ts::ProgramUnits(program.graphs.data(), 1).kernels.size(), 1u);
}

TEST(Group, FusesAcrossUsesAndRows) {
  EXPECT_EQ(
      fused_units(
          trace<decltype([](const auto& x, const auto& y) { return std::tuple(x + y, x * y); }), Float<2>, Float<2>>()
              .main()),
      1);
  // A value of another shape is another kernel; a column sum ends one.
  EXPECT_EQ(fused_units(trace<decltype([](const auto& x) { return x * ts::sum<0>(x * x); }), Float<2>>().main()), 2);
  EXPECT_EQ(fused_units(
                trace<decltype([](const auto& x) { return x * ts::sum<1>(x * x, ts::keepdims); }), Float<2>>().main()),
            1);
  // No path from a group to itself through a contraction.
  EXPECT_EQ(fused_units(trace<decltype([](const auto& x) {
                                const auto y = ts::exp(x);
                                return ts::matmul(y, y) + y;
                              }),
                              Float<2>>()
                            .main()),
            2);
}

TEST(Group, ASumOfProductsIsAddedInPlace) {
  const auto f = [](const auto& x, const auto& y) { return ts::matmul(x, y) + ts::matmul(y, x); };
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  EXPECT_EQ(fused_units(program.main()), 0);
  EXPECT_EQ(ts::group_units(program.main()).units.size(), 2u);
}

}  // namespace
