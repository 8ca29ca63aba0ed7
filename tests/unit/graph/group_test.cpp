#include <set>
#include <vector>

#include "../../support/random_program.hpp"
#include "../../support/scalar_ops.hpp"

#include <tessera/graph/fuse/dependencies.hpp>
#include <tessera/graph/fuse/group.hpp>
#include <tessera/graph/fuse/lower_fused.hpp>
#include <tessera/graph/fuse/program_units.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

/// The invariants on which every pass after grouping relies.
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
  // Host scalars are arguments of a kernel: kernels that differ only in their values are equal.
  EXPECT_EQ(ts::ProgramUnits(program.graphs.data(), 1).kernels.size(), 1u);
}

TEST(Group, FusesAcrossUsesAndRows) {
  EXPECT_EQ(
      fused_units(
          trace<decltype([](const auto& x, const auto& y) { return std::tuple(x + y, x * y); }), Float<2>, Float<2>>()
              .main()),
      1);
  // A column sum ends a kernel: its reader is in the next one.
  EXPECT_EQ(fused_units(trace<decltype([](const auto& x) { return x * ts::sum<0>(x * x); }), Float<2>>().main()), 2);
  EXPECT_EQ(fused_units(
                trace<decltype([](const auto& x) { return x * ts::sum<1>(x * x, ts::keepdims); }), Float<2>>().main()),
            1);
  // No path of the graph leaves a group through a contraction and enters it again.
  EXPECT_EQ(fused_units(trace<decltype([](const auto& x) {
                                const auto y = ts::exp(x);
                                return ts::matmul(y, y) + y;
                              }),
                              Float<2>>()
                            .main()),
            2);
}

// x / sum<1>(x) of a square divides column j by the sum of row j: no row of a kernel has both.
TEST(Group, AValueWithoutTheRowIsNotReadBehindTheOtherDims) {
  EXPECT_EQ(fused_units(trace<decltype([](const auto& x) { return x / ts::sum<1>(ts::tanh(x)); }), Float<2>>().main()),
            2);
  // What is made of the sums alone is one value a row of their kernel.
  EXPECT_EQ(
      fused_units(trace<decltype([](const auto& x) { return ts::exp(ts::sum<1>(ts::tanh(x))); }), Float<2>>().main()),
      1);
}

TEST(Group, ASumOfProductsIsAddedInPlace) {
  const auto f = [](const auto& x, const auto& y) { return ts::matmul(x, y) + ts::matmul(y, x); };
  const Program program = trace<decltype(f), Float<2>, Float<2>>();
  EXPECT_EQ(fused_units(program.main()), 0);
  EXPECT_EQ(ts::group_units(program.main()).units.size(), 2u);
}

/// The results of a program of vectors without interaction between elements, computed unit by unit by interpreting
/// the instructions of its kernels.
std::vector<std::vector<double>> run_kernels(const GraphView& graph, const std::vector<Array>& arguments) {
  const ts::ProgramUnits program(&graph, 1);
  const ts::UnitsView units = program.graphs[0].view();
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const std::size_t n = arguments[0].data.size();
  std::vector<std::vector<double>> values(at(graph.size));
  for (int id = 0; id < graph.size; ++id) {
    if (graph[id].op == Op::argument) values[at(id)] = arguments[at(graph[id].index())].data;
    if (graph[id].op == Op::constant) values[at(id)] = {graph[id].value};
  }
  for (int u = 0; u < units.count; ++u) {
    const ts::Unit& unit = units[u];
    const ts::Fused& fused = program.kernels[at(unit.kernel)];
    EXPECT_LE(fused.instr_count, ts::Fused::max_instrs);
    for (int o = 0; o < unit.output_count; ++o) values[at(units.output(u, o).node)].assign(n, 0);
    for (std::size_t e = 0; e < n; ++e) {
      std::vector<double> made;
      for (int k = 0; k < fused.instr_count; ++k) {
        const ts::Instr& instr = fused.instrs[k];
        const auto operand = [&](int i) { return made[at(i)]; };
        if (instr.kind == ts::InstrKind::load)
          made.push_back(values[at(units.input(u, instr.a).node)][e]);
        else if (instr.kind == ts::InstrKind::uniform)
          made.push_back(values[at(units.members[unit.first_uniform + instr.a])][0]);
        else
          made.push_back(apply(instr.op, instr.dtype, instr.dtype, operand(instr.a), operand(instr.b), 0));
      }
      for (int o = 0; o < unit.output_count; ++o) values[at(units.output(u, o).node)][e] = made[fused.stores[o].instr];
    }
  }
  std::vector<std::vector<double>> results;
  for (int k = 0; k < graph.output_count; ++k) results.push_back(values[at(graph.outputs[k])]);
  return results;
}

// A kernel has a maximum number of instructions, uniforms and operands: a larger group becomes two.
TEST(Group, WhatOutgrowsAKernelIsSplit) {
  std::size_t most_kernels = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 engine(seed);
    const auto roll = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(engine); };
    UntypedProgram made;
    std::vector<ts::Value> values;
    std::vector<Array> arguments;
    const std::size_t sources = 1 + roll(60), window = 1 + roll(40);
    for (std::size_t i = 0; i < sources; ++i) {
      values.push_back(made.argument(1));
      arguments.push_back(random_array({3}, static_cast<unsigned>(i)));
    }
    const bool numbers = seed % 3 != 0;
    for (std::size_t i = 0; i < 300; ++i) {
      const std::size_t recent = values.size() - 1 - roll(std::min(window, values.size()));
      const ts::Value x = values[recent];
      const ts::Value y = numbers && roll(4) > 0 ? x.number(0.001 * static_cast<double>(1 + roll(100000)))
                                                 : values[roll(2) == 0 ? roll(values.size()) : recent];
      const Op op = roll(3) == 0 ? Op::maximum : roll(2) == 0 ? Op::add : Op::sub;
      values.push_back(roll(8) == 0 ? ts::build::unary(Op::tanh, x) : ts::build::binary(op, x, y));
    }
    for (std::size_t i = 0; i < 30; ++i) made.output(values[roll(values.size())]);
    made.output(values.back());
    const Program program = made.finish();
    expect_valid(program.main());
    if (HasFailure()) return;
    const auto got = run_kernels(program.main(), arguments);
    const std::vector<Array> want = run(program.view(), arguments);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < got.size(); ++k)
      for (std::size_t e = 0; e < 3; ++e) ASSERT_DOUBLE_EQ(got[k][e], want[k].data[e]) << k;
    most_kernels = std::max(most_kernels, ts::ProgramUnits(program.graphs.data(), 1).kernels.size());
  }
  EXPECT_GT(most_kernels, 5u);
}

// The operands of one chain are 60 host scalars, each an instruction of its own.
TEST(Group, AChainOfManyNumbersIsSplit) {
  const auto f = [](const auto& x) {
    auto y = x + 0.5;
    for (int i = 0; i < 120; ++i) y = (y + (0.25 + i)) * (1.0 + 0.01 * i);
    return y;
  };
  const Program program = trace<decltype(f), Float<1>>();
  expect_valid(program.main());
  EXPECT_GE(fused_units(program.main()), 4);
  const auto got = run_kernels(program.main(), {random_array({3}, 1)});
  const std::vector<Array> want = run(program.view(), {random_array({3}, 1)});
  for (std::size_t e = 0; e < 3; ++e) EXPECT_DOUBLE_EQ(got[0][e], want[0].data[e]);
}

// A node that joins the group of an operand at once leaves no number behind, since sets are as long as there are
// numbers.
TEST(Dependencies, TheNumberOfAMergedNewestGroupIsGivenAgain) {
  ts::detail::Dependencies groups(700);
  const int first = groups.add(), other = groups.add();
  for (int i = 0; i < 600; ++i) {
    const int next = groups.add();
    ASSERT_EQ(next, 2);
    groups.depend(next, first);
    if (i == 599) groups.depend(next, other);
    groups.merge(first, next);
  }
  EXPECT_EQ(groups.count(), 2);
  EXPECT_TRUE(groups.reaches(first, other));
  EXPECT_FALSE(groups.reaches(other, first));
  // nothing of the groups that had the number before
  const int last = groups.add();
  EXPECT_EQ(last, 2);
  EXPECT_TRUE(groups.is_alive(last));
  EXPECT_FALSE(groups.reaches(last, first) || groups.reaches(last, other));
  const auto order = groups.order();
  EXPECT_EQ(std::vector<int>(order.begin(), order.end()), (std::vector{1, 2, 0}));
}

}  // namespace
