#ifndef TESSERA_RUNTIME_STEPS_REPEAT_STEP_HPP
#define TESSERA_RUNTIME_STEPS_REPEAT_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <tessera/base/growable.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strides.hpp>
#include <tessera/runtime/executor/prepared_graph.hpp>
#include <tessera/runtime/threads/parallel_copy.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// Runs a body once per layer, as jax.lax.scan. Stacked operands are passed as pointers to the layer's slice, and
/// stacked results are written there, without copies; carried values alternate between two buffers, of which the last
/// layer writes the result. A host scalar that the body takes or returns as a tensor is stored as a rank-0 tensor.
template <class = void> class RepeatStep final : public PreparedStep {
 public:
  RepeatStep(const StepContext& c, const PreparedGraph& body)
      : outer_(c.layout), body_(body), body_index_(c.step.body), shape_(Repeat::of(c.graph[c.units[c.step.unit].root])),
        layers_(c.step.layers), inputs_(c.step.inputs), outputs_(c.step.outputs) {
    const GraphPlan& plan = body.layout().plan();
    outputs_.resize(plan.outputs.size(), -1);
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      check_argument(static_cast<int>(i));
      if (outer_.value(inputs_[i]).role != ValueRole::host || argument(static_cast<int>(i)) < 0) continue;
      host_scalars_.push_back({inputs_[i], bytes});
      bytes += block_alignment;
    }
    scalar_bytes_ = bytes;
    buffers_.resize(plan.outputs.size());
    for (const LoopBuffer& buffer : c.step.buffers)
      buffers_[static_cast<std::size_t>(buffer.result)].offset[buffer.odd ? 1 : 0] = buffer.offset;
  }

  /// The scratch of the body's steps follows the host scalars of this step.
  std::int64_t scratch_bytes() const override { return scalar_bytes_ + body_.scratch_bytes(); }

  void run(Frame& frame) const override;

 private:
  void write_host_scalars(Frame& frame) const;
  void bind_operands(const Frame& frame, Frame& inner, std::int64_t steps, std::int64_t left) const;
  void bind_results(const Frame& frame, Frame& inner, std::int64_t left) const;
  void copy_results(const Frame& frame, const Frame& inner, std::int64_t left) const;

  const FrameLayout& outer_;
  const PreparedGraph& body_;
  int body_index_;
  Repeat shape_;
  std::int64_t layers_;  // steps of a loop, which may be more than an int can count
  Growable<std::int32_t> inputs_, outputs_;
  /// The buffers of a result of the body: where they are in the arena, see LoopBuffer.
  struct Buffers {
    std::int64_t offset[2] = {0, 0};
  };
  Growable<Buffers> buffers_;
  struct HostScalar {
    std::int32_t value;  // index in the outer graph's plan
    std::int64_t offset;
  };
  Growable<HostScalar> host_scalars_;
  std::int64_t scalar_bytes_ = 0;

  bool carried(int k) const { return k < shape_.carried; }
  /// How many layers run.
  std::int64_t steps(const Frame& frame) const {
    if (!shape_.limited) return layers_;
    const int input = inputs_[static_cast<std::size_t>(shape_.limit(static_cast<int>(inputs_.size())))];
    const PlanValue& value = outer_.value(input);
    if (!outer_[input].is_here(0)) return 0;  // a process without devices has nothing to do
    const std::int64_t limit = value.role == ValueRole::host
                                   ? frame.numbers[static_cast<std::size_t>(value.node)].integer()
                                   : *frame.at<std::int32_t>(outer_[input], 0);
    return std::clamp<std::int64_t>(limit, 0, layers_);
  }
  /// The address of a layer of a shard of a stacked value, which is in layers or in one block.
  char* slice(const Frame& frame, int value, std::int64_t layer, int shard, int shards) const {
    const ValueLayout& layout = outer_[value];
    if (outer_.value(value).stacked) return frame.at(layout, static_cast<int>(layer) * shards + shard);
    char* const first = frame.at(layout, shard);
    if (first == nullptr) return nullptr;
    return first + layer * layout.strides[static_cast<std::size_t>(shard)][0] * layout.element;
  }

  /// The body's value for operand i, or -1 if the body does not read it.
  int argument(int i) const {
    const Growable<std::int32_t>& arguments = body_.layout().plan().arguments;
    return static_cast<std::size_t>(i) < arguments.size() ? arguments[static_cast<std::size_t>(i)] : -1;
  }

  void check_argument(int i) const {
    const int value = argument(i);
    if (value < 0 || layers_ == 0) return;
    const ValueLayout& inner = body_.layout()[value];
    const ValueLayout& outer = outer_[inputs_[static_cast<std::size_t>(i)]];
    for (int s = 0; s < inner.shards(); ++s) {
      const kernels::Strides& a = inner.strides[static_cast<std::size_t>(s)];
      const kernels::Strides& b = outer.strides[static_cast<std::size_t>(s)];
      const Shape extent = extents(inner.boxes[static_cast<std::size_t>(s)]);
      if (volume(extent) == 0) continue;  // the strides of an empty shard say nothing
      const std::size_t skip = b.size() - a.size();
      for (std::size_t d = 0; d < a.size(); ++d)
        if (a[d] != b[d + skip] && extent[d] > 1)
          fail(errc::graph_invalid, "[repeat] operand: an argument of the body must be contiguous in memory");
    }
  }

  /// The layout of the body's result k, or null if it is a host scalar.
  const ValueLayout* result(int k) const {
    const std::int32_t value = body_.layout().plan().outputs[static_cast<std::size_t>(k)];
    return value < 0 ? nullptr : &body_.layout()[value];
  }
  /// The address of result k of a layer after which `left` others run.
  char* destination(const Frame& frame, int k, std::int64_t left, std::int64_t layer, int shard) const {
    const std::int32_t outer = outputs_[static_cast<std::size_t>(k)];
    const ValueLayout* own = result(k);
    const int which = carried(k) ? static_cast<int>(left % 2) : 0;
    if (outer >= 0 && which == 0) {
      if (carried(k)) return frame.at(outer_[outer], shard);
      return slice(frame, outer, layer, shard, own == nullptr ? 1 : own->shards());
    }
    return frame.arena + buffers_[static_cast<std::size_t>(k)].offset[which] +
           (own == nullptr ? 0 : own_offset(*own, shard));
  }
  /// Results of layers that don't run are zeros.
  void clear_results(const Frame& frame, std::int64_t steps) const {
    for (std::size_t k = static_cast<std::size_t>(shape_.carried); k < outputs_.size(); ++k) {
      if (outputs_[k] < 0) continue;
      const ValueLayout& to = outer_[outputs_[k]];
      const int shards = to.grid.count();
      for (std::int64_t layer = steps; layer < layers_; ++layer)
        for (int s = 0; s < shards; ++s) {
          if (!to.is_here(s)) continue;
          Shape extent = extents(to.boxes[static_cast<std::size_t>(s)]);
          extent.erase(0);
          std::memset(slice(frame, outputs_[k], layer, s, shards), 0,
                      static_cast<std::size_t>(volume(extent) * to.element));
        }
    }
  }
  /// Without steps, the carried values keep their initial values.
  void copy_carried(const Frame& frame) const {
    for (int k = 0; k < shape_.carried && static_cast<std::size_t>(k) < outputs_.size(); ++k) {
      if (outputs_[static_cast<std::size_t>(k)] < 0) continue;
      const int input = inputs_[static_cast<std::size_t>(k)];
      const ValueLayout &from = outer_[input], &to = outer_[outputs_[static_cast<std::size_t>(k)]];
      if (outer_.value(input).role == ValueRole::host) {
        const PlanValue& value = outer_.value(input);
        if (to.is_here(0))
          write_number(value.dtype, frame.at(to, 0), frame.numbers[static_cast<std::size_t>(value.node)]);
        continue;
      }
      for (int s = 0; s < to.shards(); ++s) {
        if (!to.is_here(s)) continue;
        const auto at = static_cast<std::size_t>(s);
        parallel_copy(outer_.value(input).dtype, frame.at(to, s), to.strides[at], frame.at(from, s), from.strides[at],
                      extents(to.boxes[at]));
      }
    }
  }
  static std::int64_t own_offset(const ValueLayout& layout, int shard) {
    std::int64_t bytes = 0;
    for (int s = 0; s < shard; ++s)
      if (layout.is_here(s))
        bytes += (volume(extents(layout.boxes[static_cast<std::size_t>(s)])) * layout.element + block_alignment - 1) /
                 block_alignment * block_alignment;
    return bytes;
  }
};

/// Host scalars that the body reads as tensors.
template <class Unused> void RepeatStep<Unused>::write_host_scalars(Frame& frame) const {
  for (const HostScalar& scalar : host_scalars_) {
    const PlanValue& value = outer_.value(scalar.value);
    char* to = frame.scratch + scalar.offset;
    write_number(value.dtype, to, frame.numbers[static_cast<std::size_t>(value.node)]);
    frame.pointers[static_cast<std::size_t>(outer_[scalar.value].first)] = to;
  }
}

/// Points the body's arguments into the operands, for the layer after which `left` of `steps` layers run.
template <class Unused>
void RepeatStep<Unused>::bind_operands(const Frame& frame, Frame& inner, std::int64_t steps, std::int64_t left) const {
  const FrameLayout& layout = body_.layout();
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const int value = argument(static_cast<int>(i));
    if (value < 0) continue;
    const ValueLayout& own = layout[value];
    const ValueLayout& from = outer_[inputs_[i]];
    for (int s = 0; s < own.shards(); ++s) {
      char*& to = inner.pointers[static_cast<std::size_t>(own.first + s)];
      if (carried(static_cast<int>(i)) && left + 1 < steps)
        to = destination(frame, static_cast<int>(i), left + 1, 0, s);
      else if (shape_.is_stacked(static_cast<int>(i)))
        to = slice(frame, inputs_[i], inner.layer, s, own.shards());
      else
        to = frame.at(from, s);
    }
  }
}

template <class Unused>
void RepeatStep<Unused>::bind_results(const Frame& frame, Frame& inner, std::int64_t left) const {
  const FrameLayout& layout = body_.layout();
  const Growable<std::int32_t>& outputs = layout.plan().outputs;
  for (std::size_t k = 0; k < outputs.size(); ++k) {
    const int value = outputs[k];
    if (value < 0 || layout.value(value).role != ValueRole::output) continue;
    const ValueLayout& own = layout[value];
    for (int s = 0; s < own.shards(); ++s)
      inner.pointers[static_cast<std::size_t>(own.first + s)] =
          destination(frame, static_cast<int>(k), left, inner.layer, s);
  }
}

/// Copies results that no step of the body wrote: arguments returned as they are, views, values returned twice.
template <class Unused>
void RepeatStep<Unused>::copy_results(const Frame& frame, const Frame& inner, std::int64_t left) const {
  for (std::size_t k = 0; k < outputs_.size(); ++k) {
    const int node = body_.graph().outputs[k];
    const DType dtype = body_.graph()[node].dtype;
    const auto to = [&](int s) { return destination(frame, static_cast<int>(k), left, inner.layer, s); };
    if (result(static_cast<int>(k)) == nullptr) {
      if (outputs_[k] < 0 || outer_[outputs_[k]].is_here(0))
        write_number(dtype, to(0), inner.numbers[static_cast<std::size_t>(node)]);
      continue;
    }
    if (!carried(static_cast<int>(k)) && outputs_[k] < 0) continue;
    const ValueLayout& own = *result(static_cast<int>(k));
    for (int s = 0; s < own.shards(); ++s) {
      if (!own.is_here(s) || to(s) == inner.at(own, s)) continue;
      const Shape extent = extents(own.boxes[static_cast<std::size_t>(s)]);
      parallel_copy(dtype, to(s), kernels::contiguous_strides(extent), inner.at(own, s),
                    own.strides[static_cast<std::size_t>(s)], extent);
    }
  }
}

template <class Unused> void RepeatStep<Unused>::run(Frame& frame) const {
  Frame& inner = frame.frames[body_index_];
  inner.scratch = frame.scratch + scalar_bytes_;
  inner.observer = frame.observer;
  inner.frames = frame.frames;
  inner.around = &frame;
  inner.arena = frame.arena + outer_.plan().body_offset;
  body_.layout().place_intermediates(inner);
  write_host_scalars(frame);
  const std::int64_t steps = this->steps(frame);
  if (steps < layers_) clear_results(frame, steps);
  if (steps == 0) return copy_carried(frame);
  for (std::int64_t left = steps - 1; left >= 0; --left) {
    inner.layer = shape_.reverse ? left : steps - 1 - left;
    bind_operands(frame, inner, steps, left);
    bind_results(frame, inner, left);
    body_.layout().place_views(inner);
    body_.run_steps(inner);
    copy_results(frame, inner, left);
  }
}

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
