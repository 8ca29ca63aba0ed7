#ifndef TESSERA_PARTITION_PROPAGATION_FLOW_HPP
#define TESSERA_PARTITION_PROPAGATION_FLOW_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/partition/propagation/assign.hpp>
#include <tessera/partition/propagation/linear.hpp>
#include <tessera/partition/propagation/solve.hpp>
#include <tessera/partition/reshard/halo.hpp>
#include <tessera/partition/reshard/reshard_path.hpp>

namespace tessera {

/// How the units of one graph compute, and which values stay partial on the way from one to the next.
///
/// A partial value is passed on as it is when its only reader is linear in it, uses none of its axes itself, and makes
/// nothing larger of it: the reduction then happens further down, where several may have become one.
class Flow {
 public:
  Growable<FactorAxes> factors;        ///< by unit
  Growable<Sharding> produced;         ///< by node: as the unit that makes it leaves it
  Growable<std::uint16_t> deferred;    ///< by node: axes over which its reader takes it unreduced
  Growable<PartList> parts;            ///< by node: which parts of a partial value there are
  Growable<std::uint16_t> added_over;  ///< by unit: of a sum of numbers, axes over which its result is partial
  Growable<std::uint8_t> avoids_halo;  ///< by unit: whether it takes a split dim whole, which sends less

  /// `deterministic`: units that reduce are computed whole.
  constexpr Flow(const GraphView& graph, const UnitsView& units, const Links& links, const GraphShapes& found,
                 const Mesh& mesh, const ValueShardings& values, bool deterministic = false)
      : graph_(graph), units_(units), links_(links), found_(found), mesh_(mesh), values_(values) {
    produced = values.of;
    deferred.assign(static_cast<std::size_t>(graph.size), 0);
    parts.assign(static_cast<std::size_t>(graph.size), {});
    made_by_.assign(static_cast<std::size_t>(graph.size), -1);
    added_over.assign(at(units.count), 0);
    avoids_halo.assign(at(units.count), 0);
    partial_.assign(static_cast<std::size_t>(graph.size), 0);
    dependence_.assign(static_cast<std::size_t>(graph.size), Dependence::invariant);
    count_readers();
    factors.resize(at(units.count));
    for (int u = 0; u < units.count; ++u) {
      if (links.of_unit[at(u)] < 0) continue;
      if (deterministic && reduces(u))
        factors[at(u)] = FactorAxes(static_cast<std::size_t>(link(u).factor_count));
      else
        factors[at(u)] = assign_factors(links, link(u), mesh, values);
      if (deterministic && units[u].kind == UnitKind::scan) keep_whole(u, dim_of(graph[units[u].root]));
      if (units[u].kind == UnitKind::layout) choose_halo(u);
      if (takes_row(u)) choose_row(u, deterministic);
      if (units[u].kind != UnitKind::constraint) run(u);
    }
  }

  constexpr const Link& link(int u) const {
    return links_.links[static_cast<std::size_t>(links_.of_unit[static_cast<std::size_t>(u)])];
  }
  /// How a unit other than a repeat wants its input i, unreduced axes that it accepts included.
  constexpr Sharding needed(int u, int i) const {
    const int node = units_.input(u, i).node;
    if (units_[u].kind == UnitKind::constraint) return values_.of[at(units_[u].root)].without_priority();
    Sharding sharding = sharding_of(links_, link(u), i, factors[at(u)], graph_[node].rank, mesh_);
    sharding.unreduced = deferred[at(node)];
    return sharding;
  }
  constexpr int readers(int node) const { return readers_[at(node)]; }

 private:
  GraphView graph_;
  UnitsView units_;
  const Links& links_;
  const GraphShapes& found_;
  const Mesh& mesh_;
  const ValueShardings& values_;
  Growable<std::int32_t> readers_;
  Growable<std::int32_t> made_by_;  // by node: its unit
  Growable<std::uint8_t> partial_;
  Growable<Dependence> dependence_;

  static constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

  constexpr void count_readers() {
    readers_.assign(at(graph_.size), 0);
    for (int u = 0; u < units_.count; ++u)
      for (int i = 0; i < units_[u].input_count; ++i) ++readers_[at(units_.input(u, i).node)];
    for (int k = 0; k < graph_.output_count; ++k) readers_[at(graph_.outputs[k])] += 2;  // a result is never partial
  }

  constexpr std::int64_t device_bytes(int node) const {
    return local_bytes(found_.shapes[at(node)], produced[at(node)], mesh_, graph_[node].dtype);
  }

  /// Axes of input i that the unit could take it unreduced over.
  constexpr std::uint16_t candidate(int u, int i, unsigned taken_by_unit) const {
    const int node = units_.input(u, i).node;
    const Sharding& made = produced[at(node)];
    if (made.unreduced == 0 || !facts_of(made.reduction).linear || readers_[at(node)] != 1) return 0;
    if (made.unreduced & taken_by_unit) return 0;
    const Sharding wanted = sharding_of(links_, link(u), i, factors[at(u)], made.rank, mesh_);
    return lies_alike(wanted, made.without_unreduced()) ? made.unreduced : std::uint16_t{0};
  }

  /// Rows that cross borders are sent alone, unless fewer bytes bring the whole dim together, by a gather or onto
  /// another dim. Counted are the reshards of operands and of the result; where there are none, a device sends at most
  /// what it has, which a gather sends at least.
  constexpr void choose_halo(int u) {
    FactorAxes& own = factors[at(u)];
    int moved = 0;
    while (moved < link(u).factor_count && links_.factor(link(u), moved).kind != FactorKind::permutation) ++moved;
    if (moved == link(u).factor_count || own[at(moved)].empty()) return;
    const Reshards split = reshards(u, own);
    if (split.count == 0) return;
    const Sharding made = sharding_of(links_, link(u), units_[u].input_count, own, graph_[units_[u].root].rank, mesh_);
    const ShapeContext context{graph_, units_[u].root, found_.shapes.data(), found_.numbers.data(), nullptr};
    FactorAxes whole = assign_factors(links_, link(u), mesh_, values_, moved);
    if (split.bytes + halo_bytes(context, made, mesh_) <= reshards(u, whole).bytes) return;
    own = std::move(whole);
    avoids_halo[at(u)] = 1;
  }
  /// Whether a unit moves elements, and what devices have of its result may sum up to it.
  constexpr bool takes_row(int u) const {
    return units_[u].kind == UnitKind::layout && row_of(graph_[units_[u].root]).partial != nullptr;
  }
  /// One row of a split dim is summed up from what devices have of it, unless the dim is gathered in fewer bytes, once
  /// for all units that take a row of it.
  constexpr void choose_row(int u, bool deterministic) {
    const Node& node = graph_[units_[u].root];
    const int factor = row_factor(u);
    if (factor < 0 || factors[at(u)][at(factor)].empty()) return;
    int rows = 0;
    for (int other = 0; other < units_.count; ++other)
      rows += takes_row(other) && dim_of(graph_[units_[other].root]) == dim_of(node) && row_factor(other) >= 0 &&
              units_.input(other, 0).node == units_.input(u, 0).node;
    FactorAxes whole = assign_factors(links_, link(u), mesh_, values_, factor);
    const Sharding made = sharding_of(links_, link(u), 1, factors[at(u)], node.rank, mesh_);
    const std::int64_t sum =
        ring_bytes(Collective::all_reduce, local_bytes(found_.shapes[at(units_[u].root)], made, mesh_, node.dtype),
                   devices_on(mesh_, lacking_axes(links_, link(u), 1, factors[at(u)])));
    if (!deterministic && rows * sum < reshards(u, whole).bytes) return;
    factors[at(u)] = std::move(whole);
  }
  /// The factor of a slice's dim of which the result is one row; -1 where it is more.
  constexpr int row_factor(int u) const {
    for (int f = 0; f < link(u).factor_count; ++f)
      if (links_.factor(link(u), f).kind == FactorKind::reduction) return f;
    return -1;
  }
  /// How many of a layout unit's operands and results are resharded, and what a device sends for it.
  struct Reshards {
    int count = 0;
    std::int64_t bytes = 0;
  };
  constexpr Reshards reshards(int u, const FactorAxes& axes) const {
    const Unit& unit = units_[u];
    Reshards found;
    const auto add = [&](int node, const Sharding& from, const Sharding& to) {
      if (lies_alike(from, to)) return;
      ++found.count;
      found.bytes += wire_bytes(reshard_path(found_.shapes[at(node)], graph_[node].dtype, mesh_, from, to));
    };
    for (int i = 0; i < unit.input_count; ++i) {
      const int node = units_.input(u, i).node;
      const Sharding& made = produced[at(node)];
      add(node, made.unreduced != 0 ? values_.of[at(node)] : made,
          sharding_of(links_, link(u), i, axes, graph_[node].rank, mesh_));
    }
    add(unit.root, sharding_of(links_, link(u), unit.input_count, axes, graph_[unit.root].rank, mesh_),
        values_.of[at(unit.root)]);
    return found;
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

  constexpr bool reduces(int u) const {
    const Unit& unit = units_[u];
    bool any = unit.phase_reduces > 0;
    for (int o = 0; o < unit.output_count; ++o) any = any || units_.output(u, o).accumulates;
    return unit.kind == UnitKind::fused ? any
                                        : unit.kind == UnitKind::contraction || unit.kind == UnitKind::indexed ||
                                              unit.kind == UnitKind::attention;
  }

  /// Leaves a dim of a unit's result unsplit.
  constexpr void keep_whole(int u, int d) {
    const Link& own = link(u);
    const LinkOperand& result = links_.operand(own, units_[u].input_count);
    for (int s = result.first_dim; s < result.first_dim + result.dim_count; ++s)
      if (const LinkDim& dim = links_.dims[at(s)]; dim.dim == d)
        for (int k = 0; k < dim.count; ++k) factors[at(u)][at(dim.factors[k])].clear();
  }

  static constexpr bool leaves_parts_out(UnitKind kind) {
    return kind == UnitKind::fused || kind == UnitKind::contraction || kind == UnitKind::indexed;
  }

  /// All parts of a value are needed, and so are those that it is made from.
  constexpr void need_all_parts(int node) {
    if (parts[at(node)].entries.empty()) return;
    parts[at(node)] = {};
    const int u = made_by_[at(node)];
    for (int i = 0; u >= 0 && i < units_[u].input_count; ++i)
      if (deferred[at(units_.input(u, i).node)] != 0) need_all_parts(units_.input(u, i).node);
  }

  /// Lets results that take over parts of unit u's inputs lack the parts that all of these lack.
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

  /// A sum of rank-0 tensors takes operands that are partial over different axes, and is reduced once: an operand that
  /// is replicated over an axis is added on the devices with coordinate 0.
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

  /// What is stored in the way it is made keeps its mark: it is gathered where it is read.
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
    // A value that a product is added to may be partial over axes that the product is partial over; it is added to the
    // part at index 0 of the others.
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

#include <tessera/base/pop_macros.hpp>

#endif
