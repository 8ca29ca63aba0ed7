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

/// Whether every device has as much of a value as every other.
inline bool is_even(const PlanValue& value, const Mesh& mesh) {
  for (int d = 0; d < value.sharding.rank; ++d)
    if (value.shape[static_cast<std::size_t>(d)] % shard_count(value.sharding, mesh, d) != 0) return false;
  return value.parts.entries.empty();
}

/// Whether the pieces of each dim are parts of those that fewer of its axes make. Of 12 rows an axis of size 4 makes
/// pieces of 3, and two of them pieces of 1: device (1, 3) holds rows 3 to 5, or row 7. To exchange rows along the
/// second axis then crosses the first as well, which plans do not count.
inline bool is_nested(const PlanValue& value, const Mesh& mesh) {
  for (int d = 0; d < value.sharding.rank; ++d)
    if (value.sharding.dims[d].size() > 1 &&
        value.shape[static_cast<std::size_t>(d)] % shard_count(value.sharding, mesh, d) != 0)
      return false;
  return true;
}

/// Whether each device sends exactly what a ring does: one collective, between even shards.
inline bool is_ring(const runtime::FrameLayout& layout, const PlanStep& step) {
  if (step.kind != StepKind::reshard || step.collectives.size() != 1) return false;
  const Collective kind = step.collectives[0].kind;
  return kind != Collective::permute && is_even(layout.value(step.inputs[0]), layout.mesh()) &&
         is_even(layout.value(step.outputs[0]), layout.mesh());
}

}  // namespace detail

/// Holds each step of a prepared program to its plan: the bytes that its moves take from device to device, which are
/// found from the shards alone, are at most what its collectives send on a ring where pieces are nested, and as many
/// where shards are even and the collective is one.
/// Errors: `graph_invalid`, which is always a defect of the library, or of a plan that somebody changed.
inline void verify_moves(const runtime::Executable& executable) {
  executable.for_each_step([](const runtime::FrameLayout& layout, const runtime::RanSteps& ran, std::int64_t moved) {
    const std::int64_t devices = layout.mesh().size();
    std::int64_t planned = 0;
    bool exact = false, nested = true;
    for (int s = ran.first; s < ran.first + ran.count; ++s) {
      const PlanStep& step = layout.plan().steps[static_cast<std::size_t>(s)];
      for (const CollectiveInfo& collective : step.collectives)
        planned += checked_product(collective.wire_bytes, devices, "bytes on the wire", collective.source);
      exact = exact || detail::is_ring(layout, step);
      for (const auto* values : {&step.inputs, &step.outputs})
        for (const std::int32_t v : *values)
          nested = nested && (v < 0 || detail::is_nested(layout.value(v), layout.mesh()));
    }
    // What a device sends is rounded up.
    if ((moved <= planned || !nested) && (!exact || planned - moved < devices)) return;
    const PlanStep& step = layout.plan().steps[static_cast<std::size_t>(ran.first)];
    fail(errc::graph_invalid, "[verify_moves] bytes between devices: step ", ran.first, " moves ", moved,
         ", its collectives ", planned, " on ", devices, " devices", step.source);
  });
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
