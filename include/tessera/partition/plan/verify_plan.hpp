#ifndef TESSERA_PARTITION_PLAN_VERIFY_PLAN_HPP
#define TESSERA_PARTITION_PLAN_VERIFY_PLAN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/plan/fragments/fragment_halos.hpp>
#include <tessera/partition/plan/lifetimes.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/verify_schedule.hpp>
#include <tessera/partition/propagation/links.hpp>
#include <tessera/partition/reshard/halo.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

class PlanVerifier {
 public:
  constexpr PlanVerifier(const Plan& plan, const ProgramView& program, const UnitsView* units)
      : plan_(plan), program_(program), units_(units) {}

  constexpr void verify(int g) {
    graph_ = g;
    const GraphPlan& plan = plan_.graphs[size(g)];
    require(plan.shapes.size() == size(program_.graphs[g].size) && plan.numbers.size() == plan.shapes.size(),
            "a graph's plan has a shape and a number for each node");
    Growable<std::uint8_t> ready(plan.values.size());
    for (std::size_t v = 0; v < plan.values.size(); ++v) {
      const PlanValue& value = plan.values[v];
      verify_value(plan, value);
      ready[v] = value.role == ValueRole::argument || value.role == ValueRole::host;
      plan.each_source(static_cast<int>(v), [&](int source) {
        require(source < static_cast<int>(v), "a value that has elements of another value is listed before it");
      });
      if (value.role == ValueRole::assembled) verify_fragments(plan, static_cast<int>(v));
    }
    for (const PlanStep& step : plan.steps) {
      for (std::int32_t v : step.inputs) require(is_ready(plan, ready, v), "inputs are computed before they are read");
      for (std::int32_t v : step.outputs) {
        if (v < 0) continue;
        require(!ready[size(v)], "a value is computed by one step only");
        const ValueRole role = plan.values[size(v)].role;
        require(role == ValueRole::intermediate || role == ValueRole::output || role == ValueRole::fused,
                "steps write intermediates and results");
        ready[size(v)] = 1;
      }
      if (step.kind == StepKind::reshard) verify_reshard(plan, step);
      if (step.kind == StepKind::compute) verify_compute(plan, step);
    }
    for (std::int32_t v : plan.outputs) {
      if (v < 0) continue;
      require(is_ready(plan, ready, v), "a step computes each result");
      require(graph_ > 0 || plan.values[size(v)].sharding.unreduced == 0, "results of a program are not partial");
      require(plan.values[size(v)].role != ValueRole::intermediate && plan.values[size(v)].role != ValueRole::fused,
              "results are not stored in scratch memory");
    }
    verify_memory(plan);
    ScheduleVerifier(plan, units_[g], g).verify();
    for (const PlanStep& step : plan.steps)
      if (step.kind == StepKind::repeat) verify_repeat(plan, step);
    for (const PlanStep& step : plan.steps)
      if (step.kind == StepKind::repeat) {
        verify(step.body);
        graph_ = g;
      }
  }

 private:
  const Plan& plan_;
  ProgramView program_;
  const UnitsView* units_;
  int graph_ = 0;

  static constexpr std::size_t size(std::int64_t i) { return static_cast<std::size_t>(i); }
  constexpr void require(bool holds, std::string_view rule) const {
    if (!holds) fail(errc::graph_invalid, "[plan] ", rule, ": graph ", graph_);
  }

  static constexpr bool is_ready(const GraphPlan& plan, const Growable<std::uint8_t>& ready, int v) {
    const ValueRole role = plan.values[size(v)].role;
    if (role != ValueRole::view && role != ValueRole::assembled) return ready[size(v)] != 0;
    bool all = true;
    plan.each_source(v, [&](int source) { all = all && is_ready(plan, ready, source); });
    return all;
  }

  constexpr void verify_fragments(const GraphPlan& plan, int v) const {
    const PlanValue& value = plan.values[size(v)];
    std::int64_t elements = 0;
    for (int i = 0; i < value.fragment_count; ++i) {
      const Fragment& own = plan.fragments[size(value.first_fragment + i)];
      elements += volume(extents(own.box));
      for (int other = 0; other < i; ++other)
        require(intersect(own.box, plan.fragments[size(value.first_fragment + other)].box).empty(),
                "fragments of a value do not overlap");
      if (own.value < 0) continue;
      const PlanValue& source = plan.values[size(own.value)];
      require(source.dtype == value.dtype && source.role != ValueRole::assembled && !source.stacked &&
                  source.sharding.unreduced == 0,
              "a fragment is in a stored value of the same type");
      for (std::size_t d = 0; d < value.shape.size(); ++d) {
        const std::int64_t extent = own.box.end[d] - own.box.begin[d];
        require(own.box.begin[d] >= 0 && own.box.end[d] <= value.shape[d] && own.from[d] >= 0 &&
                    extent <= source.shape[d] - own.from[d],
                "a fragment is a box of both values");
        const int dim = static_cast<int>(d);
        require(source.sharding.dims[dim].empty() || source.sharding.dims[dim] == value.sharding.dims[dim],
                "a fragment is in a value that is split alike or whole");
      }
    }
    require(elements == volume(value.shape), "fragments cover a value");
  }

  constexpr void verify_value(const GraphPlan& plan, const PlanValue& value) const {
    if (value.role == ValueRole::host) return;
    require(value.node >= 0 && value.shape == plan.shapes[size(value.node)], "a value has the shape of its node");
    require(value.sharding.rank == value.shape.size(), "a sharding has the rank of its value");
    unsigned used = value.sharding.unreduced;
    for (int d = 0; d < value.sharding.rank; ++d)
      for (std::uint8_t axis : value.sharding.dims[d]) {
        require(axis < plan_.mesh.rank() && !(used >> axis & 1u), "a value uses each mesh axis once");
        used |= 1u << axis;
      }
    require(!value.stacked || value.sharding.dims[0].empty(), "the layers of a Stack are not split among devices");
    require((value.role == ValueRole::view) == (value.view_of >= 0), "a view has a source");
  }

  constexpr void verify_reshard(const GraphPlan& plan, const PlanStep& step) const {
    require(step.inputs.size() == 1 && step.outputs.size() == 1, "a reshard has one source and one result");
    const PlanValue& from = plan.values[size(step.inputs[0])];
    const PlanValue& to = plan.values[size(step.outputs[0])];
    require(from.node == to.node, "source and result of a reshard belong to the same node");
    require((to.sharding.unreduced & ~unsigned{from.sharding.unreduced}) == 0,
            "a value that is not partial does not become partial");
    require(tessera::wire_bytes(reshard_path(from.shape, from.dtype, plan_.mesh, from.sharding, to.sharding)) ==
                tessera::wire_bytes(step.collectives),
            "a reshard lists the collectives between its shardings");
  }

  constexpr void verify_compute(const GraphPlan& plan, const PlanStep& step) const {
    const Unit& unit = units_[graph_][step.unit];
    for (const std::int32_t v : step.inputs)
      require(v < 0 || plan.values[size(v)].role != ValueRole::assembled || is_elementwise(units_[graph_], step.unit),
              "only fused elementwise steps read an assembled value");
    require(static_cast<int>(step.inputs.size()) == unit.input_count &&
                static_cast<int>(step.outputs.size()) == unit.output_count,
            "a step has the operands of its unit");
    unsigned used = 0;
    for (const AxisList& list : step.factors)
      for (std::uint8_t axis : list) {
        require(!(used >> axis & 1u), "a step uses each mesh axis for one factor");
        used |= 1u << axis;
      }
    // Each operand has to be split by the axes of the factors that its dims consist of.
    const UnitRule rule = unit_rule(program_.graphs[graph_], units_[graph_], step.unit);
    require(step.factors.size() == rule.kinds.size(), "a step has the factors of its unit");
    const auto matches = [&](const PlanValue& value, const DimFactors& dims) {
      for (int d = 0; d < value.sharding.rank; ++d) {
        AxisList all;
        for (std::int8_t f : dims.dims[d])
          for (std::uint8_t axis : step.factors[size(f)])
            if (all.size() < AxisList::capacity()) all.push_back(axis);
        if (!(all == value.sharding.dims[d])) return false;
      }
      return true;
    };
    for (std::size_t i = 0; i < step.inputs.size(); ++i)
      require(matches(plan.values[size(step.inputs[i])], rule.inputs[i]),
              "the shardings of inputs follow from the step's factors");
    for (std::size_t o = 0; o < step.outputs.size(); ++o)
      require(matches(plan.values[size(step.outputs[o])], rule.outputs[o]),
              "the shardings of results follow from the step's factors");
    if (is_elementwise(units_[graph_], step.unit))
      require(tessera::wire_bytes(FragmentHalos(plan, step, plan_.mesh).collectives()) ==
                  tessera::wire_bytes(step.collectives),
              "a step lists the bytes of the halos that it reads");
    const bool windows = row_of(program_.graphs[graph_][unit.root]).windows != nullptr;
    if (unit.kind != UnitKind::data_movement && !windows) return;
    const ShapeContext context{program_.graphs[graph_], unit.root, plan.shapes.data(), plan.numbers.data(), nullptr};
    require(tessera::wire_bytes(halo_exchange(context, plan.values[size(step.outputs[0])].sharding, plan_.mesh)) ==
                tessera::wire_bytes(step.collectives),
            "a data movement operation lists the bytes of its halo exchange");
  }

  constexpr void verify_repeat(const GraphPlan& plan, const PlanStep& step) const {
    const GraphPlan& body = plan_.graphs[size(step.body)];
    const Repeat repeat = Repeat::of(program_.graphs[graph_][units_[graph_][step.unit].root]);
    const auto alike = [&](int outside, int inside, bool stacked) {
      if (outside < 0 || inside < 0) return true;
      const PlanValue& out = plan.values[size(outside)];
      const PlanValue& in = body.values[size(inside)];
      if (out.role == ValueRole::host || in.role == ValueRole::host) return true;
      for (int d = 0; d < in.sharding.rank; ++d)
        if (!(out.sharding.dims[stacked ? d + 1 : d] == in.sharding.dims[d])) return false;
      return out.sharding.unreduced == in.sharding.unreduced;
    };
    for (std::size_t i = 0; i < step.inputs.size() && i < body.arguments.size(); ++i) {
      require(alike(step.inputs[i], body.arguments[i], repeat.is_stacked(static_cast<int>(i))),
              "operands of a repeat have the same shardings inside its body");
    }
    for (std::size_t k = 0; k < step.outputs.size(); ++k)
      require(alike(step.outputs[k], body.outputs[k], static_cast<int>(k) >= repeat.carried),
              "results of a repeat have the same shardings inside its body");
    for (int k = 0; k < repeat.carried && size(k) < body.arguments.size(); ++k) {
      const int in = body.arguments[size(k)], out = body.outputs[size(k)];
      if (in < 0 || out < 0) continue;
      require(lies_alike(body.values[size(in)].sharding, body.values[size(out)].sharding) ||
                  body.values[size(out)].role == ValueRole::host,
              "a value carried from layer to layer keeps its sharding");
    }
  }

  constexpr void verify_memory(const GraphPlan& plan) const {
    Growable<Lifetime> blocks;
    for (const PlanValue& value : plan.values)
      if (value.in_arena() && value.first_step >= 0)
        blocks.push_back({value.stored_bytes, value.first_step, value.last_step, value.offset});
    for (int s = 0; size(s) < plan.steps.size(); ++s)
      for (const LoopBuffer& buffer : plan.steps[size(s)].buffers)
        blocks.push_back({buffer.stored_bytes, s, s, buffer.offset});
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      const Lifetime& x = blocks[a];
      require(x.offset >= 0 && x.offset + x.bytes <= plan.arena_bytes, "values in scratch memory end within the arena");
      for (std::size_t b = 0; b < a; ++b) {
        const Lifetime& y = blocks[b];
        const bool share_byte = x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes;
        require(!x.overlaps(y) || !share_byte, "values that are needed at the same time do not overlap in memory");
      }
      for (int s = x.first; s <= x.last; ++s) {
        const PlanStep& step = plan.steps[size(s)];
        if (step.kind != StepKind::repeat) continue;
        const std::int64_t end = plan.body_offset + plan_.graphs[size(step.body)].arena_bytes;
        require(x.offset + x.bytes <= plan.body_offset || x.offset >= end,
                "the body of a repeat does not overlap other values in memory");
        require(end <= plan.arena_bytes, "the memory of a body ends within the arena");
      }
    }
  }
};

}  // namespace detail

/// Checks the invariants of a plan. Throws `graph_invalid` with the invariant that does not hold.
constexpr void verify_plan(const Plan& plan, const ProgramView& program, const UnitsView* units) {
  detail::PlanVerifier(plan, program, units).verify(0);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
