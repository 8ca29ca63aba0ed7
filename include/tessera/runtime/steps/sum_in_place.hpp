#ifndef TESSERA_RUNTIME_STEPS_SUM_IN_PLACE_HPP
#define TESSERA_RUNTIME_STEPS_SUM_IN_PLACE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/transport/communication.hpp>

namespace tessera::runtime {

/// A reshard that only sums parts, fused into the step that computes the parts (Fusion::sum): that step accumulates
/// into the sum, and no part is stored.
class SumInPlace {
 public:
  SumInPlace() = default;
  TESSERA_PLANNING SumInPlace(const FrameLayout& layout, const PlanStep& reshard)
      : layout_(&layout), reshard_(&reshard) {
    const int parts = reshard.inputs[0], sum = reshard.outputs[0];
    const ValueLayout &from = layout[parts], &to = layout[sum];
    Growable<Growable<int>> added(static_cast<std::size_t>(to.shards()));
    for (int part = 0; part < from.shards(); ++part)
      if (layout.holds(parts, from.grid.coordinates(part)))
        added[static_cast<std::size_t>(target(from.first + part) - to.first)].push_back(part);
    for (int s = 0; s < to.shards(); ++s) {
      const Growable<int>& of = added[static_cast<std::size_t>(s)];
      moved_ += volume(extents(to.boxes[static_cast<std::size_t>(s)])) * to.element *
                sends(layout.holders(sum, s), static_cast<int>(of.size()),
                      [&](int i) { return layout.holders(parts, of[static_cast<std::size_t>(i)]); });
    }
  }

  explicit operator bool() const { return reshard_ != nullptr; }
  /// The index in Frame::pointers of the sum's shard into which the part with index `part` is accumulated.
  TESSERA_PLANNING std::int32_t target(std::int32_t part) const {
    const ValueLayout &from = (*layout_)[reshard_->inputs[0]], &to = (*layout_)[reshard_->outputs[0]];
    return to.first + to.index(from.grid.coordinates(part - from.first));
  }
  /// Adds the reshard's collectives to this thread's CommunicationScope, if there is one.
  void count() const {
    CommunicationScope* const scope = reshard_ == nullptr ? nullptr : CommunicationScope::innermost();
    if (scope == nullptr) return;
    for (const CollectiveInfo& collective : reshard_->collectives) scope->add(layout_->mesh(), collective);
    scope->add_moved(moved_);
    scope->add_copied(layout_->value(reshard_->outputs[0]).stored_bytes);
  }
  std::int64_t moved_bytes() const { return moved_; }

 private:
  const FrameLayout* layout_ = nullptr;
  const PlanStep* reshard_ = nullptr;
  std::int64_t moved_ = 0;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
