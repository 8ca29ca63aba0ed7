#ifndef TESSERA_GRAPH_TRANSFORM_SIMPLIFY_HPP
#define TESSERA_GRAPH_TRANSFORM_SIMPLIFY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/defined_in_ops.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/graph.hpp>
#include <tessera/graph/ir/row.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// Simplifies a node with these operands while a graph is being rebuilt: returns the node that replaces it, -1: none.
using SimplifyRule = int (*)(Graph& made, const Node& node, const std::int32_t* operands);
TESSERA_DEFINED_IN_OPS_BEGIN
/// The rule of an operation whose row says that there is one. Defined in ops/rows.hpp.
constexpr SimplifyRule simplify_rule_of(Op op);
TESSERA_DEFINED_IN_OPS_END

namespace detail {

/// By node: 1 if an output depends on it, or if it checks shapes.
constexpr Growable<std::uint8_t> live_nodes(const GraphView& graph) {
  Growable<std::uint8_t> made(static_cast<std::size_t>(graph.size));
  std::uint8_t* const live = made.data();
  for (int k = 0; k < graph.output_count; ++k) live[graph.outputs[k]] = 1;
  for (int id = graph.size - 1; id >= 0; --id) {
    if (checks_extents(graph.nodes[id])) live[id] = 1;
    if (live[id] == 0) continue;
    const std::int32_t* const own = graph.operands + graph.nodes[id].first;
    for (int i = graph.nodes[id].arity - 1; i >= 0; --i)
      if (own[i] >= 0) live[own[i]] = 1;
  }
  return made;
}

/// Replaces a node whose operands are constants by a constant; -1 when it can't be computed.
constexpr int fold_constants(Graph& made, const OpRow& row, const Node& node, const std::int32_t* operands) {
  if (node.arity == 0 || node.arity > 2) return -1;
  for (int i = 0; i < node.arity; ++i)
    if (!made[operands[i]].is_constant()) return -1;
  const HostNumber a = number_of(made[operands[0]]), b = node.arity > 1 ? number_of(made[operands[1]]) : HostNumber();
  Node constant{.dtype = node.dtype};
  if (is_floating(node.dtype) || is_floating(made[operands[0]].dtype)) {
    constant.value = row.number(a.real(), b.real(), 0);
  } else {
    // Overflow and division by zero stay, and are errors when shapes are inferred, with the user's line.
    std::int64_t exact = 0;
    if (row.divides || row.integers(a.integer(), b.integer(), exact) != IntegerResult::known) return -1;
    constant = integer_node(exact, node.dtype);
  }
  constant.source = node.source;
  return made.add(constant);
}

/// An empty graph with room for a copy of the given graph.
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

/// Copies the live nodes, folding constants and sharing equal nodes. `left_dead`: whether some copied nodes may be
/// dead.
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
    const OpRow& row = row_of(node);
    int result = -1;
    if (row.folds_constants && node.rank == 0)
      result = fold_constants(made, row, node, operands);
    else if (row.simplifies)
      result = simplify_rule_of(node.op)(made, node, operands);
    left_dead = left_dead || (result >= 0 && !(node.arity == 1 && result == operands[0]));
    if (result < 0) result = made.add(node, operands, node.arity);
    to[id] = result;
  }
  for (int k = 0; k < graph.output_count; ++k) made.outputs.push_back(to[graph.outputs[k]]);
  return made;
}

/// Copies the live nodes only.
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

/// The simplified graphs of a program, where graph_at(g) returns its graphs.
template <class GraphAt> constexpr Growable<Graph> simplified(GraphAt graph_at) {
  Growable<Graph> made;
  Growable<int> body_of{0};  // index in the old program, by kept graph
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

/// Simplifies a program and its bodies of repeats: folds constants, applies the operations' rules, shares equal nodes
/// and removes nodes that no output depends on.
constexpr void simplify(Module& module) {
  module.graphs = detail::simplified([&](int g) { return module.graph(g).view(); });
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
