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

/// A gradient of rows of keys or values, of which one tile at a time is added to: the rows of the result themselves, if
/// they are adjacent whole registers, otherwise a copy.
template <class T> struct GradientTile {
  HeadRows<T> result;
  T* room = nullptr;
  std::int64_t columns = 0, padded = 0;

  bool wanted() const { return result.data != nullptr; }
  bool in_place() const { return result.row == padded && padded == columns; }
  void clear(std::int64_t first, std::int64_t end) const {
    for (std::int64_t i = first; wanted() && i < end; ++i) std::fill(result.at(i), result.at(i) + columns, T(0));
  }
  /// The sums of rows [first, first + count), with row stride `padded`.
  T* open(std::int64_t first, std::int64_t count) const {
    if (!wanted() || in_place()) return wanted() ? result.at(first) : nullptr;
    pack_rows<T>(room, padded, {result.data, result.row, 1}, first, count, columns);
    return room;
  }
  void close(std::int64_t first, std::int64_t count) const {
    for (std::int64_t i = 0; wanted() && !in_place() && i < count; ++i)
      std::memcpy(result.at(first + i), room + i * padded, static_cast<std::size_t>(columns) * sizeof(T));
  }
};

}  // namespace detail

/// Gradients with respect to keys [first_key, end_key) and their values, and the contribution of these keys to the
/// gradient with respect to all queries. Softmax weights are recomputed tile by tile from row_lse of the forward pass,
/// with five products per tile. The order of the tiles is fixed, so that results are reproducible. Keys and values are
/// read once for most_attention_queries, whose tiles stay in the L2 cache.
template <class T>
void attend_gradient(const AttentionShape& shape, const AttentionGradient<T>& g, std::int64_t first_key,
                     std::int64_t end_key) {
  using Batch = xsimd::batch<T>;
  constexpr auto lanes = static_cast<std::int64_t>(Batch::size);
  constexpr std::int64_t row = attention_queries;
  const std::int64_t key_width = shape.width, value_width = shape.value_width;
  const std::int64_t q_row = detail::padded_width<T>(key_width), v_row = detail::padded_width<T>(value_width);
  const std::int64_t most_tiles = most_attention_queries / row;
  const std::int64_t state = (2 * key_width + value_width + q_row + v_row + 2) * row;

  T* next = thread_scratch<Scratch::attention, T>(
      static_cast<std::size_t>(most_tiles * state + (value_width + 2 * attention_keys) * row +
                               (key_width + value_width + q_row + v_row) * attention_keys));
  const auto take = [&](std::int64_t count) {
    T* taken = next;
    next += count;
    return taken;
  };
  T* const states = take(most_tiles * state);
  T *const outputs = take(value_width * row), *const weights = take(attention_keys * row),
           *const slopes = take(attention_keys * row);
  T *const k_room = take(attention_keys * key_width), *const v_room = take(attention_keys * value_width);
  const detail::GradientTile<T> k_tile{g.k_gradient, take(attention_keys * q_row), key_width, q_row};
  const detail::GradientTile<T> v_tile{g.v_gradient, take(attention_keys * v_row), value_width, v_row};
  const bool wants_q = g.q_gradient.data != nullptr, wants_k = k_tile.wanted(), wants_v = v_tile.wanted();
  const T scale = static_cast<T>(shape.scale);
  k_tile.clear(first_key, end_key);
  v_tile.clear(first_key, end_key);

  struct QueryTile {
    std::int64_t first, count, registers, visible;
    T *queries, *cotangents, *sums, *query_rows, *cotangent_rows, *logarithms, *products;
  };
  for (std::int64_t group = 0; group < shape.queries; group += most_attention_queries) {
    const std::int64_t group_end = std::min(group + most_attention_queries, shape.queries),
                       tiles = (group_end - group + row - 1) / row;
    const auto tile_of = [&](std::int64_t t) {
      QueryTile tile;
      tile.first = group + t * row;
      tile.count = std::min(row, group_end - tile.first);
      tile.registers = (tile.count + lanes - 1) / lanes;
      tile.visible = std::min(shape.visible(tile.first + tile.count), end_key);
      tile.queries = states + t * state;
      tile.cotangents = tile.queries + key_width * row;
      tile.sums = tile.cotangents + value_width * row;
      tile.query_rows = tile.sums + key_width * row;
      tile.cotangent_rows = tile.query_rows + q_row * row;
      tile.logarithms = tile.cotangent_rows + v_row * row;
      tile.products = tile.logarithms + row;
      return tile;
    };
    for (std::int64_t t = 0; t < tiles; ++t) {
      const QueryTile tile = tile_of(t);
      const std::int64_t first = tile.first, count = tile.count, columns = tile.registers * lanes;
      if (wants_q) std::fill(tile.sums, tile.sums + key_width * row, T(0));
      if (tile.visible <= first_key) continue;
      transpose_tile<T>(tile.queries, row, g.q.at(first), g.q.row, g.q.col, count, key_width, columns, scale);
      transpose_tile<T>(tile.cotangents, row, g.cotangent.at(first), g.cotangent.row, g.cotangent.col, count,
                        value_width, columns, scale);
      transpose_tile<T>(outputs, row, g.out.at(first), g.out.row, g.out.col, count, value_width, columns, T(1));
      if (wants_k) detail::pack_rows<T>(tile.query_rows, q_row, g.q, first, count, key_width);
      if (wants_v) detail::pack_rows<T>(tile.cotangent_rows, v_row, g.cotangent, first, count, value_width);
      for (std::int64_t c = 0; c < columns; c += lanes) {
        Batch sum(T(0));
        for (std::int64_t e = 0; e < value_width; ++e)
          sum = simd::fma<T>(Batch::load_aligned(tile.cotangents + e * row + c),
                             Batch::load_aligned(outputs + e * row + c), sum);
        sum.store_aligned(tile.products + c);
      }
      // A query without keys has logarithm -inf: its weights are 0.
      for (std::int64_t i = 0; i < columns; ++i)
        tile.logarithms[i] = i < count ? std::max(*g.row_lse.at(first + i), static_cast<T>(least_score)) : T(0);
    }

    const std::int64_t visible = std::min(shape.visible(group_end), end_key);
    for (std::int64_t key = first_tile(shape, group, first_key); key < visible; key += attention_keys) {
      const std::int64_t end = std::min(key + attention_keys, visible), ahead = std::min(end + attention_keys, visible);
      const HeadRows<const T> k = detail::adjacent_rows<T>(g.k, key, end - key, key_width, k_room);
      const HeadRows<const T> v = detail::adjacent_rows<T>(g.v, key, end - key, value_width, v_room);
      T *const k_sums = k_tile.open(key, end - key), *const v_sums = v_tile.open(key, end - key);
      detail::prefetch_rows<T>(g.k, end, ahead, key_width);
      detail::prefetch_rows<T>(g.v, end, ahead, value_width);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const QueryTile tile = tile_of(t);
        const std::int64_t keys = std::min(end, tile.visible) - key;
        if (keys <= 0 || key < first_tile(shape, tile.first, first_key)) continue;
        const KeySteps steps(shape, tile.first, tile.count, key, keys, lanes);
        detail::attention_scores<T>(weights, shape, steps, tile.first, tile.registers, key, k, tile.queries);
        for (int s = 0; s < steps.size; ++s) {
          const KeyStep& step = steps.steps[s];
          const std::int64_t at = step.first * row + step.begin, own = tile.registers - step.begin / lanes;
          tile_product<T>(slopes + at, row, {v.at(step.first), v.row, v.col}, tile.cotangents + step.begin, row,
                          step.count, own, value_width, false);
          for (std::int64_t i = step.first; i < step.first + step.count; ++i)
            for (std::int64_t c = step.begin; c < tile.registers * lanes; c += lanes) {
              const Batch p = simd::fading_exp<T>(Batch::load_aligned(weights + i * row + c) -
                                                  Batch::load_aligned(tile.logarithms + c));
              const Batch slope =
                  p * (Batch::load_aligned(slopes + i * row + c) - Batch::load_aligned(tile.products + c));
              p.store_aligned(weights + i * row + c);
              slope.store_aligned(slopes + i * row + c);
            }
        }
        for (int s = 0; s < steps.size; ++s) {
          const KeyStep& step = steps.steps[s];
          const std::int64_t at = step.first * row + step.begin, depth = tile.count - step.begin;
          if (wants_v)
            tile_product<T>(v_sums + step.first * v_row, v_row, {weights + at, row, 1},
                            tile.cotangent_rows + step.begin * v_row, v_row, step.count, v_row / lanes, depth, true);
          if (wants_k)
            tile_product<T>(k_sums + step.first * q_row, q_row, {slopes + at, row, 1},
                            tile.query_rows + step.begin * q_row, q_row, step.count, q_row / lanes, depth, true);
          if (wants_q)
            tile_product<T>(tile.sums + step.begin, row, {k.at(step.first), k.col, k.row}, slopes + at, row, key_width,
                            tile.registers - step.begin / lanes, step.count, true);
        }
      }
      k_tile.close(key, end - key);
      v_tile.close(key, end - key);
    }
    for (std::int64_t t = 0; wants_q && t < tiles; ++t) {
      const QueryTile tile = tile_of(t);
      transpose_tile<T>(g.q_gradient.at(tile.first), g.q_gradient.row, tile.sums, row, 1, key_width, tile.count,
                        key_width, T(1));
    }
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
