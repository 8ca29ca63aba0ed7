#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_BF16_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_BF16_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention/attention.hpp>
#include <tessera/kernels/attention/attention_gradient.hpp>
#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/bf16/bf16_pack.hpp>

// Attention of bf16 and f16. For bf16 with AMX or AVX512_BF16, operands of products are bf16, and scores, exponentials
// and sums are float. Otherwise operands are converted to float and use the attention of float.
namespace tessera::kernels {

/// Operands and results of the gradient of attention of bf16 or f16 for one head. Gradients are float, since they may
/// be summed.
template <class T> struct HalfAttentionGradient {
  HeadRows<const T> q, k, v, out;
  HeadRows<const float> row_lse;
  HeadRows<const T> cotangent;
  HeadRows<float> q_gradient, k_gradient, v_gradient;
};

}  // namespace tessera::kernels

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Rows [first, end) converted to a contiguous float matrix.
template <class T>
HeadRows<const float> widened_rows(const HeadRows<const T>& rows, std::int64_t first, std::int64_t end,
                                   std::int64_t width, float*& room) {
  if (rows.data == nullptr) return {};
  widen_matrix(rows.at(first), rows.row, rows.col, end - first, width, room);
  const HeadRows<const float> wide{room - first * width, width, 1};
  room += (end - first) * width;
  return wide;
}

template <class T>
void widened_attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
                    const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out,
                    const HeadRows<float>& row_lse) {
  const std::int64_t keys = shape.visible(first + count), both = shape.width + shape.value_width;
  float* next = thread_scratch<Scratch::wide_a, float>(static_cast<std::size_t>((count + keys) * both));
  const HeadRows<const float> wide_q = widened_rows(q, first, first + count, shape.width, next);
  const HeadRows<const float> wide_k = widened_rows(k, 0, keys, shape.width, next);
  const HeadRows<const float> wide_v = widened_rows(v, 0, keys, shape.value_width, next);
  const HeadRows<float> rows{next - first * shape.value_width, shape.value_width, 1};
  attend<float>(shape, first, count, wide_q, wide_k, wide_v, out.data == nullptr ? HeadRows<float>{} : rows, row_lse);
  if (out.data != nullptr)
    round_matrix(rows.at(first), rows.row, count, shape.value_width, out.at(first), out.row, out.col);
}

template <class T>
void widened_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                      std::int64_t end_key) {
  const std::int64_t width = shape.width, value_width = shape.value_width;
  float* next = thread_scratch<Scratch::wide_a, float>(static_cast<std::size_t>(
      shape.queries * (width + 2 * value_width) + (end_key - first_key) * (width + value_width)));
  AttentionGradient<float> wide{};
  wide.q = widened_rows(g.q, 0, shape.queries, width, next);
  wide.k = widened_rows(g.k, first_key, end_key, width, next);
  wide.v = widened_rows(g.v, first_key, end_key, value_width, next);
  wide.out = widened_rows(g.out, 0, shape.queries, value_width, next);
  wide.cotangent = widened_rows(g.cotangent, 0, shape.queries, value_width, next);
  wide.row_lse = g.row_lse;
  wide.q_gradient = g.q_gradient, wide.k_gradient = g.k_gradient, wide.v_gradient = g.v_gradient;
  attend_gradient<float>(shape, wide, first_key, end_key);
}

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
inline void scale_and_mask(float* scores, const AttentionShape& shape, std::int64_t query, std::int64_t cols,
                           std::int64_t key, std::int64_t keys, float unseen) {
  using Batch = xsimd::batch<float>;
  constexpr auto lanes = static_cast<std::int64_t>(Batch::size);
  const Batch scale(static_cast<float>(shape.scale));
  const float* const bias = bias_tile<float>(shape, query, cols, key, keys);
  for (std::int64_t i = 0; i < keys; ++i) {
    float* const row = scores + i * attention_queries;
    for (std::int64_t c = 0; c < cols; c += lanes) (Batch::load_aligned(row + c) * scale).store_aligned(row + c);
    if (bias != nullptr) add_row<float>(row, bias + i * attention_queries, 0, cols);
    const std::int64_t hidden = shape.causal ? std::min(key + i - shape.first_position - query, cols) : 0;
    for (std::int64_t c = 0; c < hidden; ++c) row[c] = unseen;
    if (!shape.causal) continue;
    const std::int64_t passed = key + i - shape.first_position - query + shape.span + 1;
    for (std::int64_t c = std::max<std::int64_t>(passed, 0); c < cols; ++c) row[c] = unseen;
  }
}

// Templates, although T is always bf16, so that programs without it instantiate nothing of this.
template <std::same_as<bf16> T>
void block_attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
                  const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out,
                  const HeadRows<float>& row_lse, CpuLevel level) {
  constexpr auto lanes = static_cast<std::int64_t>(xsimd::batch<float>::size);
  constexpr std::int64_t row = attention_queries;
  const Bf16Blocks unit(level);
  const std::int64_t width = whole_blocks(shape.width), value_width = whole_blocks(shape.value_width);
  const std::int64_t tiles = (count + row - 1) / row, state = (value_width + 2) * row;
  AttentionRoom room((tiles * row + attention_keys) * width / 2 + value_width * attention_keys / 2 + row * row * 3 / 2 +
                     tiles * state + row * value_width);
  float* const states = room.take<float>(tiles * state);
  float *const scores = room.take<float>(row * row), *const rows = room.take<float>(row * value_width);
  bf16* const queries = room.take<bf16>(tiles * row * width);
  bf16 *const keys_room = room.take<bf16>(attention_keys * width), *const weights_room = room.take<bf16>(row * row);
  bf16* const values_room = room.take<bf16>(value_width * attention_keys);
  const auto softmax = [&](std::int64_t tile) {
    float* const own = states + tile * state;
    return RunningSoftmax<float>{own, own + row, own + 2 * row, value_width};
  };

  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t from = first + t * row;
    pack_blocks<true>({q.at(from), q.row, q.col}, std::min(row, first + count - from), shape.width,
                      queries + t * row * width);
    softmax(t).clear();
  }
  const std::int64_t visible = shape.visible(first + count);
  for (std::int64_t key = first_tile(shape, first, 0); key < visible; key += attention_keys) {
    const std::int64_t keys = std::min(attention_keys, visible - key);
    const BlockPanels packed_keys = packed_panels<false>({k.at(key), k.row, k.col}, keys, shape.width, keys_room);
    const BlockPanels values = packed_panels<false>({v.at(key), v.col, v.row}, shape.value_width, keys, values_room);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t from = first + t * row, own = std::min(row, first + count - from);
      const std::int64_t seen = std::min(keys, shape.visible(from + own) - key);
      if (seen <= 0 || key + seen <= shape.first_visible(from)) continue;
      const std::int64_t cols = whole_blocks(own), whole = whole_blocks(seen);
      multiply_tile(unit, packed_keys, {queries + t * row * width, width}, whole, cols, shape.width, scores, row,
                    false);
      scale_and_mask(scores, shape, from, cols, key, seen, -std::numeric_limits<float>::infinity());
      const KeySteps tile(shape, from, own, key, seen, lanes);
      for (std::int64_t c = 0; c < cols; c += lanes) {
        const std::int64_t work = c < own ? tile.keys_seen_at(c) : 0;
        if (work > 0) softmax(t).take(scores, work, c);
        for (std::int64_t i = work; i < whole; ++i) xsimd::batch<float>(0.0f).store_aligned(scores + i * row + c);
      }
      const BlockPanels weights = round_to_pairs(scores, whole, cols, weights_room);
      multiply_tile(unit, values, weights, value_width, cols, whole, softmax(t).sums, row, true);
    }
  }
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t from = first + t * row, own = std::min(row, first + count - from);
    for (std::int64_t c = 0; c < own; c += lanes) softmax(t).finish(c);
    if (out.data != nullptr) {
      transpose_tile<float>(rows, value_width, softmax(t).sums, row, 1, value_width, own, value_width, 1.0f);
      round_rows(rows, value_width, own, shape.value_width, out, from);
    }
    for (std::int64_t i = 0; row_lse.data != nullptr && i < own; ++i) *row_lse.at(from + i) = softmax(t).totals[i];
  }
}

/// attend_gradient() with AMX or AVX512_BF16. Gradients of keys and values are accumulated in scratch memory, in whole
/// blocks.
template <std::same_as<bf16> T>
void block_attend_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                           std::int64_t end_key, CpuLevel level) {
  using Batch = xsimd::batch<float>;
  constexpr auto lanes = static_cast<std::int64_t>(Batch::size);
  constexpr std::int64_t row = attention_queries;
  const Bf16Blocks unit(level);
  const std::int64_t width = whole_blocks(shape.width), value_width = whole_blocks(shape.value_width);
  const std::int64_t part = end_key - first_key, tiles = (part + attention_keys - 1) / attention_keys,
                     padded = tiles * attention_keys;
  const bool wants_q = g.q_gradient.data != nullptr, wants_k = g.k_gradient.data != nullptr,
             wants_v = g.v_gradient.data != nullptr;
  AttentionRoom room(padded * (width + value_width / 2 + width + value_width) + row * (2 * width + value_width) +
                     row * row * 7 / 2 + 2 * row + row * width);
  float *const k_sums = room.take<float>(padded * width), *const v_sums = room.take<float>(padded * value_width);
  float *const weights = room.take<float>(row * row), *const slopes = room.take<float>(row * row);
  float *const query_sums = room.take<float>(width * row), *const logarithms = room.take<float>(row),
               *const products = room.take<float>(row);
  bf16 *const keys = room.take<bf16>(padded * width), *const values = room.take<bf16>(padded * value_width),
              *const turned_keys = room.take<bf16>(padded * width);
  bf16 *const q_room = room.take<bf16>(row * width), *const g_room = room.take<bf16>(row * value_width),
              *const q_rows_room = room.take<bf16>(row * width),
              *const g_rows_room = room.take<bf16>(row * value_width);
  bf16 *const weights_room = room.take<bf16>(row * row), *const slopes_room = room.take<bf16>(row * row),
              *const pairs_room = room.take<bf16>(row * row);
  std::fill_n(k_sums, padded * (width + value_width), 0.0f);
  for (std::int64_t key = 0; key < part; key += attention_keys) {
    const std::int64_t own = std::min(attention_keys, part - key), at = first_key + key;
    pack_blocks<false>({g.k.at(at), g.k.row, g.k.col}, own, shape.width, keys + key * width);
    pack_blocks<false>({g.v.at(at), g.v.row, g.v.col}, own, shape.value_width, values + key * value_width);
    if (wants_q) pack_blocks<false>({g.k.at(at), g.k.col, g.k.row}, shape.width, own, turned_keys + key * width);
  }

  const Batch scale(static_cast<float>(shape.scale));
  for (std::int64_t first = 0; first < shape.queries; first += row) {
    const std::int64_t count = std::min(row, shape.queries - first), cols = whole_blocks(count);
    const std::int64_t visible = std::min(shape.visible(first + count), end_key);
    if (wants_q) std::fill_n(query_sums, width * row, 0.0f);
    if (visible > first_key) {
      pack_blocks<true>({g.q.at(first), g.q.row, g.q.col}, count, shape.width, q_room);
      pack_blocks<true>({g.cotangent.at(first), g.cotangent.row, g.cotangent.col}, count, shape.value_width, g_room);
      if (wants_k) pack_blocks<true>({g.q.at(first), g.q.col, g.q.row}, shape.width, count, q_rows_room);
      if (wants_v)
        pack_blocks<true>({g.cotangent.at(first), g.cotangent.col, g.cotangent.row}, shape.value_width, count,
                          g_rows_room);
      row_products(g.cotangent, g.out, first, count, shape.value_width, products);
      for (std::int64_t i = 0; i < row; ++i) {
        logarithms[i] = i < count ? std::max(*g.row_lse.at(first + i), static_cast<float>(least_score)) : 0.0f;
        if (i >= count) products[i] = 0.0f;
      }
    }
    for (std::int64_t key = first_tile(shape, first, first_key); key < visible; key += attention_keys) {
      const std::int64_t seen = std::min(attention_keys, visible - key), whole = whole_blocks(seen),
                         at = key - first_key, own = whole_blocks(std::min(attention_keys, end_key - key));
      multiply_tile(unit, {keys + at * width, width}, {q_room, width}, whole, cols, shape.width, weights, row, false);
      multiply_tile(unit, {values + at * value_width, value_width}, {g_room, value_width}, whole, cols,
                    shape.value_width, slopes, row, false);
      scale_and_mask(weights, shape, first, cols, key, seen, -std::numeric_limits<float>::infinity());
      for (std::int64_t i = 0; i < whole; ++i)
        for (std::int64_t c = 0; c < cols; c += lanes) {
          float *const w = weights + i * row + c, *const s = slopes + i * row + c;
          Batch p(0.0f), slope(0.0f);
          // Padding queries and keys get weight 0: computed, their weights could be arbitrarily large.
          if (i < seen && c < count) {
            p = simd::fading_exp<float>(Batch::load_aligned(w) - Batch::load_aligned(logarithms + c));
            slope = p * (Batch::load_aligned(s) - Batch::load_aligned(products + c)) * scale;
          }
          p.store_aligned(w);
          slope.store_aligned(s);
        }
      if (wants_v)
        multiply_tile(unit, round_to_rows(weights, whole, cols, weights_room), {g_rows_room, cols}, whole, value_width,
                      cols, v_sums + at * value_width, value_width, true);
      if (wants_k)
        multiply_tile(unit, round_to_rows(slopes, whole, cols, slopes_room), {q_rows_room, cols}, whole, width, cols,
                      k_sums + at * width, width, true);
      if (wants_q)
        multiply_tile(unit, {turned_keys + at * width, own}, round_to_pairs(slopes, whole, cols, pairs_room), width,
                      cols, whole, query_sums, row, true);
    }
    if (wants_q)
      transpose_tile<float>(g.q_gradient.at(first), g.q_gradient.row, query_sums, row, 1, shape.width, count,
                            shape.width, 1.0f);
  }
  const auto copy = [&](const HeadRows<float>& to, const float* from, std::int64_t from_row, std::int64_t columns) {
    for (std::int64_t i = 0; to.data != nullptr && i < part; ++i)
      std::copy_n(from + i * from_row, columns, to.at(first_key + i));
  };
  copy(g.k_gradient, k_sums, width, shape.width);
  copy(g.v_gradient, v_sums, value_width, shape.value_width);
}
#endif

}  // namespace detail

/// attend() for bf16, with count <= most_attention_queries. row_lse is float.
template <std::same_as<bf16> T>
void attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
            const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out,
            const HeadRows<float>& row_lse, CpuLevel level = bf16_level()) {
#if defined(__x86_64__)
  if (level >= CpuLevel::avx512_bf16) return detail::block_attend(shape, first, count, q, k, v, out, row_lse, level);
#endif
  detail::widened_attend(shape, first, count, q, k, v, out, row_lse);
}

/// attend_gradient() for bf16; softmax weights and their gradients are rounded to bf16 for the products that follow.
template <std::same_as<bf16> T>
void attend_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                     std::int64_t end_key, CpuLevel level = bf16_level()) {
#if defined(__x86_64__)
  if (level >= CpuLevel::avx512_bf16) return detail::block_attend_gradient(shape, g, first_key, end_key, level);
#endif
  detail::widened_gradient(shape, g, first_key, end_key);
}

/// attend() for f16.
template <std::same_as<f16> T>
void attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
            const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out,
            const HeadRows<float>& row_lse) {
  detail::widened_attend(shape, first, count, q, k, v, out, row_lse);
}

/// attend_gradient() for f16.
template <std::same_as<f16> T>
void attend_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                     std::int64_t end_key) {
  detail::widened_gradient(shape, g, first_key, end_key);
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
