#ifndef TESSERA_PARTITION_PLAN_VERIFY_SCHEDULE_HPP
#define TESSERA_PARTITION_PLAN_VERIFY_SCHEDULE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/partition/plan/plan.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Checks the fusions and the donated arguments of one graph's plan.
class ScheduleVerifier {
 public:
  constexpr ScheduleVerifier(const GraphPlan& plan, const UnitsView& units, int graph)
      : plan_(plan), units_(units), graph_(graph) {}

  constexpr void verify() const {
    for (std::size_t s = 0; s < plan_.steps.size(); ++s) {
      const PlanStep& step = plan_.steps[s];
      if (step.fusion != Fusion::apart)
        verify_pair(s);
      else
        for (const std::int32_t v : step.outputs)
          require(v < 0 || value(v).role != ValueRole::fused,
                  "a value that is not stored is the result of a fused step");
    }
    for (const PlanValue& v : plan_.values)
      require(!v.spare || v.role == ValueRole::fused, "only a value that is not stored has a spare block");
    require(plan_.donated.size() == plan_.outputs.size(), "the list of donated arguments has an entry for each result");
    for (std::size_t k = 0; k < plan_.donated.size(); ++k)
      if (plan_.donated[k] >= 0) verify_donation(k);
  }

 private:
  const GraphPlan& plan_;
  UnitsView units_;
  int graph_;

  static constexpr std::size_t size(std::int64_t i) { return static_cast<std::size_t>(i); }
  constexpr const PlanValue& value(int v) const { return plan_.values[size(v)]; }
  constexpr void require(bool holds, std::string_view rule) const {
    if (!holds) fail(errc::graph_invalid, "[plan] ", rule, ": graph ", graph_);
  }

  static constexpr bool has(const Growable<std::int32_t>& list, int v) {
    for (const std::int32_t own : list)
      if (own == v) return true;
    return false;
  }
  /// Whether a view or an assembled value has elements of a value.
  constexpr bool is_source(int v) const {
    bool found = false;
    for (std::size_t other = 0; other < plan_.values.size(); ++other)
      plan_.each_source(static_cast<int>(other), [&](int source) { found = found || source == v; });
    return found;
  }
  /// Whether anything other than step `reader` uses a value: another step, a value that has its elements, or the
  /// results of the graph.
  constexpr bool is_used_beside(int v, std::size_t reader) const {
    for (std::size_t s = 0; s < plan_.steps.size(); ++s)
      if (s != reader && has(plan_.steps[s].inputs, v)) return true;
    return is_source(v) || has(plan_.outputs, v);
  }

  constexpr void verify_pair(std::size_t s) const {
    const PlanStep& step = plan_.steps[s];
    require(s + 1 < plan_.steps.size() && plan_.steps[s + 1].fusion == Fusion::apart,
            "the step after a fused step is not itself fused with its next step");
    const PlanStep& next = plan_.steps[s + 1];
    require(step.kind == StepKind::compute && step.outputs.size() == 1 && has(next.inputs, step.outputs[0]),
            "a fused step has one result, which the next step reads");
    const int made = step.outputs[0];
    const PlanValue& passed = value(made);
    require((passed.role == ValueRole::fused) == (step.fusion != Fusion::epilogue),
            "the result of a fused step is stored if and only if the next step is an epilogue");
    require(passed.role != ValueRole::fused || !is_used_beside(made, s + 1),
            "only the next step reads a value that is not stored");
    require(!passed.spare || step.fusion == Fusion::into_result,
            "only a product that is summed in the memory of a result has a spare block");
    for (const std::int32_t out : next.outputs)
      for (const std::int32_t in : step.inputs)
        require(!share_memory(plan_, out, in), "fused steps do not write over inputs of the first of them");

    if (step.fusion == Fusion::sum) {
      require(next.kind == StepKind::reshard, "a step that sums parts in place is followed by a reshard");
      const Sharding &parts = passed.sharding, &sum = value(next.outputs[0]).sharding;
      bool alike = parts.unreduced != 0 && parts.reduction == Reduction::sum && sum.unreduced == 0;
      for (int d = 0; d < parts.rank; ++d) alike = alike && parts.dims[d] == sum.dims[d];
      return require(alike, "the parts of a partial sum and the sum have the same boxes");
    }
    require(next.kind == StepKind::compute && units_[next.unit].kind == UnitKind::fused &&
                work_axes(plan_, step) == work_axes(plan_, next),
            "an epilogue is a fused unit that runs at the places of its product");
    for (const std::int32_t in : next.inputs)
      require(in < 0 || value(in).role != ValueRole::assembled, "an epilogue reads no assembled value");
    for (std::size_t d = 0; d < passed.shape.size(); ++d)
      require(d < next.factors.size() && next.factors[d] == passed.sharding.dims[d],
              "an epilogue splits its product as the product is sharded");
    if (step.fusion == Fusion::epilogue) return;
    const PlanValue& result = value(next.outputs[0]);
    if (step.fusion == Fusion::into_result)
      return require(next.outputs.size() == 1 && result.role == ValueRole::output && stored_alike(passed, result),
                     "a product that is summed in the memory of a result has the layout of that result");
    require(next.outputs.size() == 1 && is_half(result.dtype) && result.shape == passed.shape,
            "the result of rounding a product is bf16 or f16 in the shape of the product");
  }

  constexpr void verify_donation(std::size_t k) const {
    const int v = plan_.outputs[k], argument = plan_.donated[k];
    require(v >= 0 && value(v).role == ValueRole::output, "only a result is written over a donated argument");
    require(size(argument) < plan_.arguments.size() && plan_.arguments[size(argument)] >= 0,
            "a donated argument is an argument of the graph");
    const int given = plan_.arguments[size(argument)];
    require(stored_alike(value(given), value(v)),
            "a result has the layout of the donated argument that it is written over");
    for (std::size_t other = 0; other < k; ++other)
      require(plan_.donated[other] != argument, "a donated argument is written over by one result only");
    std::size_t maker = 0;
    while (maker < plan_.steps.size() && !has(plan_.steps[maker].outputs, v)) ++maker;
    require(maker < plan_.steps.size() && has(plan_.steps[maker].inputs, given),
            "the step that computes a result reads the donated argument");
    bool last = !has(plan_.outputs, given);
    for (std::size_t s = maker + 1; s < plan_.steps.size(); ++s) last = last && !has(plan_.steps[s].inputs, given);
    require(last && !is_source(given), "the last step that reads a donated argument writes over it");
    if (maker > 0 && plan_.steps[maker - 1].fusion != Fusion::apart)
      require(!has(plan_.steps[maker - 1].inputs, given), "fused steps do not write over inputs of the first of them");
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
