#ifndef TESSERA_RUNTIME_STEPS_FUSED_FRAGMENT_BOXES_HPP
#define TESSERA_RUNTIME_STEPS_FUSED_FRAGMENT_BOXES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/base/sort_distinct.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/mesh/mesh.hpp>
#include <tessera/mesh/sharding.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/reshard/chunks.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::runtime {

/// The boxes of an iteration space in which each assembled operand of a fused step has one fragment, in one shard.
class FragmentBoxes {
 public:
  FragmentBoxes(const GraphPlan& plan, const UnitsView& units, const PlanStep& step, const Mesh& mesh)
      : plan_(plan), mesh_(mesh), rank_(units[step.unit].rank) {
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const PlanValue& value = plan.values[static_cast<std::size_t>(step.inputs[i])];
      if (value.role != ValueRole::assembled) continue;
      any_ = true;
      for (int f = 0; f < value.fragment_count; ++f)
        add_borders(fragment(value, f), units.input(step.unit, static_cast<int>(i)));
    }
    for (Growable<std::int64_t>& own : borders_) sort_distinct(own);
  }

  /// Cuts a box along the borders of all fragments, and of the shards that have their elements.
  Growable<Box> cut(const Box& whole) const {
    Growable<Box> boxes{whole};
    for (int d = 0; d < rank_ && any_; ++d) {
      const auto dim = static_cast<std::size_t>(d);
      Growable<Box> parts;
      for (const Box& box : boxes) {
        Box rest = box;
        for (const std::int64_t border : borders_[d]) {
          if (border <= rest.begin[dim] || border >= rest.end[dim]) continue;
          parts.push_back(rest);
          parts.back().end[dim] = rest.begin[dim] = border;
        }
        parts.push_back(rest);
      }
      boxes = std::move(parts);
    }
    return boxes;
  }

  /// The fragment of an assembled operand in one of these boxes; null: the box is empty.
  const Fragment* fragment_in(const Box& box, const PlanValue& value, const UnitOperand& operand) const {
    for (int f = 0; f < value.fragment_count; ++f) {
      const Box& own = fragment(value, f).box;
      bool inside = true;
      for (int d = 0; d < rank_; ++d) {
        if (operand.dim_at[d] < 0) continue;
        const auto dim = static_cast<std::size_t>(operand.dim_at[d]);
        const std::int64_t begin = box.begin[static_cast<std::size_t>(d)];
        inside = inside && own.begin[dim] <= begin && begin < own.end[dim];
      }
      if (inside) return &fragment(value, f);
    }
    return nullptr;
  }

 private:
  const GraphPlan& plan_;
  const Mesh& mesh_;
  int rank_;
  bool any_ = false;
  Growable<std::int64_t> borders_[max_rank];  // by dim of the iteration space

  const Fragment& fragment(const PlanValue& value, int f) const {
    return plan_.fragments[static_cast<std::size_t>(value.first_fragment + f)];
  }
  void add_borders(const Fragment& fragment, const UnitOperand& operand) {
    for (int d = 0; d < rank_; ++d) {
      if (operand.dim_at[d] < 0) continue;
      const auto dim = static_cast<std::size_t>(operand.dim_at[d]);
      borders_[d].push_back(fragment.box.begin[dim]);
      borders_[d].push_back(fragment.box.end[dim]);
      if (fragment.value < 0) continue;
      const PlanValue& from = plan_.values[static_cast<std::size_t>(fragment.value)];
      const std::int64_t count = shard_count(from.sharding, mesh_, static_cast<int>(dim));
      const std::int64_t moved = fragment.box.begin[dim] - fragment.from[dim];
      for (std::int64_t shard = 1; shard < count; ++shard) {
        const std::int64_t border = shard * rows_of_chunk(from.shape[dim], count) + moved;
        if (border > fragment.box.begin[dim] && border < fragment.box.end[dim]) borders_[d].push_back(border);
      }
    }
  }
};

}  // namespace tessera::runtime

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
