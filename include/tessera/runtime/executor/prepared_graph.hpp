#ifndef TESSERA_RUNTIME_EXECUTOR_PREPARED_GRAPH_HPP
#define TESSERA_RUNTIME_EXECUTOR_PREPARED_GRAPH_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>

namespace tessera::runtime {

/// The prepared steps of one graph, which run on its frames.
class PreparedGraph {
 public:
  PreparedGraph(const GraphView& graph, const GraphPlan& plan, const Mesh& mesh)
      : graph_(graph), layout_(graph, plan, mesh) {}

  const GraphView& graph() const { return graph_; }
  const FrameLayout& layout() const { return layout_; }
  /// `ran`: the steps of the plan that `step` executes; `epilogue`: the second of them, which `step` calls.
  TESSERA_PLANNING void add(std::unique_ptr<PreparedStep> step, const RanSteps& ran,
                            std::unique_ptr<PreparedStep> epilogue = nullptr) {
    steps_.push_back(std::move(step));
    ran_.push_back(ran);
    if (epilogue != nullptr) epilogues_.push_back(std::move(epilogue));
  }
  /// The largest scratch_bytes() of a step: steps run one after another and share the scratch memory.
  std::int64_t scratch_bytes() const {
    std::int64_t most = 0;
    for (const auto& step : steps_) most = std::max(most, step->scratch_bytes());
    return most;
  }
  /// Approximate bytes of this object.
  std::int64_t bytes() const {
    std::int64_t sum = static_cast<std::int64_t>(sizeof *this);
    const GraphPlan& plan = layout_.plan();
    for (std::size_t v = 0; v < plan.values.size(); ++v)
      sum += value_bytes + shard_bytes * layout_[static_cast<int>(v)].shards();
    sum += step_bytes * static_cast<std::int64_t>(plan.steps.size());
    for (const auto* list : {&steps_, &epilogues_})
      for (const auto& step : *list) sum += step->table_bytes();
    return sum;
  }
  /// Calls f(layout, RanSteps, bytes moved between devices) for each prepared step.
  template <class F> void for_each_step(F&& f) const {
    for (std::size_t s = 0; s < steps_.size(); ++s) f(layout_, ran_[s], steps_[s]->moved_bytes());
  }
  void run_steps(Frame& frame) const {
    if (frame.observer != nullptr) return run_observed(frame);
    for (const auto& step : steps_) step->run(frame);
  }

 private:
  GraphView graph_;
  FrameLayout layout_;
  Growable<std::unique_ptr<PreparedStep>> steps_, epilogues_;
  Growable<RanSteps> ran_;

  // Estimates for one value, one of its shards, and one step, including their heap allocations.
  static constexpr std::int64_t value_bytes = sizeof(PlanValue) + sizeof(ValueLayout) + 256;
  static constexpr std::int64_t shard_bytes = sizeof(Box) + sizeof(kernels::Strides) + 32;
  static constexpr std::int64_t step_bytes = sizeof(PlanStep) + 2048;

  void run_observed(Frame& frame) const {
    frame.observer->entered(layout_, frame);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      frame.observer->begins();
      steps_[s]->run(frame);
      frame.observer->ran(layout_, frame, ran_[s]);
    }
  }
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
