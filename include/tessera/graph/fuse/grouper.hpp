#ifndef TESSERA_GRAPH_FUSE_GROUPER_HPP
#define TESSERA_GRAPH_FUSE_GROUPER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/fuse/dependencies.hpp>
#include <tessera/graph/fuse/groups.hpp>
#include <tessera/graph/fuse/node_reads.hpp>
#include <tessera/graph/ir/attributes/reduced.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// Collects nodes into groups, each of which runs as one kernel. A node joins the groups of its operands if they have
/// the same iteration space, if no path of the graph leaves the joint group and enters it again, and if the kernel
/// stays below the limits. Programs are grouped in constant expressions, where compilers limit statements but not
/// expressions: hence raw arrays.
class Grouper : NodeReads {
 public:
  static constexpr int max_members = 56, max_group_inputs = 20, max_group_outputs = 24, max_row_passes = 6;
  // The capacity of a kernel (fused.hpp).
  static constexpr int max_loads = 24, max_uniforms = 64, max_instructions = 96;

  struct Group : GroupMembers {
    Space space;
    bool has_reduced = false;  ///< some member has the form `reduced`
    bool alone = false;        ///< absorbs no other group
    bool all_elements = true;  ///< all members have the form `element`
    // Upper bounds; counted exactly only when a bound exceeds a limit.
    std::int32_t inputs = 0, loads = 0, uniforms = 0, outputs = 1;
    std::int32_t row_reductions = 0;
  };

  /// `spaces`: the iteration spaces of the nodes; null: they are computed.
  constexpr explicit Grouper(const GraphView& graph, const Space* spaces = nullptr)
      : NodeReads(graph, spaces), groups_(count(graph.size)), dependencies_(graph.size),
        scratch_(2 * count(graph.size)), group_(groups_.data()) {
    find_additions();
    for (int id = 0; id < graph.size; ++id) assign(id);
    merge_readers();
  }
  Grouper(const Grouper&) = delete;
  Grouper& operator=(const Grouper&) = delete;

  constexpr Groups groups() const {
    const Growable<std::int32_t> order = dependencies_.order();
    Groups made{Growable<NodeGroup>(count(graph_.size)), Growable<GroupMembers>(order.size())};
    NodeGroup* const nodes = made.nodes.data();
    for (int id = 0; id < graph_.size; ++id) {
      const NodeState& own = state_[id];
      nodes[id] = own;
      nodes[id].leaves = leaves_group(own);
      nodes[id].whole_input = own.kind == OpKind::reduction && own.group >= 0 &&
                              state_[graph_.operands[graph_.nodes[id].first]].space == group_[own.group].space;
    }
    GroupMembers* next = made.groups.data();
    for (std::int32_t g : order) {
      *next = group_[g];
      next++->rank = group_[g].space.rank;
    }
    return made;
  }

 private:
  Growable<Group> groups_;
  Dependencies dependencies_;
  Growable<std::int32_t> scratch_;  // two integers per node; all 0 between uses
  Group* group_;                    // groups_ as a raw pointer, which costs no calls
  std::int32_t merges_ = 0;
  std::int32_t refused_[3]{-1, -1, -1};  // the last two groups that could not be merged, and merges_ at that time

  constexpr bool leaves_group(const NodeState& own) const {
    if (own.is_output) return true;
    const std::int32_t* const readers = readers_.data();
    for (std::int32_t r = own.first_reader; r < own.last_reader; ++r)
      if (state_[readers[r]].group != own.group) return true;
    return false;
  }

  constexpr bool is_product(int id) const { return row_of(graph_.nodes[id]).unit == UnitKind::contraction; }

  // In a sum of two products, the second product is added to the first in place, without a kernel for the sum.
  constexpr void find_additions() {
    NodeState* const states = states_.data();
    const Node* const nodes = graph_.nodes;
    for (int id = 0; id < graph_.size; ++id) {
      if (!row_of(nodes[id]).adds || !is_floating(nodes[id].dtype)) continue;
      for (int i = 1; i >= 0 && states[id].addition < 0; --i) {
        const int product = graph_.operands[nodes[id].first + i], base = graph_.operands[nodes[id].first + 1 - i];
        const bool fits = is_product(product) && states[product].uses == 1 && states[base].uses == 1 &&
                          states[base].absorbed < 0 && states[product].absorbed < 0 &&
                          (is_product(base) || states[base].addition >= 0) &&
                          states[product].space == states[base].space;
        if (!fits) continue;
        states[id].addition = product;
        states[product].absorbed = id;
      }
    }
  }

  /// A cast to bf16 of a product of bf16 (plus a bias) that is only read through this cast, or the same of f16: the
  /// product stores rounded values, so the cast is not fused into the kernel of its reader.
  constexpr bool rounds_product(int id) const {
    const Node* const nodes = graph_.nodes;
    if (!row_of(nodes[id]).converts || !is_half(nodes[id].dtype)) return false;
    int product = graph_.operands[nodes[id].first];
    if (row_of(nodes[product]).adds && read_once(product)) {
      const std::int32_t* const terms = graph_.operands + nodes[product].first;
      if (nodes[terms[1]].rank == 1 && !at(terms[1]).host) product = terms[0];
    }
    return is_product(product) && read_once(product) && graph_.operands[nodes[product].first] >= 0 &&
           nodes[graph_.operands[nodes[product].first]].dtype == nodes[id].dtype;
  }

  constexpr void assign(int id) {
    NodeState& own = at(id);
    const Node& node = graph_.nodes[id];
    if (own.host || node.is_argument()) return;
    if (node.is_projection()) {
      own.group = at(graph_.operands[node.first]).group;
      return;
    }
    if (own.absorbed >= 0) return;  // placed with the addition that absorbs it
    if (joins_others(row_of(node)))
      if (const int joined = group_to_join(id); joined >= 0) return join(joined, id);
    const int g = dependencies_.add();
    Group& made = group_[g];
    made = Group{};
    made.first = made.last = id;
    made.count = 1;
    made.fused = own.addition < 0 &&
                 (own.kind == OpKind::elementwise || own.kind == OpKind::index || own.kind == OpKind::reduction);
    made.space = own.space;
    if (made.fused && own.kind == OpKind::reduction) {
      made.space = at(graph_.operands[node.first]).space;
      const Reduced reduced = Reduced::of(node);
      const bool row_only = made.space.rank > 1 && reduced.dims == 1u << (made.space.rank - 1);
      own.form = !row_only ? SpaceForm::reduced : reduced.keep ? SpaceForm::row : SpaceForm::squeezed;
      made.has_reduced = !row_only;
      made.row_reductions = row_only ? 1 : 0;
    }
    own.group = g;
    add_dependencies(g, own);
    if (own.addition >= 0) {
      at(own.addition).group = g;
      add_dependencies(g, at(own.addition));
    }
    if (!made.fused) return;
    made.all_elements = own.form == SpaceForm::element;
    made.inputs = made.loads = own.last_read - own.first_read;
    made.uniforms = node.arity - made.inputs;
    const std::int32_t* const reads = reads_.data();
    for (std::int32_t r = own.first_read; r < own.last_read; ++r) {
      const NodeState& operand = state_[reads[r]];
      if (operand.group >= 0 && operand.group != own.group && group_[operand.group].fused &&
          operand.form != SpaceForm::reduced)
        merge(own.group, operand.group);
    }
    group_[own.group].alone = rounds_product(id);
  }

  /// The group of the companion that the row names (nodes of one attention run in one unit); -1 where the node needs
  /// its own group. The node may join since the companion depends on nothing else, and either has no reader yet or has
  /// the same readers: no path leaves the group and enters it again.
  constexpr int group_to_join(int id) const {
    const Node& node = graph_.nodes[id];
    const OpRow& row = row_of(node);
    if (row.joins_operand >= 0) {
      const NodeState& operand = at(graph_.operands[node.first + row.joins_operand]);
      if (row_of(graph_.nodes[graph_.operands[node.first + row.joins_operand]]).unit == row.unit &&
          readers_.data()[operand.first_reader] == id)
        return operand.group;
    }
    if (row.joins == nullptr) return -1;
    const NodeState& operand = at(graph_.operands[node.first]);
    for (std::int32_t r = operand.first_reader; r < operand.last_reader; ++r) {
      const int other = readers_.data()[r];
      if (other >= id || graph_.nodes[other].op != node.op) continue;
      bool alike = true;
      for (int i = 0; i < node.arity; ++i)
        alike = alike && graph_.operands[graph_.nodes[other].first + i] == graph_.operands[node.first + i];
      if (alike && row.joins(graph_.nodes[other], node)) return at(other).group;
    }
    return -1;
  }
  constexpr void join(int g, int id) {
    Group& group = group_[g];
    at(id).group = g;
    at(group.last).next = id;
    group.last = id;
    ++group.count;
    add_dependencies(g, at(id));
  }

  constexpr void add_dependencies(int g, const NodeState& own) {
    const std::int32_t* const reads = reads_.data();
    for (std::int32_t r = own.first_read; r < own.last_read; ++r)
      if (const int other = state_[reads[r]].group; other >= 0 && other != g && !dependencies_.reaches(g, other))
        dependencies_.depend(g, other);
  }
  /// Whether group a depends on group b through a third group. Looks at the operands of a's members or at the readers
  /// of b's members, whichever group is smaller.
  constexpr bool path_between(int a, int b) const {
    if (!dependencies_.reaches(a, b)) return false;
    const std::uint64_t* const sets = dependencies_.of(0);
    const std::size_t words = dependencies_.words(), word = count(b) / 64;
    if (group_[a].count <= group_[b].count) {
      const std::int32_t* const reads = reads_.data();
      for (std::int32_t id = group_[a].first; id >= 0; id = state_[id].next)
        for (std::int32_t r = state_[id].first_read; r < state_[id].last_read; ++r)
          if (const int t = state_[reads[r]].group;
              t >= 0 && t != a && t != b && (sets[words * static_cast<std::size_t>(t) + word] >> (b % 64) & 1) != 0)
            return true;
      return false;
    }
    const std::uint64_t* const from_a = dependencies_.of(a);
    const std::int32_t* const readers = readers_.data();
    for (std::int32_t id = group_[b].first; id >= 0; id = state_[id].next)
      for (std::int32_t r = state_[id].first_reader; r < state_[id].last_reader; ++r)
        if (const int t = state_[readers[r]].group; t >= 0 && t != a && t != b && (from_a[t / 64] >> (t % 64) & 1) != 0)
          return true;
    return false;
  }
  /// How often a node reads values of a group.
  constexpr int reads_of(int id, int group) const {
    int found = 0;
    for (std::int32_t r = state_[id].first_read; r < state_[id].last_read; ++r)
      found += state_[reads_.data()[r]].group == group ? 1 : 0;
    return found;
  }
  /// Whether a member of a reads a member of b that has the form `reduced`.
  constexpr bool reads_reduced(int a, int b) const {
    const std::int32_t* const reads = reads_.data();
    for (std::int32_t id = group_[a].first; id >= 0; id = state_[id].next)
      for (std::int32_t r = state_[id].first_read; r < state_[id].last_read; ++r)
        if (const NodeState& operand = state_[reads[r]]; operand.group == b && operand.form == SpaceForm::reduced)
          return true;
    return false;
  }
  /// Whether some member of a reads a member of b that lacks the row dim. In an iteration space the dims of such a
  /// value are the first dims; in an elementwise operation they are aligned with the last dims: in x / sum<1>(x) of a
  /// square x, row i would be divided by the sum of column i.
  constexpr bool reads_misaligned(int a, int b) const {
    const std::int32_t* const reads = reads_.data();
    for (std::int32_t id = group_[a].first; id >= 0; id = state_[id].next) {
      if (state_[id].kind == OpKind::reduction) continue;
      const Node& node = graph_.nodes[id];
      for (std::int32_t r = state_[id].first_read; r < state_[id].last_read; ++r) {
        const Node& operand = graph_.nodes[reads[r]];
        if (state_[reads[r]].group == b && operand.rank < node.rank && operand.singletons != (1u << operand.rank) - 1)
          return true;
      }
    }
    return false;
  }
  static constexpr SpaceForm form_within(const Group& outer, const Group& inner) {
    return outer.space.has_row(inner.space)            ? SpaceForm::row
           : outer.space.has_squeezed_row(inner.space) ? SpaceForm::squeezed
                                                       : SpaceForm::element;
  }
  /// The joint iteration space of two groups, where the members of the smaller group are at most one value per row;
  /// rank -1: none.
  constexpr Space joint_space(const Group& a, const Group& b, SpaceForm& a_form, SpaceForm& b_form) const {
    a_form = b_form = SpaceForm::element;
    if (a.space == b.space) return a.space;
    const SpaceForm b_in_a = form_within(a, b);
    if (b_in_a != SpaceForm::element && b.all_elements) {
      b_form = b_in_a;
      return a.space;
    }
    const SpaceForm a_in_b = form_within(b, a);
    if (a_in_b != SpaceForm::element && a.all_elements) {
      a_form = a_in_b;
      return b.space;
    }
    return {-1, {}};
  }

  constexpr void merge(int own, int other) {
    if (merges_ == refused_[2] && own == refused_[0] && other == refused_[1]) return;
    if (!merged(own, other)) {
      refused_[0] = own;
      refused_[1] = other;
      refused_[2] = merges_;
    }
  }
  constexpr bool merged(int own, int other) {
    const Group &a = group_[own], &b = group_[other];
    const int members = a.count + b.count;
    if (members > max_members || a.alone || b.alone) return false;
    if (state_[a.first].is_computed != state_[b.first].is_computed) return false;
    SpaceForm a_form, b_form;
    const Space space = joint_space(a, b, a_form, b_form);
    if (space.rank < 0 || path_between(own, other) || path_between(other, own) ||
        (b.has_reduced && reads_reduced(own, other)) || (a.has_reduced && reads_reduced(other, own)))
      return false;
    const bool whole = a.all_elements && b.all_elements && a_form == SpaceForm::element && b_form == SpaceForm::element;
    if (!whole && (reads_misaligned(own, other) || reads_misaligned(other, own))) return false;
    const int inside = a.count == 1 ? reads_of(a.first, other) : 0;
    Needs needs{a.inputs + b.inputs - inside, a.loads + b.loads - inside, a.uniforms + b.uniforms};
    // Few members can't have too many inputs or outputs, so counting is skipped.
    if ((members > max_group_inputs / 2 && needs.inputs > max_group_inputs) || !needs.fit_kernel(members)) {
      needs = count_needs(own, other, space.rank, a_form, b_form);
      if ((members > max_group_inputs / 2 && needs.inputs > max_group_inputs) || !needs.fit_kernel(members))
        return false;
    }
    int outputs = a.outputs + b.outputs;
    if (members > max_group_outputs && outputs > max_group_outputs) {
      outputs = read_outside(own, other);
      if (outputs > max_group_outputs) return false;
    }
    if (a.row_reductions + b.row_reductions >= max_row_passes && row_passes(own, other) > max_row_passes) return false;
    if (a_form != SpaceForm::element)
      for (std::int32_t id = a.first; id >= 0; id = state_[id].next) state_[id].form = a_form;
    if (b_form != SpaceForm::element)
      for (std::int32_t id = b.first; id >= 0; id = state_[id].next) state_[id].form = b_form;
    // The older group is kept, so that groups stay in the order of their creation.
    const int kept = own < other ? own : other, gone = own < other ? other : own;
    Group &to = group_[kept], &from = group_[gone];
    for (std::int32_t id = from.first; id >= 0; id = state_[id].next) state_[id].group = kept;
    to.space = space;
    to.has_reduced = to.has_reduced || from.has_reduced;
    to.all_elements = whole;
    to.row_reductions += from.row_reductions;
    to.inputs = needs.inputs;
    to.loads = needs.loads;
    to.uniforms = needs.uniforms;
    to.outputs = outputs;
    chain_members(to, from);
    dependencies_.merge(kept, gone);
    ++merges_;
    return true;
  }
  constexpr void chain_members(Group& to, const Group& from) {
    to.count += from.count;
    if (to.last < from.first) {
      at(to.last).next = from.first;
      to.last = from.last;
      return;
    }
    std::int32_t left = to.first, right = from.first, last = -1;
    while (left >= 0 || right >= 0) {
      std::int32_t& source = right < 0 || (left >= 0 && left < right) ? left : right;
      const std::int32_t id = source;
      source = at(id).next;
      (last < 0 ? to.first : at(last).next) = id;
      last = id;
    }
    to.last = last;
  }
  // Merges groups with one iteration space that read the same value, so that it is read once.
  constexpr void merge_readers() {
    std::int32_t* const first_reader = scratch_.data() + graph_.size;  // by value: 1 + the id of its first reader
    Growable<std::int32_t> listed(count(graph_.size));
    std::int32_t* const list = listed.data();
    const std::int32_t* const reads = reads_.data();
    for (int g = 0; g < dependencies_.count(); ++g) {
      if (!dependencies_.is_alive(g) || !group_[g].fused) continue;
      int members = 0;
      for (std::int32_t id = group_[g].first; id >= 0; id = state_[id].next) list[members++] = id;
      for (int m = 0; m < members; ++m) {
        const NodeState& state = state_[list[m]];
        for (std::int32_t r = state.first_read; r < state.last_read; ++r) {
          const int operand = reads[r];
          if (state_[operand].group == state.group || !(state_[operand].space == group_[state.group].space)) continue;
          std::int32_t& first = first_reader[operand];
          if (first > 0 && state_[first - 1].group != state.group &&
              group_[state_[first - 1].group].space == group_[state.group].space)
            merge(state.group, state_[first - 1].group);
          if (first == 0) first = list[m] + 1;
        }
      }
    }
  }
  /// What the kernel of a group needs: values of other groups, loads of these, and host scalars.
  struct Needs {
    int inputs, loads, uniforms;
    constexpr bool fit_kernel(int members) const {
      return loads <= max_loads && uniforms <= max_uniforms && members + loads + uniforms <= max_instructions;
    }
  };
  /// A value is loaded twice if one member reads it per row and another per element.
  constexpr Needs count_needs(int own, int other, int rank, SpaceForm a_form, SpaceForm b_form) {
    Needs needs{0, 0, 0};
    std::int32_t* const seen = scratch_.data();
    const auto members = [&](bool count) {
      for (int g : {own, other}) {
        const SpaceForm joint = g == own ? a_form : b_form;
        for (std::int32_t id = group_[g].first; id >= 0; id = state_[id].next) {
          const NodeState& state = state_[id];
          const Node& node = graph_.nodes[id];
          const std::int32_t* const operands = graph_.operands + node.first;
          for (int i = node.arity - 1; i >= 0; --i) {
            const int operand = operands[i];
            if (operand < 0 || has_operand(state.shape_only, i)) continue;
            const NodeState& from = state_[operand];
            if (!from.host && (from.group == own || from.group == other)) continue;
            if (!count) {
              seen[operand] = 0;
              continue;
            }
            const bool squeezed = state.kind == OpKind::reduction
                                      ? graph_.nodes[operand].rank != rank
                                      : (joint == SpaceForm::element ? state.form : joint) == SpaceForm::squeezed;
            const int bit = squeezed ? 2 : 1;
            if ((seen[operand] & bit) != 0) continue;
            (from.host ? needs.uniforms : needs.loads) += from.host && seen[operand] != 0 ? 0 : 1;
            needs.inputs += !from.host && seen[operand] == 0 ? 1 : 0;
            seen[operand] |= bit;
          }
        }
      }
    };
    members(true);
    members(false);
    return needs;
  }

  // The members of two groups that other groups read. Readers that are not in a group yet count as well: they may never
  // join.
  constexpr int read_outside(int own, int other) const {
    int outside = 0;
    const std::int32_t* const readers = readers_.data();
    for (int g : {own, other})
      for (std::int32_t id = group_[g].first; id >= 0; id = state_[id].next) {
        const NodeState& state = state_[id];
        bool read = state.is_output;
        for (std::int32_t r = state.first_reader; r < state.last_reader && !read; ++r) {
          const int by = state_[readers[r]].group;
          read = by != own && by != other;
        }
        outside += read ? 1 : 0;
      }
    return outside;
  }

  // The passes over a row of the merged group: each reduction along the row ends a pass.
  constexpr int row_passes(int own, int other) {
    std::int32_t* const passes = scratch_.data();
    int most = 0;
    for (std::int32_t a = group_[own].first, b = group_[other].first; a >= 0 || b >= 0;) {
      std::int32_t& source = b < 0 || (a >= 0 && a < b) ? a : b;
      const int id = source;
      source = at(id).next;
      int own_passes = 0;
      for (std::int32_t r = at(id).first_read; r < at(id).last_read; ++r)
        if (passes[reads_.data()[r]] > own_passes) own_passes = passes[reads_.data()[r]];
      if (at(id).kind == OpKind::reduction) ++own_passes;
      passes[id] = own_passes;
      if (own_passes > most) most = own_passes;
    }
    for (int g : {own, other})
      for (std::int32_t id = group_[g].first; id >= 0; id = state_[id].next) passes[id] = 0;
    return most + 1;
  }
};

}  // namespace detail
}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
