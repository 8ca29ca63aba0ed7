#ifndef TESSERA_RUNTIME_EXECUTOR_VERIFY_MOVES_HPP
#define TESSERA_RUNTIME_EXECUTOR_VERIFY_MOVES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>
#include <tessera/runtime/executor/executable.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Whether all shards of a value have the same size.
inline bool is_even(const PlanValue& value, const Mesh& mesh) {
  for (int d = 0; d < value.sharding.rank; ++d)
    if (value.shape[static_cast<std::size_t>(d)] % shard_count(value.sharding, mesh, d) != 0) return false;
  return value.parts.entries.empty();
}

/// Whether the bytes moved equal those of a ring algorithm: true of one collective between evenly sharded values.
inline bool is_ring(const runtime::FrameLayout& layout, const PlanStep& step) {
  if (step.kind != StepKind::reshard || step.collectives.size() != 1) return false;
  const Collective kind = step.collectives[0].kind;
  return kind != Collective::permute && is_even(layout.value(step.inputs[0]), layout.mesh()) &&
         is_even(layout.value(step.outputs[0]), layout.mesh());
}

}  // namespace detail

/// Compares the bytes that each prepared step moves between devices, computed from shard boxes alone, with its planned
/// collectives: at most their ring traffic; equal to it for one collective of even shards.
/// Errors: `graph_invalid`, which means a defect of the library, or a plan that was modified.
inline void verify_moves(const runtime::Executable& executable) {
  executable.for_each_step([](const runtime::FrameLayout& layout, const runtime::RanSteps& ran, std::int64_t moved) {
    const std::int64_t devices = layout.mesh().size();
    std::int64_t planned = 0;
    bool exact = false;
    for (int s = ran.first; s < ran.first + ran.count; ++s) {
      const PlanStep& step = layout.plan().steps[static_cast<std::size_t>(s)];
      for (const CollectiveInfo& collective : step.collectives)
        planned += checked_product(collective.wire_bytes, devices, "bytes on the wire", collective.source);
      exact = exact || detail::is_ring(layout, step);
    }
    // A collective's wire_bytes is per device and rounded up, so the sum may exceed `moved` by less than 1 B a device.
    if (moved <= planned && (!exact || planned - moved < devices)) return;
    const PlanStep& step = layout.plan().steps[static_cast<std::size_t>(ran.first)];
    fail(errc::graph_invalid, "[verify_moves] bytes between devices: step ", ran.first, " moves ", moved,
         " bytes, but its collectives list ", planned, " bytes on ", devices, " devices", step.source);
  });
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
