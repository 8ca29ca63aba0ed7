#ifndef TESSERA_RUNTIME_EXECUTOR_PREPARED_STEP_HPP
#define TESSERA_RUNTIME_EXECUTOR_PREPARED_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/fuse/units.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/runtime/executor/frame.hpp>

namespace tessera::runtime {

/// A step that is fused into the step before it: it runs on each box of that step's result while the box is in the
/// cache. Example: the bias and gelu after a matmul.
class Epilogue {
 public:
  virtual ~Epilogue() = default;
  /// Runs on the box [begin, begin + extent) of the result's shard at `place` of the work grid.
  virtual void run_box(Frame& frame, int place, const Shape& begin, const Shape& extent) const = 0;
  /// The first element of what run_box() reads beside the result `made`, if it is stored with the same strides, such as
  /// a residual; otherwise null. The step before fetches it while it computes.
  virtual const char* beside(const Frame& frame, int place, const char* made, DType dtype,
                             const kernels::Strides& strides) const = 0;
};

/// One step of a plan with its addresses, strides and tables computed; it can run repeatedly on frames of its graph.
/// Steps that only some programs have are templates, also those without a choice (`template <class = void>`): of a
/// class that is no template, g++ would compile the virtual functions in each program, as possible targets of a virtual
/// call.
class PreparedStep {
 public:
  virtual ~PreparedStep() = default;
  virtual void run(Frame& frame) const = 0;
  /// Bytes of Frame::scratch that run() uses. Valid once all graphs of the program are prepared.
  virtual std::int64_t scratch_bytes() const { return 0; }
  /// Bytes of the step's tables, which have an entry for each place or piece.
  virtual std::int64_t table_bytes() const { return 0; }
  /// Bytes that one run moves between devices, as CommunicationScope::moved_bytes counts them.
  virtual std::int64_t moved_bytes() const { return 0; }
};

/// The input from which a PreparedStep is constructed.
struct StepContext {
  const FrameLayout& layout;
  const GraphView& graph;
  const UnitsView& units;
  const PlanStep& step;
  const PlanStep* next = nullptr;  ///< the following step, if step.fusion fuses it into this step; otherwise null
  /// `next`, prepared, if it is a compute step; outlives the constructed step.
  const Epilogue* epilogue = nullptr;
  bool in_body = false;  ///< whether a repeat runs the graph
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
