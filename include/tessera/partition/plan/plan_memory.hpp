#ifndef TESSERA_PARTITION_PLAN_PLAN_MEMORY_HPP
#define TESSERA_PARTITION_PLAN_PLAN_MEMORY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/plan/lifetimes.hpp>
#include <tessera/partition/plan/plan.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The memory that one device of the mesh needs while a plan runs, in bytes.
struct PlanMemory {
  std::int64_t arguments = 0;  ///< the caller's arguments, for the whole run
  std::int64_t results = 0;
  std::int64_t scratch = 0;  ///< the most bytes of intermediates at one step
  /// the most bytes of arguments, results and intermediates at one step, each block rounded up to 64
  std::int64_t peak = 0;
};

namespace detail {

constexpr std::int64_t device_scratch(const Plan& plan, int graph);

/// The blocks of one device: intermediates, buffers of loops and the scratch memory of bodies, and with `all` arguments
/// and results.
constexpr Growable<Lifetime> device_blocks(const Plan& plan, int g, bool all) {
  const GraphPlan& graph = plan.graphs[static_cast<std::size_t>(g)];
  const int last = graph.steps.empty() ? 0 : static_cast<int>(graph.steps.size()) - 1;
  Growable<Lifetime> blocks;
  for (const PlanValue& value : graph.values) {
    if (value.role == ValueRole::argument && all) blocks.push_back({value.device_bytes, 0, last, 0});
    if (value.first_step < 0) continue;
    if (value.role == ValueRole::output && all) blocks.push_back({value.device_bytes, value.first_step, last, 0});
    if (value.role == ValueRole::intermediate)
      blocks.push_back({value.device_bytes, value.first_step, value.last_step, 0});
  }
  for (int s = 0; s < static_cast<int>(graph.steps.size()); ++s) {
    const PlanStep& step = graph.steps[static_cast<std::size_t>(s)];
    for (const LoopBuffer& buffer : step.buffers) blocks.push_back({buffer.device_bytes, s, s, 0});
    if (step.kind == StepKind::repeat) blocks.push_back({device_scratch(plan, step.body), s, s, 0});
  }
  return blocks;
}
constexpr std::int64_t device_scratch(const Plan& plan, int graph) {
  return max_live_bytes(device_blocks(plan, graph, false));
}

}  // namespace detail

/// The memory that the device with the most data needs while a plan runs. No argument counts as donated.
constexpr PlanMemory memory_of(const Plan& plan) {
  PlanMemory memory;
  for (const PlanValue& value : plan.main().values) {
    if (value.role == ValueRole::argument)
      memory.arguments = checked_sum(memory.arguments, value.device_bytes, "bytes of arguments");
    if (value.role == ValueRole::output)
      memory.results = checked_sum(memory.results, value.device_bytes, "bytes of results");
  }
  memory.scratch = detail::device_scratch(plan, 0);
  memory.peak = max_live_bytes(detail::device_blocks(plan, 0, true));
  return memory;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
