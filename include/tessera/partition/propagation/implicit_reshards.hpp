#ifndef TESSERA_PARTITION_PROPAGATION_IMPLICIT_RESHARDS_HPP
#define TESSERA_PARTITION_PROPAGATION_IMPLICIT_RESHARDS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <string>

#include <tessera/base/error.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/graph.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/ops/rows.hpp>
#include <tessera/partition/plan/plan.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

[[noreturn]] inline void fail_implicit(const GraphView& graph, int node, const Shape& shape,
                                       const CollectiveInfo& collective, const Sharding& from, const Sharding& to,
                                       const Mesh& mesh) {
  const Node& made = graph[node];
  fail(errc::policy, "[plan] implicit reshard: ", name_of(collective.kind), " of ", collective.payload_bytes,
       " bytes reshards ", shape_text(made.dtype, shape), ", ",
       made.is_argument() ? concat_text("argument ", made.index()) : concat_text("the result of ", row_of(made).name),
       made.source, ", from ", text(from, mesh), " to ", text(to, mesh),
       collective.source.line == 0 ? "" : " for its use", collective.source);
}

}  // namespace detail

/// Throws for the first reshard of a plan that no constraint requires. Errors: `policy`, which names the value, its
/// sharding, the sharding that the reader needs, and the lines of both.
inline void forbid_implicit_reshards(const Plan& plan, const ProgramView& program) {
  for (std::size_t g = 0; g < plan.graphs.size(); ++g)
    for (const PlanStep& step : plan.graphs[g].steps)
      for (const CollectiveInfo& collective : step.collectives) {
        if (collective.requested || step.kind != StepKind::reshard) continue;
        const PlanValue& from = plan.graphs[g].values[static_cast<std::size_t>(step.inputs[0])];
        const PlanValue& to = plan.graphs[g].values[static_cast<std::size_t>(step.outputs[0])];
        detail::fail_implicit(program.graphs[g], from.node, from.shape, collective, from.sharding, to.sharding,
                              plan.mesh);
      }
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
