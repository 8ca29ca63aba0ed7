#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <tessera/kernels/gemm/tile_product.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/simd/lane_math.hpp>

namespace tessera::kernels {

/// What is added to the scores of a head. Strides are 0 where all queries or keys have the same.
struct ScoreBias {
  const void* data = nullptr;  ///< numbers of the type of scores, or if `is_mask` bools, true where a query attends
  std::int64_t query = 0, key = 0;
  bool is_mask = false;
};

/// Attention of one head: queries [queries, width], keys [keys, width], values [keys, value_width]. A query attends to
/// all keys, or if `causal` to those in a band: from `span` keys before its position up to its position.
struct AttentionShape {
  static constexpr std::int64_t no_limit = std::int64_t{1} << 60;

  std::int64_t queries = 0, keys = 0, width = 0, value_width = 0;
  std::int64_t first_position = 0;  ///< position of query 0 among the keys
  bool causal = false;              ///< a query attends to the keys up to its own position
  double scale = 1;                 ///< factor of the product of a query and a key
  std::int64_t span = no_limit;     ///< keys before its own position to which a causal query attends; -1: to no key
  ScoreBias bias{};

  /// Number of keys to which queries [0, end) attend.
  constexpr std::int64_t visible(std::int64_t end) const {
    return causal ? std::clamp<std::int64_t>(first_position + end, 0, keys) : keys;
  }
  /// The first key to which any of the queries from `first` on attends.
  constexpr std::int64_t first_visible(std::int64_t first) const {
    return causal ? std::clamp<std::int64_t>(first_position + first - span, 0, keys) : 0;
  }
};

/// A score below this is masked: its weight is 0, also where all scores of a query are masked. A mask may so be added
/// to scores as a finite number, such as -1e30, which products with zeros keep finite.
inline constexpr double least_score = -1e29;

/// The matrix [position, width] of one head in a strided array.
template <class T> struct HeadRows {
  T* data = nullptr;
  std::int64_t row = 0, col = 1;

  constexpr T* at(std::int64_t position) const { return data + position * row; }
};

/// Queries and keys of a tile. Constant, not by instruction set, so that results depend only on the shape.
inline constexpr std::int64_t attention_queries = 64, attention_keys = 64;
/// Most queries of one call of attend(), which reads (for bf16 packs) keys and values once for all of them. Results
/// don't depend on how many queries a call has.
inline constexpr std::int64_t most_attention_queries = 4 * attention_queries;
/// Keys of a tile on the causal diagonal are processed in steps, each for the queries that attend to it.
inline constexpr std::int64_t attention_step = 16;

/// The first key of the first tile that has keys to which queries from `query` on attend. Tiles begin at `first_key`.
constexpr std::int64_t first_tile(const AttentionShape& shape, std::int64_t query, std::int64_t first_key) {
  const std::int64_t before = shape.first_visible(query) - first_key;
  return before <= 0 ? first_key : first_key + before / attention_keys * attention_keys;
}

/// Keys [first, first + count) of a tile, and the queries that attend to them: from `begin`, the start of a register.
struct KeyStep {
  std::int64_t first = 0, count = 0, begin = 0;
  bool masked = false;  ///< some of these queries don't attend to all of these keys
};

/// The steps of a tile of queries [query, query + count) and keys [key, key + keys).
struct KeySteps {
  KeyStep steps[attention_keys / attention_step];
  int size = 0;

  constexpr KeySteps(const AttentionShape& shape, std::int64_t query, std::int64_t count, std::int64_t key,
                     std::int64_t keys, std::int64_t lanes) {
    const std::int64_t position = shape.first_position + query;
    // The last query attends to no key before `begin_of_last`.
    const std::int64_t begin_of_last = position + count - 1 - shape.span;
    if (!shape.causal || key + keys - 1 <= position) {
      steps[size++] = {0, keys, 0, shape.causal && key < begin_of_last};
      return;
    }
    for (std::int64_t first = 0; first < keys; first += attention_step) {
      const std::int64_t own = std::min(attention_step, keys - first),
                         behind = std::max<std::int64_t>(0, key + first - position);
      if (behind >= count) return;
      steps[size++] = {first, own, behind / lanes * lanes,
                       key + first + own - 1 > position || key + first < begin_of_last};
    }
  }
  /// Number of keys of the tile that the queries of the register at `lane` process.
  constexpr std::int64_t keys_seen_at(std::int64_t lane) const {
    std::int64_t seen = 0;
    for (int s = 0; s < size && steps[s].begin <= lane; ++s) seen = steps[s].first + steps[s].count;
    return seen;
  }
};

}  // namespace tessera::kernels

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
HeadRows<const T> dense_rows(const HeadRows<const T>& rows, std::int64_t first, std::int64_t count,
                             std::int64_t columns, T* room) {
  constexpr auto lanes = static_cast<std::int64_t>(xsimd::batch<T>::size);
  if (rows.col == 1 && (block_columns * lanes >= attention_queries || rows.row == columns))
    return {rows.at(first), rows.row, 1};
  pack_rows(room, columns, rows, first, count, columns);
  return {room, columns, 1};
}

/// to[c] += from[c] for c in [begin, end), whole registers.
template <class T> void add_row(T* to, const T* from, std::int64_t begin, std::int64_t end) {
  using Batch = xsimd::batch<T>;
  for (std::int64_t c = begin; c < end; c += static_cast<std::int64_t>(Batch::size))
    (Batch::load_aligned(to + c) + Batch::load_aligned(from + c)).store_aligned(to + c);
}

/// The bias of queries [query, query + columns) and keys [key, key + keys), [keys, queries] with row stride
/// attention_queries: a masked score where a mask is false. Null without a bias. Valid until the next call of this
/// thread.
template <class T>
const T* bias_tile(const AttentionShape& shape, std::int64_t query, std::int64_t columns, std::int64_t key,
                   std::int64_t keys) {
  const ScoreBias& bias = shape.bias;
  if (bias.data == nullptr) return nullptr;
  constexpr std::int64_t row = attention_queries;
  T* const tile = thread_scratch<Scratch::attention_bias, T>(static_cast<std::size_t>(2 * row * attention_keys));
  const std::int64_t count = std::min(columns, shape.queries - query), first = query * bias.query + key * bias.key;
  if (!bias.is_mask) {
    transpose_tile<T>(tile, row, static_cast<const T*>(bias.data) + first, bias.query, bias.key, count, keys, columns,
                      T(1));
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
  transpose_tile<T>(tile, row, numbers, attention_keys, 1, count, keys, columns, T(1));
  return tile;
}

/// scores = keys * queries of a tile, [keys, queries] with queries along lanes; -inf where masked. `keys` are the rows
/// from position `key` on. With a bias, that is added.
template <class T>
void attention_scores(T* scores, const AttentionShape& shape, const KeySteps& tile, std::int64_t query,
                      std::int64_t registers, std::int64_t key, const HeadRows<const T>& keys, const T* queries) {
  constexpr auto lanes = static_cast<std::int64_t>(xsimd::batch<T>::size);
  const std::int64_t all_keys = tile.size == 0 ? 0 : tile.steps[tile.size - 1].first + tile.steps[tile.size - 1].count;
  const T* const bias = bias_tile<T>(shape, query, registers * lanes, key, all_keys);
  for (int s = 0; s < tile.size; ++s) {
    const KeyStep& step = tile.steps[s];
    T* to = scores + step.first * attention_queries;
    tile_product<T>(to + step.begin, attention_queries, {keys.at(step.first), keys.row, keys.col}, queries + step.begin,
                    attention_queries, step.count, registers - step.begin / lanes, shape.width, false);
    for (std::int64_t i = 0; bias != nullptr && i < step.count; ++i)
      add_row<T>(to + i * attention_queries, bias + (step.first + i) * attention_queries, step.begin,
                 registers * lanes);
    for (std::int64_t i = 0; step.masked && i < step.count; ++i) {
      // Queries before `unseen` do not attend to this key yet, those from `passed` on no longer.
      const std::int64_t own = key + step.first + i - shape.first_position - query, all = registers * lanes;
      const std::int64_t unseen = std::min(own, all), passed = std::max(step.begin, own + shape.span + 1);
      T* const row = to + i * attention_queries;
      for (std::int64_t c = step.begin; c < unseen; ++c) row[c] = -std::numeric_limits<T>::infinity();
      for (std::int64_t c = passed; c < all; ++c) row[c] = -std::numeric_limits<T>::infinity();
    }
  }
}

/// The state of online softmax of a tile of queries: the maximum score, the sum of exponentials, and the sum of values
/// weighted by the exponentials, by query.
template <class T> struct RunningSoftmax {
  T *largest, *totals, *sums;
  std::int64_t width;  ///< width of the values: rows of `sums`

  void clear() const {
    std::fill(largest, largest + attention_queries, -std::numeric_limits<T>::infinity());
    std::fill(totals, totals + attention_queries, T(0));
    std::fill(sums, sums + width * attention_queries, T(0));
  }

  /// Replaces the scores of `keys` rows, in the register at `c`, by exp(score - maximum). If the maximum grows,
  /// rescales the sums.
  void take(T* scores, std::int64_t keys, std::int64_t c) const {
    using Batch = xsimd::batch<T>;
    constexpr std::int64_t row = attention_queries;
    const auto score = [&](std::int64_t i) TESSERA_INLINE_LAMBDA { return scores + i * row + c; };
    // Two independent chains, to hide the latency of each operation.
    const Batch before = Batch::load_aligned(largest + c);
    Batch even = before, odd = before;
    std::int64_t i = 0;
    for (; i + 1 < keys; i += 2) {
      even = xsimd::max(even, Batch::load_aligned(score(i)));
      odd = xsimd::max(odd, Batch::load_aligned(score(i + 1)));
    }
    if (i < keys) even = xsimd::max(even, Batch::load_aligned(score(i)));
    const Batch now = xsimd::max(even, odd);
    // Of a query whose scores are masked so far, all exponentials are 0.
    const Batch base = xsimd::max(now, Batch(static_cast<T>(least_score)));
    Batch total = Batch::load_aligned(totals + c), other(T(0));
    if (xsimd::any(now > before)) {
      const Batch shrink = simd::fading_exp<T>(before - base);
      total = total * shrink;
      now.store_aligned(largest + c);
      for (std::int64_t e = 0; e < width; ++e)
        (Batch::load_aligned(sums + e * row + c) * shrink).store_aligned(sums + e * row + c);
    }
    const auto exponential = [&](T* at) TESSERA_INLINE_LAMBDA {
      const Batch p = simd::fading_exp<T>(Batch::load_aligned(at) - base);
      p.store_aligned(at);
      return p;
    };
    for (i = 0; i + 1 < keys; i += 2) {
      total = total + exponential(score(i));
      other = other + exponential(score(i + 1));
    }
    if (i < keys) total = total + exponential(score(i));
    (total + other).store_aligned(totals + c);
  }

  /// Divides the sums by the totals, and replaces the totals by logsumexp. A query without keys gets 0.
  void finish(std::int64_t c) const {
    using Batch = xsimd::batch<T>;
    constexpr std::int64_t row = attention_queries;
    const Batch total = Batch::load_aligned(totals + c), zero(T(0));
    const Batch inverse = xsimd::select(total == zero, zero, simd::divide<T>(Batch(T(1)), total));
    for (std::int64_t e = 0; e < width; ++e)
      (Batch::load_aligned(sums + e * row + c) * inverse).store_aligned(sums + e * row + c);
    (Batch::load_aligned(largest + c) + simd::log<T>(total)).store_aligned(totals + c);
  }
};

}  // namespace detail

/// softmax(q k^T) v for queries [first, first + count), count <= most_attention_queries, and the logsumexp of each row
/// of scores (`row_lse`, may be null), by tiles of keys with online softmax. Source: Milakov, Gimelshein, 1805.02867;
/// Dao et al., FlashAttention, 2205.14135.
///
/// All tiles are transposed, queries along lanes: maxima and sums need no shuffles, and keys and values are read
/// element by element. Results have stride 1 along the width.
template <class T>
void attend(const AttentionShape& shape, std::int64_t first, std::int64_t count, const HeadRows<const T>& q,
            const HeadRows<const T>& k, const HeadRows<const T>& v, const HeadRows<T>& out,
            const HeadRows<T>& row_lse) {
  constexpr auto lanes = static_cast<std::int64_t>(xsimd::batch<T>::size);
  constexpr std::int64_t row = attention_queries;
  const std::int64_t tiles = (count + row - 1) / row, state = (shape.width + shape.value_width + 2) * row;
  T* const states = thread_scratch<Scratch::attention, T>(
      static_cast<std::size_t>(tiles * state + (shape.width + shape.value_width + row) * attention_keys));
  T *const scores = states + tiles * state, *const k_room = scores + attention_keys * row,
           *const v_room = k_room + attention_keys * shape.width;
  struct QueryTile {
    std::int64_t first, count, registers;
    T* queries;
    detail::RunningSoftmax<T> softmax;
  };
  const auto tile_of = [&](std::int64_t t) {
    T *const queries = states + t * state, *const largest = queries + shape.width * row;
    const std::int64_t own = std::min(row, count - t * row);
    return QueryTile{first + t * row,
                     own,
                     (own + lanes - 1) / lanes,
                     queries,
                     {largest, largest + row, largest + 2 * row, shape.value_width}};
  };

  for (std::int64_t t = 0; t < tiles; ++t) {
    const QueryTile tile = tile_of(t);
    transpose_tile<T>(tile.queries, row, q.at(tile.first), q.row, q.col, tile.count, shape.width,
                      tile.registers * lanes, static_cast<T>(shape.scale));
    tile.softmax.clear();
  }
  const std::int64_t visible = shape.visible(first + count);
  for (std::int64_t key = first_tile(shape, first, 0); key < visible; key += attention_keys) {
    const std::int64_t end = std::min(key + attention_keys, visible), next = std::min(end + attention_keys, visible);
    const HeadRows<const T> own_k = detail::dense_rows<T>(k, key, end - key, shape.width, k_room);
    const HeadRows<const T> own_v = detail::dense_rows<T>(v, key, end - key, shape.value_width, v_room);
    detail::prefetch_rows<const T>(k, end, next, shape.width);
    detail::prefetch_rows<const T>(v, end, next, shape.value_width);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const QueryTile tile = tile_of(t);
      const std::int64_t keys = std::min(end, shape.visible(tile.first + tile.count)) - key;
      if (keys <= 0 || key < first_tile(shape, tile.first, 0)) continue;
      const KeySteps steps(shape, tile.first, tile.count, key, keys, lanes);
      detail::attention_scores<T>(scores, shape, steps, tile.first, tile.registers, key, own_k, tile.queries);
      for (std::int64_t c = 0; c < tile.registers * lanes; c += lanes)
        tile.softmax.take(scores, steps.keys_seen_at(c), c);
      for (int s = 0; s < steps.size; ++s) {
        const KeyStep& step = steps.steps[s];
        tile_product<T>(tile.softmax.sums + step.begin, row, {own_v.at(step.first), own_v.col, own_v.row},
                        scores + step.first * row + step.begin, row, shape.value_width,
                        tile.registers - step.begin / lanes, step.count, true);
      }
    }
  }

  for (std::int64_t t = 0; t < tiles; ++t) {
    const QueryTile tile = tile_of(t);
    for (std::int64_t c = 0; c < tile.registers * lanes; c += lanes) tile.softmax.finish(c);
    if (out.data != nullptr)
      transpose_tile<T>(out.at(tile.first), out.row, tile.softmax.sums, row, 1, shape.value_width, tile.count,
                        shape.value_width, T(1));
    for (std::int64_t i = 0; row_lse.data != nullptr && i < tile.count; ++i)
      *row_lse.at(tile.first + i) = tile.softmax.totals[i];
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
