#ifndef TESSERA_TESTS_PARTITION_PLANNED_HPP
#define TESSERA_TESTS_PARTITION_PLANNED_HPP

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/graph/fuse/program_units.hpp>
#include <tessera/graph/trace/trace.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/partition/plan/make_plan.hpp>
#include <tessera/partition/plan/verify_plan.hpp>

namespace tessera::tests {

using Matrix = ShardedTensor<float, 2>;

/// A traced program and the inputs of its plan.
struct Planned {
  ProgramView program;
  ProgramUnits units;
  Plan plan;

  Planned(const ProgramView& traced, const Mesh& mesh, const std::vector<ArgumentInfo>& arguments,
          const PlanOptions& options = {})
      : program(traced), units(traced.graphs, traced.graph_count) {
    plan = make_plan(program, units.views.data(), mesh, arguments.data(), static_cast<int>(arguments.size()), options);
    verify_plan(plan, program, units.views.data());
  }
  std::string text() const { return explain(plan, program, units.views.data()); }

  /// The collectives in the order in which they run, those of a body once: "all_reduce model 4096".
  std::string collectives(int g = 0) const {
    std::string out;
    for (const PlanStep& step : plan.graphs[static_cast<std::size_t>(g)].steps) {
      for (const CollectiveInfo& c : step.collectives) {
        if (c.kind == Collective::slice) continue;
        std::string axes;
        for (int axis = 0; axis < plan.mesh.rank(); ++axis)
          if (c.axes >> axis & 1u) axes += (axes.empty() ? "" : ",") + std::string(plan.mesh.axis_name(axis).view());
        out += concat_text(name_of(c.kind), " ", axes, " ", c.payload_bytes, "\n");
      }
      if (step.kind == StepKind::repeat)
        out += concat_text("repeat ", step.layers, "\n", collectives(step.body), "end\n");
    }
    return out;
  }
};

inline ArgumentInfo tensor(const Mesh& mesh, const Shape& shape, const PartitionSpec& spec = {}) {
  return {shape, resolve(spec, mesh, static_cast<int>(shape.size())), 0};
}
inline ArgumentInfo number(double value) { return {{}, {}, value}; }

}  // namespace tessera::tests

#endif
