#ifndef TESSERA_PARTITION_PLAN_GRAPH_PLANNER_HPP
#define TESSERA_PARTITION_PLAN_GRAPH_PLANNER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/partition/plan/fragments/assembled_units.hpp>
#include <tessera/partition/plan/fragments/fragment_halos.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/plan_options.hpp>
#include <tessera/partition/plan/planned_values.hpp>
#include <tessera/partition/plan/schedule.hpp>
#include <tessera/partition/plan/unit_flops.hpp>
#include <tessera/partition/propagation/flow.hpp>
#include <tessera/partition/propagation/shapes.hpp>
#include <tessera/partition/propagation/solve.hpp>
#include <tessera/partition/reshard/assign_memory.hpp>
#include <tessera/partition/reshard/halo.hpp>
#include <tessera/partition/reshard/step_collectives.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Makes the plan of one graph: its units, in order, with the reshards between them.
class GraphPlanner : PlannedValues {
 public:
  constexpr GraphPlanner(const ProgramView& program, const UnitsView* units, const Mesh& mesh,
                         const Growable<GraphShapes>& found, const ShardingSolver& solver, Growable<PartialSums>& sums,
                         const PlanOptions& options, int g, const OutputRequest* requests, Growable<GraphPlan>& plans)
      : PlannedValues(program.graphs[g], units[g], mesh, found[size(g)], solver, sums, options, g, requests),
        program_(program), all_units_(units), all_found_(found), sums_(sums), plans_(plans) {}

  constexpr GraphPlan plan() {
    start();
    add_arguments();
    const Growable<std::uint8_t> computed = computed_units();
    AssembledUnits assembled(graph_, units_, found_, mesh_, flow_);
    if (options_.fuse_steps && !options_.deterministic) assembled.find(computed);
    for (int u = 0; u < units_.count; ++u) {
      if (!computed[size(u)]) continue;
      if (units_[u].kind == UnitKind::repeat)
        add_repeat(u);
      else if (units_[u].kind == UnitKind::constraint)
        add_constraint(u);
      else
        add_unit(u, assembled.has(u));
    }
    add_outputs();
    Scheduler scheduler(graph_, units_, mesh_, made_, g_ == 0);
    scheduler.donate();
    if (options_.fuse_steps) scheduler.fuse_unstored();
    assign_memory(made_, plans_);
    if (options_.fuse_steps) scheduler.fuse_epilogues();
    made_.numbers = found_.numbers;
    made_.shapes = found_.shapes;
    return std::move(made_);
  }

 private:
  ProgramView program_;
  const UnitsView* all_units_;
  const Growable<GraphShapes>& all_found_;
  Growable<PartialSums>& sums_;
  Growable<GraphPlan>& plans_;

  constexpr void add_arguments() {
    for (int id = 0; id < graph_.size; ++id) {
      if (host_[size(id)] || !graph_[id].is_argument()) continue;
      while (made_.arguments.size() <= size(graph_[id].index())) made_.arguments.push_back(-1);
      made_.arguments[size(graph_[id].index())] =
          add_value(id, flow_.produced[size(id)], ValueRole::argument, is_in_layers(graph_[id]));
    }
  }

  // ---- units

  /// By unit: whether a step, or the caller, reads elements of its results. Where only the shape of a tensor is read,
  /// such as that to which ts::tile broadcasts, nothing is computed.
  constexpr Growable<std::uint8_t> computed_units() const {
    Growable<std::uint8_t> computed(size(units_.count)), read(size(graph_.size));
    for (int k = 0; k < graph_.output_count; ++k) read[size(graph_.outputs[k])] = 1;
    for (int u = units_.count - 1; u >= 0; --u) {
      const Unit& unit = units_[u];
      bool own = unit.kind == UnitKind::repeat || unit.kind == UnitKind::custom;
      for (int o = 0; o < unit.output_count && !own; ++o) own = read[size(units_.output(u, o).node)] != 0;
      computed[size(u)] = own ? 1 : 0;
      for (int i = 0; i < unit.input_count && own; ++i) read[size(units_.input(u, i).node)] = 1;
    }
    return computed;
  }

  constexpr bool is_constraint(int node) const { return row_of(graph_[node]).unit == UnitKind::constraint; }

  constexpr int input_value(int u, int i) {
    const int node = units_.input(u, i).node;
    const char* const why = flow_.avoids_halo[size(u)] ? "a halo exchange would send more" : "needed by the reader";
    const bool requested = is_constraint(node) && !is_of_experts(node);
    return version(node, flow_.needed(u, i), graph_[units_[u].root].source, why, requested);
  }

  /// Whether the step of a unit walks over the layers of stacked operands.
  static constexpr bool walks_layers(UnitKind kind) {
    return kind != UnitKind::contraction && kind != UnitKind::attention && kind != UnitKind::indexed &&
           kind != UnitKind::data_movement && kind != UnitKind::custom && kind != UnitKind::ragged;
  }
  constexpr void add_constraint(int u) {
    const int node = units_[u].root, from = units_.input(u, 0).node;
    Sharding target = values_.of[size(node)];
    leave_partial(target, flow_.deferred[size(from)]);
    const char* const why = is_of_experts(node)                       ? "expert parallelism"
                            : Constraint::of(graph_[node]).about >= 0 ? "shard_map"
                                                                      : "constraint";
    const int v = version(from, flow_.needed(u, 0), graph_[node].source, why, true);
    const int made = add_value(node, target, ValueRole::view, value(v).stacked, v);
    strides_[size(made)] = strides_[size(v)];
    finish_output(node);
  }

  constexpr void add_unit(int u, bool assembled) {
    const Unit& unit = units_[u];
    PlanStep step;
    step.unit = u;
    step.source = graph_[unit.root].source;
    step.inputs.reserve(size(unit.input_count));
    step.outputs.reserve(size(unit.output_count));
    for (int i = 0; i < unit.input_count; ++i) step.inputs.push_back(input_value(u, i));
    bool in_fragments = false;
    for (const std::int32_t v : step.inputs) in_fragments = in_fragments || is_assembled(v);
    if (in_fragments && assembled) return add_assembled(unit.root, step.inputs);
    if (unit.kind == UnitKind::data_movement && unit.input_count == 1) {
      Shape strides;
      const int from = step.inputs[0];
      if (is_view(u, from, strides)) {
        const int made =
            add_value(unit.root, flow_.produced[size(unit.root)], ValueRole::view, value(from).stacked, from);
        strides_[size(made)] = strides;
        return finish_output(unit.root);
      }
    }
    if (assembled) return add_assembled(unit.root, step.inputs);
    if (!walks_layers(unit.kind) || row_of(graph_[unit.root]).windows != nullptr)
      for (std::int32_t& v : step.inputs) v = in_one_block(v, step.source);
    bool stacked = false;
    for (int i = 0; i < unit.input_count && unit.kind == UnitKind::fused; ++i)
      stacked = stacked || (value(step.inputs[size(i)]).stacked && units_.input(u, i).dim_at[0] == 0);
    for (int o = 0; o < unit.output_count; ++o) {
      const UnitOperand& output = units_.output(u, o);
      const Sharding& made = flow_.produced[size(output.node)];
      step.outputs.push_back(
          add_value(output.node, made, role_of(output.node, made), stacked && output.dim_at[0] == 0));
    }
    step.factors = flow_.factors[size(u)];
    if (unit.kind == UnitKind::fused && unit.phase_reduces > 0 && unit.rank > 0)
      add_row_reductions(unit, shape(unit.space), graph_[unit.root].dtype, mesh_, step);
    const bool windows = row_of(graph_[unit.root]).windows != nullptr;
    if (windows && unit.kind == UnitKind::data_movement) store_rows_once(step.outputs[0]);
    if (unit.kind == UnitKind::data_movement || windows)
      step.collectives = halo_exchange({graph_, unit.root, found_.shapes.data(), found_.numbers.data(), nullptr},
                                       flow_.produced[size(unit.root)], mesh_);
    if (in_fragments) step.collectives = FragmentHalos(made_, step, mesh_).collectives();
    if (unit.kind == UnitKind::cumulative)
      add_totals_of_chunks(graph_[unit.root], shape(unit.root), flow_.produced[size(unit.root)], mesh_, step);
    step.added_over = flow_.added_over[size(u)];
    std::int64_t parts = 1;  // how many parts of its inputs the unit computes on, one after another
    for (std::int32_t v : step.inputs) {
      const std::int64_t own = value(v).parts.count(mesh_, devices_on(mesh_, value(v).sharding.unreduced));
      parts = own > parts ? own : parts;
    }
    step.flops = saturating_product(unit_flops(graph_, units_, u, solver_.links[size(g_)], found_), parts);
    for (std::int32_t v : step.inputs) add_moved(step, v);
    for (std::int32_t v : step.outputs) add_moved(step, v);
    made_.steps.push_back(std::move(step));
    for (int o = 0; o < unit.output_count; ++o) finish_output(units_.output(u, o).node);
  }

  constexpr bool is_assembled(int v) const { return v >= 0 && made_.values[size(v)].role == ValueRole::assembled; }
  constexpr void add_assembled(int node, const Growable<std::int32_t>& operands) {
    const int made = add_value(node, flow_.produced[size(node)], ValueRole::assembled);
    value(made).first_fragment = static_cast<std::int32_t>(made_.fragments.size());
    AssembledUnits::add_fragments(context_of(node), operands, made_);
    value(made).fragment_count = static_cast<std::int32_t>(made_.fragments.size()) - value(made).first_fragment;
  }

  /// Adds the reshards that follow a value right where it is made: a reduction, unless its reader takes it partial;
  /// explicit axes; the requested sharding of an output.
  constexpr void finish_output(int node) {
    const Sharding made = flow_.produced[size(node)];
    const Source source = graph_[node].source;
    if (made.unreduced != 0 && !returned_partial(node) && flow_.deferred[size(node)] == 0 && flow_.is_read(node))
      version(node, reduced_target(node), source, "partial sum", true);
    if (steered(node)) version(node, values_.of[size(node)], source, "explicit axis", true);
    Sharding wanted;
    if (requested(node, wanted)) version(node, wanted, source, "requested result", true);
  }

  /// The sharding to which a partial value is reduced: that of its readers where they agree (a reduce_scatter instead
  /// of an all_reduce and a slice), otherwise the value's own.
  constexpr Sharding reduced_target(int node) const {
    const Sharding own = values_.of[size(node)];
    if (required_[size(node)] >= 0) return own;
    return flow_.common_need(node, own);
  }

  // ---- repeats

  /// How the body of a repeat returns its results.
  constexpr Growable<OutputRequest> body_requests(int u) const {
    const Unit& unit = units_[u];
    const int body = graph_[unit.root].index();
    const Repeat repeat = Repeat::of(graph_[unit.root]);
    const GraphView body_graph = program_.graphs[body];
    Growable<OutputRequest> requests(size(body_graph.output_count));
    for (int k = 0; k < body_graph.output_count; ++k) {
      OutputRequest& request = requests[size(k)];
      const int outside = k < unit.output_count ? units_.output(u, k).node : -1;
      request.given = true;
      if (k < repeat.carried)
        request.sharding = solver_.carried(body, k);
      else if (outside >= 0)
        request.sharding = without_layers(values_.of[size(outside)]);
      else
        request.sharding = solver_.values[size(body)].of[size(body_graph.outputs[k])];
      if (outside >= 0)
        leave_partial(request.sharding, flow_.produced[size(outside)].unreduced);
      else if (k < repeat.carried)
        leave_partial(request.sharding, carried_partial(body, k));
      // A slice of a result is in one block; a carried value is stored as the next step takes it.
      request.stored = true;
      if (k < repeat.carried) request.storage = carried_storage(body, k, outside);
    }
    return requests;
  }
  /// The memory of a repeat for results of its body that have no other memory.
  constexpr void add_buffers(PlanStep& step, int carried) const {
    const GraphPlan& body = plans_[size(step.body)];
    for (int k = 0; size(k) < body.outputs.size(); ++k) {
      const int v = body.outputs[size(k)];
      LoopBuffer buffer{.result = k, .device_bytes = arena_alignment, .stored_bytes = arena_alignment};  // of a number
      if (v >= 0) {
        buffer.device_bytes = body.values[size(v)].device_bytes;
        buffer.stored_bytes = body.values[size(v)].stored_bytes;
      }
      const bool is_read = size(k) < step.outputs.size() && step.outputs[size(k)] >= 0;
      const bool is_written = k < carried || v < 0 || body.values[size(v)].role == ValueRole::output;
      if (!is_read && is_written) step.buffers.push_back(buffer);
      buffer.odd = true;
      if (k < carried && step.layers > 1) step.buffers.push_back(buffer);
    }
  }
  constexpr void add_repeat(int u) {
    const Unit& unit = units_[u];
    const int body = graph_[unit.root].index();
    const Repeat repeat = Repeat::of(graph_[unit.root]);
    const ValueShardings& inner = solver_.values[size(body)];
    const GraphView body_graph = program_.graphs[body];
    const int stacked_end = repeat.carried + repeat.stacked;

    const Growable<OutputRequest> requests = body_requests(u);
    plans_[size(body)] =
        GraphPlanner(program_, all_units_, mesh_, all_found_, solver_, sums_, options_, body, requests.data(), plans_)
            .plan();

    PlanStep step;
    step.kind = StepKind::repeat;
    step.unit = u;
    step.body = body;
    step.layers = all_found_[size(body)].layers;
    step.source = graph_[unit.root].source;
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units_.input(u, i).node, inside = solver_.argument_node(body, i);
      if (host_[size(node)]) {
        step.inputs.push_back(add_value(node, replicated(0), ValueRole::host));
        continue;
      }
      Sharding wanted = values_.of[size(node)];
      if (i < repeat.carried)
        wanted = solver_.carried(body, i);
      else if (inside >= 0)
        wanted = i < stacked_end ? with_layers(inner.of[size(inside)]) : inner.of[size(inside)];
      const bool sliced = repeat.is_stacked(i);
      wanted = wanted.without_unreduced();
      if (i < repeat.carried) leave_partial(wanted, carried_partial(body, i));
      int v = version(node, wanted, step.source, i < repeat.carried ? "carried value" : "operand of the layers",
                      is_constraint(node));
      // A carried value that the body does not read is only the result of a loop without steps, so it is stored as the
      // result is.
      const int outside = i < unit.output_count ? units_.output(u, i).node : -1;
      if (i < repeat.carried && (inside >= 0 || outside >= 0))
        v = stored(v, carried_storage(body, i, outside), step.source);
      else if (!sliced && inside >= 0)
        v = stored(v, storage_of(body_graph[inside]), step.source);
      step.inputs.push_back(contiguous(v, sliced, step.source));
    }
    for (int k = 0; k < unit.output_count; ++k) {
      const int node = units_.output(u, k).node;
      if (node < 0) {
        step.outputs.push_back(-1);
        continue;
      }
      const Sharding& made = requests[size(k)].sharding;
      Sharding& produced = flow_.produced[size(node)];
      produced = k < repeat.carried ? made : with_layers(made);
      leave_partial(produced, made.unreduced);
      step.outputs.push_back(add_value(node, produced, role_of(node, produced), is_in_layers(graph_[node])));
    }
    add_buffers(step, repeat.carried);
    for (const PlanStep& inside : plans_[size(body)].steps) {
      step.flops = saturating_sum(step.flops, saturating_product(inside.flops, step.layers));
      add_times(step.bytes, inside.bytes, step.layers, "bytes", step.source);
    }
    made_.steps.push_back(std::move(step));
    for (int k = 0; k < unit.output_count; ++k)
      if (units_.output(u, k).node >= 0) finish_output(units_.output(u, k).node);
  }

  /// The axes over which a body takes and returns carried value k partial.
  constexpr std::uint16_t carried_partial(int body, int k) const {
    const bool known = !sums_.empty() && size(k) < sums_[size(body)].carried.size();
    return known ? sums_[size(body)].carried[size(k)] : std::uint16_t{0};
  }
  static constexpr void leave_partial(Sharding& sharding, std::uint16_t axes) {
    sharding.unreduced = axes;
    if (axes != 0) sharding.reduction = Reduction::sum;
  }
  /// How a body takes and returns carried value k: `outside` is its projection, -1 where there is none.
  constexpr Storage carried_storage(int body, int k, int outside) const {
    const int inside = solver_.argument_node(body, k);
    if (inside >= 0) return storage_of(program_.graphs[body][inside]);
    return outside >= 0 ? storage_of(graph_[outside]) : Storage::block;
  }

  // ---- results

  constexpr void add_outputs() {
    bool moved = false;
    for (int k = 0; k < graph_.output_count; ++k) {
      const int node = graph_.outputs[k];
      if (host_[size(node)]) {
        made_.outputs.push_back(-1);
        continue;
      }
      const bool given = requests_ != nullptr && requests_[k].given;
      Sharding wanted = given ? requests_[k].sharding : final_sharding(node);
      // Each layer of a Stack that the program returns has memory of its own on all devices that hold a shard of it.
      if (g_ == 0 && !given && program_.results_in_layers != nullptr && program_.results_in_layers[k])
        wanted.dims[0] = {};
      int v = version(node, wanted, graph_[node].source, "requested result", true);
      if (value(v).rows_once) v = contiguous(v, false, graph_[node].source);
      // Where contiguous() has made a copy in the output's role, the copy is the result.
      for (std::int32_t other : versions_[size(node)])
        if (value(other).role == ValueRole::output && lies_alike(value(other).sharding, value(v).sharding)) v = other;
      // A constraint copies nothing: the value that it views becomes the result.
      while (value(v).role == ValueRole::view && is_constraint(value(v).node) &&
             value(value(v).view_of).role != ValueRole::argument)
        v = under(v);
      // A result of the program is stored as its place in the structure says, however it was computed.
      const bool placed = g_ == 0 && program_.results_in_layers != nullptr && (!given || !requests_[k].stored);
      if (placed || (given && requests_[k].stored)) {
        const Storage storage = !placed                         ? requests_[k].storage
                                : program_.results_in_layers[k] ? Storage::layers
                                                                : Storage::block;
        const int kept = stored(v, storage, graph_[node].source);
        moved = moved || kept != v;
        v = kept;
      }
      if (value(v).role == ValueRole::intermediate) value(v).role = ValueRole::output;
      made_.outputs.push_back(v);
    }
    // A value that was made as a result, but in other storage than the result has, is an intermediate.
    for (int v = 0; moved && v < static_cast<int>(made_.values.size()); ++v) {
      bool returned = value(v).role != ValueRole::output;
      for (std::size_t k = 0; k < made_.outputs.size() && !returned; ++k) returned = made_.outputs[k] == v;
      if (!returned) value(v).role = ValueRole::intermediate;
    }
  }
  constexpr int under(int v) {
    const int source = value(v).view_of;
    value(source).sharding = value(v).sharding;
    return source;
  }
};

}  // namespace detail

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
