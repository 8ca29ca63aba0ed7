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

/// A gradient of rows of keys or values, of which one tile at a time is added to: the rows of the result themselves, if
/// they are whole registers, otherwise a copy.
template <class T> struct GradientTile {
  HeadRows<T> result;
  T* room = nullptr;
  std::int64_t columns = 0, padded = 0;

  bool wanted() const { return result.data != nullptr; }
  bool in_place() const { return padded == columns; }
  std::int64_t stride() const { return in_place() ? result.row : padded; }
  void clear(std::int64_t first, std::int64_t end) const {
    for (std::int64_t i = first; wanted() && i < end; ++i) std::fill(result.at(i), result.at(i) + columns, T(0));
  }
  /// The sums of rows [first, end), with row stride stride(). Those of rows from `begun` on are zeros.
  T* open(std::int64_t first, std::int64_t end, std::int64_t begun) const {
    if (!wanted()) return nullptr;
    const std::int64_t old = std::clamp(begun, first, end);
    if (in_place()) {
      clear(old, end);
      return result.at(first);
    }
    pack_rows<T>(room, padded, {result.data, result.row, 1}, first, old - first, columns);
    std::fill(room + (old - first) * padded, room + (end - first) * padded, T(0));
    return room;
  }
  void close(std::int64_t first, std::int64_t end) const {
    for (std::int64_t i = first; wanted() && !in_place() && i < end; ++i)
      std::memcpy(result.at(i), room + (i - first) * padded, static_cast<std::size_t>(columns) * sizeof(T));
  }
};

/// What attend_gradient() computes, in its phases. Queries are taken in groups of most_attention_queries, whose tiles
/// stay in the L2 cache while the keys and values pass by.
template <class T> class GradientOfHead {
 public:
  GradientOfHead(const AttentionShape& shape, const AttentionGradient<T>& g, std::int64_t first_key,
                 std::int64_t end_key, CpuLevel level)
      : kernels_(attention_kernels<T>(level)), shape_(shape), g_(g), first_key_(first_key), end_key_(end_key),
        q_row_(whole_vectors(shape.width)), v_row_(whole_vectors(shape.value_width)) {
    const std::int64_t most_tiles = most_attention_queries / row;
    T* next = thread_scratch<Scratch::attention, T>(
        static_cast<std::size_t>(most_tiles * tile_size() + (shape.value_width + 2 * attention_keys) * row +
                                 (shape.width + shape.value_width + q_row_ + v_row_) * attention_keys));
    const auto take = [&](std::int64_t count) {
      T* taken = next;
      next += count;
      return taken;
    };
    tiles_ = take(most_tiles * tile_size());
    outputs_ = take(shape.value_width * row);
    weights_ = take(attention_keys * row);
    slopes_ = take(attention_keys * row);
    k_room_ = take(attention_keys * shape.width);
    v_room_ = take(attention_keys * shape.value_width);
    k_tile_ = {g.k_gradient, take(attention_keys * q_row_), shape.width, q_row_};
    v_tile_ = {g.v_gradient, take(attention_keys * v_row_), shape.value_width, v_row_};
  }

  void run() const {
    std::int64_t begun = first_key_;  // sums of keys from here on have no terms yet
    for (std::int64_t group = 0; group < shape_.queries; group += most_attention_queries) {
      const std::int64_t end = std::min(group + most_attention_queries, shape_.queries),
                         tiles = (end - group + row - 1) / row;
      for (std::int64_t t = 0; t < tiles; ++t) load(tile_of(group, end, t));
      const std::int64_t first = first_tile(shape_, group, first_key_),
                         visible = std::min(shape_.visible(end), end_key_);
      clear(begun, std::min(first, end_key_));
      add_keys(group, end, tiles, first, visible, begun);
      begun = std::max({begun, std::min(first, end_key_), visible});
      for (std::int64_t t = 0; wants_q() && t < tiles; ++t) {
        const QueryTile tile = tile_of(group, end, t);
        transpose_tile<T>(kernels_, g_.q_gradient.at(tile.first), g_.q_gradient.row, tile.sums, row, 1, shape_.width,
                          tile.count, shape_.width, T(1));
      }
    }
    clear(begun, end_key_);
  }

 private:
  static constexpr std::int64_t row = attention_queries;

  /// A tile of queries. Columns are queries in `queries`, `cotangents` and `sums`, rows in `query_rows` and
  /// `cotangent_rows`.
  struct QueryTile {
    std::int64_t first, count, columns, visible;
    T *queries, *cotangents, *sums, *query_rows, *cotangent_rows, *logarithms, *products;
  };
  /// Keys [first, end) with their values, and the sums of their gradients.
  struct KeyTile {
    std::int64_t first, end;
    HeadRows<const T> k, v;
    T *k_sums, *v_sums;
  };

  void clear(std::int64_t first, std::int64_t end) const {
    k_tile_.clear(first, end);
    v_tile_.clear(first, end);
  }
  std::int64_t whole_vectors(std::int64_t count) const { return (count + kernels_.lanes - 1) & -kernels_.lanes; }
  bool wants_q() const { return g_.q_gradient.data != nullptr; }
  std::int64_t tile_size() const { return (2 * shape_.width + shape_.value_width + q_row_ + v_row_ + 2) * row; }

  /// Tile t of the queries [group, end).
  QueryTile tile_of(std::int64_t group, std::int64_t end, std::int64_t t) const {
    QueryTile tile;
    tile.first = group + t * row;
    tile.count = std::min(row, end - tile.first);
    tile.columns = whole_vectors(tile.count);
    tile.visible = std::min(shape_.visible(tile.first + tile.count), end_key_);
    tile.queries = tiles_ + t * tile_size();
    tile.cotangents = tile.queries + shape_.width * row;
    tile.sums = tile.cotangents + shape_.value_width * row;
    tile.query_rows = tile.sums + shape_.width * row;
    tile.cotangent_rows = tile.query_rows + q_row_ * row;
    tile.logarithms = tile.cotangent_rows + v_row_ * row;
    tile.products = tile.logarithms + row;
    return tile;
  }

  /// Fills a tile: scaled queries and cotangents, the products of cotangents and outputs, the logarithms of the sums.
  void load(const QueryTile& tile) const {
    const std::int64_t first = tile.first, count = tile.count, columns = tile.columns;
    if (wants_q()) std::fill(tile.sums, tile.sums + shape_.width * row, T(0));
    if (tile.visible <= first_key_) return;
    const T scale = static_cast<T>(shape_.scale);
    const std::int64_t value_width = shape_.value_width;
    const auto transpose = [&](T* to, const HeadRows<const T>& from, std::int64_t width, T factor) {
      transpose_tile<T>(kernels_, to, row, from.at(first), from.row, from.col, count, width, columns, factor);
    };
    transpose(tile.queries, g_.q, shape_.width, scale);
    transpose(tile.cotangents, g_.cotangent, value_width, scale);
    transpose(outputs_, g_.out, value_width, T(1));
    if (k_tile_.wanted()) pack_rows<T>(tile.query_rows, q_row_, g_.q, first, count, shape_.width);
    if (v_tile_.wanted()) pack_rows<T>(tile.cotangent_rows, v_row_, g_.cotangent, first, count, value_width);
    kernels_.column_products(tile.products, tile.cotangents, outputs_, value_width, columns);
    // A query without keys has logarithm -inf: its weights are 0.
    for (std::int64_t i = 0; i < columns; ++i)
      tile.logarithms[i] = i < count ? std::max(*g_.row_lse.at(first + i), static_cast<T>(least_score)) : T(0);
  }

  /// Adds the contributions of the keys [first, visible) that the queries [group, group_end), in so many tiles, see.
  void add_keys(std::int64_t group, std::int64_t group_end, std::int64_t tiles, std::int64_t first,
                std::int64_t visible, std::int64_t begun) const {
    for (std::int64_t key = first; key < visible; key += attention_keys) {
      const std::int64_t end = std::min(key + attention_keys, visible), count = end - key;
      const KeyTile keys{key,
                         end,
                         dense_rows<T>(kernels_, g_.k, key, count, shape_.width, k_room_),
                         dense_rows<T>(kernels_, g_.v, key, count, shape_.value_width, v_room_),
                         k_tile_.open(key, end, begun),
                         v_tile_.open(key, end, begun)};
      const std::int64_t ahead = std::min(end + attention_keys, visible);
      prefetch_rows<const T>(g_.k, end, ahead, shape_.width);
      prefetch_rows<const T>(g_.v, end, ahead, shape_.value_width);
      if (k_tile_.wanted()) prefetch_rows<T>(g_.k_gradient, end, ahead, shape_.width);
      if (v_tile_.wanted()) prefetch_rows<T>(g_.v_gradient, end, ahead, shape_.value_width);
      for (std::int64_t t = 0; t < tiles; ++t) {
        const QueryTile tile = tile_of(group, group_end, t);
        const std::int64_t seen = std::min(end, tile.visible) - key;
        if (seen <= 0 || key < first_tile(shape_, tile.first, first_key_)) continue;
        const KeySteps steps(shape_, tile.first, tile.count, key, seen, kernels_.lanes);
        attention_scores<T>(kernels_, weights_, shape_, steps, tile.first, tile.columns, key, keys.k, tile.queries);
        for (int s = 0; s < steps.size; ++s) find_slopes(steps.steps[s], keys, tile);
        for (int s = 0; s < steps.size; ++s) add_products(steps.steps[s], keys, tile);
      }
      k_tile_.close(key, end);
      v_tile_.close(key, end);
    }
  }

  /// Replaces scores by softmax weights, and finds the gradients of the scores.
  void find_slopes(const KeyStep& step, const KeyTile& keys, const QueryTile& tile) const {
    const std::int64_t at = step.first * row + step.begin, columns = tile.columns - step.begin;
    kernels_.multiply(slopes_ + at, row, {keys.v.at(step.first), keys.v.row, keys.v.col}, tile.cotangents + step.begin,
                      row, step.count, columns, shape_.value_width, false);
    kernels_.find_slopes({weights_ + at, slopes_ + at, tile.logarithms + step.begin, tile.products + step.begin, T(1)},
                         step.count, columns);
  }

  /// Adds to the gradients of values, keys and queries the products of weights and slopes.
  void add_products(const KeyStep& step, const KeyTile& keys, const QueryTile& tile) const {
    const std::int64_t at = step.first * row + step.begin, depth = tile.count - step.begin;
    if (v_tile_.wanted())
      kernels_.multiply(keys.v_sums + step.first * v_tile_.stride(), v_tile_.stride(), {weights_ + at, row, 1},
                        tile.cotangent_rows + step.begin * v_row_, v_row_, step.count, v_row_, depth, true);
    if (k_tile_.wanted())
      kernels_.multiply(keys.k_sums + step.first * k_tile_.stride(), k_tile_.stride(), {slopes_ + at, row, 1},
                        tile.query_rows + step.begin * q_row_, q_row_, step.count, q_row_, depth, true);
    if (wants_q())
      kernels_.multiply(tile.sums + step.begin, row, {keys.k.at(step.first), keys.k.col, keys.k.row}, slopes_ + at, row,
                        shape_.width, tile.columns - step.begin, step.count, true);
  }

  const AttentionKernels<T>& kernels_;
  const AttentionShape& shape_;
  const AttentionGradient<T>& g_;
  std::int64_t first_key_, end_key_, q_row_, v_row_;
  T *tiles_ = nullptr, *outputs_ = nullptr, *weights_ = nullptr, *slopes_ = nullptr, *k_room_ = nullptr,
    *v_room_ = nullptr;
  GradientTile<T> k_tile_, v_tile_;
};

}  // namespace detail

/// Gradients with respect to keys [first_key, end_key) and their values, and the contribution of these keys to the
/// gradient with respect to all queries. Softmax weights are recomputed tile by tile from row_lse of the forward pass,
/// with five products per tile. The order of the tiles is fixed, so that results are reproducible. Keys and values are
/// read once for most_attention_queries.
template <class T>
void attend_gradient(const AttentionShape& shape, const AttentionGradient<T>& g, std::int64_t first_key,
                     std::int64_t end_key, CpuLevel level = cpu_level()) {
  detail::GradientOfHead<T>(shape, g, first_key, end_key, level).run();
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
