#ifndef TESSERA_BASE_SORT_DISTINCT_HPP
#define TESSERA_BASE_SORT_DISTINCT_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

// Ordinary functions, since each type and each comparison for which std::sort or std::stable_sort is instantiated is
// ten functions to compile. Whatever else is to be sorted is sorted as pairs of a key and an index, which also keeps
// the order of equal keys.

using SortedPair = std::pair<std::int64_t, std::int64_t>;

/// Sorts the items and leaves one of equal items.
inline void sort_distinct(Growable<SortedPair>& items) {
  std::sort(items.begin(), items.end());
  items.resize(static_cast<std::size_t>(std::unique(items.begin(), items.end()) - items.begin()));
}
inline void sort_distinct(Growable<std::int64_t>& items) {
  Growable<SortedPair> pairs;
  pairs.reserve(items.size());
  for (const std::int64_t item : items) pairs.push_back({item, 0});
  sort_distinct(pairs);
  items.clear();
  for (const SortedPair& pair : pairs) items.push_back(pair.first);
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
