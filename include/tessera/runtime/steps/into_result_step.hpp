#ifndef TESSERA_RUNTIME_STEPS_INTO_RESULT_STEP_HPP
#define TESSERA_RUNTIME_STEPS_INTO_RESULT_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/kernels/isa.hpp>
#include <tessera/runtime/executor/frame.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// A product with an epilogue that makes a result of the program: sums go where the result will be, box by box, and no
/// memory of their own is written. Where that memory is an argument's that the epilogue still reads, or the run is
/// observed, product and pass run one after the other.
class IntoResultStep final : public PreparedStep {
 public:
  /// `product` has the epilogue attached, which `pass` is as a step of its own: the plan's `next`. `made` is what it
  /// reads of the product.
  IntoResultStep(std::unique_ptr<PreparedStep> product, std::unique_ptr<PreparedStep> pass, const FrameLayout& layout,
                 int made, const PlanStep& next)
      : product_(std::move(product)), pass_(std::move(pass)), layout_(layout), made_(made), result_(next.outputs[0]) {
    for (const std::int32_t in : next.inputs)
      if (in >= 0 && in != made && layout[in].shards() == layout[result_].shards()) others_.push_back(in);
  }

  /// Whether `next` alone reads the product, stores one value, a result, with the strides of the product.
  static bool possible(const FrameLayout& layout, int made, const PlanStep& next) {
    const PlanValue& from = layout.value(made);
    if (next.outputs.size() != 1 || from.role != ValueRole::intermediate || from.stacked) return false;
    const int result = next.outputs[0];
    const PlanValue& to = layout.value(result);
    if (to.role != ValueRole::output || to.stacked || to.dtype != from.dtype) return false;
    if (layout[made].shards() != layout[result].shards()) return false;
    for (std::size_t s = 0; s < layout[made].boxes.size(); ++s)
      if (!(layout[made].strides[s] == layout[result].strides[s]) ||
          !(extents(layout[made].boxes[s]) == extents(layout[result].boxes[s])))
        return false;
    for (const PlanValue& other : layout.plan().values)
      if (other.role == ValueRole::view && (other.view_of == made || other.view_of == result)) return false;
    for (const PlanStep& other : layout.plan().steps)
      for (const std::int32_t in : other.inputs)
        if (in == result || (in == made && &other != &next)) return false;
    return true;
  }

  std::int64_t scratch_bytes() const override { return std::max(product_->scratch_bytes(), pass_->scratch_bytes()); }
  std::int64_t table_bytes() const override { return product_->table_bytes() + pass_->table_bytes(); }

  void run(Frame& frame) const override {
    const ValueLayout &made = layout_[made_], &result = layout_[result_];
    bool free = frame.observer == nullptr;
    for (int s = 0; s < result.shards(); ++s)
      for (const std::int32_t in : others_) free = free && frame.at(layout_[in], s) != frame.at(result, s);
    for (int s = 0; s < made.shards(); ++s)
      frame.pointers[static_cast<std::size_t>(made.first + s)] =
          free ? frame.at(result, s)
               : frame.arena + layout_.value(made_).offset + made.offsets[static_cast<std::size_t>(s)];
    if (free) return product_->run(frame);
    product_->run_alone(frame);
    pass_->run(frame);
  }

 private:
  std::unique_ptr<PreparedStep> product_, pass_;
  const FrameLayout& layout_;
  int made_, result_;
  std::vector<std::int32_t> others_;  // what else the epilogue reads
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
