#ifndef TESSERA_RUNTIME_STEPS_ALONG_STEP_HPP
#define TESSERA_RUNTIME_STEPS_ALONG_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
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
      : LineStep(c, values_of(c, node), false), scatters_(row_of(node).scatters),
        starts_with_zeros_(row_of(node).shape_only != 0), rule_(ScatterRule::of(node)) {}

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

  template <class T, class I, class Visit> void visit(Frame& frame, Visit each) const {
    std::atomic<std::int64_t> outside{0};
    std::atomic<bool> found{false};
    for_each_piece([&](const Piece& piece) {
      kernels::AlongShape shape{piece.lines,      piece.strides[0], piece.strides[1],
                                piece.strides[2], piece.extents[2], piece.strides[2][dim_]};
      shape.index[dim_] = piece.extents[1];
      T *const moved = at<T>(frame, piece, 0), *const array = at<T>(frame, piece, 2);
      if (scatters_) {
        Shape whole = piece.lines;
        whole[dim_] = piece.extents[2];
        if (starts_with_zeros_)
          kernels::strided_fill_zero(array, piece.strides[2], whole, sizeof(T));
        else
          kernels::strided_copy(array, piece.strides[2], at<T>(frame, piece, 3), piece.strides[3], whole, sizeof(T));
      }
      shape.array[dim_] = 0;
      if (const auto bad = kernels::visit_along(shape, moved, array, at<I>(frame, piece, 1), each)) {
        outside.store(*bad, std::memory_order_relaxed);
        found.store(true, std::memory_order_release);
      }
    });
    if (found.load(std::memory_order_acquire))
      fail(errc::dim_range, "[", row_of(node_).name, "] index in range: ", outside.load(),
           " is outside a dim of extent ", pieces_.front().extents[2], node_.source);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
