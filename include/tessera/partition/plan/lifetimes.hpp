#ifndef TESSERA_PARTITION_PLAN_LIFETIMES_HPP
#define TESSERA_PARTITION_PLAN_LIFETIMES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/integers/checked.hpp>
#include <tessera/base/planning.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera {

/// A block of memory that a plan needs from step `first` to step `last`, both included, and its offset in the arena.
struct Lifetime {
  std::int64_t bytes = 0;
  int first = 0;
  int last = 0;
  std::int64_t offset = 0;

  constexpr bool overlaps(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

namespace detail {

inline constexpr std::int64_t arena_alignment = 64;

constexpr std::int64_t arena_bytes(std::int64_t bytes) {
  return checked_sum(bytes, arena_alignment - 1, "bytes") / arena_alignment * arena_alignment;
}

/// Indices of the blocks, the largest first; blocks of equal size keep their order. A bottom-up merge sort, since
/// <algorithm> costs compile time.
constexpr Growable<int> by_decreasing_size(const Growable<Lifetime>& blocks) {
  const std::size_t n = blocks.size();
  Growable<int> order(n), merged(n);
  for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<int>(i);
  const auto bytes = [&](int i) { return blocks[static_cast<std::size_t>(i)].bytes; };
  for (std::size_t width = 1; width < n; width *= 2) {
    for (std::size_t begin = 0; begin < n; begin += 2 * width) {
      const std::size_t middle = begin + width < n ? begin + width : n;
      const std::size_t end = middle + width < n ? middle + width : n;
      std::size_t a = begin, b = middle;
      for (std::size_t k = begin; k < end; ++k)
        merged[k] = b == end || (a < middle && bytes(order[a]) >= bytes(order[b])) ? order[a++] : order[b++];
    }
    std::swap(order, merged);
  }
  return order;
}

}  // namespace detail

/// The most bytes needed at one step: a lower bound of the arena's size.
constexpr std::int64_t max_live_bytes(const Growable<Lifetime>& blocks) {
  int steps = 0;
  for (const Lifetime& block : blocks) steps = block.last >= steps ? block.last + 1 : steps;
  Growable<std::int64_t> change(static_cast<std::size_t>(steps) + 1);
  for (const Lifetime& block : blocks) {
    const std::int64_t bytes = detail::arena_bytes(block.bytes);
    std::int64_t &more = change[static_cast<std::size_t>(block.first)],
                 &less = change[static_cast<std::size_t>(block.last) + 1];
    more = checked_sum(more, bytes, "bytes of a device");
    less = checked_sum(less, -bytes, "bytes of a device");
  }
  std::int64_t live = 0, peak = 0;
  for (std::int64_t bytes : change) {
    live = checked_sum(live, bytes, "bytes of a device");
    peak = live > peak ? live : peak;
  }
  return peak;
}

/// Gives each block an offset, a multiple of 64 bytes, so that no two blocks needed at the same step overlap. Returns
/// the size of the arena in bytes. Best fit: the largest block first, each into the smallest gap that holds it.
constexpr std::int64_t assign_offsets(Growable<Lifetime>& blocks) {
  for (const Lifetime& block : blocks)
    if (block.bytes < 0 || block.first < 0 || block.last < block.first)
      fail(errc::graph_invalid, "[plan] lifetime: a block of ", block.bytes, " bytes is needed from step ", block.first,
           " to step ", block.last);
  std::int64_t peak = 0;
  Growable<int> placed;  // in ascending order of offsets
  placed.reserve(blocks.size());
  for (int index : detail::by_decreasing_size(blocks)) {
    Lifetime& block = blocks[static_cast<std::size_t>(index)];
    const std::int64_t bytes = detail::arena_bytes(block.bytes);
    block.offset = 0;
    if (bytes == 0) continue;
    std::int64_t end = 0, best = -1, best_gap = 0;
    for (int other_index : placed) {
      const Lifetime& other = blocks[static_cast<std::size_t>(other_index)];
      if (!block.overlaps(other)) continue;
      const std::int64_t gap = other.offset - end;
      if (gap >= bytes && (best < 0 || gap < best_gap)) {
        best = end;
        best_gap = gap;
      }
      const std::int64_t other_end = other.offset + detail::arena_bytes(other.bytes);
      end = other_end > end ? other_end : end;
    }
    block.offset = best < 0 ? end : best;
    const std::int64_t block_end = checked_sum(block.offset, bytes, "bytes of intermediates");
    peak = block_end > peak ? block_end : peak;
    std::size_t at = placed.size();
    placed.push_back(index);
    for (; at > 0 && blocks[static_cast<std::size_t>(placed[at - 1])].offset > block.offset; --at)
      placed[at] = placed[at - 1];
    placed[at] = index;
  }
  return peak;
}

}  // namespace tessera

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
