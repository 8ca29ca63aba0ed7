#ifndef TESSERA_KERNELS_GEMM_BF16_BF16_PACK_HPP
#define TESSERA_KERNELS_GEMM_BF16_BF16_PACK_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <tessera/base/element/bf16.hpp>
#include <tessera/kernels/gemm/bf16/bf16_block.hpp>
#include <tessera/kernels/gemm/gemm_pack.hpp>
#include <tessera/kernels/isa.hpp>

// Packing of bf16 operands: into steps of 32 lanes for Bf16Blocks, or widened to float.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Converts a strided matrix of bf16 or f16 to a contiguous row-major float matrix.
template <class T>
void widen_matrix(const T* from, std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols, float* to) {
  // Reads along the contiguous dim; if that is the columns, in blocks, so that writes stay in the cache.
  if (col == 1 || row != 1) {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) to[i * cols + j] = from[i * row + j * col];
    return;
  }
  constexpr std::int64_t block = 16;
  for (std::int64_t j0 = 0; j0 < cols; j0 += block)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = j0; j < std::min(j0 + block, cols); ++j) to[i * cols + j] = from[i + j * col];
}

#if defined(__x86_64__)
#define TESSERA_TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))
#define TESSERA_TARGET_INLINE __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline)) inline

/// Transposes 16 rows of 16 pairs of bf16. Indices are constants once the loops are unrolled.
TESSERA_TARGET_INLINE void transpose_pairs(__m512i (&x)[16]) {
  __m512i y[16];
#pragma GCC unroll 16
  for (int i = 0; i < 8; ++i) {
    y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 4; ++i) {
    x[4 * i] = _mm512_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 1] = _mm512_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 2] = _mm512_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
    x[4 * i + 3] = _mm512_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
  }
  // Lane c of x[4 q + p] holds column 4 c + p of rows 4 q to 4 q + 3.
#pragma GCC unroll 16
  for (int p = 0; p < 4; ++p) {
    const __m512i low = _mm512_shuffle_i32x4(x[p], x[4 + p], 0x88),
                  high = _mm512_shuffle_i32x4(x[8 + p], x[12 + p], 0x88);
    const __m512i low_odd = _mm512_shuffle_i32x4(x[p], x[4 + p], 0xdd);
    const __m512i high_odd = _mm512_shuffle_i32x4(x[8 + p], x[12 + p], 0xdd);
    y[p] = _mm512_shuffle_i32x4(low, high, 0x88);
    y[8 + p] = _mm512_shuffle_i32x4(low, high, 0xdd);
    y[4 + p] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
    y[12 + p] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) x[i] = y[i];
}

TESSERA_TARGET_INLINE __mmask32 first_of(std::int64_t count) {
  return count >= 32 ? 0xffffffffu : count <= 0 ? 0u : (1u << count) - 1;
}

/// Loads one step (32 elements along k) of 16 lanes that are contiguous along k: 16 rows of 16 pairs.
TESSERA_TARGET_INLINE void load_along_steps(const bf16* from, std::int64_t lane, std::int64_t lanes, std::int64_t steps,
                                            __m512i (&x)[16]) {
  const __mmask32 mask = first_of(steps);
#pragma GCC unroll 16
  for (int l = 0; l < 16; ++l)
    x[l] = l < lanes ? _mm512_maskz_loadu_epi16(mask, from + l * lane) : _mm512_setzero_si512();
}

/// Loads one step of 32 lanes that are contiguous across lanes: 16 pairs of lanes 0 to 15 into x, of 16 to 31 into
/// next.
TESSERA_TARGET_INLINE void load_across_steps(const bf16* from, std::int64_t step, std::int64_t lanes,
                                             std::int64_t steps, __m512i (&x)[16], __m512i (&next)[16]) {
  const __mmask32 mask = first_of(lanes);
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                       5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
#pragma GCC unroll 16
  for (int p = 0; p < 16; ++p) {
    const __m512i even = 2 * p < steps ? _mm512_maskz_loadu_epi16(mask, from + 2 * p * step) : _mm512_setzero_si512();
    const __m512i odd =
        2 * p + 1 < steps ? _mm512_maskz_loadu_epi16(mask, from + (2 * p + 1) * step) : _mm512_setzero_si512();
    x[p] = _mm512_permutex2var_epi16(even, low, odd);
    next[p] = _mm512_permutex2var_epi16(even, high, odd);
  }
}

TESSERA_TARGET_INLINE void store_tile(const __m512i (&x)[16], bf16* to) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(to + 32 * i, x[i]);
}

/// Packs one step, at most 32 lanes of 32 elements, into the two tiles that Bf16Blocks reads. A tile of A has a row
/// per lane, a tile of B (PairRows) a row per pair of elements along k. Missing elements are 0.
template <bool PairRows>
TESSERA_TARGET void pack_block_step(const PackSource<bf16>& from, std::int64_t lanes, std::int64_t steps, bf16* to) {
  __m512i x[16], next[16];
  if (from.lane == 1 && from.step != 1) {
    load_across_steps(from.data, from.step, lanes, steps, x, next);
    if constexpr (!PairRows) {
      transpose_pairs(x);
      store_tile(x, to);
      transpose_pairs(next);
      return store_tile(next, to + 16 * bf16_step);
    }
    store_tile(x, to);
    return store_tile(next, to + 16 * bf16_step);
  }
  alignas(64) bf16 gathered[bf16_block * bf16_step];
  const bf16* data = from.data;
  std::int64_t lane = from.lane;
  if (from.step != 1) {
    for (std::int64_t l = 0; l < lanes; ++l)
      for (std::int64_t s = 0; s < steps; ++s) gathered[l * bf16_step + s] = data[l * lane + s * from.step];
    data = gathered, lane = bf16_step;
  }
#pragma GCC unroll 1
  for (int half = 0; half < 2; ++half) {
    load_along_steps(data + 16 * half * lane, lane, lanes - 16 * half, steps, x);
    if constexpr (PairRows) transpose_pairs(x);
    store_tile(x, to + half * 16 * bf16_step);
  }
}

#undef TESSERA_TARGET_INLINE
#undef TESSERA_TARGET

/// Packs `lanes` lanes of `depth` elements into consecutive panels of 32 lanes, each panel step by step.
template <bool PairRows>
void pack_blocks(const PackSource<bf16>& from, std::int64_t lanes, std::int64_t depth, bf16* to) {
  const std::int64_t panel = (depth + bf16_step - 1) / bf16_step * bf16_step * bf16_block;
  // Lanes that are contiguous along k are read one panel after the other.
  const auto pack = [&](std::int64_t l, std::int64_t k) {
    pack_block_step<PairRows>({from.data + l * from.lane + k * from.step, from.lane, from.step},
                              std::min(bf16_block, lanes - l), std::min(bf16_step, depth - k),
                              to + l / bf16_block * panel + k * bf16_block);
  };
  if (from.lane == 1) {
    for (std::int64_t k = 0; k < depth; k += bf16_step)
      for (std::int64_t l = 0; l < lanes; l += bf16_block) pack(l, k);
  } else {
    for (std::int64_t l = 0; l < lanes; l += bf16_block)
      for (std::int64_t k = 0; k < depth; k += bf16_step) pack(l, k);
  }
}
#endif

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
