#ifndef TESSERA_GRAPH_FUSE_UNITS_HPP
#define TESSERA_GRAPH_FUSE_UNITS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/row.hpp>

namespace tessera {

/// A value that a unit reads or makes. For a fused unit, `dim_at[d]` is the value's dim along dim d of the
/// iteration space, -1 where the value repeats or, being made, is reduced.
struct UnitOperand {
  std::int32_t node = -1;
  std::int32_t operand = -1;  ///< of a unit of one node: which of its operands this input is
  std::int8_t dim_at[max_rank]{-1, -1, -1, -1, -1, -1, -1, -1};
  bool accumulates = false;  ///< a result reduced, as its row says, over the dims of the space that it lacks
};

struct Unit {
  UnitKind kind = UnitKind::fused;
  std::int32_t root = -1;  ///< the node; of a fused unit, its last member
  std::int32_t space =
      -1;  ///< of a fused unit, a node whose shape is the iteration space; of a contraction, the einsum
  std::int32_t kernel = -1;  ///< of a fused unit: its kernel in the program's table
  std::int32_t addend = -1;  ///< of a contraction: a value of the result's shape that it is added to, its last input
  std::int32_t first_input = 0, input_count = 0;      ///< values read, in the list of operands
  std::int32_t first_output = 0, output_count = 0;    ///< values made; of a repeat, its projections by output
  std::int32_t first_member = 0, member_count = 0;    ///< nodes of a fused unit, in the list of members
  std::int32_t first_uniform = 0, uniform_count = 0;  ///< host scalars that its kernel takes, in the same list
  std::uint8_t rank = 0;                              ///< of the iteration space
  std::uint8_t phases = 1;         ///< passes over a row; with more than one, the row dim is reduced between them
  std::uint8_t phase_reduces = 0;  ///< reductions along the row whose results later passes read

  /// Of a unit that is not fused: the node whose operands it reads. With an addend the root is the sum.
  constexpr std::int32_t rule_node() const { return kind == UnitKind::contraction ? space : root; }
};

/// The units of one graph, in an order in which they can run.
struct UnitsView {
  const Unit* units = nullptr;
  int count = 0;
  const UnitOperand* operands = nullptr;
  const std::int32_t* members = nullptr;

  constexpr const Unit& operator[](int u) const { return units[u]; }
  constexpr const UnitOperand& input(int u, int i) const { return operands[units[u].first_input + i]; }
  constexpr const UnitOperand& output(int u, int i) const { return operands[units[u].first_output + i]; }
};

/// Sharding rule of a unit: factors, and the dims they stand behind in each value read and made. A factor that a result
/// lacks makes that result partial when it is sharded.
struct UnitRule {
  InlineVector<FactorKind, 32> kinds;
  Growable<DimFactors> inputs, outputs;
};

/// The rule of a unit other than a repeat. Of a fused unit, factor d is dim d of the iteration space; a reduction whose
/// result later passes read is completed inside the unit, so a sharded row dim costs an all-reduce of row values.
constexpr UnitRule unit_rule(const GraphView& graph, const UnitsView& units, int u) {
  const Unit& unit = units[u];
  UnitRule rule;
  rule.inputs.reserve(static_cast<std::size_t>(unit.input_count));
  rule.outputs.reserve(static_cast<std::size_t>(unit.output_count));
  if (unit.kind == UnitKind::fused) {
    for (int d = 0; d < unit.rank; ++d) {
      bool reduced = false;
      for (int o = 0; o < unit.output_count; ++o)
        reduced = reduced || (units.output(u, o).accumulates && units.output(u, o).dim_at[d] < 0);
      rule.kinds.push_back(reduced ? FactorKind::reduction : FactorKind::pass);
    }
    auto dims_of = [&](const UnitOperand& operand) {
      DimFactors dims;
      for (int d = 0; d < unit.rank; ++d)
        if (operand.dim_at[d] >= 0) dims.dims[operand.dim_at[d]].push_back(static_cast<std::int8_t>(d));
      return dims;
    };
    for (int i = 0; i < unit.input_count; ++i) rule.inputs.push_back(dims_of(units.input(u, i)));
    for (int o = 0; o < unit.output_count; ++o) rule.outputs.push_back(dims_of(units.output(u, o)));
    return rule;
  }
  const int node = unit.rule_node();
  FactorRule row;
  row.operands.reserve(graph[node].arity);
  row_of(graph[node]).sharding(graph, node, row);
  rule.kinds = row.kinds;
  for (FactorKind kind : row.kinds)
    if (kind == FactorKind::reduction && !can_be_partial(graph, node))
      fail(errc::graph_invalid, "[plan] partial values: the row of ", row_of(graph[node]).name,
           " has a reduction in its sharding rule, and says that its result is never partial");
  for (int i = 0; i < unit.input_count; ++i) {
    const int operand = units.input(u, i).operand;
    rule.inputs.push_back(operand < 0 ? row.result : row.operands[static_cast<std::size_t>(operand)]);
  }
  if (unit.kind != UnitKind::attention) {
    rule.outputs.push_back(row.result);
    return rule;
  }
  // Its results have one set of factors, and what any of them sums over is a reduction.
  for (int o = 0; o < unit.output_count; ++o) {
    const int result = units.output(u, o).node;
    FactorRule own;
    row_of(graph[result]).sharding(graph, result, own);
    rule.outputs.push_back(own.result);
    for (std::size_t f = 0; f < own.kinds.size(); ++f)
      if (own.kinds[f] == FactorKind::reduction) rule.kinds[f] = FactorKind::reduction;
  }
  return rule;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
