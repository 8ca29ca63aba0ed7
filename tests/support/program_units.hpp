#ifndef TESSERA_TESTS_SUPPORT_PROGRAM_UNITS_HPP
#define TESSERA_TESTS_SUPPORT_PROGRAM_UNITS_HPP

#include <cstddef>
#include <utility>
#include <vector>

#include <tessera/graph/fuse/group.hpp>
#include <tessera/graph/fuse/kernel_table.hpp>

namespace tessera::tests {

/// The units and kernels of a program, computed at run time.
struct ProgramUnits {
  std::vector<Units> graphs;
  Growable<Fused> kernels;

  constexpr explicit ProgramUnits(const GraphView* views, int count) {
    KernelTable table;
    for (int g = 0; g < count; ++g) {
      graphs.push_back(group_units(views[g]));
      Units& units = graphs.back();
      for (std::size_t u = 0; u < units.units.size(); ++u)
        if (units.units[u].kind == UnitKind::fused)
          table.add(views[g], units.view(), g, static_cast<int>(u), units.units[u]);
    }
    kernels = std::move(table.kernels());
  }
};

}  // namespace tessera::tests

#endif
