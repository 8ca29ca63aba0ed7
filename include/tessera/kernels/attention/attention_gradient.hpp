#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_GRADIENT_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_GRADIENT_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <tessera/kernels/attention/attention.hpp>

namespace tessera::kernels {

/// Operands and results of the gradient of attention for one head. Gradients that are not needed are null; the others
/// have stride 1 along the width.
template <class T> struct AttentionGradient {
  HeadRows<const T> q, k, v, out, row_lse, cotangent;
  HeadRows<T> q_gradient, k_gradient, v_gradient;
};

}  // namespace tessera::kernels

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

template <class T> constexpr std::int64_t padded_width(std::int64_t columns) {
  constexpr auto lanes = static_cast<std::int64_t>(xsimd::batch<T>::size);
  return (columns + lanes - 1) / lanes * lanes;
}

/// Copies rows to a matrix with row stride `to_row`, padded with zeros.
template <class T>
void pack_rows(T* to, std::int64_t to_row, const HeadRows<const T>& from, std::int64_t first, std::int64_t count,
               std::int64_t columns) {
  for (std::int64_t i = 0; i < count; ++i, to += to_row) {
    const T* row = from.at(first + i);
    if (from.col == 1)
      std::memcpy(to, row, static_cast<std::size_t>(columns) * sizeof(T));
    else
      for (std::int64_t c = 0; c < columns; ++c) to[c] = row[c * from.col];
    std::fill(to + columns, to + to_row, T(0));
  }
}

/// Rows in which a gradient is accumulated: the result itself if its width is a multiple of a register, otherwise
/// padded rows in scratch memory.
template <class T> struct GradientRows {
  HeadRows<T> result, sums;
  std::int64_t first = 0, count = 0, row_width = 0;

  GradientRows(const HeadRows<T>& to, T* padded, std::int64_t first_row, std::int64_t rows, std::int64_t columns)
      : result(to), sums(to), first(first_row), count(rows), row_width(columns) {
    const std::int64_t step = padded_width<T>(columns);
    if (result.data == nullptr) return;
    if (step != columns) sums = {padded - first * step, step, 1};
    for (std::int64_t i = first; i < first + count; ++i) std::fill(sums.at(i), sums.at(i) + step, T(0));
  }
  void finish() const {
    if (result.data == nullptr || padded_width<T>(row_width) == row_width) return;
    for (std::int64_t i = first; i < first + count; ++i)
      std::memcpy(result.at(i), sums.at(i), static_cast<std::size_t>(row_width) * sizeof(T));
  }
};

}  // namespace detail

/// Gradients with respect to keys [first_key, end_key) and their values, and the contribution of these keys to the
/// gradient with respect to all queries. Softmax weights are recomputed tile by tile from row_lse of the forward pass,
/// with five products per tile. The order of the tiles is fixed, so that results are reproducible.
template <class T>
void attend_gradient(const AttentionShape& shape, const AttentionGradient<T>& g, std::int64_t first_key,
                     std::int64_t end_key) {
  using Batch = xsimd::batch<T>;
  constexpr auto lanes = static_cast<std::int64_t>(Batch::size);
  constexpr std::int64_t row = attention_queries;
  const std::int64_t key_width = shape.width, value_width = shape.value_width, part = end_key - first_key;
  const std::int64_t q_row = detail::padded_width<T>(key_width), v_row = detail::padded_width<T>(value_width);
  const std::int64_t padded = (q_row != key_width ? q_row : 0) + (v_row != value_width ? v_row : 0);

  T* next = thread_scratch<Scratch::attention, T>(static_cast<std::size_t>(
      (2 * key_width + 2 * value_width + q_row + v_row + 2 * attention_keys + 2) * row + part * padded));
  const auto take = [&](std::int64_t count) {
    T* taken = next;
    next += count;
    return taken;
  };
  T *queries = take(key_width * row), *cotangents = take(value_width * row), *outputs = take(value_width * row);
  T *query_sums = take(key_width * row), *query_rows = take(q_row * row), *cotangent_rows = take(v_row * row);
  T *weights = take(attention_keys * row), *slopes = take(attention_keys * row), *logarithms = take(row),
    *products = take(row);
  T* k_padded = take(q_row != key_width ? part * q_row : 0);
  const detail::GradientRows<T> k_sums(g.k_gradient, k_padded, first_key, part, key_width);
  const detail::GradientRows<T> v_sums(g.v_gradient, take(0), first_key, part, value_width);
  const bool wants_q = g.q_gradient.data != nullptr, wants_k = g.k_gradient.data != nullptr,
             wants_v = g.v_gradient.data != nullptr;

  for (std::int64_t first = 0; first < shape.queries; first += attention_queries) {
    const std::int64_t count = std::min(attention_queries, shape.queries - first),
                       registers = (count + lanes - 1) / lanes;
    const std::int64_t visible = std::min(shape.visible(first + count), end_key);
    const T scale = static_cast<T>(shape.scale);
    if (wants_q) std::fill(query_sums, query_sums + key_width * row, T(0));
    if (visible > first_key) {
      transpose_tile<T>(queries, row, g.q.at(first), g.q.row, g.q.col, count, key_width, registers * lanes, scale);
      transpose_tile<T>(cotangents, row, g.cotangent.at(first), g.cotangent.row, g.cotangent.col, count, value_width,
                        registers * lanes, scale);
      transpose_tile<T>(outputs, row, g.out.at(first), g.out.row, g.out.col, count, value_width, registers * lanes,
                        T(1));
      if (wants_k) detail::pack_rows<T>(query_rows, q_row, g.q, first, count, key_width);
      if (wants_v) detail::pack_rows<T>(cotangent_rows, v_row, g.cotangent, first, count, value_width);
      for (std::int64_t c = 0; c < registers * lanes; c += lanes) {
        Batch sum(T(0));
        for (std::int64_t e = 0; e < value_width; ++e)
          sum = simd::fma<T>(Batch::load_aligned(cotangents + e * row + c), Batch::load_aligned(outputs + e * row + c),
                             sum);
        sum.store_aligned(products + c);
      }
      // A query without keys has logarithm -inf: its weights are 0.
      for (std::int64_t i = 0; i < registers * lanes; ++i)
        logarithms[i] = i < count ? std::max(*g.row_lse.at(first + i), static_cast<T>(least_score)) : T(0);
    }

    for (std::int64_t key = first_tile(shape, first, first_key); key < visible; key += attention_keys) {
      const std::int64_t keys = std::min(attention_keys, visible - key);
      const KeySteps tile(shape, first, count, key, keys, lanes);
      detail::prefetch_rows<T>(g.v, key, key + keys, value_width);
      detail::attention_scores<T>(weights, shape, tile, first, registers, key, g.k, queries);
      for (int s = 0; s < tile.size; ++s) {
        const KeyStep& step = tile.steps[s];
        const std::int64_t at = step.first * row + step.begin, own = registers - step.begin / lanes;
        tile_product<T>(slopes + at, row, {g.v.at(key + step.first), g.v.row, g.v.col}, cotangents + step.begin, row,
                        step.count, own, value_width, false);
        for (std::int64_t i = step.first; i < step.first + step.count; ++i)
          for (std::int64_t c = step.begin; c < registers * lanes; c += lanes) {
            const Batch p =
                simd::fading_exp<T>(Batch::load_aligned(weights + i * row + c) - Batch::load_aligned(logarithms + c));
            const Batch slope = p * (Batch::load_aligned(slopes + i * row + c) - Batch::load_aligned(products + c));
            p.store_aligned(weights + i * row + c);
            slope.store_aligned(slopes + i * row + c);
          }
      }
      if (key + attention_keys < visible)
        detail::prefetch_rows<T>(g.k, key + attention_keys, std::min(key + 2 * attention_keys, visible), key_width);
      for (int s = 0; s < tile.size; ++s) {
        const KeyStep& step = tile.steps[s];
        const std::int64_t at = step.first * row + step.begin, from = key + step.first, depth = count - step.begin;
        if (wants_v)
          tile_product<T>(v_sums.sums.at(from), v_sums.sums.row, {weights + at, row, 1},
                          cotangent_rows + step.begin * v_row, v_row, step.count, v_row / lanes, depth, true);
        if (wants_k)
          tile_product<T>(k_sums.sums.at(from), k_sums.sums.row, {slopes + at, row, 1}, query_rows + step.begin * q_row,
                          q_row, step.count, q_row / lanes, depth, true);
        if (wants_q)
          tile_product<T>(query_sums + step.begin, row, {g.k.at(from), g.k.col, g.k.row}, slopes + at, row, key_width,
                          registers - step.begin / lanes, step.count, true);
      }
    }
    if (wants_q)
      transpose_tile<T>(g.q_gradient.at(first), g.q_gradient.row, query_sums, row, 1, key_width, count, key_width,
                        T(1));
  }
  k_sums.finish();
  v_sums.finish();
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
