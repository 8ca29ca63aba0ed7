#ifndef TESSERA_GRAPH_TRANSFORM_SIMPLIFY_HPP
#define TESSERA_GRAPH_TRANSFORM_SIMPLIFY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <vector>

#include <tessera/base/growable.hpp>
#include <tessera/graph/ir/precision.hpp>
#include <tessera/graph/ir/row.hpp>
#include <tessera/graph/ir/value.hpp>

namespace tessera {

namespace detail {

/// Which nodes the outputs depend on.
constexpr Growable<std::uint8_t> live_nodes(const GraphView& graph) {
  Growable<std::uint8_t> made(static_cast<std::size_t>(graph.size));
  std::uint8_t* const live = made.data();
  for (int k = 0; k < graph.output_count; ++k) live[graph.outputs[k]] = 1;
  for (int id = graph.size - 1; id >= 0; --id) {
    if (live[id] == 0) continue;
    const std::int32_t* const own = graph.operands + graph.nodes[id].first;
    for (int i = graph.nodes[id].arity - 1; i >= 0; --i)
      if (own[i] >= 0) live[own[i]] = 1;
  }
  return made;
}

/// A node of numbers alone, folded into a number; -1 when it can't be.
constexpr int fold_numbers(Graph& made, const Node& node, const std::int32_t* operands) {
  if (node.rank != 0 || node.arity == 0 || node.arity > 2) return -1;
  const OpRow& row = row_of(node.op);
  if (!row.folds) return -1;
  for (int i = 0; i < node.arity; ++i)
    if (!made[operands[i]].is_constant()) return -1;
  const HostNumber a = number_of(made[operands[0]]), b = node.arity > 1 ? number_of(made[operands[1]]) : HostNumber();
  if (node.op == Op::cast && !keeps(number_rule(node), node.dtype, a.real())) return -1;  // planning says so
  Node folded{.dtype = node.dtype, .source = node.source};
  const bool reals = is_floating(made[operands[0]].dtype);
  if (is_floating(node.dtype) || (reals && node.op != Op::cast)) {
    folded.value = row.number(a.real(), b.real(), 0);
  } else if (node.dtype == DType::bool_ && node.op == Op::cast) {
    folded.value = a.real() != 0;
  } else {
    // What can't be known is an error where the shapes are, which names the user's line.
    std::int64_t exact = 0;
    if (row.divides || row.integers(a.integer(), b.integer(), exact) != IntegerResult::known) return -1;
    folded = integer_node(exact, node.dtype);
    folded.source = node.source;
  }
  return made.add(folded);
}

/// Known extent of a dim, or -1: extents that follow from constants in the graph.
constexpr std::int64_t static_extent(const Graph& graph, int id, int dim) {
  for (;;) {
    const Node& node = graph[id];
    if (node.is_unit(dim)) return 1;
    if (node.op == Op::rearrange && node.arity > 1) {
      const Factors f = Factors::of(node);
      int at = -1, count = 0;
      for (int p = 0; p < f.count; ++p)
        if (f.out_dim[p] == dim) at = f.order[p], ++count;
      if (count != 1) return -1;
      const int size = graph.operand(id, 1 + at);
      return size >= 0 && graph[size].is_constant() ? number_of(graph[size]).integer() : -1;
    }
    return -1;
  }
}

/// A sum of pads that together cover a dim once is a concat: what the slices of one value leave behind in its gradient.
class PadsToConcat {
 public:
  constexpr PadsToConcat(Graph& graph, int root) : graph_(graph), dim_(-1), like_(-1) { collect(root); }

  constexpr int result(const Node& node) {
    if (!valid_ || parts_.size() < 2) return -1;
    const std::int64_t extent = static_extent(graph_, like_, dim_);
    if (extent < 0) return -1;
    Growable<std::int32_t> ordered;
    std::int64_t covered = 0;
    while (covered < extent) {
      std::size_t at = 0;
      while (at < parts_.size() && parts_[at].start != covered) ++at;
      if (at == parts_.size()) return -1;
      ordered.push_back(parts_[at].id);
      covered += parts_[at].size;
    }
    if (covered != extent || ordered.size() != parts_.size()) return -1;
    return graph_.add({.op = Op::concat,
                       .dtype = node.dtype,
                       .rank = node.rank,
                       .unit = node.unit,
                       .labels = pack_dim(dim_),
                       .source = node.source},
                      ordered.data(), static_cast<int>(ordered.size()));
  }

 private:
  struct Part {
    std::int64_t start, size;
    std::int32_t id;
  };
  Graph& graph_;
  int dim_;
  int like_;
  bool valid_ = true;
  Growable<Part> parts_;

  constexpr void collect(int id) {
    const Node& node = graph_[id];
    if (node.op == Op::add) {
      collect(graph_.operand(id, 0));
      if (valid_) collect(graph_.operand(id, 1));
      return;
    }
    valid_ = node.op == Op::pad && graph_.operand_node(id, 1).is_constant() &&
             (like_ < 0 || (like_ == graph_.operand(id, 2) && dim_ == dim_of(node)));
    if (!valid_) return;
    like_ = graph_.operand(id, 2);
    dim_ = dim_of(node);
    const std::int64_t size = static_extent(graph_, graph_.operand(id, 0), dim_);
    valid_ = size > 0;
    parts_.push_back({number_of(graph_.operand_node(id, 1)).integer(), size, graph_.operand(id, 0)});
  }
};

/// An empty graph with room for a copy of another.
constexpr Graph graph_of_size(const GraphView& graph) {
  std::size_t operands = 0;
  if (graph.size > 0)
    operands = static_cast<std::size_t>(graph.nodes[graph.size - 1].first) + graph.nodes[graph.size - 1].arity;
  Graph made;
  made.nodes.reserve(static_cast<std::size_t>(graph.size));
  made.operands.reserve(operands);
  return made;
}

constexpr std::size_t longest_list(const GraphView& graph) {
  std::size_t longest = 0;
  for (int id = 0; id < graph.size; ++id)
    if (graph.nodes[id].arity > longest) longest = graph.nodes[id].arity;
  return longest;
}

/// The live nodes, folded and shared anew. Says whether it left dead nodes behind.
constexpr Graph rebuild(const GraphView& graph, bool& left_dead) {
  const Growable<std::uint8_t> live = live_nodes(graph);
  const std::uint8_t* const is_live = live.data();
  const Node* const nodes = graph.nodes;
  Graph made = graph_of_size(graph);
  Growable<std::int32_t> moved(static_cast<std::size_t>(graph.size)), list(longest_list(graph));
  std::int32_t* const to = moved.data();
  std::int32_t* const operands = list.data();
  for (int id = 0; id < graph.size; ++id) {
    if (is_live[id] == 0) continue;
    const Node& node = nodes[id];
    const std::int32_t* const own = graph.operands + node.first;
    for (int i = 0; i < node.arity; ++i) operands[i] = own[i] < 0 ? -1 : to[own[i]];
    int result = fold_numbers(made, node, operands);
    if (result < 0 && node.op == Op::broadcast && same_static_shape(made[operands[0]], node)) result = operands[0];
    left_dead = left_dead || result >= 0;
    if (node.op == Op::einsum && node.value != 0 && made[operands[0]].dtype != DType::bf16)
      result = split_product(made, node, operands);
    if (result < 0) result = made.add(node, operands, node.arity);
    if (made[result].op == Op::add && made.operand_node(result, 1).op == Op::pad)
      if (const int joined = PadsToConcat(made, result).result(node); joined >= 0) {
        result = joined;
        left_dead = true;
      }
    to[id] = result;
  }
  for (int k = 0; k < graph.output_count; ++k) made.outputs.push_back(to[graph.outputs[k]]);
  return made;
}

/// The live nodes alone.
constexpr Graph compact(const GraphView& graph) {
  const Growable<std::uint8_t> live = live_nodes(graph);
  Graph made = graph_of_size(graph);
  Growable<std::int32_t> moved(static_cast<std::size_t>(graph.size)), list(longest_list(graph));
  std::int32_t* const to = moved.data();
  std::int32_t* const operands = list.data();
  for (int id = 0; id < graph.size; ++id) {
    if (live.data()[id] == 0) continue;
    const Node& node = graph.nodes[id];
    const std::int32_t* const own = graph.operands + node.first;
    for (int i = 0; i < node.arity; ++i) operands[i] = own[i] < 0 ? -1 : to[own[i]];
    to[id] = made.append(node, operands);
  }
  for (int k = 0; k < graph.output_count; ++k) made.outputs.push_back(to[graph.outputs[k]]);
  return made;
}

/// The simplified graphs of a program, graph_at(g) being its graphs.
template <class GraphAt> constexpr std::vector<Graph> simplified(GraphAt graph_at) {
  std::vector<Graph> made;
  Growable<int> body_of{0};  // old index of each kept graph
  for (std::size_t g = 0; g < body_of.size(); ++g) {
    bool left_dead = false;
    Graph graph = rebuild(graph_at(body_of[g]), left_dead);
    if (left_dead) graph = compact(graph.view());
    for (Node& node : graph.nodes) {
      if (!node.is_repeat()) continue;
      body_of.push_back(node.index());
      node.value = static_cast<double>(body_of.size() - 1);
    }
    made.push_back(std::move(graph));
  }
  return made;
}

}  // namespace detail

/// Constant folding, sharing, joining of padded parts, and removal of what no output needs, bodies of repeats included.
constexpr void simplify(Module& module) {
  module.graphs = detail::simplified([&](int g) { return module.graph(g).view(); });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
