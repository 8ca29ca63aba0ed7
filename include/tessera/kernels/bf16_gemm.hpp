#ifndef TESSERA_KERNELS_BF16_GEMM_HPP
#define TESSERA_KERNELS_BF16_GEMM_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/base/bf16.hpp>
#include <tessera/kernels/amx.hpp>
#include <tessera/kernels/bf16_pack.hpp>
#include <tessera/kernels/gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/packed_gemm.hpp>
#include <tessera/kernels/scratch.hpp>

// Products of bf16, summed in float. In AMX registers where the processor has them; else operands are widened, a part
// at a time, and multiplied by the kernels of float. Every path rounds nowhere but in its sums.
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

#if defined(__x86_64__)
/// Elements along k of a panel of B: 32 KiB, which the first-level cache keeps while all rows of a block of A pass.
inline constexpr std::int64_t amx_depth = 512;
/// Rows of A that are packed together, for the second-level cache.
inline constexpr std::int64_t amx_rows = 256;

/// C (+)= alpha A B for one block of k and at most amx_rows rows, A and B packed.
inline void amx_gemm_block(const Gemm<bf16>& g, const bf16* a, const bf16* b, std::int64_t b_panel) {
  alignas(64) float buffer[amx_block * amx_block];
  const std::int64_t steps = (g.k + amx_step - 1) / amx_step;
  for (std::int64_t j = 0; j < g.n; j += amx_block, b += b_panel) {
    const std::int64_t cols = std::min(amx_block, g.n - j);
    for (std::int64_t i = 0; i < g.m; i += amx_block) {
      const std::int64_t rows = std::min(amx_block, g.m - i);
      const bf16* panel = a + i * steps * amx_step;
      float* c = g.c + i * g.c_row + j * g.c_col;
      if (rows == amx_block && cols == amx_block && g.c_col == 1 && g.alpha == 1) {
        amx_multiply(panel, b, steps, c, g.c_row, g.accumulate);
        continue;
      }
      amx_multiply(panel, b, steps, buffer, amx_block, false);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t s = 0; s < cols; ++s) {
          float& to = c[r * g.c_row + s * g.c_col];
          const float value = g.alpha * buffer[r * amx_block + s];
          to = g.accumulate ? to + value : value;
        }
    }
  }
}

/// C (+)= alpha A B with B packed.
inline void amx_gemm(const Gemm<bf16>& g, const PackedLayout& layout, const bf16* packed, FinishedRows finished) {
  const AmxRegisters registers;
  bf16* a = thread_scratch<Scratch::panel_a, bf16>(static_cast<std::size_t>((amx_rows + amx_block) * layout.depth));
  for (std::int64_t row = 0; row < g.m; row += amx_rows) {
    Gemm<bf16> part = g;
    part.m = std::min(amx_rows, g.m - row);
    part.c += row * g.c_row;
    for (std::int64_t block = 0; block < layout.blocks(); ++block) {
      const std::int64_t first = block * layout.depth;
      part.k = std::min(layout.depth, g.k - first);
      part.accumulate = g.accumulate || block > 0;
      amx_pack<false>({g.a + row * g.a_row + first * g.a_col, g.a_row, g.a_col}, part.m, part.k, a);
      amx_gemm_block(part, a, packed + layout.offset(block, 0), layout.block_rows(block) * layout.width);
    }
    finished(row, part.m);
  }
}
#endif

/// C (+)= alpha A B with B packed as floats: some rows of A at a time are widened.
inline void widened_gemm(const Gemm<bf16>& g, const PackedLayout& layout, const float* packed, FinishedRows finished,
                         CpuLevel level) {
  constexpr std::int64_t together = 112;
  float* a = thread_scratch<Scratch::wide_a, float>(static_cast<std::size_t>(std::min(together, g.m) * g.k));
  for (std::int64_t row = 0; row < g.m; row += together) {
    const std::int64_t rows = std::min(together, g.m - row);
    widen_matrix(g.a + row * g.a_row, g.a_row, g.a_col, rows, g.k, a);
    packed_gemm(Gemm<float>{rows, g.n, g.k, a, g.k, 1, nullptr, 0, 0, g.c + row * g.c_row, g.c_row, g.c_col,
                            g.accumulate, g.alpha},
                layout, packed, {}, level);
    finished(row, rows);
  }
}

/// Zeros, where nothing is summed.
inline void empty_gemm(const Gemm<bf16>& g) {
  if (g.accumulate) return;
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) g.c[i * g.c_row + j * g.c_col] = 0;
}

}  // namespace detail

template <> inline CpuLevel product_level<bf16>() { return bf16_level(); }

/// As of floats, but in AMX registers: then panels are rounded up to what a register multiplies at once, and hold bf16.
/// Without AMX a packed matrix holds floats.
template <> inline PackedLayout packed_layout<bf16>(std::int64_t rows, std::int64_t cols, CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::amx) {
    using namespace detail;
    const std::int64_t padded = (rows + amx_step - 1) / amx_step * amx_step;
    return {padded, cols, std::max(equal_parts(rows, amx_depth, amx_step), amx_step), amx_block, padded - rows};
  }
#endif
  return packed_layout<float>(rows, cols, level);
}

/// Elements of T that a packed matrix has room for.
template <class T> std::int64_t packed_room(const PackedLayout& layout, CpuLevel = product_level<T>()) {
  return layout.size();
}
template <> inline std::int64_t packed_room<bf16>(const PackedLayout& layout, CpuLevel level) {
  return level >= CpuLevel::amx ? layout.size() : 2 * layout.size();
}

inline void pack_matrix(const PackedLayout& layout, const bf16* b, std::int64_t b_row, std::int64_t b_col,
                        std::int64_t first, std::int64_t count, bf16* packed, CpuLevel level = bf16_level()) {
  const std::int64_t col = first * layout.width, cols = std::min(count * layout.width, layout.cols - col);
#if defined(__x86_64__)
  if (level >= CpuLevel::amx) {
    for (std::int64_t block = 0; block < layout.blocks(); ++block) {
      const std::int64_t row = block * layout.depth;
      detail::amx_pack<true>({b + row * b_row + col * b_col, b_col, b_row}, cols,
                             std::min(layout.depth, layout.rows - layout.padding - row),
                             packed + layout.offset(block, first));
    }
    return;
  }
#endif
  if (layout.rows == 0) return;
  // Each panel is widened by itself, as a matrix of its own.
  float* wide = thread_scratch<Scratch::wide_b, float>(static_cast<std::size_t>(layout.depth * cols));
  for (std::int64_t block = 0; block < layout.blocks(); ++block) {
    const std::int64_t row = block * layout.depth, rows = layout.block_rows(block);
    detail::widen_matrix(b + row * b_row + col * b_col, b_row, b_col, rows, cols, wide);
    detail::pack_panels<float>(detail::gemm_kernels<float>(level).pack_steps, {wide, 1, cols}, cols, rows, layout.width,
                               reinterpret_cast<float*>(packed) + layout.offset(block, first));
  }
}

inline void packed_gemm(const Gemm<bf16>& g, const PackedLayout& layout, const bf16* packed, FinishedRows finished = {},
                        CpuLevel level = bf16_level()) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    detail::empty_gemm(g);
    return finished(0, g.m);
  }
#if defined(__x86_64__)
  if (level >= CpuLevel::amx) return detail::amx_gemm(g, layout, packed, finished);
#endif
  detail::widened_gemm(g, layout, reinterpret_cast<const float*>(packed), finished, level);
}

inline void packed_gemm(const Gemm<bf16>& given, FinishedRows finished = {}, CpuLevel level = bf16_level()) {
  const bool turned = given.c_col != 1 && given.c_row == 1;
  const Gemm<bf16> g = turned ? transposed(given) : given;
  if (g.m == 0 || g.n == 0) return;
  constexpr std::int64_t most_cols = 512;
  for (std::int64_t col = 0; col < g.n; col += most_cols) {
    Gemm<bf16> part = g;
    part.n = std::min(most_cols, g.n - col);
    part.b += col * g.b_col;
    part.c += col * g.c_col;
    const PackedLayout layout = packed_layout<bf16>(g.k, part.n, level);
    bf16* packed = thread_scratch<Scratch::packed_b, bf16>(static_cast<std::size_t>(packed_room<bf16>(layout, level)));
    pack_matrix(layout, part.b, g.b_row, g.b_col, 0, layout.panels(), packed, level);
    packed_gemm(part, layout, packed, col + most_cols >= g.n && !turned ? finished : FinishedRows{}, level);
  }
  if (turned) finished(0, given.m);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#endif
