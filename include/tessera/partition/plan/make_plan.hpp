#ifndef TESSERA_PARTITION_PLAN_MAKE_PLAN_HPP
#define TESSERA_PARTITION_PLAN_MAKE_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/partition/plan/cut_search.hpp>
#include <tessera/partition/plan/graph_planner.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/planned_mesh.hpp>
#include <tessera/partition/propagation/explicit_axes.hpp>
#include <tessera/partition/propagation/loop_sums.hpp>
#include <tessera/partition/propagation/shapes.hpp>
#include <tessera/partition/propagation/solve.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// What a plan knows of one argument: a tensor's shape and sharding, or the value of a Dim or a Scalar.
struct ArgumentInfo {
  Shape shape{};
  Sharding sharding{};
  HostNumber number{};
};

namespace detail {
/// The cuts of axes that all given shardings and constraints need together.
constexpr AxisCuts written_cuts(const ProgramView& program, const Mesh& mesh, const Growable<Sharding>& shardings) {
  AxisCuts cuts;
  const auto add = [&](const AxisCuts& more) {
    if (!more.empty() && !cuts.add(more))
      fail(errc::capacity, "[plan] sub-axes: the shardings of a program can cut the axes of ", mesh.text(),
           " at no more than ", AxisCuts::capacity, " places");
  };
  for (const Sharding& sharding : shardings) add(sharding.cuts);
  for (int s = 0; s < program.spec_count; ++s)
    for (const SpecEntry& entry : program.specs[s].entries)
      for (const Name& name : entry.axes) {
        if (sub_axis_at(name.view()) == name.view().size() || mesh.has_axis(name.view())) continue;
        const SubAxis part = sub_axis_named(mesh, name.view());
        SubAxisList list;
        if (part.size > 1) list.push_back(part);
        AxisCuts own;
        add_cuts(list, mesh, own);
        add(own);
      }
  return cuts;
}
}  // namespace detail

/// Plans a program on a mesh: shapes, shardings, collectives, the order of steps, memory. `units` has the units of each
/// graph. `arguments` has, by argument, the sharding of a tensor or the value of a Dim or Scalar.
///
/// Errors: those of the operations' shape rules; `structure` for stacks with different numbers of layers; `unsupported`
/// for a Stack whose layers are split among devices; `policy` for what the options forbid.
/// Source: factor propagation after Shardy; lazy reduction of partial values.
constexpr Plan make_plan(const ProgramView& program, const UnitsView* units, const Mesh& mesh,
                         const ArgumentInfo* arguments, int argument_count, const PlanOptions& options = {}) {
  if (argument_count < program.argument_count)
    fail(errc::graph_invalid, "[plan] arguments: ", argument_count, " given, but the program has ",
         program.argument_count);
  Growable<Shape> shapes;
  Growable<Sharding> given;  // of arguments, then of results
  Growable<HostNumber> numbers;
  const auto count = static_cast<std::size_t>(argument_count);
  shapes.reserve(count);
  given.reserve(count);
  numbers.reserve(count);
  for (int i = 0; i < argument_count; ++i) {
    shapes.push_back(arguments[i].shape);
    given.push_back(canonical(arguments[i].sharding, mesh));
    numbers.push_back(arguments[i].number);
  }
  const int results = options.outputs != nullptr ? program.main().output_count : 0;
  for (int k = 0; k < results; ++k) given.push_back(canonical(options.outputs[k].sharding, mesh));
  const Growable<GraphShapes> found =
      infer_shapes(program, shapes.data(), numbers.data(), options.sizes ? *options.sizes : mesh);

  for (AxisCuts cuts = detail::written_cuts(program, mesh, given);;) {
    const PlannedMesh planned(mesh, cuts);
    detail::CutSearch search(program, planned, given);
    Growable<Sharding> shardings;
    shardings.reserve(count);
    for (std::size_t i = 0; i < count; ++i) shardings.push_back(refined_sharding(given[i], mesh, cuts));
    Growable<OutputRequest> requests;
    for (int k = 0; k < results; ++k)
      requests.push_back(
          {options.outputs[k].given, refined_sharding(given[count + static_cast<std::size_t>(k)], mesh, cuts)});
    unsigned explicit_axes = 0;
    for (const Name& name : options.explicit_axes)
      if (mesh.axis_size(mesh.axis_index(name.view())) > 1) explicit_axes |= axes_mask(mesh, cuts, name.view());
    Growable<ExplicitShardings> rules;
    if (explicit_axes != 0) rules = explicit_shardings(program, planned, found, shardings, explicit_axes, search);
    ShardingSolver solver(program, units, planned, found, rules);
    const OutputRequest* const outputs = options.outputs != nullptr ? requests.data() : nullptr;
    if (!search.found()) {
      solver.solve(shardings.data(), outputs);
      search.visit(solver, found);
    }
    if (search.found()) {
      cuts = search.cuts();
      continue;
    }
    Plan plan;
    plan.mesh = planned.refined;
    plan.given_mesh = mesh;
    plan.cuts = cuts;
    plan.graphs.resize(static_cast<std::size_t>(program.graph_count));
    Growable<PartialSums> sums;
    if (program.graph_count > 1 && !options.deterministic)
      sums = detail::LoopSums(program, units, planned.refined, found, solver).take();
    GraphPlan main =
        detail::GraphPlanner(program, units, planned.refined, found, solver, sums, options, 0, outputs, plan.graphs)
            .plan();
    plan.graphs[0] = std::move(main);
    return plan;
  }
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
