#ifndef TESSERA_RUNTIME_STEPS_SORT_STEP_HPP
#define TESSERA_RUNTIME_STEPS_SORT_STEP_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/sort.hpp>
#include <tessera/runtime/steps/line_step.hpp>

namespace tessera::runtime::inline TESSERA_ISA {

/// argsort along a dim.
template <DTypeSet Types> class SortStep final : public LineStep {
 public:
  explicit SortStep(const StepContext& c) : LineStep(c, {c.step.inputs[0], c.step.outputs[0]}, LineWork::sort) {}

  void run(Frame& frame) const override {
    dispatch<Types>(
        dtype(0), [&]<class T>() { on_index([&]<class I>() { find<T, I>(frame); }); },
        [&] { fail(errc::dtype_mismatch, "[argsort] dtype: ", name_of(dtype(0)), " is not supported"); });
  }

 private:
  template <class T, class I> void find(Frame& frame) const {
    for_each_piece([&](const Piece& piece) {
      const T* const from = at<T>(frame, piece, 0);
      I* const to = at<I>(frame, piece, 1);
      Shape index(piece.lines.size(), 0);
      std::int64_t from_at = 0, to_at = 0;
      for (std::int64_t left = volume(piece.lines); left > 0; --left) {
        kernels::argsort_line(from + from_at, piece.strides[0][dim_], to + to_at, piece.strides[1][dim_],
                              piece.extents[0], piece.extents[1], order_of(node_) == Order::descending);
        for (std::size_t d = index.size(); d-- > 0;) {
          from_at += piece.strides[0][d], to_at += piece.strides[1][d];
          if (++index[d] < piece.lines[d]) break;
          from_at -= piece.strides[0][d] * index[d], to_at -= piece.strides[1][d] * index[d];
          index[d] = 0;
        }
      }
    });
  }
};

}  // namespace tessera::runtime::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
