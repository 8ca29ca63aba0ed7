#ifndef TESSERA_RUNTIME_STEPS_SUM_IN_PLACE_HPP
#define TESSERA_RUNTIME_STEPS_SUM_IN_PLACE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/transport/communication.hpp>

namespace tessera::runtime {

/// A reshard that does no more than sum parts, and is done by the step that makes them (Fusion::sum).
class SumInPlace {
 public:
  SumInPlace() = default;
  SumInPlace(const FrameLayout& layout, const PlanStep& reshard) : layout_(&layout), reshard_(&reshard) {}

  explicit operator bool() const { return reshard_ != nullptr; }
  /// The pointer of a frame to which the part behind another is added: the shard of the sum with the same box.
  std::int32_t target(std::int32_t part) const {
    const ValueLayout &from = (*layout_)[reshard_->inputs[0]], &to = (*layout_)[reshard_->outputs[0]];
    return to.first + to.index(from.grid.coordinates(part - from.first));
  }
  /// Counts its collectives where they are counted.
  void count() const {
    CommunicationScope* const scope = reshard_ == nullptr ? nullptr : CommunicationScope::innermost();
    if (scope == nullptr) return;
    for (const CollectiveInfo& collective : reshard_->collectives) scope->add(layout_->mesh(), collective);
    scope->add_copied(layout_->value(reshard_->outputs[0]).stored_bytes);
  }

 private:
  const FrameLayout* layout_ = nullptr;
  const PlanStep* reshard_ = nullptr;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
