#ifndef TESSERA_RUNTIME_STEPS_SUM_TARGETS_HPP
#define TESSERA_RUNTIME_STEPS_SUM_TARGETS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/transport/communication.hpp>

namespace tessera::runtime {

/// Where the parts of a value go when a reshard does no more than sum them, each to a shard of the same box: by shard
/// of the value, a pointer of the frame. Empty for other reshards.
inline std::vector<std::int32_t> sum_targets(const FrameLayout& layout, const PlanStep& reshard) {
  const int from = reshard.inputs[0], to = reshard.outputs[0];
  const Sharding &parts = layout.value(from).sharding, &sum = layout.value(to).sharding;
  if (parts.unreduced == 0 || parts.reduction != Reduction::sum || sum.unreduced != 0) return {};
  if (layout.value(from).dtype != DType::f32 && layout.value(from).dtype != DType::f64) return {};
  for (int d = 0; d < parts.rank; ++d)
    if (!(parts.dims[d] == sum.dims[d])) return {};
  const ValueLayout &source = layout[from], &target = layout[to];
  std::vector<std::int32_t> targets;
  targets.reserve(static_cast<std::size_t>(source.shards()));
  for (int s = 0; s < source.shards(); ++s) {
    const int shard = target.index(source.grid.coordinates(s));
    if (!(source.strides[static_cast<std::size_t>(s)] == target.strides[static_cast<std::size_t>(shard)])) return {};
    targets.push_back(target.first + shard);
  }
  return targets;
}

/// A rounding that a product took over. Where a run is observed, the product is stored and this runs after all.
class TakenRounding final : public PreparedStep {
 public:
  explicit TakenRounding(std::unique_ptr<PreparedStep> rounding) : rounding_(std::move(rounding)) {}
  void run(Frame& frame) const override {
    if (frame.observer != nullptr) rounding_->run(frame);
  }
  std::int64_t scratch_bytes() const override { return rounding_->scratch_bytes(); }

 private:
  std::unique_ptr<PreparedStep> rounding_;
};

/// What remains of a reshard that another step took over: its collectives ran, and what was copied is the result.
class TakenReshardStep final : public PreparedStep {
 public:
  TakenReshardStep(const FrameLayout& layout, const PlanStep& reshard)
      : mesh_(layout.mesh()), step_(reshard), bytes_(layout.value(reshard.outputs[0]).stored_bytes) {}
  void run(Frame&) const override {
    CommunicationScope* const scope = CommunicationScope::innermost();
    if (scope == nullptr) return;
    for (const CollectiveInfo& collective : step_.collectives) scope->add(mesh_, collective);
    scope->add_copied(bytes_);
  }

 private:
  const Mesh& mesh_;
  const PlanStep& step_;
  std::int64_t bytes_;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
