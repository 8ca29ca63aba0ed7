#ifndef TESSERA_RUNTIME_EXECUTOR_WORK_GRID_HPP
#define TESSERA_RUNTIME_EXECUTOR_WORK_GRID_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/mesh/processes.hpp>
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
    if (!spans_processes(layout.mesh())) return;
    for (int place = 0; place < grid_.count(); ++place)
      elsewhere_.push_back(is_held_here(layout.mesh(), grid_, place) ? 0 : 1);
  }
  int count() const { return grid_.count(); }
  /// The mesh axes that tell places apart, as a bit mask.
  unsigned axes() const { return axes_; }
  Coordinates coordinates(int place) const { return grid_.coordinates(place); }
  int index_of(const Coordinates& at) const { return grid_.index_of(at); }
  /// Whether a device of this process has the place.
  bool is_here(int place) const { return elsewhere_.empty() || elsewhere_[static_cast<std::size_t>(place)] == 0; }
  /// Whether the place at `at` is the first of those with the same shard of a value with this sharding. Places that
  /// differ only along axes that the value is not sharded over compute equal values.
  bool is_first(const Coordinates& at, const Sharding& sharding) const {
    for (std::size_t axis = 0; axis < at.size(); ++axis)
      if (differs_along(axis, sharding) && at[axis] != 0) return false;
    return true;
  }
  /// Whether the place at `at` writes its shard of a value: it is the first place of this process that has the shard.
  bool stores(const Coordinates& at, const Sharding& sharding) const {
    if (elsewhere_.empty()) return is_first(at, sharding);
    const int own = index_of(at);
    if (!is_here(own)) return false;
    for (int place = 0; place < own; ++place)
      if (is_here(place) && has_same_shard(coordinates(place), at, sharding)) return false;
    return true;
  }
  /// The place of this process that stores the shard which the place at `at` has of a value; without such a place, or
  /// with all of them, the first.
  int stored_at(const Coordinates& at, const Sharding& sharding) const {
    for (int place = 0; place < count() && !elsewhere_.empty(); ++place)
      if (is_here(place) && has_same_shard(coordinates(place), at, sharding)) return place;
    return index_of(at);
  }

 private:
  ShardGrid grid_;
  std::uint16_t axes_ = 0;
  Growable<std::uint8_t> elsewhere_;  // by place; empty where this process has all places

  /// Whether places differ along an axis over which a value is not sharded.
  bool differs_along(std::size_t axis, const Sharding& sharding) const {
    return (axes_ >> axis & 1) != 0 && !sharding.uses(static_cast<int>(axis));
  }
  bool has_same_shard(const Coordinates& a, const Coordinates& b, const Sharding& sharding) const {
    for (std::size_t axis = 0; axis < a.size(); ++axis)
      if (!differs_along(axis, sharding) && a[axis] != b[axis]) return false;
    return true;
  }
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
