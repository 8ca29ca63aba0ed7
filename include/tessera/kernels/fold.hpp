#ifndef TESSERA_KERNELS_FOLD_HPP
#define TESSERA_KERNELS_FOLD_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels {

/// A fold of windows of up to three dims: element k of window r of a dim is added to row first + r * stride +
/// k * dilation, if that is a row of the result. `rows`: extents of the result; `to`: its strides; `from`: strides of
/// the operand along the result's dims, which for a windowed dim are those between windows.
struct FoldWindowsShape {
  struct Dim {
    std::size_t dim = 0;
    std::int64_t runs = 0, size = 1, stride = 1, dilation = 1, first = 0, from_run = 0, from_element = 0;
  };
  Shape rows;
  Strides from, to;
  Dim windows[3];
  int count = 0;
};

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

/// The sums of the elements of all windows at each row, in the order of the elements within their windows.
template <class T> void fold_windows(const FoldWindowsShape& s, const T* from, T* to) {
  if (detail::is_empty(s.rows)) return;
  const auto each_line = [](const Shape& extent, const Strides& strides, const Strides& terms, auto&& line) {
    const detail::Loops loops = detail::make_loops(extent, strides, terms);
    const auto inner = loops.from_inside(0);
    detail::for_each_outer(loops, 1, [&](const std::int64_t* at) {
      line(detail::offset_of(loops, 1, at, strides), detail::offset_of(loops, 1, at, terms),
           detail::stride_of(strides, inner), detail::stride_of(terms, inner), inner.extent);
    });
  };
  each_line(s.rows, s.to, s.to, [&](std::int64_t own, std::int64_t, std::int64_t step, std::int64_t, std::int64_t n) {
    for (std::int64_t l = 0; l < n; ++l) to[own + l * step] = T{};
  });
  std::int64_t taps = 1;
  for (int k = 0; k < s.count; ++k) taps *= s.windows[k].size;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    Shape extent = s.rows;
    Strides steps = s.to;
    std::int64_t rest = tap, first_to = 0, first_from = 0;
    for (int k = s.count; k-- > 0;) {
      const FoldWindowsShape::Dim& dim = s.windows[k];
      const std::int64_t element = rest % dim.size, row = dim.first + element * dim.dilation;
      rest /= dim.size;
      // Windows [begin, end) have this element at a row of the result.
      const std::int64_t begin = row < 0 ? (-row + dim.stride - 1) / dim.stride : 0;
      const std::int64_t past = s.rows[dim.dim] - row;
      const std::int64_t end = std::min(dim.runs, past <= 0 ? std::int64_t{0} : (past - 1) / dim.stride + 1);
      extent[dim.dim] = std::max<std::int64_t>(0, end - begin);
      first_to += (row + begin * dim.stride) * s.to[dim.dim];
      first_from += begin * dim.from_run + element * dim.from_element;
      steps[dim.dim] = s.to[dim.dim] * dim.stride;
    }
    if (detail::is_empty(extent)) continue;
    each_line(extent, steps, s.from,
              [&](std::int64_t own, std::int64_t term, std::int64_t step, std::int64_t from_step, std::int64_t n) {
                T* const sum = to + first_to + own;
                const T* const added = from + first_from + term;
                if (step == 1)
                  detail::combine_block<monoids::Sum>(sum, added, from_step, n);
                else
                  for (std::int64_t l = 0; l < n; ++l) monoids::Sum::join(sum[l * step], added[l * from_step]);
              });
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
