#ifndef TESSERA_RUNTIME_STEPS_STEP_OBSERVER_HPP
#define TESSERA_RUNTIME_STEPS_STEP_OBSERVER_HPP
#include <tessera/base/push_macros.hpp>

namespace tessera::runtime {

struct Frame;
class FrameLayout;

/// Indices of plan steps that a prepared step executes: a single step, or two fused steps. The result of the first of
/// two may be stored nowhere, see ValueRole::fused.
struct RanSteps {
  int first = 0, count = 1;
};

/// Called between the steps of a running program. May read and write the program's values.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// Before the first step of the main graph, and of a repeat's body for each layer. Arguments are set.
  virtual void entered(const FrameLayout&, Frame&) {}
  /// Directly before each step; the steps of a body run between begins() and ran() of their repeat.
  virtual void begins() {}
  virtual void ran(const FrameLayout&, Frame&, const RanSteps&) = 0;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
