#ifndef TESSERA_RUNTIME_STEPS_ALONG_STEP_HPP
#define TESSERA_RUNTIME_STEPS_ALONG_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/sort.hpp>
#include <tessera/runtime/steps/line_step.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// torch.gather and scatter_add along a dim. values_: the gathered or added elements, the indices, the indexed array.
template <DTypeSet Types> class AlongStep final : public LineStep {
 public:
  explicit AlongStep(const StepContext& c) : AlongStep(c, row_of(c.graph[c.units[c.step.unit].root]).scatters) {}

  void run(Frame& frame) const override {
    dispatch<Types>(
        dtype(0), [&]<class T>() { on_index([&]<class I>() { move<T, I>(frame); }); },
        [&] { fail(errc::dtype_mismatch, "[gather] dtype: ", name_of(dtype(0)), " is not supported"); });
  }

 private:
  bool adds_;

  AlongStep(const StepContext& c, bool adds)
      : LineStep(
            c,
            {(adds ? c.step.inputs : c.step.outputs)[0], c.step.inputs[1], (adds ? c.step.outputs : c.step.inputs)[0]},
            false),
        adds_(adds) {}

  template <class T, class I> void move(Frame& frame) const {
    std::atomic<std::int64_t> outside{0};
    std::atomic<bool> found{false};
    for_each_piece([&](const Piece& piece) {
      kernels::AlongShape shape{piece.lines,      piece.strides[0], piece.strides[1],
                                piece.strides[2], piece.extents[2], piece.strides[2][dim_]};
      shape.index[dim_] = piece.extents[1];
      T *const moved = at<T>(frame, piece, 0), *const array = at<T>(frame, piece, 2);
      const I* const indices = at<I>(frame, piece, 1);
      if (adds_) {
        Shape whole = piece.lines;
        whole[dim_] = piece.extents[2];
        kernels::strided_fill_zero(array, shape.array, whole, sizeof(T));
      }
      shape.array[dim_] = 0;
      const auto bad = adds_ ? kernels::move_along<true, T, I>(shape, moved, array, indices)
                             : kernels::move_along<false, T, I>(shape, moved, array, indices);
      if (bad) {
        outside.store(*bad, std::memory_order_relaxed);
        found.store(true, std::memory_order_release);
      }
    });
    if (found.load(std::memory_order_acquire))
      fail(errc::dim_range, "[", adds_ ? "scatter_add" : "gather", "] index in range: ", outside.load(),
           " is outside a dim of extent ", pieces_.front().extents[2], node_.source);
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
