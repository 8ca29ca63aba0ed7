#ifndef TESSERA_GRAPH_FUSE_FROZEN_UNITS_HPP
#define TESSERA_GRAPH_FUSE_FROZEN_UNITS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/graph/fuse/group.hpp>
#include <tessera/graph/fuse/kernel_table.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/graph/ir/graph.hpp>

namespace tessera {

struct UnitsSize {
  int units = 0, operands = 0, members = 0, graphs = 0;

  /// An upper bound for the units of these graphs: the capacity of the first evaluation.
  static constexpr UnitsSize bound(const GraphView* views, int count) {
    UnitsSize size{0, 0, 0, count};
    for (int g = 0; g < count; ++g) {
      int operands = 0;
      for (int id = 0; id < views[g].size; ++id) operands += views[g][id].arity;
      size.units += views[g].size;
      size.operands += 2 * operands + views[g].size;
      size.members += views[g].size + operands;
    }
    return size;
  }
};

/// The units of a program as constants.
template <UnitsSize Size> struct FrozenUnits {
  Unit units[static_cast<std::size_t>(Size.units) + 1]{};
  UnitOperand operands[static_cast<std::size_t>(Size.operands) + 1]{};
  std::int32_t members[static_cast<std::size_t>(Size.members) + 1]{};
  int unit_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  int operand_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  int member_begin[static_cast<std::size_t>(Size.graphs) + 1]{};
  /// By kernel: the graph and the unit for which it was first written.
  int kernel_graph[static_cast<std::size_t>(Size.units) + 1]{};
  int kernel_unit[static_cast<std::size_t>(Size.units) + 1]{};
  int kernel_count = 0;

  constexpr FrozenUnits() = default;
  constexpr void add(int g, const Units& from) {
    int unit = unit_begin[g], operand = operand_begin[g], member = member_begin[g];
    for (const Unit& u : from.units) units[unit++] = u;
    for (const UnitOperand& o : from.operands) operands[operand++] = o;
    for (std::int32_t m : from.members) members[member++] = m;
    unit_begin[g + 1] = unit;
    operand_begin[g + 1] = operand;
    member_begin[g + 1] = member;
  }
  constexpr UnitsSize used() const {
    return {unit_begin[Size.graphs], operand_begin[Size.graphs], member_begin[Size.graphs], Size.graphs};
  }
  /// Copies units into arrays of smaller capacity, and writes their kernels.
  template <UnitsSize Larger> constexpr explicit FrozenUnits(const FrozenUnits<Larger>& from, const GraphView* graphs) {
    for (int i = 0; i < Size.units; ++i) units[i] = from.units[i];
    for (int i = 0; i < Size.operands; ++i) operands[i] = from.operands[i];
    for (int i = 0; i < Size.members; ++i) members[i] = from.members[i];
    for (int g = 0; g <= Size.graphs; ++g) {
      unit_begin[g] = from.unit_begin[g];
      operand_begin[g] = from.operand_begin[g];
      member_begin[g] = from.member_begin[g];
    }
    KernelTable table;
    for (int g = 0; g < Size.graphs; ++g) {
      const UnitsView view = from.graph(g);
      for (int u = 0; u < view.count; ++u)
        if (view.units[u].kind == UnitKind::fused) table.add(graphs[g], view, g, u, units[unit_begin[g] + u]);
    }
    kernel_count = table.size();
    for (int k = 0; k < kernel_count; ++k) {
      kernel_graph[k] = table.graph_of(k);
      kernel_unit[k] = table.unit_of(k);
    }
  }
  constexpr UnitsView graph(int g) const {
    return {units + unit_begin[g], unit_begin[g + 1] - unit_begin[g], operands + operand_begin[g],
            members + member_begin[g]};
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
