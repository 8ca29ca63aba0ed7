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
  void add(std::unique_ptr<PreparedStep> step) {
    scratch_ = std::max(scratch_, step->scratch_bytes());
    steps_.push_back(std::move(step));
  }
  std::int64_t scratch_bytes() const { return scratch_; }
  void run_steps(Frame& frame) const {
    for (const auto& step : steps_) step->run(frame);
  }

 private:
  GraphView graph_;
  FrameLayout layout_;
  std::vector<std::unique_ptr<PreparedStep>> steps_;
  std::int64_t scratch_ = 0;
};

}  // namespace tessera::runtime

#endif
