#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../../support/interpreted_kernel.hpp"
#include "../../support/stored.hpp"
#include "random_case.hpp"
#include "shrinker.hpp"
#include <gtest/gtest.h>

#include <tessera/base/growable.hpp>
#include <tessera/graph/fuse/lower_fused.hpp>
#include <tessera/graph/fuse/program_units.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>
#include <tessera/runtime/executor/executable.hpp>
#include <tessera/runtime/steps/step_code.hpp>
#include <tessera/tensor/program/program.hpp>

// Random graphs on random meshes, planned and executed as any other program is: the arena, donations, fused steps and
// collectives are those that ship. Only the fused kernels, which the compiler makes of constant programs, are
// interpreted. What comes out is compared with the dense oracle's evaluation of the graph as it was before
// simplification.
//
//   TESSERA_CASES=100000        so many programs
//   TESSERA_FIRST_CASE=5000     other programs than usual
//   TESSERA_CASE=1234           this one alone, with its plan
namespace {

namespace ts = tessera;
using namespace oracle;
using namespace random_programs;

/// What ran so far, so that nothing is silently left out.
struct Seen {
  std::map<std::string, int> units, operations, steps, fusions, collectives, roles;
  int programs = 0, refused = 0, ill_conditioned = 0, donated = 0;
};

std::string unit_name(ts::UnitKind kind) {
  constexpr const char* names[] = {"fused",     "contraction", "layout", "indexed", "random", "constraint", "repeat",
                                   "attention", "scan",        "sort",   "fold",    "along",  "custom",     "ragged"};
  static_assert(std::size(names) == ts::unit_kinds);
  return names[static_cast<std::size_t>(kind)];
}
std::string fusion_name(ts::Fusion fusion) {
  constexpr const char* names[] = {"apart", "epilogue", "into_result", "rounding", "sum"};
  return names[static_cast<std::size_t>(fusion)];
}
std::string role_name(ts::ValueRole role) {
  constexpr const char* names[] = {"argument", "intermediate", "output", "view", "fused", "assembled", "host"};
  return names[static_cast<std::size_t>(role)];
}

ts::Leaf stored_argument(const Case& c, std::size_t i) {
  const Node& node = argument_of(c, i);
  ts::Leaf leaf;
  leaf.is_number = !node.is_argument();
  if (leaf.is_number) {
    if (node.is_dim())
      leaf.number = static_cast<std::int64_t>(c.values[i].data[0]);
    else
      leaf.number = c.values[i].data[0];
    return leaf;
  }
  leaf.stacked = ts::is_in_layers(node);
  Shape shape = c.values[i].shape;
  if (leaf.stacked) shape.erase(0);
  const std::int64_t layers = leaf.stacked ? c.values[i].shape[0] : 1;
  for (std::int64_t l = 0; l < layers; ++l)
    leaf.layers.push_back(
        store(c.mesh, node.dtype, c.specs[i], shape, c.values[i].data.data() + l * ts::volume(shape)));
  return leaf;
}

void note(Seen& seen, const ts::CompiledProgram& compiled, const ts::Plan& plan) {
  for (int g = 0; g < compiled.program.graph_count; ++g) {
    const GraphView& graph = compiled.program.graphs[g];
    for (int id = 0; id < graph.size; ++id) ++seen.operations[std::string(ts::row_of(graph[id]).name)];
    for (int u = 0; u < compiled.units[g].count; ++u) ++seen.units[unit_name(compiled.units[g][u].kind)];
    for (const ts::PlanStep& step : plan.graphs[static_cast<std::size_t>(g)].steps) {
      ++seen.steps[step.kind == ts::StepKind::compute   ? "compute"
                   : step.kind == ts::StepKind::reshard ? "reshard"
                                                        : "repeat"];
      ++seen.fusions[fusion_name(step.fusion)];
      for (const ts::CollectiveInfo& collective : step.collectives)
        ++seen.collectives[std::string(name_of(collective.kind))];
    }
    for (const ts::PlanValue& value : plan.graphs[static_cast<std::size_t>(g)].values)
      ++seen.roles[role_name(value.role)];
  }
  for (const std::int32_t donor : plan.main().donated) seen.donated += donor >= 0;
}

/// A mistake that is made on purpose, to see that it is found.
enum class Mistake { none, lifetime, halo_row, operand_order };

/// Frees a block a step too early: the block that is made next to the last reader takes its memory.
bool free_too_early(ts::GraphPlan& plan) {
  for (ts::PlanValue& early : plan.values)
    for (const ts::PlanValue& late : plan.values)
      if (early.role == ts::ValueRole::intermediate && late.role == ts::ValueRole::intermediate &&
          late.first_step == early.last_step && early.first_step < late.first_step && early.stored_bytes > 0 &&
          late.stored_bytes >= early.stored_bytes && early.offset != late.offset) {
        early.offset = late.offset;
        return true;
      }
  return false;
}
/// A slice of a split dim begins a row too early.
bool move_halo(ts::GraphPlan& plan, const GraphView& graph, const ts::UnitsView& units) {
  for (const ts::PlanStep& step : plan.steps) {
    if (step.unit < 0 || step.collectives.empty()) continue;
    const int id = units[step.unit].root;
    if (id < 0 || graph[id].op != Op::slice) continue;
    ts::HostNumber& start = plan.numbers[static_cast<std::size_t>(graph.operand(id, 1))];
    if (start.integer() < 1) continue;
    start = start.integer() - 1;
    return true;
  }
  return false;
}
/// A subtraction or a division has its operands the other way round.
bool swap_operands(tessera::Growable<ts::Fused>& kernels) {
  for (ts::Fused& fused : kernels)
    for (int i = 0; i < fused.instr_count; ++i)
      if (ts::Instr& instr = fused.instrs[i];
          instr.kind == ts::InstrKind::compute && (instr.op == Op::sub || instr.op == Op::div)) {
        std::swap(instr.a, instr.b);
        return true;
      }
  return false;
}

/// What is wrong with a run of a program; empty: nothing. `plan_text`: its plan.
std::string defect_of(const Case& c, Seen& seen, std::string* plan_text = nullptr, Mistake mistake = Mistake::none) {
  const Program original(c.module, static_cast<int>(c.values.size()));
  std::vector<Array> want;
  try {
    want = run(original.view(), c.values, draw_philox);
  } catch (const std::logic_error& e) {
    return std::string("the program is none: ") + e.what();
  }
  try {
    ts::Module module = c.module;
    ts::simplify(module);
    const Program program(std::move(module), static_cast<int>(c.values.size()));
    ts::verify(program.view());
    ts::ProgramUnits owned(program.graphs.data(), static_cast<int>(program.graphs.size()));
    const ts::Growable<ts::UnitsView>& units = owned.views;
    if (mistake == Mistake::operand_order && !swap_operands(owned.kernels)) return {};
    const std::vector<ts::FusedKernel> kernels =
        interpreted_kernels(owned.kernels.data(), static_cast<int>(owned.kernels.size()));
    const ts::runtime::StepCode& code = ts::runtime::step_code<ts::runtime::StepNeeds::everything()>();
    const ts::ProgramView view = program.view();
    const ts::CompiledProgram compiled{view, units.data(), owned.kernels.data(), kernels.data(), &code};
    ts::Growable<ts::Leaf> leaves;
    for (std::size_t i = 0; i < c.values.size(); ++i) leaves.push_back(stored_argument(c, i));
    ts::Mesh mesh = c.mesh;
    const ts::Growable<ts::ArgumentInfo> infos = ts::detail::describe(compiled, leaves, mesh);
    ts::Plan plan = ts::make_plan(view, units.data(), c.mesh, infos.data(), static_cast<int>(infos.size()));
    if (plan_text != nullptr) *plan_text = ts::explain(plan, view, units.data());
    ts::verify_plan(plan, view, units.data());
    note(seen, compiled, plan);
    if (mistake == Mistake::lifetime && !free_too_early(plan.graphs[0])) return {};
    if (mistake == Mistake::halo_row && !move_halo(plan.graphs[0], view.main(), units[0])) return {};
    ts::runtime::Executable executable(compiled, std::move(plan));
    ts::Growable<ts::Leaf> copies;
    if (c.held) copies = leaves;
    std::vector<Array> got;
    {
      ts::CommunicationScope scope;
      for (const ts::Leaf& leaf : executable.run(leaves)) got.push_back(load(leaf));
      for (int k = 0; k <= static_cast<int>(ts::Collective::slice); ++k)
        if (const auto kind = static_cast<ts::Collective>(k); scope.count(kind) != executable.plan().count(kind))
          return ts::concat_text("as many ", name_of(kind), " as planned: ", scope.count(kind), " ran");
      if (scope.wire_bytes() != executable.plan().wire_bytes()) return "other bytes were sent than planned";
    }
    if (c.held) {
      for (std::size_t i = 0; i < leaves.size(); ++i)
        if (!difference(load(copies[i]), c.values[i], 0).empty())
          return ts::concat_text("argument ", i, " was written to");
      std::size_t k = 0;
      for (const ts::Leaf& leaf : executable.run(leaves))
        if (const std::string found = difference(load(leaf), got[k++], 0); !found.empty())
          return ts::concat_text("result ", k - 1, " of a second run: ", found);
    }
    std::vector<std::vector<Array>> moved;
    for (std::size_t k = 0; k < want.size(); ++k) {
      const DType type = original.main()[original.main().outputs[k]].dtype;
      const double tolerance = !ts::is_floating(type) ? 0 : c.rounds ? 2e-2 : type == DType::f64 ? 1e-11 : 2e-5;
      std::string found = difference(got[k], want[k], tolerance);
      if (found.empty()) continue;
      // Where rounding alone moves the result as far, the program says nothing.
      double bound = 0;
      for (unsigned n = 0; n < 6; ++n) {
        if (moved.size() <= n) moved.push_back(run(original.view(), c.values, draw_philox, Rounding(n)));
        for (std::size_t i = 0; i < want[k].data.size(); ++i)
          bound = std::max(bound, std::fabs(moved[n][k].data[i] - want[k].data[i]));
      }
      if (bound > 0 && difference(got[k], want[k], 20 * bound / largest(want[k], 0.1)).empty()) {
        ++seen.ill_conditioned;
        continue;
      }
      return ts::concat_text("result ", k, ": ", found);
    }
  } catch (const ts::error& e) {
    if (e.id() == ts::errc::unsupported || e.id() == ts::errc::capacity) {
      ++seen.refused;
      return {};
    }
    return e.what();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

int environment(const char* name, int usual) {
  const char* const given = std::getenv(name);
  return given == nullptr ? usual : std::atoi(given);
}

template <class Names> std::string missing(const std::map<std::string, int>& seen, const Names& all) {
  std::string text;
  for (const auto& name : all)
    if (!seen.contains(std::string(name))) text += std::string(name) + " ";
  return text;
}
template <class... Operation> std::set<std::string> names_of(ts::ops::OperationList<Operation...>) {
  return {std::string(ts::ops::row_v<Operation>.name)...};
}
std::string text_of(const std::map<std::string, int>& seen) {
  std::string text;
  for (const auto& [name, count] : seen) text += ts::concat_text(" ", name, " ", count);
  return text;
}

void expect_runs(unsigned seed, const Case& c, Seen& seen) {
  ++seen.programs;
  const std::string found = defect_of(c, seen);
  if (found.empty()) return;
  Seen ignored;
  const Case small = Shrinker(c, [&](const Case& each) { return defect_of(each, ignored); }).shrunk();
  std::string plan;
  const std::string left = defect_of(small, seen, &plan);
  ADD_FAILURE() << "case " << seed << ": " << found << "\nmade smaller: " << left << "\n"
                << text_of_case(small) << plan;
}

// A third of the programs are gradients.
TEST(RandomPrograms, GiveWhatTheGraphSays) {
  Seen seen;
  if (const int one = environment("TESSERA_CASE", -1); one >= 0) {
    const Case c = random_case(static_cast<unsigned>(one), one % 3 == 0, false);
    std::string plan;
    const std::string found = defect_of(c, seen, &plan);
    std::cout << text_of_case(c) << plan << found << "\n";
    expect_runs(static_cast<unsigned>(one), c, seen);
    return;
  }
  const int first = environment("TESSERA_FIRST_CASE", 0), count = environment("TESSERA_CASES", 3000);
  for (int i = first; i < first + count && !HasFailure(); ++i)
    expect_runs(static_cast<unsigned>(i), random_case(static_cast<unsigned>(i), i % 3 == 0, false), seen);
  std::cout << seen.programs << " programs: " << seen.refused << " refused, " << seen.ill_conditioned
            << " results that rounding decides, " << seen.donated << " results that may be written over arguments\n"
            << "units:" << text_of(seen.units) << "\noperations:" << text_of(seen.operations)
            << "\nsteps:" << text_of(seen.steps) << "\nfusions:" << text_of(seen.fusions)
            << "\ncollectives:" << text_of(seen.collectives) << "\nroles:" << text_of(seen.roles) << "\n";
  if (HasFailure() || count < 1000) return;
  EXPECT_LT(seen.refused, seen.programs / 20);
  EXPECT_LT(seen.ill_conditioned, seen.programs / 20);
  EXPECT_GT(seen.donated, 0);
  std::set<std::string> operations = names_of(ts::ops::Operations{});
  operations.erase("axis_size");  // depends on the mesh: no program of one device says what it is
  // What only tells a gradient something is removed when a program is simplified, collectives over examples when vmap
  // makes the nodes of all examples; keys are numbers of the host; what is
  // next to a number differs between f32 and the oracle's double. gcd, igamma, igammac and zeta are in
  // draws_and_bits_test.cpp, what their gradients and gamma draws are made of in gamma_gradients_test.cpp.
  for (const char* removed : {"variable", "stop_gradient", "name", "custom_gradient", "custom_result", "sum_examples",
                              "gather_examples", "own_example", "fold_in", "nextafter", "gcd", "igamma", "igammac",
                              "zeta", "random_gamma_grad", "reparametrized_gamma"})
    operations.erase(removed);
  EXPECT_EQ(missing(seen.operations, operations), "");
  std::set<std::string> units, fusions, roles, collectives;
  for (int k = 0; k < ts::unit_kinds; ++k) units.insert(unit_name(static_cast<ts::UnitKind>(k)));
  for (int k = 0; k <= static_cast<int>(ts::Fusion::sum); ++k) fusions.insert(fusion_name(static_cast<ts::Fusion>(k)));
  // No program gives a host scalar to a repeat yet: the last role is left out.
  for (int k = 0; k < static_cast<int>(ts::ValueRole::host); ++k)
    roles.insert(role_name(static_cast<ts::ValueRole>(k)));
  roles.erase("assembled");  // rows of these programs are too short for that
  for (int k = 0; k <= static_cast<int>(ts::Collective::slice); ++k)
    collectives.insert(std::string(name_of(static_cast<ts::Collective>(k))));
  EXPECT_EQ(missing(seen.units, units), "");
  EXPECT_EQ(missing(seen.fusions, fusions), "");
  EXPECT_EQ(missing(seen.roles, roles), "");
  EXPECT_EQ(missing(seen.collectives, collectives), "");
  EXPECT_EQ(missing(seen.steps, std::set<std::string>{"compute", "reshard", "repeat"}), "");
}

TEST(RandomPrograms, OfStencils) {
  Seen seen;
  const int one = environment("TESSERA_CASE", -1), first = one >= 0 ? one : environment("TESSERA_FIRST_CASE", 0),
            count = one >= 0 ? 1 : environment("TESSERA_CASES", 3000) / 10;
  for (int i = first; i < first + count && !HasFailure(); ++i)
    expect_runs(static_cast<unsigned>(i), random_case<RandomStencil>(static_cast<unsigned>(i), i % 4 == 0, false),
                seen);
  std::cout << seen.programs << " programs: " << seen.refused << " refused, " << seen.ill_conditioned
            << " results that rounding decides, " << seen.donated << " results that may be written over arguments\n"
            << "roles:" << text_of(seen.roles) << "\ncollectives:" << text_of(seen.collectives) << "\n";
  if (HasFailure() || count < 100) return;
  EXPECT_GT(seen.roles["assembled"], count / 4);
  EXPECT_LT(seen.refused, seen.programs / 20);
}

// A mistake in what a program is made of is found: each in the first programs that have it.
TEST(RandomPrograms, FindMistakes) {
  const std::pair<const char*, Mistake> mistakes[] = {
      {"a lifetime", Mistake::lifetime}, {"a halo row", Mistake::halo_row}, {"operands", Mistake::operand_order}};
  for (const auto& [name, mistake] : mistakes) {
    Seen seen;
    unsigned seed = 0;
    while (seed < 1000 && defect_of(random_case(seed, seed % 3 == 0, false), seen, nullptr, mistake).empty()) ++seed;
    EXPECT_LT(seed, 1000u) << name;
    std::cout << name << ": found by program " << seed + 1 << "\n";
  }
}

// The gradient in a random direction against central differences of the dense evaluation, and the run against both.
TEST(RandomPrograms, GradientsAreThoseOfDifferences) {
  Seen seen;
  const int first = environment("TESSERA_FIRST_CASE", 0), count = environment("TESSERA_CASES", 3000) / 8;
  for (int i = first; i < first + count && !HasFailure(); ++i) {
    const auto seed = static_cast<unsigned>(i) + 1000000u;
    const Case c = random_case(seed, true, true);
    expect_runs(seed, c, seen);
    const Program program(c.module, static_cast<int>(c.values.size()));
    const std::vector<Array> result = run(program.view(), c.values, draw_philox);
    std::vector<Array> up = c.values, down = c.values;
    double slope = 0, scale = 1e-3;
    std::size_t k = 1;
    for (std::size_t a = 0; a + 1 < c.values.size(); ++a) {  // the last argument has the weights
      const Node& node = argument_of(c, a);
      if (!node.is_argument() || !ts::is_floating(node.dtype)) continue;
      const Array direction = random_array(c.values[a].shape, seed + static_cast<unsigned>(a));
      for (std::size_t e = 0; e < direction.data.size(); ++e) {
        const double step = 1e-5 * direction.data[e];
        up[a].data[e] += step;
        down[a].data[e] -= step;
        // A gradient that is zero everywhere may be a number.
        const Array& own = result.at(k);
        const double term = own.data[own.data.size() == 1 ? 0 : e] * direction.data[e];
        slope += term;
        scale += std::fabs(term);
      }
      ++k;
    }
    const double above = run(program.view(), up, draw_philox)[0].data[0];
    const double below = run(program.view(), down, draw_philox)[0].data[0];
    EXPECT_NEAR((above - below) / 2e-5, slope, 1e-5 * scale + 1e-8 * std::fabs(above)) << "case " << seed << "\n"
                                                                                       << text_of_case(c);
  }
  std::cout << seen.programs << " programs\n";
}

}  // namespace
