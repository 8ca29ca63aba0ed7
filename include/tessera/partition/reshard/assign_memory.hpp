#ifndef TESSERA_PARTITION_RESHARD_ASSIGN_MEMORY_HPP
#define TESSERA_PARTITION_RESHARD_ASSIGN_MEMORY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/plan/lifetimes.hpp>
#include <tessera/partition/plan/plan.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Marks a value, and the values that have its elements, as needed at a step.
constexpr void need_value(GraphPlan& plan, int v, int step) {
  if (v < 0) return;
  PlanValue& value = plan.values[static_cast<std::size_t>(v)];
  if (value.first_step < 0) value.first_step = step;
  if (value.last_step < step) value.last_step = step;
  plan.each_source(v, [&](int source) { need_value(plan, source, step); });
}

}  // namespace detail

/// Computes the lifetime of each value of a graph, and the offsets of intermediates and buffers of loops in its arena.
/// `plans`: by graph; the plans of the bodies must be complete.
constexpr void assign_memory(GraphPlan& plan, const Growable<GraphPlan>& plans) {
  const int count = static_cast<int>(plan.steps.size());
  for (int s = 0; s < count; ++s) {
    const PlanStep& step = plan.steps[static_cast<std::size_t>(s)];
    for (std::int32_t v : step.inputs) detail::need_value(plan, v, s);
    for (std::int32_t v : step.outputs) detail::need_value(plan, v, s);
    // A step fused with the next one reads its operands while the next one's results are written: both need all values.
    if (step.fusion == Fusion::apart) continue;
    for (std::int32_t v : plan.steps[static_cast<std::size_t>(s) + 1].outputs) detail::need_value(plan, v, s);
    for (std::int32_t v : plan.steps[static_cast<std::size_t>(s) + 1].inputs) detail::need_value(plan, v, s);
  }
  for (std::int32_t v : plan.outputs) detail::need_value(plan, v, count > 0 ? count - 1 : 0);

  Growable<Lifetime> blocks;
  Growable<std::int64_t*> offsets;
  for (PlanValue& value : plan.values) {
    if (!value.in_arena() || value.first_step < 0) continue;
    blocks.push_back({value.stored_bytes, value.first_step, value.last_step, 0});
    offsets.push_back(&value.offset);
  }
  for (int s = 0; s < count; ++s)
    for (LoopBuffer& buffer : plan.steps[static_cast<std::size_t>(s)].buffers) {
      blocks.push_back({buffer.stored_bytes, s, s, 0});
      offsets.push_back(&buffer.offset);
    }
  plan.arena_bytes = assign_offsets(blocks);
  for (std::size_t b = 0; b < blocks.size(); ++b) *offsets[b] = blocks[b].offset;

  // The scratch memory of a body comes after all blocks that are needed while any body runs.
  std::int64_t largest = 0;
  for (int s = 0; s < count; ++s) {
    const PlanStep& step = plan.steps[static_cast<std::size_t>(s)];
    if (step.kind != StepKind::repeat) continue;
    const std::int64_t bytes = plans[static_cast<std::size_t>(step.body)].arena_bytes;
    largest = bytes > largest ? bytes : largest;
    for (const Lifetime& block : blocks) {
      const std::int64_t end = block.offset + detail::arena_bytes(block.bytes);
      if (block.first <= s && s <= block.last && end > plan.body_offset) plan.body_offset = end;
    }
  }
  const std::int64_t end = checked_sum(plan.body_offset, largest, "bytes of intermediates");
  if (end > plan.arena_bytes) plan.arena_bytes = end;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
