#ifndef TESSERA_RUNTIME_STEPS_PASSED_PRODUCTS_HPP
#define TESSERA_RUNTIME_STEPS_PASSED_PRODUCTS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Memory for the shards of a product that is not stored, of which an epilogue reads each box: the shard of the
/// epilogue's result, or scratch memory.
class PassedProducts {
 public:
  /// The shards of the product `made` go where the result of `next` goes. If that is a donated argument, which the
  /// epilogue may still read, they go into the arena.
  TESSERA_PLANNING void add_in_result(const FrameLayout& layout, int made, const PlanStep& next) {
    const ValueLayout &own = layout[made], &result = layout[next.outputs[0]];
    const GraphPlan& plan = layout.plan();
    int argument = -1;
    for (std::size_t k = 0; k < plan.outputs.size(); ++k)
      if (plan.outputs[k] == next.outputs[0] && plan.donated[k] >= 0)
        argument = plan.arguments[static_cast<std::size_t>(plan.donated[k])];
    for (int s = 0; s < own.shards(); ++s)
      passed_.push_back({own.first + s, result.first + s, argument < 0 ? -1 : layout[argument].first + s,
                         layout.value(made).offset + own.offsets[static_cast<std::size_t>(s)]});
  }
  /// A shard goes into scratch memory, at `offset`.
  void add_in_scratch(std::int32_t made, std::int64_t offset) { passed_.push_back({made, -1, -1, offset}); }

  void place(Frame& frame) const {
    const auto at = [&](std::int32_t pointer) -> char*& { return frame.pointers[static_cast<std::size_t>(pointer)]; };
    for (const Passed& p : passed_) {
      if (p.result < 0)
        at(p.made) = frame.scratch + p.offset;
      else if (p.argument >= 0 && at(p.argument) == at(p.result))
        at(p.made) = frame.arena + p.offset;
      else
        at(p.made) = at(p.result);
    }
  }

 private:
  /// Pointers in the frame; without a result, `offset` is in scratch, otherwise in the arena.
  struct Passed {
    std::int32_t made, result, argument;
    std::int64_t offset;
  };
  Growable<Passed> passed_;
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
