#ifndef TESSERA_KERNELS_GEMM_RAGGED_GEMM_HPP
#define TESSERA_KERNELS_GEMM_RAGGED_GEMM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/contraction_provider.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/loop_gemm.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/gemm/sum_of_products.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

// Products of groups of rows, each with a matrix of its own (ragged_dot), and their gradients.
namespace tessera::kernels::inline TESSERA_ISA {

/// The row after the last row of each group, for `rows` rows in all: a negative size counts as 0, and a group ends at
/// the last row at the latest.
template <class I>
void find_group_ends(const I* sizes, std::int64_t step, std::int64_t groups, std::int64_t rows, std::int64_t* ends) {
  std::int64_t end = 0;
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto size = static_cast<std::int64_t>(sizes[g * step]);
    end += std::clamp<std::int64_t>(size, 0, rows - end);
    ends[g] = end;
  }
}

/// A range of the contracted dim: offsets of A and B in elements, and its extent.
struct ContractedRange {
  std::int64_t a = 0, b = 0, extent = 0;
};
/// Rows of A and of C, by their offsets in elements.
struct RowSegment {
  std::int64_t a = 0, c = 0, rows = 0;
};

namespace detail {

template <class T> void any_gemm(const Gemm<T>& g) {
  if constexpr (is_half_v<T>)
    half_gemm(g);
  else if constexpr (is_floating_v<T>)
    provided_gemm(g);
  else
    loop_gemm(g);
}

template <class T> void zero_result(const Gemm<T>& g) {
  strided_fill_zero(g.c, Strides{g.c_row, g.c_col}, Shape{g.m, g.n}, sizeof(product_t<T>));
}

/// The blocks of a range, of which f32 sums add at most product_run.
inline std::int64_t ragged_blocks(const ContractedRange& range) {
  return (range.extent + most_depth<float> - 1) / most_depth<float>;
}

}  // namespace detail

/// C = the sum over ranges of the contracted dim of A's columns times B's rows there; zeros without one. `g` has A and
/// B at offset 0 and no k. Long f32 sums are added in runs.
template <class T> void multiply_ranges(Gemm<T> g, const ContractedRange* ranges, std::int64_t count) {
  const T *const a = g.a, *const b = g.b;
  g.accumulate = false;
  std::int64_t blocks = 0;
  for (std::int64_t r = 0; r < count; ++r) blocks += detail::ragged_blocks(ranges[r]);
  if (g.m == 0 || g.n == 0) return;
  if (blocks == 0) return detail::zero_result(g);
  if constexpr (std::is_same_v<T, float>) {
    if (blocks > product_run) {
      std::int64_t range = 0, before = 0;  // the range of block `first`, and the blocks before it: both only grow
      detail::add_products(g, blocks, [&](std::int64_t first, std::int64_t left, Gemm<float> part) {
        while (left > 0) {
          while (first >= before + detail::ragged_blocks(ranges[range]))
            before += detail::ragged_blocks(ranges[range++]);
          const ContractedRange& own = ranges[range];
          const std::int64_t begin = (first - before) * detail::most_depth<float>,
                             taken = std::min(left, before + detail::ragged_blocks(own) - first);
          part.k = std::min(taken * detail::most_depth<float>, own.extent - begin);
          part.a = a + own.a + begin * part.a_col;
          part.b = b + own.b + begin * part.b_row;
          provided_gemm(part);
          part.accumulate = true;
          first += taken, left -= taken;
        }
      });
      return;
    }
  }
  for (std::int64_t r = 0; r < count; ++r) {
    if (ranges[r].extent == 0) continue;
    g.a = a + ranges[r].a, g.b = b + ranges[r].b, g.k = ranges[r].extent;
    detail::any_gemm(g);
    g.accumulate = true;
  }
}

/// C = A B for segments of rows, all with the matrix B. `g` has A and C at offset 0 and no m. With enough rows, B is
/// packed once for all segments.
template <class T> void multiply_segments(Gemm<T> g, const RowSegment* segments, std::int64_t count) {
  constexpr std::int64_t enough_rows = 32;
  const T* const a = g.a;
  product_t<T>* const c = g.c;
  const ContractedRange whole{0, 0, g.k};
  std::int64_t rows = 0;
  for (std::int64_t s = 0; s < count; ++s) rows += segments[s].rows;
  bool packs = false;
  if constexpr (is_floating_v<T>) {
    packs = count > 1 && rows >= enough_rows && g.k > 0 && g.n > 0 && g.c_col == 1 &&
            (is_half_v<T> || !chosen_contraction_provider().load(std::memory_order_acquire)) &&
            (!std::is_same_v<T, float> || detail::ragged_blocks(whole) <= product_run);
    if (packs) {
      const PackedLayout layout = packed_layout<T>(g.k, g.n);
      std::int64_t room = layout.size();
      if constexpr (is_half_v<T>) room = packed_room<T>(layout);
      T* const packed = thread_scratch<Scratch::ragged_matrix, T>(static_cast<std::size_t>(room));
      if constexpr (is_half_v<T>)
        pack_halves(layout, g.b, g.b_row, g.b_col, 0, layout.panels(), packed);
      else
        pack_matrix(layout, g.b, g.b_row, g.b_col, 0, layout.panels(), packed);
      for (std::int64_t s = 0; s < count; ++s) {
        g.m = segments[s].rows, g.a = a + segments[s].a, g.c = c + segments[s].c;
        if constexpr (is_half_v<T>)
          half_gemm(g, layout, static_cast<const T*>(packed));
        else
          packed_gemm(g, layout, static_cast<const T*>(packed));
      }
    }
  }
  for (std::int64_t s = 0; s < count && !packs; ++s) {
    g.m = segments[s].rows, g.a = a + segments[s].a, g.c = c + segments[s].c;
    multiply_ranges(g, &whole, 1);
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
