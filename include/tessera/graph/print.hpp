#ifndef TESSERA_GRAPH_PRINT_HPP
#define TESSERA_GRAPH_PRINT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdio>
#include <string>

#include <tessera/graph/attention_form.hpp>
#include <tessera/graph/attributes.hpp>
#include <tessera/graph/program.hpp>
#include <tessera/graph/row.hpp>

namespace tessera {

namespace detail {

inline std::string number_text(const Node& constant) {
  const HostNumber number = number_of(constant);
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", number.real());
  const bool exact = !is_floating(constant.dtype) && HostNumber(constant.value) == number;
  return exact || is_floating(constant.dtype) ? text : std::to_string(number.integer());
}
inline char label_name(int label) { return static_cast<char>('a' + label); }

inline std::string einsum_text(const GraphView& graph, int id) {
  const EinsumLabels labels = EinsumLabels::of(graph[id]);
  std::string text;
  auto list = [&](const std::int8_t* own, int rank) {
    for (int d = 0; d < rank; ++d) text += label_name(own[d]);
  };
  list(labels.a, graph.operand_node(id, 0).rank);
  text += ',';
  list(labels.b, graph.operand_node(id, 1).rank);
  text += "->";
  list(labels.out, graph[id].rank);
  return text;
}

/// "a (b c) -> a b c", as ts::rearrange reads it.
inline std::string rearrange_text(const GraphView& graph, int id) {
  const Factors f = Factors::of(graph[id]);
  auto side = [&](int rank, auto&& dim_at, auto&& name_at) {
    std::string text;
    for (int d = 0; d < rank; ++d) {
      std::string names;
      int parts = 0;
      for (int p = 0; p < f.count; ++p)
        if (dim_at(p) == d) {
          names += names.empty() ? "" : " ";
          names += label_name(name_at(p));
          ++parts;
        }
      if (d > 0) text += ' ';
      text += parts == 0 ? "1" : parts == 1 ? names : "(" + names + ")";
    }
    return text;
  };
  return side(
             graph.operand_node(id, 0).rank, [&](int p) { return f.in_dim[p]; }, [](int p) { return p; }) +
         " -> " +
         side(
             graph[id].rank, [&](int p) { return f.out_dim[p]; }, [&](int p) { return f.order[p]; });
}

/// What a node is besides its operation and operands; empty when it is nothing.
inline std::string attribute_text(const ProgramView& program, const GraphView& graph, int id) {
  const Node& node = graph[id];
  switch (row_of(node).kind) {
    case OpKind::source:
      if (node.op == Op::constant) return number_text(node);
      if (node.op == Op::extent) return std::to_string(dim_of(node));
      if (node.op == Op::axis_size) return std::string(axis_of(node).view());
      return std::to_string(node.index()) + (is_stacked_argument(node) ? ", stacked" : "");
    case OpKind::reduction: {
      const Reduced reduced = Reduced::of(node);
      std::string text;
      for (int d = 0; d < max_rank; ++d)
        if (reduced.has(d)) text += (text.empty() ? "" : ",") + std::to_string(d);
      return text + (reduced.keep ? ", keepdims" : "");
    }
    case OpKind::contraction:
      return einsum_text(graph, id);
    case OpKind::layout:
      return node.op == Op::rearrange ? rearrange_text(graph, id) : std::to_string(dim_of(node));
    case OpKind::index:
    case OpKind::fold:
      return std::to_string(dim_of(node));
    case OpKind::scan: {
      const Scan scan = Scan::of(node);
      return concat_text(dim_of(node), scan.reverse ? ", reverse" : "", scan.exclusive ? ", exclusive" : "");
    }
    case OpKind::sort:
      return concat_text(dim_of(node),
                         node.op == Op::argsort && order_of(node) == Order::descending ? ", descending" : "");
    case OpKind::random: {
      const RandomDraw draw = RandomDraw::of(node);
      return (draw.distribution == Distribution::uniform ? "uniform, stream " : "normal, stream ") +
             std::to_string(draw.stream);
    }
    case OpKind::attention: {
      const AttentionForm form = AttentionForm::of_node(node);
      const std::string of = node.op != Op::attention_grad ? "" : form.of == 0 ? "q" : form.of == 1 ? "k" : "v";
      return of + (form.causal ? (of.empty() ? "causal" : ", causal") : "");
    }
    case OpKind::constraint:
      return node.op == Op::alike ? std::string() : program.specs[node.index()].text();
    case OpKind::control: {
      if (node.op == Op::project) return std::to_string(output_of(node));
      const Repeat repeat = Repeat::of(node);
      return concat_text("graph ", node.index(), ", ", repeat.carried, " carried, ", repeat.stacked, " stacked",
                         repeat.counted ? ", counted by its last operand" : "",
                         repeat.reverse ? ", last to first" : "");
    }
    default:
      return {};
  }
}

/// "f32[?,1]": an extent is 1 where that is static, and otherwise not known yet.
inline std::string type_text(const Node& node) {
  std::string text(name_of(node.dtype));
  for (int d = 0; d < node.rank; ++d) text += concat_text(d == 0 ? "[" : ",", node.is_unit(d) ? "1" : "?");
  return node.rank == 0 ? text : text + "]";
}
inline std::string operation_text(const ProgramView& program, const GraphView& graph, int id) {
  const std::string attribute = attribute_text(program, graph, id);
  return std::string(row_of(graph[id]).name) + (attribute.empty() ? "" : "[" + attribute + "]");
}

}  // namespace detail

/// A node as text: `%12 = einsum[ab,bc->ac] f32[?,?] (%9, %0)  train.cpp:41`. Numbers among the operands stand as such.
inline std::string text_of(const ProgramView& program, int graph_index, int id) {
  const GraphView& graph = program.graphs[graph_index];
  const Node& node = graph[id];
  std::string text = concat_text("%", id, " = ", detail::operation_text(program, graph, id));
  if (node.op != Op::repeat) text += " " + detail::type_text(node);
  if (node.arity > 0) text += " (";
  for (int i = 0; i < node.arity; ++i) {
    const int operand = graph.operand(id, i);
    if (i > 0) text += ", ";
    if (operand < 0)
      text += '-';
    else if (graph[operand].op == Op::constant)
      text += detail::number_text(graph[operand]);
    else
      text += concat_text("%", operand);
  }
  if (node.arity > 0) text += ')';
  if (node.source.line != 0) text += "  " + node.source.text();
  return text;
}

/// A program as text, one node a line, bodies of repeats after the graph that runs them.
inline std::string text_of(const ProgramView& program) {
  std::string text;
  for (int g = 0; g < program.graph_count; ++g) {
    const GraphView& graph = program.graphs[g];
    text += g == 0 ? "program\n" : concat_text("graph ", g, "\n");
    for (int id = 0; id < graph.size; ++id)
      if (graph[id].op != Op::constant) text += "  " + text_of(program, g, id) + "\n";
    text += "  return";
    for (int k = 0; k < graph.output_count; ++k) {
      const int id = graph.outputs[k];
      text += k == 0 ? " " : ", ";
      text += graph[id].op == Op::constant ? detail::number_text(graph[id]) : concat_text("%", id);
    }
    text += '\n';
  }
  return text;
}

/// A program in the language of Graphviz: a cluster a graph, a dashed edge from a repeat to what its body returns.
inline std::string dot_of(const ProgramView& program) {
  std::string text = "digraph program {\n  node [shape=box, fontname=\"monospace\"];\n";
  for (int g = 0; g < program.graph_count; ++g) {
    const GraphView& graph = program.graphs[g];
    text += concat_text("  subgraph cluster_", g, " {\n    label=\"", g == 0 ? "program" : concat_text("graph ", g),
                        "\";\n");
    for (int id = 0; id < graph.size; ++id) {
      text += concat_text("    n", g, "_", id, " [label=\"%", id, " ", detail::operation_text(program, graph, id));
      if (graph[id].op != Op::repeat) text += "\\n" + detail::type_text(graph[id]);
      if (graph[id].source.line != 0) text += "\\n" + graph[id].source.text();
      text += "\"];\n";
    }
    for (int id = 0; id < graph.size; ++id)
      for (int i = 0; i < graph[id].arity; ++i)
        if (const int operand = graph.operand(id, i); operand >= 0)
          text += concat_text("    n", g, "_", operand, " -> n", g, "_", id, ";\n");
    for (int k = 0; k < graph.output_count; ++k)
      text += concat_text("    n", g, "_", graph.outputs[k], " -> out", g, "_", k, ";\n    out", g, "_", k,
                          " [shape=plaintext, label=\"result ", k, "\"];\n");
    text += "  }\n";
    for (int id = 0; id < graph.size; ++id)
      if (graph[id].op == Op::repeat)
        text += concat_text("  n", g, "_", id, " -> out", graph[id].index(), "_0 [style=dashed];\n");
  }
  return text + "}\n";
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
