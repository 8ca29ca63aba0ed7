#ifndef TESSERA_PARTITION_MAKE_PLAN_HPP
#define TESSERA_PARTITION_MAKE_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/partition/explicit_axes.hpp>
#include <tessera/partition/graph_planner.hpp>
#include <tessera/partition/plan.hpp>
#include <tessera/partition/shapes.hpp>
#include <tessera/partition/solve.hpp>

namespace tessera {

/// What a plan knows of one argument: a tensor's shape and sharding, or the number of a Dim or a Scalar.
struct ArgumentInfo {
  Shape shape{};
  Sharding sharding{};
  HostNumber number{};
};

/// Plans a program on a mesh: shapes, shardings, collectives, order, memory. `units` has the units of each graph, and
/// `arguments` says of each argument how it lies, or which number it is.
///
/// Errors: those of the rows for shapes that don't fit, `structure` for stacks of different depths, `unsupported` for a
/// Stack whose layers are split among devices, `policy` for what the options forbid.
/// Source: factor propagation after Shardy; lazy reduction of partial values.
constexpr Plan make_plan(const ProgramView& program, const UnitsView* units, const Mesh& mesh,
                         const ArgumentInfo* arguments, int argument_count, const PlanOptions& options = {}) {
  if (argument_count < program.argument_count)
    fail(errc::graph_invalid, "[plan] arguments: ", argument_count, " given, the program takes ",
         program.argument_count);
  Growable<Shape> shapes;
  Growable<Sharding> shardings;
  Growable<HostNumber> numbers;
  const auto count = static_cast<std::size_t>(argument_count);
  shapes.reserve(count);
  shardings.reserve(count);
  numbers.reserve(count);
  for (int i = 0; i < argument_count; ++i) {
    shapes.push_back(arguments[i].shape);
    shardings.push_back(canonical(arguments[i].sharding, mesh));
    numbers.push_back(arguments[i].number);
  }
  const Growable<GraphShapes> found =
      infer_shapes(program, shapes.data(), numbers.data(), options.sizes ? *options.sizes : mesh);
  unsigned explicit_axes = 0;
  for (const Name& name : options.explicit_axes)
    if (const int axis = mesh.axis_index(name.view()); mesh.axis_size(axis) > 1) explicit_axes |= 1u << axis;
  Growable<OutputRequest> requests;
  for (int k = 0; options.outputs != nullptr && k < program.main().output_count; ++k)
    requests.push_back({options.outputs[k].given, canonical(options.outputs[k].sharding, mesh)});
  const OutputRequest* const outputs = options.outputs != nullptr ? requests.data() : nullptr;
  Growable<ExplicitShardings> rules;
  if (explicit_axes != 0) rules = explicit_shardings(program, mesh, found, shardings, explicit_axes);
  ShardingSolver solver(program, units, mesh, found, rules);
  solver.solve(shardings.data(), outputs);
  Plan plan;
  plan.mesh = mesh;
  plan.graphs.resize(static_cast<std::size_t>(program.graph_count));
  GraphPlan main = detail::GraphPlanner(program, units, mesh, found, solver, options, 0, outputs, plan.graphs).plan();
  plan.graphs[0] = std::move(main);
  return plan;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
