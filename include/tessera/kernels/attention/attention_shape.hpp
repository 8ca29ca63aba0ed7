#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_SHAPE_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_SHAPE_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>

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
      steps[size++] = {first, own, behind & -lanes, key + first + own - 1 > position || key + first < begin_of_last};
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

#include <tessera/base/pop_macros.hpp>

#endif
