#ifndef TESSERA_RUNTIME_PREPARED_GRAPH_HPP
#define TESSERA_RUNTIME_PREPARED_GRAPH_HPP

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/runtime/frame.hpp>

namespace tessera::runtime {

/// The steps of one graph, made ready to run on its frames.
class PreparedGraph {
 public:
  PreparedGraph(const GraphView& graph, const GraphPlan& plan, const Mesh& mesh)
      : graph_(graph), layout_(graph, plan, mesh) {}

  const GraphView& graph() const { return graph_; }
  const FrameLayout& layout() const { return layout_; }
  /// `ran`: the steps of the plan that it carries out.
  void add(std::unique_ptr<PreparedStep> step, const RanSteps& ran) {
    scratch_ = std::max(scratch_, step->scratch_bytes());
    steps_.push_back(std::move(step));
    ran_.push_back(ran);
  }
  std::int64_t scratch_bytes() const { return scratch_; }
  void run_steps(Frame& frame) const {
    if (frame.observer != nullptr) return run_observed(frame);
    for (const auto& step : steps_) step->run(frame);
  }

 private:
  GraphView graph_;
  FrameLayout layout_;
  std::vector<std::unique_ptr<PreparedStep>> steps_;
  std::vector<RanSteps> ran_;
  std::int64_t scratch_ = 0;

  void run_observed(Frame& frame) const {
    frame.observer->entered(layout_, frame);
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      steps_[s]->run(frame);
      frame.observer->ran(layout_, frame, ran_[s]);
    }
  }
};

}  // namespace tessera::runtime

#endif
