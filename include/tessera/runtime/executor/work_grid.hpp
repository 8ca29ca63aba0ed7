#ifndef TESSERA_RUNTIME_EXECUTOR_WORK_GRID_HPP
#define TESSERA_RUNTIME_EXECUTOR_WORK_GRID_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/planning.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/memory/stored_grid.hpp>

namespace tessera::runtime {

/// The places of a step: one for each combination of coordinates along the mesh axes that its values are sharded over.
/// Devices that differ only along the remaining axes are replicas: their work is done once.
class WorkGrid {
 public:
  TESSERA_PLANNING WorkGrid(const FrameLayout& layout, const PlanStep& step) {
    Sharding all;
    all.unreduced = axes_ = work_axes(layout.plan(), step);
    grid_ = stored_grid(layout.mesh(), all);
  }
  int count() const { return grid_.count(); }
  /// The mesh axes that tell places apart, as a bit mask.
  unsigned axes() const { return axes_; }
  Coordinates coordinates(int place) const { return grid_.coordinates(place); }
  int index_of(const Coordinates& at) const { return grid_.index_of(at); }
  /// Whether the place at `at` writes a value with this sharding. Places that differ only along axes that the value is
  /// not sharded over compute equal values; the first of them writes.
  bool stores(const Coordinates& at, const Sharding& sharding) const {
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if ((axes_ >> axis & 1) != 0 && !sharding.uses(static_cast<int>(axis)) && at[axis] != 0) return false;
    return true;
  }

 private:
  ShardGrid grid_;
  std::uint16_t axes_ = 0;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
