#ifndef TESSERA_GRAPH_IR_VERIFY_HPP
#define TESSERA_GRAPH_IR_VERIFY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/node_check.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The first rule that a program breaks; converts to false when it breaks none.
struct Defect {
  int graph = -1, node = -1;
  std::string_view rule;
  constexpr explicit operator bool() const { return !rule.empty(); }
};

namespace detail {

/// Checks one graph of a program, node by node. Each check returns the rule that is broken, or an empty string.
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
  using Rule = BrokenRule;
  const ProgramView& program_;
  const GraphView& graph_;
  int index_;

  constexpr Rule check(int id) const {
    const Node& node = graph_[id];
    const OpRow& row = row_of(node);
    if (row.arity != any_arity && node.arity != row.arity)
      return "the number of operands is that of the operation's row";
    for (int i = 0; i < node.arity; ++i) {
      const int operand = graph_.operand(id, i);
      if (operand >= id) return "operands come before the nodes that read them";
      if (operand < 0 && !(row.optional_operands && i > 0)) return "only sizes of a rearrange may be absent";
      if (operand >= 0 && graph_[operand].is_repeat() != node.is_projection())
        return "only project nodes read a repeat, and they read nothing else";
    }
    if (!node.is_repeat() && (node.rank > max_rank || node.singletons >> node.rank != 0))
      return "the rank is at most 8, and singleton dims are dims of the node";
    return check_of(node.op)({program_, graph_, index_, id});
  }
};

}  // namespace detail

/// Checks the invariants that passes rely on: operands come before their users, operations give the types of their
/// nodes, labels and dims are in range, bodies fit their repeats. Returns the first defect; a defect is always a bug of
/// the library.
constexpr Defect find_defect(const ProgramView& program) {
  for (int g = program.graph_count - 1; g >= 0; --g)  // bodies before the graphs that run them
    if (const Defect defect = detail::GraphVerifier(program, g).run()) return defect;
  return {};
}

/// Calls find_defect and throws `graph_invalid` for a defect.
constexpr void verify(const ProgramView& program) {
  if (const Defect defect = find_defect(program)) {
    const Node* node = defect.node >= 0 ? &program.graphs[defect.graph][defect.node] : nullptr;
    fail(errc::graph_invalid, "[verify] ", defect.rule, ": %", defect.node, " = ",
         node != nullptr ? row_of(node->op).name : "output", " in graph ", defect.graph,
         node != nullptr ? node->source : Source{});
  }
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
