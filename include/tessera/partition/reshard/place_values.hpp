#ifndef TESSERA_PARTITION_RESHARD_PLACE_VALUES_HPP
#define TESSERA_PARTITION_RESHARD_PLACE_VALUES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/partition/plan/lifetimes.hpp>
#include <tessera/partition/plan/plan.hpp>

namespace tessera {

namespace detail {

/// Marks a value, and what it is a view of, as needed at a step.
constexpr void need_value(GraphPlan& plan, int v, int step) {
  while (v >= 0) {
    PlanValue& value = plan.values[static_cast<std::size_t>(v)];
    if (value.first_step < 0) value.first_step = step;
    if (value.last_step < step) value.last_step = step;
    v = value.role == ValueRole::view ? value.view_of : -1;
  }
}

/// Whether a step may do no more than round what the one before it made.
constexpr bool may_round(const GraphPlan& plan, const PlanStep& step, const PlanStep& next) {
  return next.kind == StepKind::compute && next.outputs.size() == 1 && next.outputs[0] >= 0 && !next.inputs.empty() &&
         next.inputs.size() <= 2 && step.outputs.size() == 1 &&
         (next.inputs[0] == step.outputs[0] || next.inputs.back() == step.outputs[0]) &&
         plan.values[static_cast<std::size_t>(next.outputs[0])].dtype == DType::bf16;
}

}  // namespace detail

/// Finds when each value of a graph is needed, and the offsets of intermediates in the arena. `plans` has those of the
/// bodies.
constexpr void place_values(GraphPlan& plan, const Growable<GraphPlan>& plans) {
  const int count = static_cast<int>(plan.steps.size());
  for (int s = 0; s < count; ++s) {
    const PlanStep& step = plan.steps[static_cast<std::size_t>(s)];
    for (std::int32_t v : step.inputs) detail::need_value(plan, v, s);
    for (std::int32_t v : step.outputs) detail::need_value(plan, v, s);
  }
  for (std::int32_t v : plan.outputs) detail::need_value(plan, v, count > 0 ? count - 1 : 0);

  // Some steps also write the sum or the rounded copy of their result, while their operands are still to be read.
  Growable<int> last;
  for (const PlanValue& value : plan.values) last.push_back(value.last_step);
  for (int s = 0; s + 1 < count; ++s) {
    const PlanStep& step = plan.steps[static_cast<std::size_t>(s)];
    const PlanStep& next = plan.steps[static_cast<std::size_t>(s) + 1];
    if (!step.adds_up || (next.kind != StepKind::reshard && !detail::may_round(plan, step, next))) continue;
    for (std::int32_t v : step.inputs) {
      while (v >= 0 && plan.values[static_cast<std::size_t>(v)].role == ValueRole::view)
        v = plan.values[static_cast<std::size_t>(v)].view_of;
      if (v >= 0 && last[static_cast<std::size_t>(v)] < s + 1) last[static_cast<std::size_t>(v)] = s + 1;
    }
  }

  Growable<Lifetime> blocks;
  Growable<std::size_t> owners;
  for (std::size_t v = 0; v < plan.values.size(); ++v) {
    const PlanValue& value = plan.values[v];
    if (value.role != ValueRole::intermediate || value.first_step < 0) continue;
    blocks.push_back({value.stored_bytes, value.first_step, last[v], 0});
    owners.push_back(v);
  }
  plan.arena_bytes = assign_offsets(blocks);
  for (std::size_t b = 0; b < blocks.size(); ++b) plan.values[owners[b]].offset = blocks[b].offset;

  // Bodies have their scratch above everything that is alive while any of them runs.
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

#include <tessera/base/pop_macros.hpp>

#endif
