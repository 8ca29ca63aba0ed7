#ifndef TESSERA_PARTITION_PLAN_SCHEDULE_HPP
#define TESSERA_PARTITION_PLAN_SCHEDULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/mesh/processes.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/value_bytes.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Decides how the steps of one graph run, and writes that into the plan: which step is fused with the next one
/// (PlanStep::fusion), which values are not stored (ValueRole::fused), and which argument each result may be written
/// over (GraphPlan::donated). Only shapes and shardings decide, so plans are the same on every processor.
///
/// Fusions that leave a value unstored are chosen before the arena has offsets. An epilogue only changes when a result
/// is written, so it is chosen afterwards: where the arena gives the result the memory of an operand that is still
/// read, the two steps run separately.
class Scheduler {
 public:
  constexpr Scheduler(const GraphView& graph, const UnitsView& units, const Mesh& mesh, GraphPlan& plan, bool main)
      : graph_(graph), units_(units), mesh_(mesh), plan_(plan), main_(main) {
    const std::size_t count = plan.values.size();
    reads_.assign(count);
    last_reader_.assign(count, -1);
    viewed_.assign(count);
    for (std::size_t v = 0; v < count; ++v)
      plan.each_source(static_cast<int>(v), [&](int source) { viewed_[size(source)] = 1; });
    for (std::size_t s = 0; s < plan.steps.size(); ++s)
      for (const std::int32_t v : plan.steps[s].inputs) {
        if (v < 0) continue;
        ++reads_[size(v)];
        last_reader_[size(v)] = static_cast<std::int32_t>(s);
      }
  }

  /// Finds the argument that each result may be written over. The step that makes the result must be the last reader of
  /// the argument, and read from it only the element that it writes.
  constexpr void donate() {
    plan_.donated.assign(plan_.outputs.size(), -1);
    if (!main_) return;
    struct Maker {
      std::int32_t step = -1, output = 0;
    };
    Growable<Maker> makers(plan_.values.size(), Maker{});
    for (std::size_t s = 0; s < plan_.steps.size(); ++s)
      for (std::size_t o = 0; o < plan_.steps[s].outputs.size(); ++o)
        if (const std::int32_t v = plan_.steps[s].outputs[o]; v >= 0)
          makers[size(v)] = {static_cast<std::int32_t>(s), static_cast<std::int32_t>(o)};
    Growable<std::uint8_t> taken(plan_.values.size());
    for (const std::int32_t v : plan_.outputs)
      if (v >= 0 && value(v).role == ValueRole::argument) taken[size(v)] = 1;
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k) {
      const int v = plan_.outputs[k];
      if (v >= 0 && value(v).role == ValueRole::output && makers[size(v)].step >= 0)
        plan_.donated[k] = donor(makers[size(v)].step, makers[size(v)].output, taken);
    }
  }

  /// Fuses pairs of steps so that the value passed between them is not stored.
  constexpr void fuse_unstored() {
    for (std::size_t s = 0; s + 1 < plan_.steps.size(); ++s) {
      PlanStep &step = plan_.steps[s], &next = plan_.steps[s + 1];
      if (step.kind != StepKind::compute || step.outputs.size() != 1) continue;
      const UnitKind kind = units_[step.unit].kind;
      if (kind != UnitKind::contraction && kind != UnitKind::indexed) continue;
      const int made = step.outputs[0];
      if (value(made).role != ValueRole::intermediate || value(made).stacked || !read_by_next_alone(made, s)) continue;
      if (next.kind == StepKind::reshard) {
        if (sums_in_place(step, next)) step.fusion = Fusion::sum;
      } else if (kind == UnitKind::contraction && follows_on_boxes(step, next)) {
        if (rounds(step, next))
          step.fusion = Fusion::rounding;
        else if (makes_result_of(step, next))
          step.fusion = Fusion::into_result;
      }
      if (step.fusion == Fusion::apart) continue;
      PlanValue& passed = value(made);
      passed.role = ValueRole::fused;
      step.bytes -= moved_bytes(passed, mesh_);
      next.bytes -= moved_bytes(passed, mesh_) * count_of(next.inputs, made);
      if (step.fusion == Fusion::into_result) passed.spare = keep_donation(step, next);
      ++s;
    }
  }

  /// Fuses products with the step that reads their result box by box, once values have offsets in the arena.
  constexpr void fuse_epilogues() {
    for (std::size_t s = 0; s + 1 < plan_.steps.size(); ++s) {
      PlanStep &step = plan_.steps[s], &next = plan_.steps[s + 1];
      if (step.fusion != Fusion::apart || step.kind != StepKind::compute) continue;
      if (units_[step.unit].kind != UnitKind::contraction || !follows_on_boxes(step, next)) continue;
      bool apart = true;
      for (const std::int32_t out : next.outputs) {
        // the result may be written over a donated argument
        apart = apart && !(main_ && value(out).role == ValueRole::output);
        for (const std::int32_t in : step.inputs) apart = apart && !share_memory(plan_, out, in);
      }
      if (!apart) continue;
      step.fusion = Fusion::epilogue;
      for (const std::int32_t out : next.outputs) value(out).first_step = static_cast<int>(s);
      ++s;
    }
  }

 private:
  GraphView graph_;
  UnitsView units_;
  const Mesh& mesh_;
  GraphPlan& plan_;
  bool main_;
  // By value: how many inputs of steps it is, the last step that reads it, and whether another value has its elements.
  Growable<std::int32_t> reads_, last_reader_;
  Growable<std::uint8_t> viewed_;

  static constexpr std::size_t size(std::int64_t i) { return static_cast<std::size_t>(i); }
  constexpr PlanValue& value(int v) const { return plan_.values[size(v)]; }

  static constexpr std::int32_t count_of(const Growable<std::int32_t>& list, int v) {
    std::int32_t n = 0;
    for (const std::int32_t in : list) n += in == v ? 1 : 0;
    return n;
  }
  constexpr bool read_by_next_alone(int v, std::size_t s) const {
    return !viewed_[size(v)] && reads_[size(v)] > 0 && count_of(plan_.steps[s + 1].inputs, v) == reads_[size(v)];
  }

  // ---- donated arguments

  constexpr std::int32_t donor(int s, int output, Growable<std::uint8_t>& taken) const {
    const PlanStep& step = plan_.steps[size(s)];
    if (step.kind != StepKind::compute) return -1;
    const Unit& unit = units_[step.unit];
    const UnitOperand& made = units_.output(step.unit, output);
    if (unit.kind != UnitKind::fused || unit.phases > 1 || made.accumulates) return -1;
    const PlanValue& to = value(step.outputs[size(output)]);
    for (int i = 0; i < unit.input_count; ++i) {
      const int v = step.inputs[size(i)];
      const PlanValue& from = value(v);
      if (from.role != ValueRole::argument || taken[size(v)] || viewed_[size(v)] || last_reader_[size(v)] != s ||
          count_of(step.inputs, v) != 1 || !stored_alike(from, to))
        continue;
      bool aligned = true;
      for (int d = 0; d < unit.rank; ++d) aligned = aligned && units_.input(step.unit, i).dim_at[d] == made.dim_at[d];
      if (!aligned) continue;
      taken[size(v)] = 1;
      return graph_[from.node].index();
    }
    return -1;
  }
  /// For a product that is summed in the memory of a result: whether the result may still be written over a donated
  /// argument. An argument that the product itself reads may not be overwritten.
  constexpr bool keep_donation(const PlanStep& step, const PlanStep& next) {
    bool kept = false;
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k) {
      std::int32_t& argument = plan_.donated[k];
      if (plan_.outputs[k] != next.outputs[0] || argument < 0) continue;
      if (count_of(step.inputs, plan_.arguments[size(argument)]) > 0)
        argument = -1;
      else
        kept = true;
    }
    return kept;
  }

  // ---- fusions

  /// Whether a reshard only sums the parts of a partial value, without changing how its dims are split.
  constexpr bool sums_in_place(const PlanStep& step, const PlanStep& next) const {
    const PlanValue &parts = value(step.outputs[0]), &sum = value(next.outputs[0]);
    if (plans_for_processes(mesh_)) return false;  // no memory of a sum is common to all devices
    if (parts.sharding.unreduced == 0 || parts.sharding.reduction != Reduction::sum || sum.sharding.unreduced != 0)
      return false;
    if ((parts.dtype != DType::f32 && parts.dtype != DType::f64) || sum.stacked) return false;
    for (const UsedParts& used : parts.parts.entries)
      if (used.used < 1) return false;
    for (int d = 0; d < parts.sharding.rank; ++d)
      if (!(parts.sharding.dims[d] == sum.sharding.dims[d])) return false;
    const Unit& unit = units_[step.unit];
    if (unit.kind == UnitKind::contraction) return unit.addend < 0;
    // A scatter adds rows in the order of their indices, so there can only be one table: it is replicated.
    return row_of(graph_[unit.root]).scatters && sum.sharding.is_replicated();
  }

  /// Whether the next step can run on each box of a product: it is elementwise on the product, split along the same
  /// axes, and each of its results has the product's shape.
  constexpr bool follows_on_boxes(const PlanStep& step, const PlanStep& next) const {
    if (next.kind != StepKind::compute || units_[next.unit].kind != UnitKind::fused) return false;
    const Unit& unit = units_[next.unit];
    const int made = step.outputs[0];
    const PlanValue& product = value(made);
    if (unit.rank == 0 || unit.phases > 1 || product.stacked || product.shape.size() != unit.rank) return false;
    bool reads = false;
    for (int i = 0; i < unit.input_count; ++i) {
      const int v = next.inputs[size(i)];
      if (v >= 0 && (value(v).stacked || value(v).role == ValueRole::assembled)) return false;
      if (v != made) continue;
      reads = true;
      for (int d = 0; d < unit.rank; ++d)
        if (units_.input(next.unit, i).dim_at[d] != d) return false;
    }
    if (!reads) return false;
    const unsigned axes = work_axes(plan_, next);
    const auto stored_everywhere = [&](const PlanValue& v) { return (axes & ~unsigned{v.sharding.used_axes()}) == 0; };
    if (work_axes(plan_, step) != axes || !stored_everywhere(product)) return false;
    const Node& space = graph_[unit.space];
    for (int o = 0; o < unit.output_count; ++o) {
      const PlanValue& result = value(next.outputs[size(o)]);
      const Node& node = graph_[units_.output(next.unit, o).node];
      if (units_.output(next.unit, o).accumulates || node.rank != space.rank || node.singletons != space.singletons)
        return false;
      if (result.stacked || !stored_everywhere(result) || !(result.parts == product.parts)) return false;
    }
    for (int d = 0; d < unit.rank; ++d)
      if (!(next.factors[size(d)] == product.sharding.dims[d])) return false;
    return true;
  }

  /// Whether the next step only rounds a product of bf16 or f16 to the type of its operands, after adding a row where
  /// it reads two values.
  constexpr bool rounds(const PlanStep& step, const PlanStep& next) const {
    const Unit &product = units_[step.unit], &unit = units_[next.unit];
    const Node& root = graph_[unit.root];
    if (graph_.operand_node(product.space, 0).dtype != root.dtype || product.addend >= 0) return false;
    if (!row_of(root).converts || !is_half(root.dtype) || unit.output_count != 1) return false;
    if (unit.member_count == 1) return true;
    if (unit.member_count != 2 || unit.input_count != 2 || unit.uniform_count != 0 ||
        !row_of(graph_[units_.members[unit.first_member]]).adds || value(step.outputs[0]).sharding.unreduced != 0)
      return false;
    const UnitOperand& row = units_.input(next.unit, next.inputs[0] == step.outputs[0] ? 1 : 0);
    return graph_[row.node].rank == 1 && graph_[row.node].dtype == DType::f32 && row.dim_at[unit.rank - 1] == 0;
  }

  /// Whether the next step only makes one result of the program, in whose memory a product can be summed.
  constexpr bool makes_result_of(const PlanStep& step, const PlanStep& next) const {
    if (!main_ || next.outputs.size() != 1) return false;
    const int result = next.outputs[0];
    return value(result).role == ValueRole::output && value(result).dtype == value(step.outputs[0]).dtype &&
           !viewed_[size(result)] && reads_[size(result)] == 0;
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
