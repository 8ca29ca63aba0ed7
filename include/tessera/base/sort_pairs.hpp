#ifndef TESSERA_BASE_SORT_PAIRS_HPP
#define TESSERA_BASE_SORT_PAIRS_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera {

/// A key, and the index of the value that has it. Sorting these instead of the values keeps equal keys in the order of
/// their indices, and std::sort, a dozen functions, is compiled for one type.
using KeyedIndex = std::pair<std::int64_t, std::int64_t>;

[[gnu::noinline]] inline void sort_pairs(std::vector<KeyedIndex>& pairs) { std::sort(pairs.begin(), pairs.end()); }

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
