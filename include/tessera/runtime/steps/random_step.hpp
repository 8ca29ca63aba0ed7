#ifndef TESSERA_RUNTIME_STEPS_RANDOM_STEP_HPP
#define TESSERA_RUNTIME_STEPS_RANDOM_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/random.hpp>
#include <tessera/mesh/box.hpp>
#include <tessera/runtime/executor/frame.hpp>
#include <tessera/runtime/executor/prepared_step.hpp>
#include <tessera/runtime/threads/team.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Random values computed from the key and an element's global index, so that results don't depend on the mesh.
template <class = void> class RandomStep final : public PreparedStep {
 public:
  explicit RandomStep(const StepContext& c)
      : layout_(c.layout), value_(c.step.outputs[0]), key_(c.graph.operand(c.units[c.step.unit].root, 1)),
        draw_(RandomDraw::of(c.graph[c.units[c.step.unit].root])), of_layers_(c.graph[key_].dtype == DType::f64) {
    for (int i = 0; i < c.units[c.step.unit].input_count; ++i)
      if (c.units.input(c.step.unit, i).node == key_) key_value_ = c.step.inputs[static_cast<std::size_t>(i)];
    const FrameLayout& layout = c.layout;
    for (int s = 0; s < layout[value_].shards(); ++s)
      if (layout[value_].is_here(s)) cut({s, layout[value_].boxes[static_cast<std::size_t>(s)]});
  }

  std::int64_t table_bytes() const override { return static_cast<std::int64_t>(parts_.size() * sizeof(Part)); }

  void run(Frame& frame) const override {
    if (parts_.empty()) return;
    std::int64_t number = frame.numbers[static_cast<std::size_t>(key_)].integer();
    if (key_value_ >= 0) std::memcpy(&number, frame.at(layout_[key_value_], 0), sizeof number);
    std::uint64_t key = kernels::fold_in(static_cast<std::uint64_t>(number), draw_.stream);
    if (of_layers_) key = folded(key, frame);
    const PlanValue& value = layout_.value(value_);
    const ValueLayout& layout = layout_[value_];
    parallel_for(static_cast<std::int64_t>(parts_.size()), Cost{part_elements_ * 2}, [&](std::int64_t i) {
      const Part& part = parts_[static_cast<std::size_t>(i)];
      const Shape& first = layout.boxes[static_cast<std::size_t>(part.shard)].begin;
      const kernels::Strides& strides = layout.strides[static_cast<std::size_t>(part.shard)];
      std::int64_t offset = 0;
      for (std::size_t d = 0; d < first.size(); ++d) offset += (part.box.begin[d] - first[d]) * strides[d];
      kernels::fill_random(value.dtype, draw_.distribution, frame.at(layout, part.shard) + offset * layout.element,
                           strides, key, value.shape, part.box.begin, extents(part.box));
    });
  }

 private:
  /// The key in the current layer of each repeat around the step, the outermost first.
  static std::uint64_t folded(std::uint64_t key, const Frame& frame) {
    if (frame.layer < 0) return key;
    return kernels::fold_in(folded(key, *frame.around), static_cast<std::uint64_t>(frame.layer) + 1);
  }
  struct Part {
    int shard;
    Box box;
  };
  /// Halves a part along its outermost dim until a task draws few elements: of a vector and of a single row too.
  void cut(const Part& part) {
    constexpr std::int64_t most = std::int64_t{1} << 14;
    const Shape extent = extents(part.box);
    const std::int64_t elements = volume(extent);
    if (elements == 0) return;
    if (elements <= most) {
      part_elements_ = std::max(part_elements_, static_cast<double>(elements));
      parts_.push_back(part);
      return;
    }
    std::size_t dim = 0;
    while (extent[dim] == 1) ++dim;
    Part low = part, high = part;
    low.box.end[dim] = high.box.begin[dim] = part.box.begin[dim] + extent[dim] / 2;
    cut(low);
    cut(high);
  }
  const FrameLayout& layout_;
  int value_, key_, key_value_ = -1;  // a key that is a tensor is a value, any other a host scalar
  RandomDraw draw_;
  bool of_layers_;
  Growable<Part> parts_;
  double part_elements_ = 1;
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
