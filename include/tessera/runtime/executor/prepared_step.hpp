#ifndef TESSERA_RUNTIME_EXECUTOR_PREPARED_STEP_HPP
#define TESSERA_RUNTIME_EXECUTOR_PREPARED_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/runtime/executor/frame.hpp>

namespace tessera::runtime {

/// A step that runs fused with the one before it, on each box of what that makes while the box is in the cache.
class Epilogue {
 public:
  virtual ~Epilogue() = default;
  /// The box [begin, begin + extent) of the shard at a place of the work grid.
  virtual void run_box(Frame& frame, int place, const Shape& begin, const Shape& extent) const = 0;
};

/// One step of a plan, made ready: it runs any number of times on frames of its graph.
class PreparedStep {
 public:
  virtual ~PreparedStep() = default;
  virtual void run(Frame& frame) const = 0;
  /// Bytes of scratch that a run needs, once all graphs of the program are prepared.
  virtual std::int64_t scratch_bytes() const { return 0; }
  /// Bytes of its tables, which are as long as the list of places or pieces that it works on.
  virtual std::int64_t table_bytes() const { return 0; }
  /// Bytes that a run moves between devices, as CommunicationScope::moved_bytes counts them.
  virtual std::int64_t moved_bytes() const { return 0; }
};

/// What a step is made from.
struct StepContext {
  const FrameLayout& layout;
  const GraphView& graph;
  const UnitsView& units;
  const PlanStep& step;
  const PlanStep* next = nullptr;  ///< the step that runs fused with it, as step.fusion says; null: none
  /// That step, where it computes. It lives as long as what is made.
  const Epilogue* epilogue = nullptr;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
