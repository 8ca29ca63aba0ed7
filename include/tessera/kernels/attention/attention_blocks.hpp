#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_BLOCKS_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_BLOCKS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention/attention.hpp>
#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/bf16/bf16_pack.hpp>

// What attention of bf16 with AMX or AVX512_BF16 is made of: packed operands, their products, and scores in float.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

#if defined(__x86_64__)
constexpr std::int64_t whole_blocks(std::int64_t count) { return (count + bf16_block - 1) / bf16_block * bf16_block; }

/// A packed operand: panels of 32 lanes, each `length` elements long.
struct BlockPanels {
  bf16* data = nullptr;
  std::int64_t length = 0;

  const bf16* at(std::int64_t lane) const { return data + lane * length; }
};
template <bool PairRows>
BlockPanels packed_panels(const PackSource<bf16>& from, std::int64_t lanes, std::int64_t depth, bf16* to) {
  pack_blocks<PairRows>(from, lanes, depth, to);
  return {to, whole_blocks(depth)};
}

/// C (+)= A B for whole blocks of rows and columns.
inline void multiply_tile(const Bf16Blocks& unit, const BlockPanels& a, const BlockPanels& b, std::int64_t rows,
                          std::int64_t cols, std::int64_t depth, float* c, std::int64_t c_row, bool adds) {
  for (std::int64_t i = 0; i < rows; i += bf16_block)
    for (std::int64_t j = 0; j < cols; j += bf16_block) {
      float* const to = c + i * c_row + j;
      unit.multiply(a.at(i), b.at(j), (depth + bf16_step - 1) / bf16_step, adds ? to : nullptr, c_row, to, c_row);
    }
}

#define TESSERA_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
/// Rounds a float tile [rows, cols] to bf16 and packs it as the right operand of a product that contracts its rows.
/// Rows have stride attention_queries; rows and cols are multiples of a block.
TESSERA_TARGET inline BlockPanels round_to_pairs(const float* from, std::int64_t rows, std::int64_t cols, bf16* to) {
  const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                              6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  for (std::int64_t c = 0; c < cols; c += 16)
    for (std::int64_t r = 0; r < rows; r += 2) {
      const float* const at = from + r * attention_queries + c;
      const auto pair = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(at + attention_queries), _mm512_loadu_ps(at));
      bf16* const tile = to + c / bf16_block * rows * bf16_block + r / bf16_step * (bf16_block * bf16_step) +
                         c % bf16_block / 16 * 16 * bf16_step;
      _mm512_storeu_si512(tile + r % bf16_step / 2 * 32, _mm512_permutexvar_epi16(interleave, pair));
    }
  return {to, rows};
}
/// round_to_pairs() for the left operand of a product that contracts its columns.
TESSERA_TARGET inline BlockPanels round_to_rows(const float* from, std::int64_t rows, std::int64_t cols, bf16* to) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; c += bf16_step) {
      const float* const at = from + r * attention_queries + c;
      const auto row = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(at + 16), _mm512_loadu_ps(at));
      _mm512_storeu_si512(to + r / bf16_block * cols * bf16_block + c * bf16_block + r % bf16_block * bf16_step, row);
    }
  return {to, cols};
}
TESSERA_TARGET inline void round_rows(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t cols,
                                      const HeadRows<bf16>& to, std::int64_t first) {
  if (to.col != 1) return round_matrix(from, from_row, rows, cols, to.at(first), to.row, to.col);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t c = 0; c < cols; c += 16) {
      const auto mask = static_cast<__mmask16>(cols - c >= 16 ? 0xffff : (1 << (cols - c)) - 1);
      const auto row = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + i * from_row + c));
      _mm256_mask_storeu_epi16(to.at(first + i) + c, mask, row);
    }
}
/// to[i] = dot product of row i of x and row i of y.
TESSERA_TARGET inline void row_products(const HeadRows<const bf16>& x, const HeadRows<const bf16>& y,
                                        std::int64_t first, std::int64_t count, std::int64_t cols, float* to) {
  for (std::int64_t i = first; i < first + count; ++i) {
    const bf16 *a = x.at(i), *b = y.at(i);
    float sum = 0;
    std::int64_t c = 0;
    if (x.col == 1 && y.col == 1) {
      __m512 sums = _mm512_setzero_ps();
      for (; c + 32 <= cols; c += 32)
        sums = _mm512_dpbf16_ps(sums, (__m512bh)_mm512_loadu_si512(a + c), (__m512bh)_mm512_loadu_si512(b + c));
      sum = _mm512_reduce_add_ps(sums);
    }
    for (; c < cols; ++c) sum += float(a[c * x.col]) * float(b[c * y.col]);
    to[i - first] = sum;
  }
}
#undef TESSERA_TARGET

/// Scratch memory of a kernel, from which it allocates its arrays one after the other.
class AttentionRoom {
 public:
  explicit AttentionRoom(std::int64_t floats)
      : next_(thread_scratch<Scratch::attention, float>(static_cast<std::size_t>(floats))) {}
  template <class T> T* take(std::int64_t count) {
    T* const taken = reinterpret_cast<T*>(next_);
    next_ += count * static_cast<std::int64_t>(sizeof(T)) / 4;
    return taken;
  }

 private:
  float* next_;
};

/// Multiplies the scores of a tile by the scale and adds the bias; masked scores become `unseen`.
inline void scale_and_mask(const AttentionKernels<float>& kernels, float* scores, const AttentionShape& shape,
                           std::int64_t query, std::int64_t cols, std::int64_t key, std::int64_t keys, float unseen) {
  kernels.scale_and_add(scores, bias_tile<float>(kernels, shape, query, cols, key, keys),
                        static_cast<float>(shape.scale), keys, cols);
  for (std::int64_t i = 0; i < keys; ++i) {
    float* const row = scores + i * attention_queries;
    const std::int64_t hidden = shape.causal ? std::min(key + i - shape.first_position - query, cols) : 0;
    for (std::int64_t c = 0; c < hidden; ++c) row[c] = unseen;
    if (!shape.causal) continue;
    const std::int64_t passed = key + i - shape.first_position - query + shape.span + 1;
    for (std::int64_t c = std::max<std::int64_t>(passed, 0); c < cols; ++c) row[c] = unseen;
  }
}
#endif

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
