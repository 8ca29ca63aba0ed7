#ifndef TESSERA_GRAPH_GROUPER_HPP
#define TESSERA_GRAPH_GROUPER_HPP

#include <bit>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/graph/dim_classes.hpp>
#include <tessera/graph/space.hpp>

namespace tessera {

/// How a node of a fused group lies in the group's iteration space.
enum class SpaceForm : std::uint8_t {
  element,   ///< the whole space
  row,       ///< all but the last dim, which stays with extent 1
  squeezed,  ///< all but the last dim
  reduced,   ///< a result over some of the dims, made of the whole group: nothing in the group can read it
};

namespace detail {

/// Collects nodes into groups that run as one kernel. A node joins the groups of its operands when they share an
/// iteration space, when no path leads from one to the other through a third, and while the kernel stays small.
/// Whole programs are grouped in constant expressions, where a statement costs and an expression does not: hence plain
/// arrays, and masks of bits.
class Grouper {
 public:
  static constexpr int max_members = 56, max_group_inputs = 20, max_group_outputs = 24, max_row_passes = 6;

  struct Group {
    Space space;
    bool fused = false, alive = true;
    bool has_reduced = false;     ///< some member is in the form that only the finished group has
    bool has_dependents = false;  ///< some group depends on it
    bool alone = false;           ///< takes no other group in
    std::int32_t row_reductions = 0;
    std::int32_t first = -1, last = -1, count = 0;  ///< members by rising id, chained by next_member
  };

  constexpr explicit Grouper(const GraphView& graph)
      : graph_(graph), places_(count(graph.size)), groups_(count(graph.size)), words_(count(graph.size) / 64 + 1),
        reach_(words_ * count(graph.size)), alive_(words_), scratch_(count(graph.size)) {
    describe_nodes();
    list_reads();
    find_additions();
    for (int id = 0; id < graph.size; ++id) place(id);
    merge_readers();
    sort_groups();
  }
  Grouper(const Grouper&) = delete;
  Grouper& operator=(const Grouper&) = delete;

  /// The groups in an order in which they can run.
  constexpr const Growable<std::int32_t>& order() const { return order_; }
  constexpr const Group& group(int g) const { return groups_.data()[g]; }
  constexpr int next_member(int id) const { return at(id).next; }

  constexpr int group_of(int id) const { return at(id).group; }
  constexpr bool is_host(int id) const { return at(id).host; }
  constexpr SpaceForm form_of(int id) const { return at(id).form; }
  constexpr OpKind kind(int id) const { return at(id).kind; }
  constexpr const Space& space_of(int id) const { return at(id).space; }
  /// Of an add: the einsum that it absorbs, or -1.
  constexpr int addition(int id) const { return at(id).addition; }
  /// Whether the node reads the elements of an operand.
  constexpr bool reads(int id, int i) const { return graph_.operand(id, i) >= 0 && !has_operand(at(id).shape_only, i); }
  constexpr bool leaves_group(int id) const {
    if (at(id).is_output) return true;
    for (std::int32_t r = at(id).first_reader; r < at(id).last_reader; ++r)
      if (at(readers_.data()[r]).group != at(id).group) return true;
    return false;
  }

 private:
  /// What is known of one node.
  struct Place {
    Space space;
    std::int32_t uses = 0;
    std::int32_t addition = -1;  ///< of an add: the einsum that it absorbs
    std::int32_t absorbed = -1;  ///< of an einsum: the add that absorbs it
    std::int32_t group = -1;
    std::int32_t next = -1;                          ///< member of the group
    std::int32_t first_read = 0, last_read = 0;      ///< values whose elements it reads, host scalars aside
    std::int32_t first_reader = 0, last_reader = 0;  ///< nodes that read it so
    OpKind kind = OpKind::source;
    std::uint8_t shape_only = 0;
    SpaceForm form = SpaceForm::element;
    bool host = false, is_output = false;
  };

  GraphView graph_;
  Growable<Place> places_;
  Growable<Group> groups_;
  int group_count_ = 0;
  std::size_t words_;              // of a set of groups
  Growable<std::uint64_t> reach_;  // groups that a group depends on, one bit each
  Growable<std::uint64_t> alive_;
  Growable<std::int32_t> reads_, readers_, order_;
  Growable<std::int32_t> scratch_;

  static constexpr std::size_t count(int i) { return static_cast<std::size_t>(i); }
  constexpr Place& at(int id) { return places_.data()[id]; }
  constexpr const Place& at(int id) const { return places_.data()[id]; }
  constexpr std::uint64_t* reach(int g) { return reach_.data() + words_ * static_cast<std::size_t>(g); }
  constexpr const std::uint64_t* reach(int g) const { return reach_.data() + words_ * static_cast<std::size_t>(g); }
  /// How many words of a set are in use.
  constexpr int used_words() const { return group_count_ / 64 + 1; }

  constexpr void describe_nodes() {
    const DimClasses classes(graph_);
    Place* const places = places_.data();
    for (int id = 0; id < graph_.size; ++id) {
      Place& place = places[id];
      const Node& node = graph_.nodes[id];
      const OpRow& row = row_of(node.op);
      place.kind = row.kind;
      place.shape_only = row.shape_only;
      place.space.rank = node.rank;
      for (int d = 0; d < node.rank; ++d) place.space.dims[d] = classes.of(id, d);
      const std::int32_t* const operands = graph_.operands + node.first;
      bool host = node.rank == 0 && (is_host_source(node.op) || row.kind == OpKind::elementwise);
      const bool computed = host && !is_host_source(node.op);
      for (int i = 0; i < node.arity; ++i)
        if (operands[i] >= 0) {
          ++places[operands[i]].uses;
          host = host && (!computed || places[operands[i]].host);
        }
      place.host = host;
    }
    for (int k = 0; k < graph_.output_count; ++k)
      if (const int id = graph_.outputs[k]; id >= 0) {
        ++places[id].uses;
        places[id].is_output = true;
      }
  }

  constexpr void list_reads() {
    Place* const places = places_.data();
    for (int id = 0; id < graph_.size; ++id) {
      Place& place = places[id];
      const Node& node = graph_.nodes[id];
      const std::int32_t* const operands = graph_.operands + node.first;
      place.first_read = static_cast<std::int32_t>(reads_.size());
      for (int i = 0; i < node.arity; ++i)
        if (operands[i] >= 0 && !has_operand(place.shape_only, i) && !places[operands[i]].host) {
          ++places[operands[i]].last_reader;
          reads_.push_back(operands[i]);
        }
      place.last_read = static_cast<std::int32_t>(reads_.size());
    }
    // So far last_reader is how many there are.
    std::int32_t next = 0;
    for (int id = 0; id < graph_.size; ++id) {
      next += places[id].last_reader;
      places[id].first_reader = places[id].last_reader = next - places[id].last_reader;
    }
    readers_ = Growable<std::int32_t>(reads_.size());
    for (int id = 0; id < graph_.size; ++id)
      for (std::int32_t r = places[id].first_read; r < places[id].last_read; ++r)
        readers_.data()[places[reads_.data()[r]].last_reader++] = id;
  }

  // The sum of two products needs no pass of its own: the second product is added to the first in place.
  constexpr void find_additions() {
    Place* const places = places_.data();
    const Node* const nodes = graph_.nodes;
    for (int id = 0; id < graph_.size; ++id) {
      if (nodes[id].op != Op::add || !is_floating(nodes[id].dtype)) continue;
      for (int i = 1; i >= 0 && places[id].addition < 0; --i) {
        const int product = graph_.operands[nodes[id].first + i], base = graph_.operands[nodes[id].first + 1 - i];
        const bool fits = nodes[product].op == Op::einsum && places[product].uses == 1 && places[base].uses == 1 &&
                          places[base].absorbed < 0 && places[product].absorbed < 0 &&
                          (nodes[base].op == Op::einsum || places[base].addition >= 0) &&
                          places[product].space == places[base].space;
        if (!fits) continue;
        places[id].addition = product;
        places[product].absorbed = id;
      }
    }
  }

  constexpr bool read_once(int id) const { return !at(id).is_output && at(id).last_reader - at(id).first_reader == 1; }
  /// A product of bf16, with a bias or without, that is only read rounded is stored rounded: its rounding does not wait
  /// for a reader's kernel.
  constexpr bool rounds_product(int id) const {
    const Node* const nodes = graph_.nodes;
    if (nodes[id].op != Op::cast || nodes[id].dtype != DType::bf16) return false;
    int product = graph_.operands[nodes[id].first];
    if (nodes[product].op == Op::add && read_once(product)) {
      const std::int32_t* const terms = graph_.operands + nodes[product].first;
      if (nodes[terms[1]].rank == 1 && !at(terms[1]).host) product = terms[0];
    }
    return nodes[product].op == Op::einsum && read_once(product) && graph_.operands[nodes[product].first] >= 0 &&
           nodes[graph_.operands[nodes[product].first]].dtype == DType::bf16;
  }

  constexpr void place(int id) {
    Place& own = at(id);
    const Node& node = graph_.nodes[id];
    if (own.host || node.op == Op::argument) return;
    if (node.op == Op::project) {
      own.group = at(graph_.operands[node.first]).group;
      return;
    }
    if (own.absorbed >= 0) return;  // placed with the sum that absorbs it
    if (own.kind == OpKind::attention)
      if (const int joined = group_to_join(id); joined >= 0) return join(joined, id);
    const int g = group_count_++;
    Group& made = groups_.data()[g];
    made.first = made.last = id;
    made.count = 1;
    made.fused = own.addition < 0 &&
                 (own.kind == OpKind::elementwise || own.kind == OpKind::index || own.kind == OpKind::reduction);
    made.space = own.space;
    alive_.data()[g / 64] |= std::uint64_t{1} << (g % 64);
    if (made.fused && own.kind == OpKind::reduction) {
      made.space = at(graph_.operands[node.first]).space;
      const Reduced reduced = Reduced::of(node);
      const bool row_only = made.space.rank > 1 && reduced.dims == 1u << (made.space.rank - 1);
      own.form = !row_only ? SpaceForm::reduced : reduced.keep ? SpaceForm::row : SpaceForm::squeezed;
      made.has_reduced = !row_only;
      made.row_reductions = row_only ? 1 : 0;
    }
    own.group = g;
    add_dependencies(g, id);
    if (own.addition >= 0) {
      at(own.addition).group = g;
      add_dependencies(g, own.addition);
    }
    if (!made.fused) return;
    for (std::int32_t r = own.first_read; r < own.last_read; ++r) {
      const Place& operand = at(reads_.data()[r]);
      if (operand.group >= 0 && operand.group != own.group && groups_.data()[operand.group].fused &&
          operand.form != SpaceForm::reduced)
        merge(own.group, operand.group);
    }
    groups_.data()[own.group].alone = rounds_product(id);
  }

  /// The group of a companion, as the row says; -1 where a group of its own is due. The companion depends on nothing
  /// that this node does not, and nobody has read it yet or both read the same: no path leads out of the group and
  /// back.
  constexpr int group_to_join(int id) const {
    const Node& node = graph_.nodes[id];
    const OpRow& row = row_of(node.op);
    if (row.joins_operand >= 0) {
      const Place& operand = at(graph_.operands[node.first + row.joins_operand]);
      if (operand.kind == row.kind && readers_.data()[operand.first_reader] == id) return operand.group;
    }
    if (!row.joins_alike) return -1;
    const Place& operand = at(graph_.operands[node.first]);
    for (std::int32_t r = operand.first_reader; r < operand.last_reader; ++r) {
      const int other = readers_.data()[r];
      if (other >= id || graph_.nodes[other].op != node.op) continue;
      bool alike = true;
      for (int i = 0; i < node.arity; ++i)
        alike = alike && graph_.operands[graph_.nodes[other].first + i] == graph_.operands[node.first + i];
      if (alike && graph_.nodes[other].labels[0] == node.labels[0]) return at(other).group;
    }
    return -1;
  }
  constexpr void join(int g, int id) {
    Group& group = groups_.data()[g];
    at(id).group = g;
    at(group.last).next = id;
    group.last = id;
    ++group.count;
    add_dependencies(g, id);
  }

  constexpr void add_dependencies(int g, int id) {
    for (std::int32_t r = at(id).first_read; r < at(id).last_read; ++r)
      if (const int other = at(reads_.data()[r]).group; other >= 0 && other != g) depend(g, other);
  }
  constexpr bool reaches(int from, int to) const { return (reach(from)[to / 64] >> (to % 64) & 1) != 0; }
  constexpr void absorb_reach(int from, int to) {
    std::uint64_t* const bits = reach(from);
    const std::uint64_t* const more = reach(to);
    for (int w = used_words() - 1; w >= 0; --w) bits[w] |= more[w];
  }
  /// Whether `from` depends on all that `to` depends on, the two aside.
  constexpr bool covers(int from, int to) const {
    const std::uint64_t *const own = reach(from), *const bits = reach(to);
    for (int w = used_words() - 1; w >= 0; --w)
      if ((bits[w] & ~own[w] & ~(from / 64 == w ? std::uint64_t{1} << (from % 64) : 0)) != 0) return false;
    return true;
  }
  constexpr void depend(int g, int other) {
    groups_.data()[other].has_dependents = true;
    reach(g)[other / 64] |= std::uint64_t{1} << (other % 64);
    absorb_reach(g, other);
  }

  // Whether a path leads from group a to group b through some third group.
  constexpr bool path_between(int a, int b) const {
    const std::uint64_t* const bits = reach(a);
    if ((bits[b / 64] >> (b % 64) & 1) == 0) return false;
    const std::uint64_t* const to_b = reach_.data() + b / 64;
    for (int w = used_words() - 1; w >= 0; --w)
      for (std::uint64_t left = bits[w] & alive_.data()[w] & ~(a / 64 == w ? std::uint64_t{1} << (a % 64) : 0) &
                                ~(b / 64 == w ? std::uint64_t{1} << (b % 64) : 0);
           left != 0; left &= left - 1)
        if ((to_b[words_ * (static_cast<std::size_t>(w) * 64 + static_cast<std::size_t>(std::countr_zero(left)))] >>
                 (b % 64) &
             1) != 0)
          return true;
    return false;
  }
  /// Some member of b is read by a in the form that only the finished group has.
  constexpr bool reads_reduced(int a, int b) const {
    if (!groups_.data()[b].has_reduced) return false;
    for (std::int32_t id = groups_.data()[a].first; id >= 0; id = at(id).next)
      for (std::int32_t r = at(id).first_read; r < at(id).last_read; ++r)
        if (const Place& operand = at(reads_.data()[r]); operand.group == b && operand.form == SpaceForm::reduced)
          return true;
    return false;
  }
  constexpr bool all_elements(const Group& group) const {
    for (std::int32_t id = group.first; id >= 0; id = at(id).next)
      if (at(id).form != SpaceForm::element) return false;
    return true;
  }
  static constexpr SpaceForm form_within(const Group& outer, const Group& inner) {
    return outer.space.has_row(inner.space)            ? SpaceForm::row
           : outer.space.has_squeezed_row(inner.space) ? SpaceForm::squeezed
                                                       : SpaceForm::element;
  }
  /// The space that two groups share when the members of the smaller are at most one value a row; rank -1 when none.
  constexpr Space joint_space(const Group& a, const Group& b, SpaceForm& a_form, SpaceForm& b_form) const {
    a_form = b_form = SpaceForm::element;
    if (a.space == b.space) return a.space;
    const SpaceForm b_in_a = form_within(a, b);
    if (b_in_a != SpaceForm::element && all_elements(b)) {
      b_form = b_in_a;
      return a.space;
    }
    const SpaceForm a_in_b = form_within(b, a);
    if (a_in_b != SpaceForm::element && all_elements(a)) {
      a_form = a_in_b;
      return b.space;
    }
    return {-1, {}};
  }

  constexpr void merge(int own, int other) {
    const Group &a = groups_.data()[own], &b = groups_.data()[other];
    const int members = a.count + b.count;
    if (members > max_members || a.alone || b.alone) return;
    SpaceForm a_form, b_form;
    const Space space = joint_space(a, b, a_form, b_form);
    if (space.rank < 0 || path_between(own, other) || path_between(other, own) || reads_reduced(own, other) ||
        reads_reduced(other, own))
      return;
    // Few members can't have many inputs, or results.
    if (members > max_group_inputs / 2 && external_inputs(own, other) > max_group_inputs) return;
    if (members > max_group_outputs && read_outside(own, other) > max_group_outputs) return;
    if (a.row_reductions + b.row_reductions >= max_row_passes && row_passes(own, other) > max_row_passes) return;
    if (a_form != SpaceForm::element)
      for (std::int32_t id = a.first; id >= 0; id = at(id).next) at(id).form = a_form;
    if (b_form != SpaceForm::element)
      for (std::int32_t id = b.first; id >= 0; id = at(id).next) at(id).form = b_form;
    // The older group goes on, so that groups keep their order of creation.
    const int kept = own < other ? own : other, gone = own < other ? other : own;
    Group &to = groups_.data()[kept], &from = groups_.data()[gone];
    for (std::int32_t id = from.first; id >= 0; id = at(id).next) at(id).group = kept;
    to.space = space;
    to.has_reduced = to.has_reduced || from.has_reduced;
    to.row_reductions += from.row_reductions;
    chain_members(to, from);
    from.alive = false;
    alive_.data()[gone / 64] &= ~(std::uint64_t{1} << (gone % 64));
    // Whoever depends on one of the two now depends on both, and on all that they depend on.
    const bool grows = from.has_dependents || (to.has_dependents && (!covers(kept, gone) || !covers(gone, kept)));
    absorb_reach(kept, gone);
    if (grows)
      for (int k = 0; k < group_count_; ++k)
        if (k != kept && groups_.data()[k].alive && (reaches(k, kept) || reaches(k, gone))) depend(k, kept);
    to.has_dependents = to.has_dependents || from.has_dependents;
    reach(kept)[kept / 64] &= ~(std::uint64_t{1} << (kept % 64));
    reach(kept)[gone / 64] &= ~(std::uint64_t{1} << (gone % 64));
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
  // Groups that read one value over one space read it once.
  constexpr void merge_readers() {
    Growable<std::int32_t> first_reader(places_.size());  // 1 + its id
    for (int g = 0; g < group_count_; ++g) {
      if (!groups_.data()[g].alive || !groups_.data()[g].fused) continue;
      int members = 0;
      for (std::int32_t id = groups_.data()[g].first; id >= 0; id = at(id).next) scratch_.data()[members++] = id;
      for (int m = 0; m < members; ++m) {
        const Place& place = at(scratch_.data()[m]);
        for (std::int32_t r = place.first_read; r < place.last_read; ++r) {
          const int operand = reads_.data()[r];
          if (at(operand).group == place.group || !(at(operand).space == groups_.data()[place.group].space)) continue;
          std::int32_t& first = first_reader.data()[operand];
          if (first > 0 && at(first - 1).group != place.group &&
              groups_.data()[at(first - 1).group].space == groups_.data()[place.group].space)
            merge(place.group, at(first - 1).group);
          if (first == 0) first = scratch_.data()[m] + 1;
        }
      }
    }
  }
  constexpr int external_inputs(int own, int other) const {
    Growable<std::int32_t> seen;
    for (int g : {own, other})
      for (std::int32_t id = groups_.data()[g].first; id >= 0; id = at(id).next)
        for (std::int32_t r = at(id).first_read; r < at(id).last_read; ++r) {
          const int operand = reads_.data()[r];
          if (at(operand).group == own || at(operand).group == other) continue;
          bool known = false;
          for (std::int32_t s : seen) known = known || s == operand;
          if (!known) seen.push_back(operand);
        }
    return static_cast<int>(seen.size());
  }

  // Members of two groups that others read. Readers without a group yet count too: they may never join.
  constexpr int read_outside(int own, int other) const {
    int outside = 0;
    for (int g : {own, other})
      for (std::int32_t id = groups_.data()[g].first; id >= 0; id = at(id).next) {
        const Place& place = at(id);
        bool read = place.is_output;
        for (std::int32_t r = place.first_reader; r < place.last_reader && !read; ++r) {
          const int by = at(readers_.data()[r]).group;
          read = by != own && by != other;
        }
        outside += read ? 1 : 0;
      }
    return outside;
  }

  // Passes over a row that two groups take as one: each reduction along the row ends one.
  constexpr int row_passes(int own, int other) const {
    Growable<std::int32_t> passes(places_.size());
    int most = 0;
    for (std::int32_t a = groups_.data()[own].first, b = groups_.data()[other].first; a >= 0 || b >= 0;) {
      std::int32_t& source = b < 0 || (a >= 0 && a < b) ? a : b;
      const int id = source;
      source = at(id).next;
      int own_passes = 0;
      for (std::int32_t r = at(id).first_read; r < at(id).last_read; ++r)
        if (passes.data()[reads_.data()[r]] > own_passes) own_passes = passes.data()[reads_.data()[r]];
      if (at(id).kind == OpKind::reduction) ++own_passes;
      passes.data()[id] = own_passes;
      if (own_passes > most) most = own_passes;
    }
    return most + 1;
  }

  // Runnable order: always the first group, by its first member, whose dependencies have run.
  constexpr void sort_groups() {
    Growable<std::uint64_t> left(alive_);
    std::uint64_t* const waiting = left.data();
    const int words = used_words();
    for (bool some = true; some;) {
      const std::size_t before = order_.size();
      some = false;
      for (int w = 0; w < words; ++w)
        for (std::uint64_t groups = waiting[w]; groups != 0; groups &= groups - 1) {
          const int g = w * 64 + std::countr_zero(groups);
          const std::uint64_t* const needs = reach(g);
          std::uint64_t missing = 0;
          for (int v = 0; v < words; ++v) missing |= needs[v] & waiting[v];
          if (missing != 0) {
            some = true;
            continue;
          }
          waiting[w] &= ~(std::uint64_t{1} << (g % 64));
          order_.push_back(g);
        }
      if (some && order_.size() == before) fail(errc::graph_invalid, "[group] order: groups depend on each other");
    }
  }
};

}  // namespace detail
}  // namespace tessera

#endif
