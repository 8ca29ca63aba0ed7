#ifndef TESSERA_PARTITION_PROPAGATION_FLOW_HPP
#define TESSERA_PARTITION_PROPAGATION_FLOW_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/partition/propagation/assign.hpp>
#include <tessera/partition/propagation/linear.hpp>
#include <tessera/partition/propagation/movement_choice.hpp>
#include <tessera/partition/propagation/solve.hpp>
#include <tessera/partition/propagation/unit_readers.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// What the body of a repeat leaves partial, so that it is reduced after the last step instead of in each.
struct PartialSums {
  Growable<std::uint16_t> carried;  ///< by carried value: the axes over which it is partial from step to step
  /// By result, from the first that is not carried: the sharding in which the body makes it, partial axes included.
  Growable<Sharding> results;
};

/// Decides how each unit of a graph computes (the axes of its factors), and which values stay partial from one unit to
/// the next.
///
/// A partial value is not reduced before its reader when that reader is its only one, is linear in it, is not split
/// along the same axes, and has results no larger than the value. Example: `a @ b + c @ d` with both products partial
/// over "model" becomes one all_reduce of the sum.
///
/// A value that a loop carries only to add to it, from zeros on, stays partial in the same way: the gradient of a
/// weight over the steps of a scan whose batch is split is reduced once, after the loop. So does a stacked result of a
/// loop whose reader takes it partial.
class Flow {
 public:
  Growable<FactorAxes> factors;  ///< by unit
  Growable<Sharding> produced;   ///< by node: the sharding in which its unit makes it, partial axes included
  /// by node: the axes over which its reader takes it partial, so that no reduction comes between
  Growable<std::uint16_t> deferred;
  Growable<PartList> parts;            ///< by node: which parts of a partial value exist (the others are empty)
  Growable<std::uint16_t> added_over;  ///< by unit: for a sum of rank-0 tensors, the axes over which the sum is partial
  /// by unit: whether it gathers a split dim because a halo exchange would send more
  Growable<std::uint8_t> avoids_halo;

  /// `sums`: by graph, what the bodies of repeats could leave partial; what this graph needs reduced is dropped. Empty
  /// where all is reduced in each step. `deterministic`: units that reduce gather their operands and compute
  /// replicated.
  constexpr Flow(const GraphView& graph, const UnitsView& units, const Links& links, const UnitReaders& readers,
                 const GraphShapes& found, const Mesh& mesh, const ValueShardings& values, Growable<PartialSums>& sums,
                 int g, bool deterministic = false)
      : graph_(graph), units_(units), links_(links), found_(found), mesh_(mesh), values_(values), readers_(readers),
        sums_(sums) {
    produced = values.of;
    deferred.assign(static_cast<std::size_t>(graph.size));
    parts.assign(static_cast<std::size_t>(graph.size));
    made_by_.assign(static_cast<std::size_t>(graph.size), -1);
    added_over.assign(at(units.count));
    avoids_halo.assign(at(units.count));
    partial_.assign(static_cast<std::size_t>(graph.size));
    dependence_.assign(static_cast<std::size_t>(graph.size), Dependence::invariant);
    is_result_.assign(static_cast<std::size_t>(graph.size));
    for (int k = 0; k < graph.output_count; ++k) is_result_[at(graph.outputs[k])] = 1;
    factors.resize(at(units.count));
    const MovementChoice movement{graph, units, links, found, mesh, values, produced};
    if (!sums.empty()) take_carried(sums[at(g)]);
    for (int u = 0; u < units.count; ++u) {
      if (units[u].kind == UnitKind::repeat && !sums.empty()) leave_partial(u);
      if (links.of_unit[at(u)] < 0) continue;
      if (deterministic && reduces(u))
        factors[at(u)] = FactorAxes(static_cast<std::size_t>(link(u).factor_count));
      else
        factors[at(u)] = assign_factors(links, link(u), mesh, values);
      if (deterministic && units[u].kind == UnitKind::cumulative) keep_whole(u, dim_of(graph[units[u].root]));
      if (units[u].kind == UnitKind::data_movement) avoids_halo[at(u)] = movement.choose_halo(u, factors[at(u)]);
      if (units[u].kind == UnitKind::fused) movement.choose_broadcast(u, factors[at(u)], readers);
      if (movement.takes_row(u)) movement.choose_row(u, factors[at(u)], deterministic);
      if (units[u].kind == UnitKind::constraint)
        pass_constraint(u);
      else
        run(u);
    }
  }

  /// Stacked results of loops that no reader takes partial are reduced in each step, a layer at a time. Before this
  /// call they are shown as partial.
  constexpr void reduce_unread_results() {
    for (int u = 0; u < units_.count && !sums_.empty(); ++u) {
      if (units_[u].kind != UnitKind::repeat) continue;
      for (int k = static_cast<int>(sums_of(u).carried.size()); k < units_[u].output_count; ++k)
        if (const int result = units_.output(u, k).node; result >= 0 && deferred[at(result)] == 0)
          produced[at(result)].unreduced = 0;
    }
  }

  constexpr const Link& link(int u) const { return links_.of(u); }
  /// The sharding in which unit u (not a repeat) reads its input i, with the axes over which the input may be partial.
  constexpr Sharding needed(int u, int i) const {
    const int node = units_.input(u, i).node;
    Sharding sharding = units_[u].kind == UnitKind::constraint
                            ? values_.of[at(units_[u].root)].without_priority()
                            : sharding_of(links_, link(u), i, factors[at(u)], graph_[node].rank, mesh_);
    sharding.unreduced = deferred[at(node)];
    return sharding;
  }
  constexpr bool is_read(int node) const { return is_result_[at(node)] != 0 || readers_.count(node) > 0; }
  /// The sharding in which all readers of a node need it; `otherwise` where they need different shardings, or one
  /// reader is a repeat.
  constexpr Sharding common_need(int node, const Sharding& otherwise) const {
    Sharding wanted = otherwise;
    bool first = true;
    for (int r = 0; r < readers_.count(node); ++r) {
      const int u = readers_.unit(node, r);
      if (units_[u].kind == UnitKind::repeat) return otherwise;
      for (int i = 0; i < units_[u].input_count; ++i) {
        if (units_.input(u, i).node != node) continue;
        const Sharding own = needed(u, i);
        if (!first && !lies_alike(own, wanted)) return otherwise;
        wanted = own;
        first = false;
      }
    }
    return wanted;
  }

 private:
  GraphView graph_;
  UnitsView units_;
  const Links& links_;
  const GraphShapes& found_;
  const Mesh& mesh_;
  const ValueShardings& values_;
  const UnitReaders& readers_;
  Growable<std::uint8_t> is_result_;  // by node: whether the graph returns it
  Growable<std::int32_t> made_by_;    // by node: the unit that makes it
  Growable<std::uint8_t> partial_;
  Growable<Dependence> dependence_;
  Growable<PartialSums>& sums_;

  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

  // ---- sums of loops

  /// The graph is the body of a repeat, and takes these carried values partial.
  constexpr void take_carried(const PartialSums& own) {
    bool any = false;
    for (const std::uint16_t axes : own.carried) any = any || axes != 0;
    if (!any) return;
    for (int id = 0; id < graph_.size; ++id)
      if (graph_[id].is_argument() && at(graph_[id].index()) < own.carried.size())
        if (const std::uint16_t axes = own.carried[at(graph_[id].index())]; axes != 0) {
          add_unreduced(id, axes);
          produced[at(id)].reduction = Reduction::sum;
        }
  }
  constexpr PartialSums& sums_of(int u) { return sums_[at(graph_[units_[u].root].index())]; }

  /// Makes the results of a repeat partial where it can begin with a partial value, or a reader may take them.
  constexpr void leave_partial(int u) {
    PartialSums& own = sums_of(u);
    const int carried = static_cast<int>(own.carried.size()), outputs = units_[u].output_count;
    for (int k = 0; k < (outputs > carried ? outputs : carried); ++k) {
      const int result = k < outputs ? units_.output(u, k).node : -1;  // nothing reads the last carried values
      if (at(k) < own.carried.size()) {
        const std::uint16_t axes = own.carried[at(k)];
        if (axes != 0 && !begins_partial(units_.input(u, k).node, axes)) own.carried[at(k)] = 0;
        if (axes == 0 || own.carried[at(k)] == 0 || result < 0) continue;
        add_unreduced(result, axes);
        produced[at(result)].reduction = Reduction::sum;
      } else if (result >= 0 && at(k) < own.results.size()) {
        const Sharding& made = own.results[at(k)];
        if (made.unreduced == 0 || made.reduction != Reduction::sum || readers_.count(result) != 1 ||
            !lies_alike(made.without_unreduced(), without_layers(values_.of[at(result)])) ||
            (made.unreduced & made.without_unreduced().used_axes()) != 0)
          continue;
        add_unreduced(result, made.unreduced);
        produced[at(result)].reduction = Reduction::sum;
      }
    }
  }
  /// Whether the first value of a sum can be made partial over these axes: a carried value of the graph itself, a value
  /// that is partial anyway, or zeros.
  constexpr bool begins_partial(int node, std::uint16_t axes) {
    if (produced[at(node)].unreduced != 0) {
      const bool alike = produced[at(node)].unreduced == axes && produced[at(node)].reduction == Reduction::sum &&
                         parts[at(node)].entries.empty() && is_result_[at(node)] == 0 && readers_.count(node) == 1;
      if (alike) deferred[at(node)] = axes;
      return alike;
    }
    if (graph_[node].is_constant() || !is_known_zero(graph_, node) || is_result_[at(node)] != 0 ||
        readers_.count(node) != 1)
      return false;
    add_unreduced(node, axes);
    produced[at(node)].reduction = Reduction::sum;
    deferred[at(node)] = axes;
    return true;
  }

  constexpr std::int64_t device_bytes(int node) const {
    return local_bytes(found_.shapes[at(node)], produced[at(node)], mesh_, graph_[node].dtype);
  }

  /// The axes over which unit u could read its input i partial; 0 where it needs the input reduced.
  constexpr std::uint16_t candidate(int u, int i, unsigned taken_by_unit) const {
    const int node = units_.input(u, i).node;
    const Sharding& made = produced[at(node)];
    if (made.unreduced == 0 || !facts_of(made.reduction).linear || is_result_[at(node)] != 0 ||
        readers_.count(node) != 1)
      return 0;
    if (made.unreduced & taken_by_unit) return 0;
    const Sharding wanted = sharding_of(links_, link(u), i, factors[at(u)], made.rank, mesh_);
    return lies_alike(wanted, made.without_unreduced()) ? made.unreduced : std::uint16_t{0};
  }

  constexpr void run(int u) {
    const Unit& unit = units_[u];
    const Link& own = link(u);
    const std::uint16_t used = axes_of(factors[at(u)]);
    for (int o = 0; o < unit.output_count; ++o) {
      const UnitOperand& output = units_.output(u, o);
      Sharding made = sharding_of(links_, own, unit.input_count + o, factors[at(u)], graph_[output.node].rank, mesh_);
      made_by_[at(output.node)] = u;
      if (unit.kind != UnitKind::fused || output.accumulates) {
        made.unreduced = lacking_axes(links_, own, unit.input_count + o, factors[at(u)]);
        if (made.unreduced != 0 && leaves_parts_out(unit.kind))
          parts[at(output.node)] = lacking_parts(links_, own, unit.input_count + o, factors[at(u)], mesh_);
      }
      if (made.unreduced != 0) made.reduction = combined_by(graph_[output.node]);
      keep_priorities(made, values_.of[at(output.node)]);
      produced[at(output.node)] = made;
    }
    if (unit.kind != UnitKind::fused)
      pass_single(u, used);
    else if (!pass_numbers(u, used))
      pass_fused(u, used);
  }

  /// A constraint of shard_map is about some axes only: a value that is partial over others stays so. One that keeps
  /// sums lets them pass over its own axes too.
  constexpr void pass_constraint(int u) {
    const int from = units_.input(u, 0).node, to = units_[u].root;
    const Sharding& made = produced[at(from)];
    if (made.unreduced == 0 || !facts_of(made.reduction).linear || is_result_[at(from)] != 0 ||
        readers_.count(from) != 1 || values_.closed[at(to)] == 0 ||
        ((values_.closed[at(to)] & made.unreduced) != 0 && !Constraint::of(graph_[to]).keeps_sums) ||
        !lies_alike(made.without_unreduced(), values_.of[at(to)]))
      return;
    deferred[at(from)] = made.unreduced;
    made_by_[at(to)] = u;
    parts[at(to)] = parts[at(from)];
    produced[at(to)].unreduced = made.unreduced;
    produced[at(to)].reduction = made.reduction;
  }

  constexpr bool reduces(int u) const {
    const Unit& unit = units_[u];
    bool any = unit.phase_reduces > 0;
    for (int o = 0; o < unit.output_count; ++o) any = any || units_.output(u, o).accumulates;
    // Windows overlap in memory, and the order of a product's sums may depend on strides.
    if (unit.kind != UnitKind::fused && row_of(graph_[unit.root]).windows != nullptr) return true;
    if (unit.kind == UnitKind::along) return can_be_partial(graph_, unit.root);  // a scatter
    return unit.kind == UnitKind::fused ? any
                                        : unit.kind == UnitKind::contraction || unit.kind == UnitKind::indexed ||
                                              unit.kind == UnitKind::attention || unit.kind == UnitKind::ragged;
  }

  /// Removes all axes from dim `d` of unit `u`'s result.
  constexpr void keep_whole(int u, int d) {
    const Link& own = link(u);
    const LinkOperand& result = links_.operand(own, units_[u].input_count);
    for (int s = result.first_dim; s < result.first_dim + result.dim_count; ++s)
      if (const LinkDim& dim = links_.dims[at(s)]; dim.dim == d)
        for (int k = 0; k < dim.count; ++k) factors[at(u)][at(dim.factors[k])].clear();
  }

  static constexpr bool leaves_parts_out(UnitKind kind) {
    return kind == UnitKind::fused || kind == UnitKind::contraction || kind == UnitKind::indexed ||
           kind == UnitKind::ragged;
  }

  /// Marks all parts of a partial value as existing, and those of the partial values that it is computed from.
  constexpr void need_all_parts(int node) {
    if (parts[at(node)].entries.empty()) return;
    parts[at(node)] = {};
    const int u = made_by_[at(node)];
    for (int i = 0; u >= 0 && i < units_[u].input_count; ++i)
      if (deferred[at(units_.input(u, i).node)] != 0) need_all_parts(units_.input(u, i).node);
  }

  /// A part of a result that is linear in partial inputs (`takes_over` of the result is 1) is empty if this part of all
  /// these inputs is empty. If the inputs differ in which parts are empty, all parts of the inputs are made.
  constexpr void pass_parts(int u, const Growable<std::uint8_t>& takes_over) {
    const Unit& unit = units_[u];
    const PartList* common = nullptr;
    bool equal = true;
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units_.input(u, i).node;
      if (deferred[at(node)] == 0) continue;
      equal = equal && (common == nullptr || *common == parts[at(node)]);
      common = &parts[at(node)];
    }
    for (int o = 0; o < unit.output_count && equal && common != nullptr; ++o) {
      PartList joined = parts[at(units_.output(u, o).node)];
      equal = !takes_over[at(o)] || joined.join(*common);
    }
    for (int i = 0; i < unit.input_count && !equal; ++i)
      if (deferred[at(units_.input(u, i).node)] != 0) need_all_parts(units_.input(u, i).node);
    for (int o = 0; o < unit.output_count && equal && common != nullptr; ++o)
      if (takes_over[at(o)]) parts[at(units_.output(u, o).node)].join(*common);
  }

  /// A sum of rank-0 tensors may read operands that are partial over different axes; the sum is reduced once. An
  /// operand that is replicated over one of these axes is added only on the devices with coordinate 0 along it.
  constexpr bool pass_numbers(int u, unsigned used) {
    const Unit& unit = units_[u];
    if (unit.rank != 0 || used != 0) return false;
    unsigned axes = 0;
    int partial = 0;
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units_.input(u, i).node;
      const std::uint16_t own = candidate(u, i, 0);
      partial_[at(node)] = 1;
      axes |= own;
      partial += own != 0 ? 1 : 0;
    }
    Growable<std::uint8_t> linear;
    bool valid = partial > 1 && is_linear_in(graph_, units_, u, partial_, dependence_, linear);
    for (int o = 0; o < unit.output_count && valid; ++o) valid = linear[at(o)] != 0;
    bool alike = true;
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units_.input(u, i).node;
      partial_[at(node)] = 0;
      if (!valid) continue;
      deferred[at(node)] = candidate(u, i, 0);
      alike = alike && (deferred[at(node)] == 0 || deferred[at(node)] == axes);
    }
    if (!valid) return false;
    added_over[at(u)] = static_cast<std::uint16_t>(axes);
    for (int i = 0; i < unit.input_count && !alike; ++i) need_all_parts(units_.input(u, i).node);
    for (int o = 0; o < unit.output_count; ++o) add_unreduced(units_.output(u, o).node, axes);
    pass_parts(u, linear);
    return true;
  }

  /// A dim that is made with the axes in which it is stored (FSDP) keeps the priority of a stored dim: readers gather
  /// it.
  static constexpr void keep_priorities(Sharding& made, const Sharding& wanted) {
    for (int d = 0; d < made.rank; ++d)
      if (made.dims[d] == wanted.dims[d]) made.priority[d] = wanted.priority[d];
  }

  constexpr void pass_fused(int u, unsigned used) {
    const Unit& unit = units_[u];
    std::uint16_t axes = 0;
    std::int64_t before = 0;
    for (int i = 0; i < unit.input_count; ++i) {
      const std::uint16_t own = candidate(u, i, used);
      if (own == 0 || (axes != 0 && own != axes)) continue;
      axes = own;
      const int node = units_.input(u, i).node;
      partial_[at(node)] = 1;
      before += device_bytes(node);
    }
    if (axes == 0) return;
    Growable<std::uint8_t> linear;
    bool valid = is_linear_in(graph_, units_, u, partial_, dependence_, linear);
    std::int64_t after = 0;
    for (int o = 0; o < unit.output_count; ++o)
      if (linear[at(o)]) after += device_bytes(units_.output(u, o).node);
    valid = valid && after <= before;
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units_.input(u, i).node;
      if (valid && partial_[at(node)]) deferred[at(node)] = axes;
      partial_[at(node)] = 0;
    }
    for (int o = 0; o < unit.output_count && valid; ++o)
      if (linear[at(o)]) add_unreduced(units_.output(u, o).node, axes);
    if (valid) pass_parts(u, linear);
  }

  constexpr void add_unreduced(int node, unsigned axes) {
    produced[at(node)].unreduced = static_cast<std::uint16_t>(produced[at(node)].unreduced | axes);
  }

  constexpr void pass_single(int u, unsigned used) {
    const Unit& unit = units_[u];
    const int result = units_.output(u, 0).node;
    const Linearity linear = row_of(graph_[unit.space]).linear;
    if (linear == Linearity::jointly) {
      const std::uint16_t axes = unit.input_count > 0 ? candidate(u, 0, used) : std::uint16_t{0};
      for (int i = 1; i < unit.input_count; ++i)
        if (candidate(u, i, used) != axes) return;
      if (axes == 0) return;
      for (int i = 0; i < unit.input_count; ++i) deferred[at(units_.input(u, i).node)] = axes;
      add_unreduced(result, axes);
      return pass_parts(u, {1});
    }
    if (linear != Linearity::first && linear != Linearity::each) return;
    for (int i = 0; i < unit.input_count; ++i) {
      const UnitOperand& input = units_.input(u, i);
      if (input.operand < 0 || (linear == Linearity::first && input.operand != 0)) continue;
      const std::uint16_t axes = candidate(u, i, used);
      if (axes == 0 || device_bytes(result) > device_bytes(input.node)) continue;
      deferred[at(input.node)] = axes;
      add_unreduced(result, axes);
      pass_parts(u, {1});
      break;
    }
    // `addend + a @ b`: the addend may be partial over axes over which the product is partial. Along the product's
    // other axes it is added on the devices with coordinate 0.
    if (unit.addend < 0) return;
    const std::uint16_t own = candidate(u, unit.input_count - 1, 0);
    if (own == 0 || (own & ~produced[at(result)].unreduced) != 0) return;
    if (own != produced[at(result)].unreduced || !(parts[at(unit.addend)] == parts[at(result)])) {
      need_all_parts(unit.addend);
      need_all_parts(result);
    }
    deferred[at(unit.addend)] = own;
  }
};

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
