#ifndef TESSERA_RUNTIME_STEPS_RANDOM_STEP_HPP
#define TESSERA_RUNTIME_STEPS_RANDOM_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <cstring>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/random.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Random values computed from the key and an element's global index, so that results don't depend on the mesh.
class RandomStep final : public PreparedStep {
 public:
  explicit RandomStep(const StepContext& c)
      : layout_(c.layout), value_(c.step.outputs[0]), key_(c.graph.operand(c.units[c.step.unit].root, 1)),
        draw_(RandomDraw::of(c.graph[c.units[c.step.unit].root])), of_layers_(c.graph[key_].dtype == DType::f64) {
    for (int i = 0; i < c.units[c.step.unit].input_count; ++i)
      if (c.units.input(c.step.unit, i).node == key_) key_value_ = c.step.inputs[static_cast<std::size_t>(i)];
    const FrameLayout& layout = c.layout;
    for (int s = 0; s < layout[value_].shards(); ++s) {
      const Shape local = extents(layout[value_].boxes[static_cast<std::size_t>(s)]);
      const std::int64_t rows = local.empty() ? 1 : local[0];
      for (std::int64_t row = 0; row < rows; ++row) parts_.push_back({s, row});
      part_elements_ = static_cast<double>(volume(local)) / static_cast<double>(rows > 0 ? rows : 1);
    }
  }

  void run(Frame& frame) const override {
    std::int64_t number = frame.numbers[static_cast<std::size_t>(key_)].integer();
    if (key_value_ >= 0) std::memcpy(&number, frame.at(layout_[key_value_], 0), sizeof number);
    std::uint64_t key = kernels::fold_in(static_cast<std::uint64_t>(number), draw_.stream);
    if (of_layers_) key = folded(key, frame);
    const PlanValue& value = layout_.value(value_);
    const ValueLayout& layout = layout_[value_];
    parallel_for(static_cast<std::int64_t>(parts_.size()), Cost{part_elements_ * 2}, [&](std::int64_t i) {
      const ShardRow& part = parts_[static_cast<std::size_t>(i)];
      const Box& box = layout.boxes[static_cast<std::size_t>(part.shard)];
      Shape begin = box.begin, extent = extents(box);
      const kernels::Strides& strides = layout.strides[static_cast<std::size_t>(part.shard)];
      std::int64_t offset = 0;
      if (!begin.empty()) {
        begin[0] += part.row;
        extent[0] = 1;
        offset = part.row * strides[0];
      }
      kernels::fill_random(value.dtype, draw_.distribution, frame.at(layout, part.shard) + offset * layout.element,
                           strides, key, value.shape, begin, extent);
    });
  }

 private:
  /// The key in the current layer of each repeat around the step, the outermost first.
  static std::uint64_t folded(std::uint64_t key, const Frame& frame) {
    if (frame.layer < 0) return key;
    return kernels::fold_in(folded(key, *frame.around), static_cast<std::uint64_t>(frame.layer) + 1);
  }
  struct ShardRow {
    int shard;
    std::int64_t row;
  };
  const FrameLayout& layout_;
  int value_, key_, key_value_ = -1;  // a key that is a tensor is a value, any other a host scalar
  RandomDraw draw_;
  bool of_layers_;
  Growable<ShardRow> parts_;
  double part_elements_ = 1;
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
