#ifndef TESSERA_DATA_PERMUTATION_HPP
#define TESSERA_DATA_PERMUTATION_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/tensor/key.hpp>

namespace tessera::data {

/// A random order of 0, 1, ..., size - 1, which depends only on the key. Each element is computed without the others,
/// in half a microsecond for a million, so the order is not stored and an epoch can be resumed anywhere.
///
/// Each round of the swap-or-not shuffle pairs i with (offset - i) mod size, and a random bit of the pair decides
/// whether the two change places; after 6 log2(size) rounds all orders are nearly equally likely, for small sizes too.
/// Source: Hoang, Morris, Rogaway: An enciphering scheme based on a card shuffle. CRYPTO 2012.
class Permutation {
 public:
  Permutation() = default;
  /// Errors: `option` for a negative size.
  Permutation(Key key, std::int64_t size, Here at = Here::current()) : size_(static_cast<std::uint64_t>(size)) {
    if (size < 0) fail(errc::option, "[Permutation] size: ", size, " is negative", Source::from(at));
    if (size < 2) return;
    const int rounds = 6 * std::bit_width(size_ - 1) + 8;
    for (int round = 0; round < rounds; ++round) {
      const auto [offset, bits] = split<2>(fold_in(key, static_cast<std::uint64_t>(round)));
      rounds_.push_back({offset.seed % size_, bits.seed});
    }
  }

  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

  /// The element at a place from 0 to size() - 1.
  std::int64_t operator[](std::int64_t place) const {
    auto i = static_cast<std::uint64_t>(place);
    for (const Round& round : rounds_) {
      const std::uint64_t partner = round.offset >= i ? round.offset - i : round.offset + size_ - i;
      const std::uint64_t larger = i > partner ? i : partner;
      if (mixed(larger ^ round.bits) >> 63 != 0) i = partner;
    }
    return static_cast<std::int64_t>(i);
  }

 private:
  struct Round {
    std::uint64_t offset, bits;
  };

  /// The finalizer of SplitMix64, whose high bit depends on all bits of x.
  static constexpr std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
  }

  std::uint64_t size_ = 0;
  std::vector<Round> rounds_;
};

}  // namespace tessera::data

#include <tessera/base/pop_macros.hpp>

#endif
