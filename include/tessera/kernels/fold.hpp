#ifndef TESSERA_KERNELS_FOLD_HPP
#define TESSERA_KERNELS_FOLD_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels {

/// A fold: `runs` windows of `size` elements are added into a dim, element k of window r at r * stride + k * dilation.
/// `lines`: extents of the result with 1 along the dim; `from`, `to`: strides along the lines of operand and result;
/// `from_run`, `from_element`, `to_step`: strides between windows, within a window, and along the dim of the result.
struct FoldShape {
  Shape lines;
  Strides from, to;
  std::int64_t runs = 0, size = 0, extent = 0;
  std::int64_t from_run = 0, from_element = 0, to_step = 0, stride = 1, dilation = 1;
};

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

/// to[line, i] = sum of from[line, r, k] over r * stride + k * dilation == i, in the order of r.
template <class T> void fold_lines(const FoldShape& s, const T* from, T* to) {
  if (detail::is_empty(s.lines)) return;
  const detail::Loops loops = detail::make_loops(s.lines, s.to, s.from);
  const auto inner = loops.from_inside(0);
  const std::int64_t to_step = detail::stride_of(s.to, inner), from_step = detail::stride_of(s.from, inner);
  detail::for_each_outer(loops, 1, [&](const std::int64_t* at) {
    const T* const own = from + detail::offset_of(loops, 1, at, s.from);
    T* const line = to + detail::offset_of(loops, 1, at, s.to);
    for (std::int64_t i = 0; i < s.extent; ++i)
      for (std::int64_t l = 0; l < inner.extent; ++l) line[i * s.to_step + l * to_step] = T{};
    for (std::int64_t r = 0; r < s.runs; ++r)
      for (std::int64_t k = 0; k < s.size; ++k) {
        const T* const term = own + r * s.from_run + k * s.from_element;
        T* const sum = line + (r * s.stride + k * s.dilation) * s.to_step;
        if (to_step == 1)
          detail::combine_block<monoids::Sum>(sum, term, from_step, inner.extent);
        else
          for (std::int64_t l = 0; l < inner.extent; ++l) monoids::Sum::join(sum[l * to_step], term[l * from_step]);
      }
  });
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
