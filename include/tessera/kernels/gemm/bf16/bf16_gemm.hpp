#ifndef TESSERA_KERNELS_GEMM_BF16_BF16_GEMM_HPP
#define TESSERA_KERNELS_GEMM_BF16_BF16_GEMM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <tessera/base/element/bf16.hpp>
#include <tessera/kernels/gemm/bf16/bf16_block.hpp>
#include <tessera/kernels/gemm/bf16/bf16_pack.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>

// Products of bf16 and f16, accumulated in float: of bf16 with AMX or AVX512_BF16 if the processor has them; otherwise
// operands are widened to float block by block and multiplied by the f32 micro-kernels. Products of bf16 and of f16 are
// exact in float: only sums round.
namespace tessera::kernels::inline TESSERA_ISA {

/// An epilogue: the product is rounded to T, bf16 or f16, and stored in `data`, with the strides of C, instead of in C.
/// `bias`, if not null, is added to each row first.
template <class T> struct RoundedResult {
  T* data = nullptr;
  const float* bias = nullptr;

  explicit operator bool() const { return data != nullptr; }
  RoundedResult at(std::int64_t offset, std::int64_t column) const {
    return {data == nullptr ? nullptr : data + offset, bias == nullptr ? nullptr : bias + column};
  }
};

namespace detail {

/// Rounds a float matrix, whose rows are contiguous with stride `row`, to bf16 or f16.
template <class T>
void round_matrix(const float* from, std::int64_t row, std::int64_t rows, std::int64_t cols, T* to, std::int64_t to_row,
                  std::int64_t to_col) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) to[i * to_row + j * to_col] = T(from[i * row + j]);
}

#if defined(__x86_64__)
/// Most elements along k of a panel of B. With AMX 32 KiB, which stay in the L1 cache while all rows of a group of A
/// are multiplied. Dot products take four times as long and read B from the L2 cache as fast: fewer sums are stored.
inline std::int64_t block_depth(CpuLevel level) { return level >= CpuLevel::amx ? 512 : 1024; }
/// Most rows of A that are packed together, over all of k, and columns whose sums are kept for them.
inline constexpr std::int64_t most_rows = 256, columns_together = 256;

#define TESSERA_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
/// Stores a 32 x 32 block rounded to bf16; with `Past`, by non-temporal stores. Denormals become 0, as in products of
/// blocks.
template <bool Past> TESSERA_TARGET void round_block(const float* from, bf16* to, std::int64_t to_row) {
  for (int i = 0; i < bf16_block; ++i, from += bf16_block, to += to_row) {
    const auto pair = (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(from + 16), _mm512_load_ps(from));
    if constexpr (Past)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to), pair);
    else
      _mm512_storeu_si512(to, pair);
  }
}

/// Stores a 32 x 32 block of floats with non-temporal stores.
TESSERA_TARGET inline void stream_block(const float* from, float* to, std::int64_t to_row) {
  for (int i = 0; i < bf16_block; ++i, from += bf16_block, to += to_row) {
    _mm512_stream_ps(to, _mm512_load_ps(from));
    _mm512_stream_ps(to + 16, _mm512_load_ps(from + 16));
  }
}
#undef TESSERA_TARGET

/// Stores a block of sums, or the part of it inside C, in C or in `rounded`.
inline void store_block(const Gemm<bf16>& g, const RoundedResult<bf16>& rounded, const float* sums, std::int64_t row,
                        std::int64_t col, bool past) {
  const std::int64_t rows = std::min(bf16_block, g.m - row), cols = std::min(bf16_block, g.n - col);
  const std::int64_t at = row * g.c_row + col * g.c_col;
  const bool whole = rows == bf16_block && cols == bf16_block && g.c_col == 1;
  if (rounded) {
    bf16* const to = rounded.data + at;
    if (!whole) return round_matrix(sums, bf16_block, rows, cols, to, g.c_row, g.c_col);
    return past ? round_block<true>(sums, to, g.c_row) : round_block<false>(sums, to, g.c_row);
  }
  if (whole && past) return stream_block(sums, g.c + at, g.c_row);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t s = 0; s < cols; ++s) {
      float& to = g.c[at + r * g.c_row + s * g.c_col];
      const float value = g.alpha * sums[r * bf16_block + s];
      to = g.accumulate ? to + value : value;
    }
}

/// Whether to use non-temporal stores: for a large result that is not read at once, with rows of whole cache lines.
/// Plain stores first read the lines from memory, which takes as long as a product with k = 256.
inline bool goes_past_caches(const Gemm<bf16>& g, const RoundedResult<bf16>& rounded, bool read_at_once) {
  constexpr std::int64_t least_bytes = 1 << 20, line = 64;
  const std::int64_t element = rounded ? 2 : 4;
  const auto at = reinterpret_cast<std::uintptr_t>(rounded ? static_cast<const void*>(rounded.data) : g.c);
  return !read_at_once && !g.accumulate && g.alpha == 1 && g.c_col == 1 && g.m * g.n * element >= least_bytes &&
         at % line == 0 && g.c_row * element % line == 0;
}

/// Rows of A that are packed together, by the extent of k: at most 1 MiB with AMX, half of the L2 cache of processors
/// that have it; of dot products, which take longer than reading A from the last cache, 2 MiB.
inline std::int64_t rows_together(std::int64_t k, CpuLevel level) {
  const std::int64_t most_elements = level >= CpuLevel::amx ? 1 << 19 : 1 << 20;
  return std::clamp(most_elements / std::max<std::int64_t>(k, 1) / bf16_block * bf16_block, bf16_block, most_rows);
}

/// C (+)= alpha A B with packed B; if null, B is packed block by block, once per group of rows of A. Sums over blocks
/// of k stay in the L2 cache, for some columns at a time, so that only final results are stored.
inline void block_gemm(const Gemm<bf16>& g, const PackedLayout& layout, const bf16* packed, FinishedPart finished,
                       CpuLevel level, const RoundedResult<bf16>& rounded) {
  const Bf16Blocks unit(level);
  alignas(64) float block_sums[bf16_block * bf16_block], bias[bf16_block]{};
  const std::int64_t together = rows_together(layout.rows, level),
                     own_room = packed == nullptr ? columns_together * layout.depth : 0;
  const std::int64_t blocks = layout.blocks(), chunk = blocks > 1 || packed == nullptr ? columns_together : g.n;
  bf16* const b = thread_scratch<Scratch::packed_b, bf16>(static_cast<std::size_t>(own_room));
  bf16* const a = thread_scratch<Scratch::panel_a, bf16>(static_cast<std::size_t>(together * layout.rows));
  float* const sums = thread_scratch<Scratch::sums, float>(static_cast<std::size_t>(together * columns_together));
  const bool past = goes_past_caches(g, rounded, finished.call != nullptr);
  const bool plain = !rounded && g.c_col == 1 && g.alpha == 1 && !past;
  for (std::int64_t row = 0; row < g.m; row += together) {
    const std::int64_t rows = std::min(together, g.m - row);
    const std::int64_t padded = (rows + bf16_block - 1) / bf16_block * bf16_block;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = block * layout.depth;
      pack_blocks<false>({g.a + row * g.a_row + first * g.a_col, g.a_row, g.a_col}, rows,
                         std::min(layout.depth, g.k - first), a + padded * first);
    }
    for (std::int64_t begin = 0; begin < g.n; begin += chunk)
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t depth = layout.block_rows(block), end = std::min(begin + chunk, g.n);
        const bf16* panel = packed == nullptr ? b : packed + layout.offset(block, begin / bf16_block);
        if (packed == nullptr) {
          const std::int64_t first = block * layout.depth;
          pack_blocks<true>({g.b + first * g.b_row + begin * g.b_col, g.b_col, g.b_row}, end - begin,
                            std::min(depth, g.k - first), b);
        }
        float* sum = sums;
        for (std::int64_t col = begin; col < end; col += bf16_block, panel += depth * bf16_block) {
          if (rounded.bias != nullptr) std::copy_n(rounded.bias + col, std::min(bf16_block, g.n - col), bias);
          for (std::int64_t i = 0; i < rows; i += bf16_block, sum += bf16_block * bf16_block) {
            const bool last = block + 1 == blocks;
            const bool direct = plain && i + bf16_block <= rows && col + bf16_block <= g.n;
            float* const c = direct ? g.c + (row + i) * g.c_row + col : nullptr;
            // The initial value of the sums at the first block of k: the bias, C if it accumulates, or zeros.
            const float* from = sum;
            std::int64_t from_row = bf16_block;
            if (block == 0) {
              from = rounded.bias != nullptr ? bias : g.accumulate ? c : nullptr;
              from_row = rounded.bias != nullptr ? 0 : g.c_row;
            }
            float* to = !last ? sum : direct ? c : block_sums;
            unit.multiply(a + padded * block * layout.depth + i * depth, panel, depth / bf16_step, from, from_row, to,
                          last && direct ? g.c_row : bf16_block);
            if (last && !direct) store_block(g, rounded, block_sums, row + i, col, past);
          }
        }
      }
    finished({row, rows, 0, g.n});
  }
  if (past) _mm_sfence();
}
#endif

/// C (+)= alpha A B with B packed as floats; A is widened to float some rows at a time.
template <class T>
void widened_gemm(const Gemm<T>& g, const PackedLayout& layout, const float* packed, FinishedPart finished,
                  CpuLevel level, const RoundedResult<T>& rounded) {
  constexpr std::int64_t together = 112;
  const std::int64_t room = rounded ? std::min(together, g.m) * g.n : 0;
  float* const sums = thread_scratch<Scratch::sums, float>(static_cast<std::size_t>(room));
  float* a = thread_scratch<Scratch::wide_a, float>(static_cast<std::size_t>(std::min(together, g.m) * g.k));
  for (std::int64_t row = 0; row < g.m; row += together) {
    const std::int64_t rows = std::min(together, g.m - row);
    widen_matrix(g.a + row * g.a_row, g.a_row, g.a_col, rows, g.k, a);
    Gemm<float> part{rows, g.n, g.k, a, g.k, 1, nullptr, 0, 0, sums, g.n, 1, false, g.alpha};
    if (!rounded)
      part.c = g.c + row * g.c_row, part.c_row = g.c_row, part.c_col = g.c_col, part.accumulate = g.accumulate;
    packed_gemm(part, layout, packed, {}, level);
    for (std::int64_t i = 0; rounded.bias != nullptr && i < rows; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) sums[i * g.n + j] += rounded.bias[j];
    if (rounded) round_matrix(sums, g.n, rows, g.n, rounded.data + row * g.c_row, g.c_row, g.c_col);
    finished({row, rows, 0, g.n});
  }
}

/// A product with k == 0: zeros, or the bias.
template <class T> void empty_gemm(const Gemm<T>& g, const RoundedResult<T>& rounded) {
  if (g.accumulate) return;
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) {
      const std::int64_t at = i * g.c_row + j * g.c_col;
      if (rounded)
        rounded.data[at] = T(rounded.bias != nullptr ? rounded.bias[j] : 0.0f);
      else
        g.c[at] = 0;
    }
}

}  // namespace detail

template <> inline CpuLevel product_level<bf16>() { return bf16_level(); }

/// Panels for AMX or AVX512_BF16 contain bf16, padded to whole steps; others, as for float, contain floats.
template <> inline PackedLayout packed_layout<bf16>(std::int64_t rows, std::int64_t cols, CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::avx512_bf16) {
    using namespace detail;
    const std::int64_t padded = (rows + bf16_step - 1) / bf16_step * bf16_step;
    return {padded, cols, std::max(equal_parts(rows, block_depth(level), bf16_step), bf16_step), bf16_block,
            padded - rows};
  }
#endif
  return packed_layout<float>(rows, cols, level);
}
template <> inline PackedLayout packed_layout<f16>(std::int64_t rows, std::int64_t cols, CpuLevel level) {
  return packed_layout<float>(rows, cols, level);
}

/// Size of a packed matrix in elements of T. A packed matrix of f16, and of bf16 below avx512_bf16, contains floats:
/// two elements each.
template <class T> std::int64_t packed_room(const PackedLayout& layout, CpuLevel = product_level<T>()) {
  return layout.size();
}
template <> inline std::int64_t packed_room<bf16>(const PackedLayout& layout, CpuLevel level) {
  return level >= CpuLevel::avx512_bf16 ? layout.size() : 2 * layout.size();
}
template <> inline std::int64_t packed_room<f16>(const PackedLayout& layout, CpuLevel) { return 2 * layout.size(); }

/// Whether products of T have instructions of their own on processors of this level.
template <class T> constexpr bool has_block_products(CpuLevel level) {
  return std::is_same_v<T, bf16> && level >= CpuLevel::avx512_bf16;
}

/// pack_matrix() for bf16 and f16.
template <class T>
void pack_halves(const PackedLayout& layout, const T* b, std::int64_t b_row, std::int64_t b_col, std::int64_t first,
                 std::int64_t count, T* packed, CpuLevel level = product_level<T>()) {
  const std::int64_t col = first * layout.width, cols = std::min(count * layout.width, layout.cols - col);
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>)
    if (has_block_products<T>(level)) {
      for (std::int64_t block = 0; block < layout.blocks(); ++block) {
        const std::int64_t row = block * layout.depth;
        detail::pack_blocks<true>({b + row * b_row + col * b_col, b_col, b_row}, cols,
                                  std::min(layout.depth, layout.rows - layout.padding - row),
                                  packed + layout.offset(block, first));
      }
      return;
    }
#endif
  if (layout.rows == 0) return;
  // Each block is widened, then packed as a float matrix.
  float* wide = thread_scratch<Scratch::wide_b, float>(static_cast<std::size_t>(layout.depth * cols));
  for (std::int64_t block = 0; block < layout.blocks(); ++block) {
    const std::int64_t row = block * layout.depth, rows = layout.block_rows(block);
    detail::widen_matrix(b + row * b_row + col * b_col, b_row, b_col, rows, cols, wide);
    detail::pack_panels<float>(detail::gemm_kernels<float>(level).pack_steps, {wide, 1, cols}, cols, rows, layout.width,
                               reinterpret_cast<float*>(packed) + layout.offset(block, first));
  }
}

/// packed_gemm() for bf16 and f16, with packed B. With `rounded`, the result is stored there and not in C; alpha must
/// be 1 and accumulate false.
template <class T>
void half_gemm(const Gemm<T>& g, const PackedLayout& layout, const T* packed, FinishedPart finished = {},
               CpuLevel level = product_level<T>(), const RoundedResult<T>& rounded = {}) {
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    detail::empty_gemm(g, rounded);
    return finished({0, g.m, 0, g.n});
  }
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>)
    if (has_block_products<T>(level)) return detail::block_gemm(g, layout, packed, finished, level, rounded);
#endif
  detail::widened_gemm(g, layout, reinterpret_cast<const float*>(packed), finished, level, rounded);
}

template <class T>
void half_gemm(const Gemm<T>& given, FinishedPart finished = {}, CpuLevel level = product_level<T>(),
               const RoundedResult<T>& rounded = {}) {
  const bool turned = given.c_col != 1 && given.c_row == 1 && rounded.bias == nullptr;
  const Gemm<T> g = turned ? transposed(given) : given;
  if (g.m == 0 || g.n == 0) return;
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, bf16>)
    if (has_block_products<T>(level) && g.k > 0 && g.m <= detail::rows_together(g.k, level)) {
      detail::block_gemm(g, packed_layout<T>(g.k, g.n, level), nullptr, turned ? FinishedPart{} : finished, level,
                         rounded);
      return turned ? finished({0, given.m, 0, given.n}) : void();
    }
#endif
  // A is packed, or widened, again for each of these parts of B.
  constexpr std::int64_t most_bytes = 16 << 20, least_cols = 512;
  const std::int64_t bytes = g.k * (has_block_products<T>(level) ? 2 : 4);
  const std::int64_t most_cols =
      std::max(most_bytes / std::max<std::int64_t>(bytes, 1) / least_cols, std::int64_t(1)) * least_cols;
  for (std::int64_t col = 0; col < g.n; col += most_cols) {
    Gemm<T> part = g;
    part.n = std::min(most_cols, g.n - col);
    part.b += col * g.b_col;
    part.c += rounded ? 0 : col * g.c_col;
    const PackedLayout layout = packed_layout<T>(g.k, part.n, level);
    T* packed = thread_scratch<Scratch::packed_b, T>(static_cast<std::size_t>(packed_room<T>(layout, level)));
    pack_halves(layout, part.b, g.b_row, g.b_col, 0, layout.panels(), packed, level);
    half_gemm(part, layout, packed, turned ? FinishedPart{} : finished.from(col), level,
              rounded.at(col * g.c_col, col));
  }
  if (turned) finished({0, given.m, 0, given.n});
}

inline void pack_matrix(const PackedLayout& layout, const bf16* b, std::int64_t b_row, std::int64_t b_col,
                        std::int64_t first, std::int64_t count, bf16* packed, CpuLevel level = bf16_level()) {
  pack_halves(layout, b, b_row, b_col, first, count, packed, level);
}
inline void packed_gemm(const Gemm<bf16>& g, const PackedLayout& layout, const bf16* packed, FinishedPart finished = {},
                        CpuLevel level = bf16_level(), const RoundedResult<bf16>& rounded = {}) {
  half_gemm(g, layout, packed, finished, level, rounded);
}
inline void packed_gemm(const Gemm<bf16>& g, FinishedPart finished = {}, CpuLevel level = bf16_level(),
                        const RoundedResult<bf16>& rounded = {}) {
  half_gemm(g, finished, level, rounded);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
