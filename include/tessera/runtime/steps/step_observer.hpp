#ifndef TESSERA_RUNTIME_STEPS_STEP_OBSERVER_HPP
#define TESSERA_RUNTIME_STEPS_STEP_OBSERVER_HPP
#include <tessera/base/push_macros.hpp>

namespace tessera::runtime {

struct Frame;
class FrameLayout;

/// Steps of a plan that ran as one: a step, or two that are fused. What the first of two made may be stored nowhere,
/// see ValueRole::fused.
struct RanSteps {
  int first = 0, count = 1;
};

/// Looks at the memory of a program while it runs, between steps. It may write to it.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  /// A graph begins: the main one, or a body for one layer. Its arguments are in place.
  virtual void entered(const FrameLayout&, Frame&) {}
  virtual void ran(const FrameLayout&, Frame&, const RanSteps&) = 0;
};

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
