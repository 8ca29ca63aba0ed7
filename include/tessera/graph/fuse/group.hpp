#ifndef TESSERA_GRAPH_FUSE_GROUP_HPP
#define TESSERA_GRAPH_FUSE_GROUP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/grouper.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/graph/ir/attributes/reduced.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The units of one graph, as owning arrays.
struct Units {
  Growable<Unit> units;
  Growable<UnitOperand> operands;
  Growable<std::int32_t> members;
  constexpr UnitsView view() const {
    return {units.data(), static_cast<int>(units.size()), operands.data(), members.data()};
  }
};

namespace detail {

/// Which dim of a value of rank `rank` corresponds to dim d of the iteration space, for a reader of the given form; -1:
/// none.
constexpr int aligned_dim(int space_rank, SpaceForm form, int rank, int d) {
  const int whole = form == SpaceForm::squeezed ? space_rank - 1 : space_rank;
  if (d >= whole) return -1;
  const int own = d - (whole - rank);
  return own >= 0 ? own : -1;
}

constexpr UnitOperand aligned_operand(const GraphView& graph, int id, int space_rank, SpaceForm form) {
  UnitOperand operand;
  operand.node = id;
  for (int d = 0; d < space_rank; ++d) {
    const int own = aligned_dim(space_rank, form, graph[id].rank, d);
    if (own >= 0 && !graph[id].is_singleton(own)) operand.dim_at[d] = static_cast<std::int8_t>(own);
  }
  return operand;
}

/// Whether two operands of a fused unit are one value with the same dims along the iteration space.
constexpr bool same_operand(const UnitOperand& x, const UnitOperand& y) {
  if (x.node != y.node) return false;
  for (int d = 0; d < max_rank; ++d)
    if (x.dim_at[d] != y.dim_at[d]) return false;
  return true;
}

/// Writes the units of the groups: the values that each unit reads and writes, with their dims along its iteration
/// space.
class UnitWriter {
 public:
  constexpr UnitWriter(const GraphView& graph, const GroupsView& groups)
      : graph_(graph), groups_(groups), at_(groups.nodes) {}

  constexpr Units write() {
    for (int g = 0; g < groups_.count; ++g) {
      const GroupMembers& group = groups_.groups[g];
      Unit unit;
      if (group.fused)
        write_fused(unit, group);
      else
        write_single(unit, group);
      made_.units.push_back(unit);
    }
    return std::move(made_);
  }

 private:
  GraphView graph_;
  GroupsView groups_;
  const NodeGroup* at_;
  Units made_;

  /// Whether a node reads the elements of operand i, not only its shape.
  constexpr bool reads(int id, int i) const {
    return graph_.operands[graph_.nodes[id].first + i] >= 0 && !has_operand(row_of(graph_.nodes[id]).shape_only, i);
  }
  constexpr std::int32_t operand_count() const { return static_cast<std::int32_t>(made_.operands.size()); }
  constexpr std::int32_t member_count() const { return static_cast<std::int32_t>(made_.members.size()); }
  constexpr void add_operand(const UnitOperand& operand) { made_.operands.push_back(operand); }

  constexpr void write_fused(Unit& unit, const GroupMembers& group) {
    unit.kind = UnitKind::fused;
    unit.rank = static_cast<std::uint8_t>(group.rank);
    unit.root = group.last;
    unit.first_member = member_count();
    for (std::int32_t id = group.first; id >= 0; id = at_[id].next) {
      made_.members.push_back(id);
      // The shape of the space is that of any member with the form `element`, or of a reduction's operand.
      if (at_[id].form == SpaceForm::element)
        unit.space = id;
      else if (unit.space < 0 && at_[id].whole_input)
        unit.space = graph_.operand(id, 0);
    }
    unit.member_count = unit.first_uniform = member_count();
    unit.member_count -= unit.first_member;
    unit.first_input = operand_count();
    for (std::int32_t id = group.first; id >= 0; id = at_[id].next) list_operands(unit, group, id);
    unit.uniform_count = member_count() - unit.first_uniform;
    unit.input_count = operand_count() - unit.first_input;
    unit.first_output = operand_count();
    for (std::int32_t id = group.first; id >= 0; id = at_[id].next)
      if (at_[id].leaves) add_operand(fused_output(group, id));
    unit.output_count = operand_count() - unit.first_output;
  }

  /// Lists the host scalars and the values from outside that a member of a fused unit reads, each once.
  constexpr void list_operands(const Unit& unit, const GroupMembers& group, std::int32_t id) {
    const Node& node = graph_.nodes[id];
    for (int i = 0; i < node.arity; ++i) {
      const int operand = graph_.operands[node.first + i];
      if (!reads(id, i) || at_[operand].group == at_[id].group) continue;
      bool known = false;
      if (at_[operand].host) {
        for (std::int32_t k = unit.first_uniform; k < member_count(); ++k)
          known = known || made_.members.data()[k] == operand;
        if (!known) made_.members.push_back(operand);
        continue;
      }
      const SpaceForm form = at_[id].kind == OpKind::reduction ? form_in_row(group, operand) : at_[id].form;
      const UnitOperand made = aligned_operand(graph_, operand, group.rank, form);
      for (std::int32_t k = unit.first_input; k < operand_count() && !known; ++k)
        known = made_.operands.data()[k].node == operand && same_operand(made_.operands.data()[k], made);
      if (!known) add_operand(made);
    }
  }
  /// Along which dims of the iteration space the operand of a reduction extends.
  constexpr SpaceForm form_in_row(const GroupMembers& group, int operand) const {
    return graph_.nodes[operand].rank == group.rank ? SpaceForm::element : SpaceForm::squeezed;
  }

  constexpr UnitOperand fused_output(const GroupMembers& group, std::int32_t id) const {
    if (at_[id].kind != OpKind::reduction) return aligned_operand(graph_, id, group.rank, at_[id].form);
    const Reduced reduced = Reduced::of(graph_[id]);
    const int operand = graph_.operand(id, 0);
    UnitOperand made;
    made.node = id;
    made.accumulates = !read_inside(group, id);
    for (int d = 0; d < group.rank; ++d) {
      const int own = aligned_dim(group.rank, form_in_row(group, operand), graph_[operand].rank, d);
      if (own < 0 || reduced.has(own) || graph_[operand].is_singleton(own)) continue;
      int at = own;
      if (!reduced.keep)
        for (int e = 0; e < own; ++e) at -= reduced.has(e) ? 1 : 0;
      made.dim_at[d] = static_cast<std::int8_t>(at);
    }
    return made;
  }
  constexpr bool read_inside(const GroupMembers& group, std::int32_t id) const {
    for (std::int32_t user = group.first; user >= 0; user = at_[user].next)
      for (int i = 0; i < graph_[user].arity; ++i)
        if (graph_.operand(user, i) == id) return true;
    return false;
  }

  constexpr void write_single(Unit& unit, const GroupMembers& group) {
    const int id = group.last;
    unit.root = unit.space = id;
    int rule_node = id;
    if (const int product = at_[id].addition; product >= 0) {
      unit.kind = UnitKind::contraction;
      rule_node = unit.space = product;
      unit.addend = graph_.operand(id, 0) == product ? graph_.operand(id, 1) : graph_.operand(id, 0);
    } else {
      unit.kind = row_of(graph_[id]).unit;
    }
    unit.first_input = operand_count();
    for (int i = 0; i < graph_[rule_node].arity; ++i) {
      const int operand = graph_.operand(rule_node, i);
      if (!reads(rule_node, i) || (at_[operand].host && unit.kind != UnitKind::repeat)) continue;
      if (at_[operand].group == at_[id].group) continue;
      add_operand({.node = operand, .operand = i});
    }
    if (unit.addend >= 0) add_operand({.node = unit.addend});
    unit.input_count = operand_count() - unit.first_input;
    unit.first_output = operand_count();
    if (unit.kind == UnitKind::repeat)
      list_projections(id);
    else if (group.count == 1)
      add_operand({.node = id});
    else
      list_results(group);
    unit.output_count = operand_count() - unit.first_output;
  }

  constexpr void list_results(const GroupMembers& group) {
    for (std::int32_t id = group.first; id >= 0; id = at_[id].next)
      if (at_[id].leaves) add_operand({.node = id});
  }

  /// Lists the outputs of a repeat, up to the last one with a projection, in order.
  constexpr void list_projections(int id) {
    const std::int32_t first = operand_count();
    for (int p = id + 1; p < graph_.size; ++p) {
      if (!graph_[p].is_projection() || graph_.operand(p, 0) != id) continue;
      for (int k = operand_count() - first; k <= output_of(graph_[p]); ++k) add_operand({.operand = k});
      made_.operands.data()[first + output_of(graph_[p])].node = p;
    }
  }
};

}  // namespace detail

/// `spaces`: the iteration spaces of the nodes (detail::node_spaces); null: computed here.
constexpr Groups find_groups(const GraphView& graph, const detail::Space* spaces = nullptr) {
  return detail::Grouper(graph, spaces).groups();
}
constexpr Units write_units(const GraphView& graph, const GroupsView& groups) {
  return detail::UnitWriter(graph, groups).write();
}
/// Collects the nodes of a graph into units. Host scalars and arguments belong to no unit.
constexpr Units group_units(const GraphView& graph) { return write_units(graph, find_groups(graph).view()); }

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
