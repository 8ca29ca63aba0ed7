#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_BF16_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_BF16_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention/attention.hpp>
#include <tessera/kernels/attention/attention_blocks.hpp>
#include <tessera/kernels/attention/attention_gradient.hpp>
#include <tessera/kernels/attention/block_attention_gradient.hpp>
#include <tessera/kernels/attention/half_attention_gradient.hpp>
#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/bf16/bf16_pack.hpp>

// Attention of bf16 and f16. For bf16 with AMX or AVX512_BF16, operands of products are bf16, and scores, exponentials
// and sums are float. Otherwise operands are converted to float and use the attention of float.

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
                    const HeadRows<float>& row_lse, CpuLevel level) {
  const std::int64_t keys = shape.visible(first + count), both = shape.width + shape.value_width;
  float* next = thread_scratch<Scratch::wide_a, float>(static_cast<std::size_t>((count + keys) * both));
  const HeadRows<const float> wide_q = widened_rows(q, first, first + count, shape.width, next);
  const HeadRows<const float> wide_k = widened_rows(k, 0, keys, shape.width, next);
  const HeadRows<const float> wide_v = widened_rows(v, 0, keys, shape.value_width, next);
  const HeadRows<float> rows{next - first * shape.value_width, shape.value_width, 1};
  attend<float>(shape, first, count, wide_q, wide_k, wide_v, out.data == nullptr ? HeadRows<float>{} : rows, row_lse,
                level);
  if (out.data != nullptr)
    round_matrix(rows.at(first), rows.row, count, shape.value_width, out.at(first), out.row, out.col);
}

template <class T>
void widened_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                      std::int64_t end_key, CpuLevel level) {
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
  attend_gradient<float>(shape, wide, first_key, end_key, level);
}

#if defined(__x86_64__)
// Templates, although T is always bf16, so that programs without it instantiate nothing of this.
template <std::same_as<bf16> T>
void block_attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
                  const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out,
                  const HeadRows<float>& row_lse, CpuLevel level) {
  constexpr std::int64_t row = attention_queries;
  const AttentionKernels<float>& kernels = attention_kernels<float>(level);
  const std::int64_t lanes = kernels.lanes;
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
    clear(softmax(t));
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
      scale_and_mask(kernels, scores, shape, from, cols, key, seen, -std::numeric_limits<float>::infinity());
      const KeySteps tile(shape, from, own, key, seen, lanes);
      for (std::int64_t c = 0; c < cols; c += lanes) {
        const std::int64_t work = c < own ? tile.keys_seen_at(c) : 0;
        if (work > 0) kernels.take(softmax(t), scores, work, c);
        for (std::int64_t i = work; i < whole; ++i) std::fill_n(scores + i * row + c, lanes, 0.0f);
      }
      const BlockPanels weights = round_to_pairs(scores, whole, cols, weights_room);
      multiply_tile(unit, values, weights, value_width, cols, whole, softmax(t).sums, row, true);
    }
  }
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t from = first + t * row, own = std::min(row, first + count - from);
    finish(kernels, softmax(t), own);
    if (out.data != nullptr) {
      transpose_tile<float>(kernels, rows, value_width, softmax(t).sums, row, 1, value_width, own, value_width, 1.0f);
      round_rows(rows, value_width, own, shape.value_width, out, from);
    }
    for (std::int64_t i = 0; row_lse.data != nullptr && i < own; ++i) *row_lse.at(from + i) = softmax(t).totals[i];
  }
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
  detail::widened_attend(shape, first, count, q, k, v, out, row_lse, level);
}

/// attend_gradient() for bf16; softmax weights and their gradients are rounded to bf16 for the products that follow.
template <std::same_as<bf16> T>
void attend_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                     std::int64_t end_key, CpuLevel level = bf16_level()) {
#if defined(__x86_64__)
  if (level >= CpuLevel::avx512_bf16) return detail::block_attend_gradient(shape, g, first_key, end_key, level);
#endif
  detail::widened_gradient(shape, g, first_key, end_key, level);
}

/// attend() for f16.
template <std::same_as<f16> T>
void attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
            const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out,
            const HeadRows<float>& row_lse, CpuLevel level = cpu_level()) {
  detail::widened_attend(shape, first, count, q, k, v, out, row_lse, level);
}

/// attend_gradient() for f16.
template <std::same_as<f16> T>
void attend_gradient(const AttentionShape& shape, const HalfAttentionGradient<T>& g, std::int64_t first_key,
                     std::int64_t end_key, CpuLevel level = cpu_level()) {
  detail::widened_gradient(shape, g, first_key, end_key, level);
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
