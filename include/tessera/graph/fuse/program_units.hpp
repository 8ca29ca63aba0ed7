#ifndef TESSERA_GRAPH_FUSE_PROGRAM_UNITS_HPP
#define TESSERA_GRAPH_FUSE_PROGRAM_UNITS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/graph/fuse/group.hpp>
#include <tessera/graph/fuse/kernel_table.hpp>
#include <tessera/graph/ir/graph.hpp>

namespace tessera {

/// The units and kernels of the graphs of a program that is known only at run time. TracedUnits are those of a traced
/// program, as constants.
struct ProgramUnits {
  Growable<Units> graphs;
  Growable<UnitsView> views;  ///< by graph
  Growable<Fused> kernels;

  constexpr ProgramUnits(const GraphView* program, int graph_count) {
    KernelTable table;
    for (int g = 0; g < graph_count; ++g) {
      graphs.push_back(group_units(program[g]));
      Units& units = graphs.back();
      for (std::size_t u = 0; u < units.units.size(); ++u)
        if (units.units[u].kind == UnitKind::fused)
          table.add(program[g], units.view(), g, static_cast<int>(u), units.units[u]);
    }
    for (const Units& units : graphs) views.push_back(units.view());
    kernels = std::move(table.kernels());
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
