#ifndef TESSERA_GRAPH_VERIFY_HPP
#define TESSERA_GRAPH_VERIFY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/graph/attributes.hpp>
#include <tessera/graph/program.hpp>
#include <tessera/graph/row.hpp>
#include <tessera/graph/value.hpp>

namespace tessera {

/// The first rule that a program breaks; false when there is none.
struct Defect {
  int graph = -1, node = -1;
  std::string_view rule;
  constexpr explicit operator bool() const { return !rule.empty(); }
};

namespace detail {

/// Checks one graph of a program, node by node. Each check returns the rule that is broken, or nothing.
class GraphVerifier {
 public:
  constexpr GraphVerifier(const ProgramView& program, int index)
      : program_(program), graph_(program.graphs[index]), index_(index) {}

  constexpr Defect run() const {
    for (int id = 0; id < graph_.size; ++id)
      if (const std::string_view rule = check(id); !rule.empty()) return {index_, id, rule};
    for (int k = 0; k < graph_.output_count; ++k)
      if (graph_.outputs[k] < 0 || graph_.outputs[k] >= graph_.size)
        return {index_, -1, "an output is a node of the graph"};
    return {};
  }

 private:
  using Rule = std::string_view;
  const ProgramView& program_;
  const GraphView& graph_;
  int index_;

  static constexpr bool same_type(const Node& x, const Node& y) {
    return build::same_static_shape(x, y) && x.dtype == y.dtype;
  }
  /// x with one more dim in front.
  static constexpr bool stacks(const Node& stacked, const Node& x) {
    return stacked.dtype == x.dtype && stacked.rank == x.rank + 1 &&
           stacked.unit == static_cast<std::uint8_t>(x.unit << 1);
  }

  constexpr Rule check(int id) const {
    const Node& node = graph_[id];
    const OpRow& row = row_of(node);
    if (row.arity != any_arity && node.arity != row.arity) return "a node has as many operands as its row says";
    for (int i = 0; i < node.arity; ++i) {
      const int operand = graph_.operand(id, i);
      if (operand >= id) return "operands stand before their users";
      if (operand < 0 && !(node.op == Op::rearrange && i > 0)) return "only sizes of a rearrange may be absent";
      if (operand >= 0 && (graph_[operand].op == Op::repeat) != (node.op == Op::project))
        return "a repeat is read through its projections, and these read nothing else";
    }
    if (node.op == Op::repeat) return check_repeat(id);
    if (node.rank > max_rank || node.unit >> node.rank != 0) return "a dim is one of the rank";
    switch (row.kind) {
      case OpKind::source:
        return check_source(id);
      case OpKind::index:
        if (dim_of(node) < 0 || dim_of(node) >= node.rank) return "the dim is one of the rank";
        if (node.op == Op::arange)
          return is_size(id, 0) && node.rank == 1 && node.unit == 0 ? Rule{} : "as many numbers as the operand says";
        return build::same_static_shape(node, x(id, 0)) ? Rule{} : "the result has the shape of the operand";
      case OpKind::random:
        if (x(id, 1).rank != 0) return "a key is a number";
        return same_type(node, x(id, 0)) ? Rule{} : "the result has the type of the operand";
      case OpKind::constraint:
        if (node.op == Op::constraint && node.index() < 0) return "a constraint has a spec";
        if (node.op == Op::alike && !build::same_static_shape(node, x(id, 1))) return "what is alike has one shape";
        return same_type(node, x(id, 0)) ? Rule{} : "the result has the type of the operand";
      case OpKind::elementwise:
        return check_elementwise(id);
      case OpKind::reduction:
        return check_reduction(id);
      case OpKind::contraction:
        return check_einsum(id);
      case OpKind::layout:
        return node.op == Op::rearrange ? check_rearrange(id)
               : node.op == Op::windows ? check_windows(id, node, x(id, 0))
                                        : check_along_dim(id);
      case OpKind::fold:
        return check_windows(id, x(id, 0), node);
      case OpKind::indexed:
        return check_indexed(id);
      case OpKind::scan:
        if (dim_of(node) < 0 || dim_of(node) >= node.rank) return "the dim is one of the rank";
        return same_type(node, x(id, 0)) ? Rule{} : "the result has the type of the operand";
      case OpKind::sort:
        return check_sort(id);
      case OpKind::attention:
        return check_attention(id);
      case OpKind::control:
        return check_project(id);
    }
    return {};
  }
  constexpr const Node& x(int id, int i) const { return graph_.operand_node(id, i); }
  constexpr bool is_size(int id, int i) const { return x(id, i).rank == 0 && x(id, i).dtype == DType::i64; }

  constexpr Rule check_source(int id) const {
    const Node& node = graph_[id];
    if (node.op == Op::argument)
      return node.index() < 0 || (index_ == 0 && node.index() >= program_.argument_count)
                 ? "an argument is one of the program's"
                 : Rule{};
    if (node.rank != 0) return "a number has rank 0";
    if ((node.op == Op::dim || node.op == Op::extent || node.op == Op::axis_size) && node.dtype != DType::i64)
      return "a size is a 64-bit integer";
    if (node.op == Op::extent && (dim_of(node) < 0 || dim_of(node) >= x(id, 0).rank))
      return "the dim is one of the operand's";
    return {};
  }

  constexpr Rule check_elementwise(int id) const {
    const Node& node = graph_[id];
    int rank = 0;
    for (int i = 0; i < node.arity; ++i) rank = rank < x(id, i).rank ? x(id, i).rank : rank;
    unsigned unit = 0;
    for (int d = 0; d < rank; ++d) {
      bool all = true;
      for (int i = 0; i < node.arity; ++i)
        if (const int own = d - (rank - x(id, i).rank); own >= 0 && !x(id, i).is_unit(own)) all = false;
      if (all) unit |= 1u << d;
    }
    if (node.rank != rank || node.unit != unit) return "the result has the dims of its operands, broadcast";
    if (node.op == Op::broadcast && !build::same_static_shape(node, x(id, 1)))
      return "a broadcast has the shape of its second operand";
    if (node.op == Op::cast) return {};
    const bool chooses = node.op == Op::select;
    if (chooses && x(id, 0).dtype != DType::bool_) return "a condition is a bool";
    for (int i = chooses ? 1 : 0; i < node.arity; ++i) {
      if (has_operand(row_of(node).shape_only, i)) continue;
      if (x(id, i).dtype != x(id, chooses ? 1 : 0).dtype) return "operands have one element type";
      if (!row_of(node).predicate && x(id, i).dtype != node.dtype)
        return "the result has the element type of its operands";
    }
    return row_of(node).predicate && node.dtype != DType::bool_ ? "a comparison gives bools" : Rule{};
  }

  constexpr Rule check_reduction(int id) const {
    const Node &node = graph_[id], &from = x(id, 0);
    const Reduced reduced = Reduced::of(node);
    if (reduced.dims == 0 || reduced.dims >> from.rank != 0) return "reduced dims are dims of the operand";
    int rank = 0;
    unsigned unit = 0;
    for (int d = 0; d < from.rank; ++d) {
      if (reduced.has(d) && !reduced.keep) continue;
      if (reduced.has(d) || from.is_unit(d)) unit |= 1u << rank;
      ++rank;
    }
    return node.rank == rank && node.unit == unit && node.dtype == from.dtype ? Rule{}
                                                                              : "the result has the dims that are kept";
  }

  constexpr Rule check_einsum(int id) const {
    const Node &node = graph_[id], &a = x(id, 0), &b = x(id, 1);
    const EinsumLabels labels = EinsumLabels::of(node);
    const std::int8_t* lists[] = {labels.a, labels.b, labels.out};
    const int ranks[] = {a.rank, b.rank, node.rank};
    for (int list = 0; list < 3; ++list)
      for (int d = 0; d < max_rank; ++d) {
        const int label = lists[list][d];
        if ((d < ranks[list]) != (label >= 0) || label >= 24) return "a dim has a label, and nothing else has one";
        for (int e = 0; e < d; ++e)
          if (label >= 0 && lists[list][e] == label) return "a label stands once in an operand";
      }
    for (int d = 0; d < node.rank; ++d) {
      bool found = false, unit = true;
      for (int list = 0; list < 2; ++list)
        for (int e = 0; e < ranks[list]; ++e)
          if (lists[list][e] == labels.out[d]) {
            found = true;
            unit = unit && x(id, list).is_unit(e);
          }
      if (!found) return "a label of the result is one of an operand";
      if (unit != node.is_unit(d)) return "a dim has static extent 1 when it has in every operand";
    }
    return node.dtype == computed_as(a.dtype) && a.dtype == b.dtype
               ? Rule{}
               : "operands have one element type, and the result that of its products";
  }

  constexpr Rule check_rearrange(int id) const {
    const Node &node = graph_[id], &from = x(id, 0);
    const Factors f = Factors::of(node);
    if (node.arity != 1 && node.arity != f.count + 1) return "a rearrange has a size for each part, or none";
    unsigned placed = 0, factored = 0, unit = (1u << node.rank) - 1;
    for (int p = 0; p < f.count; ++p) {
      if (f.in_dim[p] >= from.rank || f.out_dim[p] < 0 || f.out_dim[p] >= node.rank || f.order[p] < 0 ||
          f.order[p] >= f.count)
        return "parts lie in dims";
      if (p > 0 && (f.in_dim[p] < f.in_dim[p - 1] || f.out_dim[p] < f.out_dim[p - 1])) return "parts are in order";
      placed |= 1u << f.order[p];
      factored |= 1u << f.in_dim[p];
      if (!from.is_unit(f.in_dim[static_cast<int>(f.order[p])])) unit &= ~(1u << f.out_dim[p]);
      if (node.arity > 1 && graph_.operand(id, 1 + p) >= 0 && !is_size(id, 1 + p)) return "a size is a number";
    }
    if (placed != (1u << f.count) - 1) return "every part has one place in the result";
    if ((factored | from.unit) != (1u << from.rank) - 1) return "only dims of static extent 1 have no parts";
    return node.unit == unit && node.dtype == from.dtype ? Rule{} : "the result has the type that its parts make";
  }

  // slice, pad, concat
  constexpr Rule check_along_dim(int id) const {
    const Node& node = graph_[id];
    const int dim = dim_of(node);
    if (dim < 0 || dim >= node.rank) return "the dim is one of the rank";
    const bool joins = node.op == Op::concat;
    for (int i = 0; i < (joins ? node.arity : 1); ++i) {
      const Node& from = x(id, i);
      if (from.rank != node.rank || from.dtype != node.dtype || ((from.unit ^ node.unit) & ~(1u << dim)) != 0)
        return "only the extent of one dim changes";
    }
    if (joins) return {};
    if (node.op == Op::permute) {
      for (int i = 1; i < node.arity; ++i)
        if (!is_size(id, i)) return "places are numbers";
      return node.unit == x(id, 0).unit ? Rule{} : "the result has the type of the operand";
    }
    if (!is_size(id, 1)) return "a start is a number";
    if (node.op == Op::slice) return is_size(id, 2) ? Rule{} : "a size is a number";
    return is_size(id, 2) || build::same_static_shape(node, x(id, 2)) ? Rule{}
                                                                      : "a pad has the shape of its third operand";
  }

  constexpr Rule check_indexed(int id) const {
    const Node& node = graph_[id];
    const bool gathers = node.op == Op::gather;
    const Node &table = gathers ? x(id, 0) : node, &rows = gathers ? node : x(id, 0), &index = x(id, 1);
    if (is_floating(index.dtype) || index.dtype == DType::bool_) return "indices are integers";
    if (table.rank < 1 || rows.rank != index.rank + table.rank - 1 || rows.dtype != table.dtype)
      return "rows have the dims of the indices and of a row";
    if (!gathers && !same_type(node, x(id, 2))) return "the result has the type of the table";
    return rows.unit == (index.unit | (table.unit >> 1) << index.rank)
               ? Rule{}
               : "rows have the dims of the indices and of a row";
  }

  /// `runs` has two dims where `line` has one.
  constexpr Rule check_windows(int id, const Node& runs, const Node& line) const {
    const int dim = dim_of(graph_[id]);
    if (dim < 0 || dim >= line.rank) return "the dim is one of the rank";
    const unsigned before = (1u << dim) - 1, after = unsigned{line.unit} >> (dim + 1);
    if (runs.rank != line.rank + 1 || runs.dtype != line.dtype || ((runs.unit ^ line.unit) & before) != 0 ||
        unsigned{runs.unit} >> (dim + 2) != after)
      return "one dim is two of the other";
    return is_size(id, 1) && is_size(id, 2) && is_size(id, 3) ? Rule{} : "sizes and steps are numbers";
  }
  constexpr Rule check_sort(int id) const {
    const Node &node = graph_[id], &from = x(id, 0);
    const int dim = dim_of(node);
    if (dim < 0 || dim >= node.rank) return "the dim is one of the rank";
    const bool finds = node.op == Op::argsort;
    for (int i = 0; i < (finds ? 1 : node.arity); ++i)
      if (x(id, i).rank != node.rank || ((x(id, i).unit ^ node.unit) & ~(1u << dim)) != 0)
        return "only the extent of one dim changes";
    const DType index = finds ? node.dtype : x(id, 1).dtype;
    if (index != DType::i32 && index != DType::i64) return "indices are integers";
    if (finds) return node.arity == 1 || (node.arity == 2 && is_size(id, 1)) ? Rule{} : "how many is a number";
    if (node.op == Op::put_along && !build::same_static_shape(node, x(id, 2)))
      return "the result has the shape of the third operand";
    return node.dtype == from.dtype ? Rule{} : "elements keep their type";
  }

  constexpr Rule check_attention(int id) const {
    const Node &node = graph_[id], &q = x(id, 0), &k = x(id, 1);
    const bool plain = node.op == Op::attention_lse;
    const bool is_gradient = node.op == Op::attention_grad;
    const DType type = q.dtype, wide = computed_as(type);
    for (int i = 0; i < node.arity; ++i)
      if (const bool sum = i == node.arity - 1 || (!plain && i == (is_gradient ? 4 : 3));
          x(id, i).dtype != (sum ? wide : type))
        return "operands and result have one element type";
    if (node.dtype != (plain || is_gradient ? wide : type)) return "operands and result have one element type";
    if (!is_floating(type)) return "attention is of floating numbers";
    if (x(id, node.arity - 1).rank != 0) return "a scale is a number";
    if (q.rank != 4 || k.rank != 4 || (!plain && x(id, 2).rank != 4)) return "queries, keys and values have rank 4";
    const auto unit = [](const Node& a, int d) { return static_cast<unsigned>(a.is_unit(d)); };
    const unsigned lse = unit(q, 0) | unit(q, 2) << 1 | unit(q, 1) << 2;
    if (plain) return node.rank == 3 && node.unit == lse ? Rule{} : "a row has one logarithm";
    const unsigned out = (q.unit & 7u) | unit(x(id, 2), 3) << 3;
    if (const Node& rows = x(id, is_gradient ? 4 : 3); rows.rank != 3 || rows.unit != lse)
      return "a row has one logarithm";
    if (!is_gradient)
      return node.rank == 4 && node.unit == out ? Rule{}
                                                : "the result has the dims of the queries, and the width of the values";
    for (int i : {3, 5})
      if (x(id, i).rank != 4 || x(id, i).unit != out)
        return "a result has the dims of the queries, and the width of the values";
    if (node.labels[1] < 0 || node.labels[1] > 2) return "a gradient is of queries, keys or values";
    const Node& of = x(id, node.labels[1]);
    return node.rank == of.rank && node.unit == of.unit ? Rule{} : "a gradient has the dims of what it is of";
  }

  constexpr Rule check_repeat(int id) const {
    const Node& node = graph_[id];
    const Repeat repeat = Repeat::of(node);
    if (node.index() <= 0 || node.index() >= program_.graph_count || node.index() == index_)
      return "a repeat has a body of its own";
    const GraphView& body = program_.graphs[node.index()];
    if (repeat.carried + repeat.stacked + (repeat.counted ? 1 : 0) > node.arity)
      return "carried and stacked values are operands";
    if (repeat.counted == (repeat.stacked > 0))
      return "a repeat has stacked operands, or a number, to count its layers";
    if (repeat.counted && (x(id, node.arity - 1).rank != 0 || is_floating(x(id, node.arity - 1).dtype)))
      return "a number that counts layers is an integer";
    if (body.output_count < repeat.carried) return "a body gives every carried value";
    for (int k = 0; k < repeat.carried; ++k)
      if (!same_type(body[body.outputs[k]], x(id, k))) return "a carried value keeps its type";
    for (int a = 0; a < body.size; ++a) {
      if (body[a].op != Op::argument) continue;
      const int i = body[a].index();
      if (i >= node.arity) return "an argument of a body is an operand of its repeat";
      if (!(repeat.is_stacked(i) ? stacks(x(id, i), body[a]) : same_type(x(id, i), body[a])))
        return "an argument of a body has the type of the operand";
    }
    return {};
  }
  constexpr Rule check_project(int id) const {
    const Node &node = graph_[id], &from = x(id, 0);
    const GraphView& body = program_.graphs[from.index()];
    const int output = output_of(node);
    if (output < 0 || output >= body.output_count) return "a projection is of an output";
    const Node& type = body[body.outputs[output]];
    const bool carried = output < Repeat::of(from).carried;
    return (carried ? same_type(node, type) : stacks(node, type)) ? Rule{} : "a projection has the type of the output";
  }
};

}  // namespace detail

/// Checks what every pass relies on: operands before users, types that the operations give, labels and dims in range,
/// bodies that fit their repeats. Returns the first defect, which is always one of the library.
constexpr Defect find_defect(const ProgramView& program) {
  for (int g = program.graph_count - 1; g >= 0; --g)  // bodies before what runs them
    if (const Defect defect = detail::GraphVerifier(program, g).run()) return defect;
  return {};
}

/// The same, thrown as graph_invalid.
constexpr void verify(const ProgramView& program) {
  if (const Defect defect = find_defect(program)) {
    const Node* node = defect.node >= 0 ? &program.graphs[defect.graph][defect.node] : nullptr;
    fail(errc::graph_invalid, "[verify] ", defect.rule, ": %", defect.node, " = ",
         node != nullptr ? row_of(node->op).name : "output", " in graph ", defect.graph,
         node != nullptr && node->source.line != 0 ? " at " + node->source.text() : std::string());
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
