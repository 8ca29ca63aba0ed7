#ifndef TESSERA_GRAPH_IR_PRINT_HPP
#define TESSERA_GRAPH_IR_PRINT_HPP
#include <tessera/base/push_macros.hpp>

#include <string>

#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/node_text.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/graph/ir/row.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

namespace detail {

/// The type of a node, such as "f32[?,1]": a static extent of 1 is printed, other extents are not known yet.
inline std::string type_text(const Node& node) {
  std::string text(name_of(node.dtype));
  for (int d = 0; d < node.rank; ++d) text += concat_text(d == 0 ? "[" : ",", node.is_singleton(d) ? "1" : "?");
  return node.rank == 0 ? text : text + "]";
}
inline std::string operation_text(const ProgramView& program, const GraphView& graph, int id) {
  const AttributeText text = attribute_text_of(graph[id].op);
  const std::string attribute = text ? text(program, graph, id) : std::string();
  return std::string(row_of(graph[id]).name) + (attribute.empty() ? "" : "[" + attribute + "]");
}

}  // namespace detail

/// A node as text: `%12 = einsum[ab,bc->ac] f32[?,?] (%9, %0) train.cpp:41`. Constant operands print as their values.
inline std::string text_of(const ProgramView& program, int graph_index, int id) {
  const GraphView& graph = program.graphs[graph_index];
  const Node& node = graph[id];
  std::string text = concat_text("%", id, " = ", detail::operation_text(program, graph, id));
  if (!node.is_repeat()) text += " " + detail::type_text(node);
  if (node.arity > 0) text += " (";
  for (int i = 0; i < node.arity; ++i) {
    const int operand = graph.operand(id, i);
    if (i > 0) text += ", ";
    if (operand < 0)
      text += '-';
    else if (graph[operand].is_constant())
      text += detail::number_text(graph[operand]);
    else
      text += concat_text("%", operand);
  }
  if (node.arity > 0) text += ')';
  if (node.source.line != 0) text += "  " + node.source.text();
  return text;
}

/// A program as text, one node a line; a body of a repeat follows the graph that runs it.
inline std::string text_of(const ProgramView& program) {
  std::string text;
  for (int g = 0; g < program.graph_count; ++g) {
    const GraphView& graph = program.graphs[g];
    text += g == 0 ? "program\n" : concat_text("graph ", g, "\n");
    for (int id = 0; id < graph.size; ++id)
      if (!graph[id].is_constant()) text += "  " + text_of(program, g, id) + "\n";
    text += "  return";
    for (int k = 0; k < graph.output_count; ++k) {
      const int id = graph.outputs[k];
      text += k == 0 ? " " : ", ";
      text += graph[id].is_constant() ? detail::number_text(graph[id]) : concat_text("%", id);
    }
    text += '\n';
  }
  return text;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
