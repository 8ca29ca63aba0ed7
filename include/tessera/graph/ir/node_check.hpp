#ifndef TESSERA_GRAPH_IR_NODE_CHECK_HPP
#define TESSERA_GRAPH_IR_NODE_CHECK_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <tessera/base/defined_in_ops.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/graph/ir/attributes.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/graph/ir/row.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// The rule that a node breaks; empty when it breaks none.
using BrokenRule = std::string_view;

/// The input of a node's check. The number of operands, and that operands come before their users, are checked already.
struct NodeCheck {
  const ProgramView& program;
  const GraphView& graph;
  int graph_index = 0, id = 0;

  constexpr const Node& node() const { return graph[id]; }
  constexpr const Node& x(int i) const { return graph.operand_node(id, i); }
  /// Whether operand i is a size: an i64 host scalar.
  constexpr bool is_size(int i) const { return x(i).rank == 0 && x(i).dtype == DType::i64; }
  /// Whether the first attribute byte is a dim of the node.
  constexpr bool has_dim() const { return dim_of(node()) >= 0 && dim_of(node()) < node().rank; }
};

/// Checks one node; returns the rule that it breaks.
using CheckRule = BrokenRule (*)(const NodeCheck&);

TESSERA_DEFINED_IN_OPS_BEGIN
/// The check of an operation. Defined in ops/rows.hpp.
constexpr CheckRule check_of(Op op);
TESSERA_DEFINED_IN_OPS_END

constexpr bool same_type(const Node& x, const Node& y) { return same_static_shape(x, y) && x.dtype == y.dtype; }
/// Whether `stacked` has the type of x with a dim of layers in front. Of one layer, this dim may be a singleton dim.
constexpr bool stacks(const Node& stacked, const Node& x) {
  return stacked.dtype == x.dtype && stacked.rank == x.rank + 1 &&
         (stacked.singletons & ~1u) == static_cast<std::uint8_t>(x.singletons << 1);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
