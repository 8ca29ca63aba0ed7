#ifndef TESSERA_GRAPH_FUSE_UNITS_HPP
#define TESSERA_GRAPH_FUSE_UNITS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/ir/row.hpp>

namespace tessera {

/// A value that a unit reads or writes. For a fused unit, `dim_at[d]` is the value's dim that corresponds to dim d of
/// the iteration space; -1 where an input is broadcast or an output is reduced.
struct UnitOperand {
  std::int32_t node = -1;
  std::int32_t operand = -1;  ///< for a unit of one node: the index of the operand that this input is
  std::int8_t dim_at[max_rank]{-1, -1, -1, -1, -1, -1, -1, -1};
  /// an output that is reduced, by the row's monoid, over the dims of the space that it lacks
  bool accumulates = false;
};

struct Unit {
  UnitKind kind = UnitKind::fused;
  std::int32_t root = -1;  ///< the node; for a fused unit, its last member
  std::int32_t space =
      -1;  ///< for a fused unit, a node whose shape is the iteration space; for a contraction, the einsum
  std::int32_t kernel = -1;  ///< for a fused unit: its kernel in the program's table
  /// for a contraction: the value that the product is added to, of the result's shape; it is the last input
  std::int32_t addend = -1;
  std::int32_t first_input = 0, input_count = 0;    ///< values that it reads, as a range of the list of operands
  std::int32_t first_output = 0, output_count = 0;  ///< values that it writes; for a repeat, its projections by output
  std::int32_t first_member = 0, member_count = 0;  ///< nodes of a fused unit, as a range of the list of members
  std::int32_t first_uniform = 0, uniform_count = 0;  ///< host scalars that its kernel reads, in the same list
  std::uint8_t rank = 0;                              ///< of the iteration space
  std::uint8_t phases = 1;         ///< passes over a row; each pass but the last ends with reductions along the row
  std::uint8_t phase_reduces = 0;  ///< reductions along the row whose results later passes read

  /// For a unit that is not fused: the node whose operands are the unit's inputs. With an addend, the root is the
  /// addition and this is the einsum.
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

/// Whether a unit is a fused kernel without reductions: each result has the shape of the iteration space.
constexpr bool is_elementwise(const UnitsView& units, int u) {
  const Unit& unit = units[u];
  bool all = unit.kind == UnitKind::fused && unit.phases == 1;
  for (int o = 0; o < unit.output_count; ++o) {
    const UnitOperand& made = units.output(u, o);
    all = all && !made.accumulates;
    for (int d = 0; d < unit.rank; ++d) all = all && made.dim_at[d] >= 0;
  }
  return all;
}

/// The sharding rule of a unit: its factors, and the factors of each dim of the values that it reads and writes.
/// Splitting a factor that a result lacks makes that result partial.
struct UnitRule {
  InlineVector<FactorKind, 32> kinds;
  Growable<DimFactors> inputs, outputs;
};

/// The rule of a unit other than a repeat. For a fused unit, factor d is dim d of the iteration space. A reduction
/// whose result later passes read is completed inside of the unit, so splitting the row dim costs an all_reduce of row
/// values.
TESSERA_PLANNING constexpr UnitRule unit_rule(const GraphView& graph, const UnitsView& units, int u) {
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
           " has a reduction in its sharding rule, but says that no result is partial");
  for (int i = 0; i < unit.input_count; ++i) {
    const int operand = units.input(u, i).operand;
    rule.inputs.push_back(operand < 0 ? row.result : row.operands[static_cast<std::size_t>(operand)]);
  }
  if (!joins_others(row_of(graph[node]))) {
    rule.outputs.push_back(row.result);
    return rule;
  }
  // All its results have the same factors; a factor that any of them sums over is a reduction.
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
