#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <tessera/kernels/attention/attention_kernels.hpp>
#include <tessera/kernels/attention/attention_shape.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/scratch.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Prefetches the next rows into the L2 cache: their stride is too large for hardware prefetch.
template <class T>
void prefetch_rows(const HeadRows<T>& rows, std::int64_t first, std::int64_t end, std::int64_t columns) {
  if (rows.col != 1) return;
  constexpr int writes = std::is_const_v<T> ? 0 : 1;
  for (std::int64_t i = first; i < end; ++i)
    for (std::int64_t c = 0; c < columns; c += 64 / static_cast<std::int64_t>(sizeof(T)))
      __builtin_prefetch(rows.at(i) + c, writes, 2);
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

/// Rows [first, first + count), each contiguous: in place, or copied to `room`. Rows of a head are often a power of two
/// apart, so that only a few of them fit the L1 cache at a time. Where blocks of a product have all queries of a tile,
/// and so read each row once, they wait less for the others than a copy takes.
template <class T>
HeadRows<const T> dense_rows(const AttentionKernels<T>& kernels, const HeadRows<const T>& rows, std::int64_t first,
                             std::int64_t count, std::int64_t columns, T* room) {
  if (rows.col == 1 && (kernels.block_columns >= attention_queries || rows.row == columns))
    return {rows.at(first), rows.row, 1};
  pack_rows(room, columns, rows, first, count, columns);
  return {room, columns, 1};
}

/// to[c * to_row + r] = factor * from[r * from_row + c * from_col], zeros for r in [rows, padded).
template <class T>
void transpose_tile(const AttentionKernels<T>& kernels, T* to, std::int64_t to_row, const T* from,
                    std::int64_t from_row, std::int64_t from_col, std::int64_t rows, std::int64_t cols,
                    std::int64_t padded, T factor) {
  const std::int64_t whole_rows = from_col == 1 ? rows & -kernels.lanes : 0, whole_cols = cols & -kernels.lanes;
  kernels.transpose(to, to_row, from, from_row, whole_rows, whole_cols, factor);
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r)
      to[c * to_row + r] = factor * from[r * from_row + c * from_col];
    for (std::int64_t r = rows; r < padded; ++r) to[c * to_row + r] = T(0);
  }
}

/// The bias of queries [query, query + columns) and keys [key, key + keys), [keys, queries] with row stride
/// attention_queries: a masked score where a mask is false. Null without a bias. Valid until the next call of this
/// thread.
template <class T>
const T* bias_tile(const AttentionKernels<T>& kernels, const AttentionShape& shape, std::int64_t query,
                   std::int64_t columns, std::int64_t key, std::int64_t keys) {
  const ScoreBias& bias = shape.bias;
  if (bias.data == nullptr) return nullptr;
  constexpr std::int64_t row = attention_queries;
  T* const tile = thread_scratch<Scratch::attention_bias, T>(static_cast<std::size_t>(2 * row * attention_keys));
  const std::int64_t count = std::min(columns, shape.queries - query), first = query * bias.query + key * bias.key;
  if (!bias.is_mask) {
    transpose_tile<T>(kernels, tile, row, static_cast<const T*>(bias.data) + first, bias.query, bias.key, count, keys,
                      columns, T(1));
    return tile;
  }
  // Branches would be mispredicted. Of constant length, the loop is vectorised.
  T* const numbers = tile + row * attention_keys;
  const auto masked = [](bool is_seen) { return (static_cast<T>(is_seen) - T(1)) * T(-10 * least_score); };
  for (std::int64_t c = 0; c < count; ++c) {
    const bool* const seen = static_cast<const bool*>(bias.data) + first + c * bias.query;
    T* const to = numbers + c * attention_keys;
    if (bias.key == 1 && keys == attention_keys)
      for (std::int64_t i = 0; i < attention_keys; ++i) to[i] = masked(seen[i]);
    else
      for (std::int64_t i = 0; i < keys; ++i) to[i] = masked(seen[i * bias.key]);
  }
  transpose_tile<T>(kernels, tile, row, numbers, attention_keys, 1, count, keys, columns, T(1));
  return tile;
}

/// scores = keys * queries of a tile, [keys, queries] with queries along lanes; -inf where masked. `keys` are the rows
/// from position `key` on. With a bias, that is added.
template <class T>
void attention_scores(const AttentionKernels<T>& kernels, T* scores, const AttentionShape& shape, const KeySteps& tile,
                      std::int64_t query, std::int64_t columns, std::int64_t key, const HeadRows<const T>& keys,
                      const T* queries) {
  const std::int64_t all_keys = tile.size == 0 ? 0 : tile.steps[tile.size - 1].first + tile.steps[tile.size - 1].count;
  const T* const bias = bias_tile<T>(kernels, shape, query, columns, key, all_keys);
  for (int s = 0; s < tile.size; ++s) {
    const KeyStep& step = tile.steps[s];
    T* const to = scores + step.first * attention_queries;
    kernels.multiply(to + step.begin, attention_queries, {keys.at(step.first), keys.row, keys.col},
                     queries + step.begin, attention_queries, step.count, columns - step.begin, shape.width, false);
    if (bias != nullptr)
      kernels.scale_and_add(to + step.begin, bias + step.first * attention_queries + step.begin, T(1), step.count,
                            columns - step.begin);
    for (std::int64_t i = 0; step.masked && i < step.count; ++i) {
      // Queries before `unseen` do not attend to this key yet, those from `passed` on no longer.
      const std::int64_t own = key + step.first + i - shape.first_position - query;
      const std::int64_t unseen = std::min(own, columns), passed = std::max(step.begin, own + shape.span + 1);
      T* const row = to + i * attention_queries;
      for (std::int64_t c = step.begin; c < unseen; ++c) row[c] = -std::numeric_limits<T>::infinity();
      for (std::int64_t c = passed; c < columns; ++c) row[c] = -std::numeric_limits<T>::infinity();
    }
  }
}

template <class T> void clear(const RunningSoftmax<T>& softmax) {
  std::fill_n(softmax.largest, attention_queries, -std::numeric_limits<T>::infinity());
  std::fill_n(softmax.totals, attention_queries, T(0));
  std::fill_n(softmax.sums, softmax.width * attention_queries, T(0));
}

/// Divides the sums of `count` queries by the totals, and replaces the totals by logsumexp. The logarithms are those of
/// the C library, the same for every -march.
template <class T>
void finish(const AttentionKernels<T>& kernels, const RunningSoftmax<T>& softmax, std::int64_t count) {
  kernels.divide(softmax, (count + kernels.lanes - 1) & -kernels.lanes);
  for (std::int64_t i = 0; i < count; ++i) softmax.totals[i] = softmax.largest[i] + std::log(softmax.totals[i]);
}

}  // namespace detail

/// softmax(q k^T) v for queries [first, first + count), count <= most_attention_queries, and the logsumexp of each row
/// of scores (`row_lse`, may be null), by tiles of keys with online softmax. Source: Milakov, Gimelshein, 1805.02867;
/// Dao et al., FlashAttention, 2205.14135.
///
/// All tiles are transposed, queries along lanes: maxima and sums need no shuffles, and keys and values are read
/// element by element. Results have stride 1 along the width.
template <class T>
void attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
            const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out, const HeadRows<T>& row_lse,
            CpuLevel level = cpu_level()) {
  const AttentionKernels<T>& kernels = attention_kernels<T>(level);
  const std::int64_t lanes = kernels.lanes;
  constexpr std::int64_t row = attention_queries;
  const std::int64_t tiles = (count + row - 1) / row, state = (shape.width + shape.value_width + 2) * row;
  T* const states = thread_scratch<Scratch::attention, T>(
      static_cast<std::size_t>(tiles * state + (shape.width + shape.value_width + row) * attention_keys));
  T *const scores = states + tiles * state, *const k_room = scores + attention_keys * row,
           *const v_room = k_room + attention_keys * shape.width;
  struct QueryTile {
    std::int64_t first, count, columns;
    T* queries;
    RunningSoftmax<T> softmax;
  };
  const auto tile_of = [&](std::int64_t t) {
    T *const queries = states + t * state, *const largest = queries + shape.width * row;
    const std::int64_t own = std::min(row, count - t * row);
    return QueryTile{first + t * row,
                     own,
                     (own + lanes - 1) & -lanes,
                     queries,
                     {largest, largest + row, largest + 2 * row, shape.value_width}};
  };

  for (std::int64_t t = 0; t < tiles; ++t) {
    const QueryTile tile = tile_of(t);
    detail::transpose_tile<T>(kernels, tile.queries, row, q.at(tile.first), q.row, q.col, tile.count, shape.width,
                              tile.columns, static_cast<T>(shape.scale));
    detail::clear(tile.softmax);
  }
  const std::int64_t visible = shape.visible(first + count);
  for (std::int64_t key = first_tile(shape, first, 0); key < visible; key += attention_keys) {
    const std::int64_t end = std::min(key + attention_keys, visible), next = std::min(end + attention_keys, visible);
    const HeadRows<const T> own_k = detail::dense_rows<T>(kernels, k, key, end - key, shape.width, k_room);
    const HeadRows<const T> own_v = detail::dense_rows<T>(kernels, v, key, end - key, shape.value_width, v_room);
    detail::prefetch_rows<const T>(k, end, next, shape.width);
    detail::prefetch_rows<const T>(v, end, next, shape.value_width);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const QueryTile tile = tile_of(t);
      const std::int64_t keys = std::min(end, shape.visible(tile.first + tile.count)) - key;
      if (keys <= 0 || key < first_tile(shape, tile.first, 0)) continue;
      const KeySteps steps(shape, tile.first, tile.count, key, keys, lanes);
      detail::attention_scores<T>(kernels, scores, shape, steps, tile.first, tile.columns, key, own_k, tile.queries);
      for (std::int64_t c = 0; c < tile.columns; c += lanes)
        kernels.take(tile.softmax, scores, steps.keys_seen_at(c), c);
      for (int s = 0; s < steps.size; ++s) {
        const KeyStep& step = steps.steps[s];
        kernels.multiply(tile.softmax.sums + step.begin, row, {own_v.at(step.first), own_v.col, own_v.row},
                         scores + step.first * row + step.begin, row, shape.value_width, tile.columns - step.begin,
                         step.count, true);
      }
    }
  }

  for (std::int64_t t = 0; t < tiles; ++t) {
    const QueryTile tile = tile_of(t);
    detail::finish(kernels, tile.softmax, tile.count);
    if (out.data != nullptr)
      detail::transpose_tile<T>(kernels, out.at(tile.first), out.row, tile.softmax.sums, row, 1, shape.value_width,
                                tile.count, shape.value_width, T(1));
    for (std::int64_t i = 0; row_lse.data != nullptr && i < tile.count; ++i)
      *row_lse.at(tile.first + i) = tile.softmax.totals[i];
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
