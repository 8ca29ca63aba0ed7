#ifndef TESSERA_RUNTIME_STEPS_ALONG_STEP_HPP
#define TESSERA_RUNTIME_STEPS_ALONG_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <tessera/base/monoid.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/sort.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/ops/operation.hpp>
#include <tessera/runtime/steps/line_step.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// torch.gather, and scatters along a dim: `Combined` has the element types of those that combine elements. values_:
/// the gathered or scattered elements, the indices, the indexed array, and for a scatter into a tensor that tensor.
template <DTypeSet Types, ReducedTypes Combined> class AlongStep final : public LineStep {
 public:
  explicit AlongStep(const StepContext& c) : AlongStep(c, c.graph[c.units[c.step.unit].root]) {}

  void run(Frame& frame) const override {
    if (scatters_) start(frame);
    if (!scatters_)
      on_types<Types>([&]<class T, class I>() { visit<T, I>(frame, [](T& to, const T& from) { to = from; }); });
    else if (rule_.replaces)
      on_types<Types>([&]<class T, class I>() { visit<T, I>(frame, [](const T& from, T& to) { to = from; }); });
    else
      with_monoid(rule_.reduction, [&]<class M>() {
        on_types<Combined[M::kind]>(
            [&]<class T, class I>() { visit<T, I>(frame, [](const T& from, T& to) { M::join(to, from); }); });
      });
  }

 private:
  bool scatters_, starts_with_zeros_;
  ScatterRule rule_;

  AlongStep(const StepContext& c, const Node& node)
      : LineStep(c, values_of(c, node), row_of(node).scatters ? LineWork::scatter : LineWork::gather),
        scatters_(row_of(node).scatters), starts_with_zeros_(row_of(node).shape_only != 0),
        rule_(ScatterRule::of(node)) {}

  static InlineVector<std::int32_t, 4> values_of(const StepContext& c, const Node& node) {
    const PlanStep& step = c.step;
    if (!row_of(node).scatters) return {step.outputs[0], step.inputs[1], step.inputs[0]};
    InlineVector<std::int32_t, 4> values{step.inputs[0], step.inputs[1], step.outputs[0]};
    if (row_of(node).shape_only == 0) values.push_back(step.inputs[2]);
    return values;
  }

  template <DTypeSet Own, class F> void on_types(F f) const {
    dispatch<Own>(
        dtype(0), [&]<class T>() { on_index([&]<class I>() { f.template operator()<T, I>(); }); },
        [&] {
          fail(errc::dtype_mismatch, "[", row_of(node_).name, "] dtype: ", name_of(dtype(0)), " is not supported");
        });
  }

  /// Fills the array with what a scatter starts with, in the order of its memory.
  void start(Frame& frame) const {
    constexpr std::int64_t parts = 8;
    const std::size_t size = size_of(dtype(2));
    double bytes = 1;
    for (const Piece& place : places_)
      bytes = std::max(bytes, static_cast<double>(volume(array_of(place)) * static_cast<std::int64_t>(2 * size)));
    parallel_for(static_cast<std::int64_t>(places_.size()) * parts, Cost::bytes(bytes / parts), [&](std::int64_t i) {
      const Piece& place = places_[static_cast<std::size_t>(i / parts)];
      Shape part = array_of(place);
      std::size_t cut = 0;
      for (std::size_t d = 1; d < part.size(); ++d)
        if (part[cut] == 1 || (part[d] > 1 && place.strides[2][d] > place.strides[2][cut])) cut = d;
      const std::int64_t begin = part[cut] * (i % parts) / parts;
      part[cut] = part[cut] * (i % parts + 1) / parts - begin;
      if (volume(part) == 0) return;
      const auto from = [&](std::size_t k) {
        return frame.pointers[static_cast<std::size_t>(place.pointers[k])] +
               (place.offsets[k] + begin * place.strides[k][cut]) * static_cast<std::int64_t>(size);
      };
      if (starts_with_zeros_)
        kernels::strided_fill_zero(from(2), place.strides[2], part, size);
      else
        kernels::strided_copy(from(2), place.strides[2], from(3), place.strides[3], part, size);
    });
  }
  Shape array_of(const Piece& place) const {
    Shape whole = place.lines;
    whole[dim_] = place.extents[2];
    return whole;
  }

  template <class T, class I, class Visit> void visit(Frame& frame, Visit each) const {
    std::atomic<std::int64_t> outside{0};
    std::atomic<bool> found{false};
    for_each_piece([&](const Piece& piece) {
      kernels::AlongShape shape{piece.lines,      piece.strides[0], piece.strides[1],
                                piece.strides[2], piece.extents[2], piece.strides[2][dim_]};
      shape.index[dim_] = piece.extents[1];
      T *const moved = at<T>(frame, piece, 0), *const array = at<T>(frame, piece, 2);
      shape.array[dim_] = 0;
      if (const auto bad = kernels::visit_along(shape, moved, array, at<I>(frame, piece, 1), each)) {
        outside.store(*bad, std::memory_order_relaxed);
        found.store(true, std::memory_order_release);
      }
    });
    if (found.load(std::memory_order_acquire))
      ops::fail_index(row_of(node_).name, outside.load(), concat_text("a dim of extent ", pieces_.front().extents[2]),
                      node_.source);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
