#ifndef TESSERA_GRAPH_FUSE_DEPENDENCIES_HPP
#define TESSERA_GRAPH_FUSE_DEPENDENCIES_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>

#include <tessera/base/error.hpp>
#include <tessera/base/growable.hpp>
#include <tessera/base/planning.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// The groups on which each group depends, directly or through other groups, as bit sets. Groups are numbered in the
/// order in which they are added; after a merge, one of the two groups is not part of the order any more. The number of
/// the newest group is given again after its merge: most nodes join the group of an operand at once, and sets are as
/// long as there are numbers. Compilers limit the statements and calls of a constant expression, but not its
/// expressions: hence one expression processes a chunk of words, and members access raw pointers.
class Dependencies {
 public:
  /// Capacity: `most` groups.
  constexpr explicit Dependencies(int most)
      : words_((static_cast<std::size_t>(most) / 64 / chunk + 1) * chunk),
        list_(words_ * static_cast<std::size_t>(most)), alive_list_(words_), read_list_(static_cast<std::size_t>(most)),
        sets_(list_.data()), alive_(alive_list_.data()), is_read_(read_list_.data()) {}
  Dependencies(const Dependencies&) = delete;
  Dependencies& operator=(const Dependencies&) = delete;

  constexpr int add() {
    alive_[count_ / 64] |= std::uint64_t{1} << (count_ % 64);
    return count_++;
  }
  /// The number of groups, including those that were merged into others and whose numbers were not given again.
  constexpr int count() const { return count_; }
  constexpr bool is_alive(int g) const { return (alive_[g / 64] >> (g % 64) & 1) != 0; }

  /// The set of groups on which group g depends: bit i % 64 of word i / 64 for group i. The sets of all groups follow
  /// each other, each of words() words.
  constexpr const std::uint64_t* of(int g) const { return sets_ + words_ * static_cast<std::size_t>(g); }
  constexpr std::size_t words() const { return words_; }
  constexpr bool reaches(int from, int to) const {
    return (sets_[words_ * static_cast<std::size_t>(from) + static_cast<std::size_t>(to) / 64] >> (to % 64) & 1) != 0;
  }

  constexpr void depend(int g, int other) {
    is_read_[other] = 1;
    sets_[words_ * static_cast<std::size_t>(g) + static_cast<std::size_t>(other) / 64] |= std::uint64_t{1}
                                                                                          << (other % 64);
    absorb(g, other);
  }

  /// Merges group `gone` into group `kept`.
  constexpr void merge(int kept, int gone) {
    const std::uint64_t kept_bit = std::uint64_t{1} << (kept % 64), gone_bit = std::uint64_t{1} << (gone % 64);
    alive_[gone / 64] &= ~gone_bit;
    // Groups that depend on one of the two now depend on both, and on everything on which these depend.
    const bool grows = is_read_[gone] != 0 || (is_read_[kept] != 0 && (!covers(kept, gone) || !covers(gone, kept)));
    absorb(kept, gone);
    if (grows) spread(kept, gone);
    if (is_read_[gone] != 0) is_read_[kept] = 1;
    std::uint64_t* const own = sets_ + words_ * static_cast<std::size_t>(kept);
    own[kept / 64] &= ~kept_bit;
    own[gone / 64] &= ~gone_bit;
    if (gone == count_ - 1 && is_read_[gone] == 0) remove_newest();
  }

  /// An order in which groups can run: always the first group whose dependencies have run.
  constexpr Growable<std::int32_t> order() const {
    Growable<std::int32_t> made;
    Growable<std::uint64_t> left(alive_list_);
    std::uint64_t* const waiting = left.data();
    const std::size_t words = used_words();
    made.reserve(static_cast<std::size_t>(count_));
    for (bool some = true; some;) {
      const std::size_t before = made.size();
      some = false;
      for (std::size_t w = 0; w < words; ++w)
        for (std::uint64_t groups = waiting[w]; groups != 0; groups &= groups - 1) {
          const int g = static_cast<int>(w * 64) + std::countr_zero(groups);
          if (waits(g, waiting, words)) {
            some = true;
            continue;
          }
          waiting[w] &= ~(std::uint64_t{1} << (g % 64));
          made.push_back(g);
        }
      if (some && made.size() == before)
        fail(errc::graph_invalid, "[group] order: fusion groups depend on each other in a cycle");
    }
    return made;
  }

 private:
  static constexpr std::size_t chunk = 8;  // words that one expression processes
  std::size_t words_;                      // of one set
  Growable<std::uint64_t> list_, alive_list_;
  Growable<std::uint8_t> read_list_;
  // Raw pointers, which cost no calls: a set for each group, the groups that exist, and whether another group depends
  // on each.
  std::uint64_t *sets_, *alive_;
  std::uint8_t* is_read_;
  int count_ = 0;

  /// The number of words of a set that are in use, a multiple of `chunk`.
  constexpr std::size_t used_words() const { return (static_cast<std::size_t>(count_) / 64 / chunk + 1) * chunk; }

  constexpr void remove_newest() {
    std::uint64_t* const own = sets_ + words_ * static_cast<std::size_t>(--count_);
    for (std::size_t w = 0; w * 64 <= static_cast<std::size_t>(count_); w += chunk)
      own[w] = own[w + 1] = own[w + 2] = own[w + 3] = own[w + 4] = own[w + 5] = own[w + 6] = own[w + 7] = 0;
  }
  constexpr void absorb(int from, int to) {
    std::uint64_t* const b = sets_ + words_ * static_cast<std::size_t>(from);
    const std::uint64_t* const m = sets_ + words_ * static_cast<std::size_t>(to);
    for (std::size_t w = 0; w * 64 <= static_cast<std::size_t>(count_); w += chunk)
      b[w] |= m[w], b[w + 1] |= m[w + 1], b[w + 2] |= m[w + 2], b[w + 3] |= m[w + 3], b[w + 4] |= m[w + 4],
          b[w + 5] |= m[w + 5], b[w + 6] |= m[w + 6], b[w + 7] |= m[w + 7];
  }
  /// Whether `from` depends on everything on which `to` depends, apart from the two groups themselves.
  constexpr bool covers(int from, int to) const {
    const std::uint64_t *const o = of(from), *const b = of(to);
    const std::size_t words = used_words();
    const std::size_t own_word = static_cast<std::size_t>(from) / 64;
    const std::uint64_t own_bit = std::uint64_t{1} << (from % 64);
    for (std::size_t w = 0; w < words; w += chunk)
      if (((b[w] & ~o[w]) | (b[w + 1] & ~o[w + 1]) | (b[w + 2] & ~o[w + 2]) | (b[w + 3] & ~o[w + 3]) |
           (b[w + 4] & ~o[w + 4]) | (b[w + 5] & ~o[w + 5]) | (b[w + 6] & ~o[w + 6]) | (b[w + 7] & ~o[w + 7])) != 0)
        for (std::size_t v = w; v < w + chunk; ++v)
          if ((b[v] & ~o[v] & ~(v == own_word ? own_bit : 0)) != 0) return false;
    return true;
  }
  constexpr void spread(int kept, int gone) {
    const std::uint64_t kept_bit = std::uint64_t{1} << (kept % 64), gone_bit = std::uint64_t{1} << (gone % 64);
    const std::size_t k = static_cast<std::size_t>(kept) / 64, g = static_cast<std::size_t>(gone) / 64, w = words_;
    for (int first = 0; first < count_; first += 4)
      if (const std::uint64_t* const r = of(first);
          first + 4 > count_ || (((r[k] | r[k + w] | r[k + 2 * w] | r[k + 3 * w]) & kept_bit) |
                                 ((r[g] | r[g + w] | r[g + 2 * w] | r[g + 3 * w]) & gone_bit)) != 0)
        for (int t = first; t < first + 4 && t < count_; ++t)
          if (t != kept && (alive_[t / 64] >> (t % 64) & 1) != 0 && (reaches(t, kept) || reaches(t, gone)))
            depend(t, kept);
  }
  constexpr bool waits(int g, const std::uint64_t* waiting, std::size_t words) const {
    const std::uint64_t *const n = of(g), *const l = waiting;
    for (std::size_t w = 0; w < words; w += chunk)
      if (((n[w] & l[w]) | (n[w + 1] & l[w + 1]) | (n[w + 2] & l[w + 2]) | (n[w + 3] & l[w + 3]) |
           (n[w + 4] & l[w + 4]) | (n[w + 5] & l[w + 5]) | (n[w + 6] & l[w + 6]) | (n[w + 7] & l[w + 7])) != 0)
        return true;
    return false;
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
