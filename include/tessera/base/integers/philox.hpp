#ifndef TESSERA_BASE_INTEGERS_PHILOX_HPP
#define TESSERA_BASE_INTEGERS_PHILOX_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>

namespace tessera::kernels {

/// The 128 random bits that Philox computes from one counter.
using PhiloxBlock = std::array<std::uint32_t, 4>;

namespace philox {
inline constexpr std::uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
inline constexpr std::uint32_t weyl[2] = {0x9E3779B9u, 0xBB67AE85u};
inline constexpr int rounds = 10;
}  // namespace philox

/// Philox4x32-10, a bijection of 128-bit counters for every 64-bit key.
/// Source: Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
constexpr PhiloxBlock philox4x32(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < philox::rounds; ++round) {
    const std::uint64_t first = std::uint64_t{philox::multiplier[0]} * counter[0];
    const std::uint64_t second = std::uint64_t{philox::multiplier[1]} * counter[2];
    counter = {static_cast<std::uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(second),
               static_cast<std::uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(first)};
    key[0] += philox::weyl[0];
    key[1] += philox::weyl[1];
  }
  return counter;
}

/// A key derived from `key` and `n` (a training step, a layer, a parameter), as jax.random.fold_in.
constexpr std::uint64_t fold_in(std::uint64_t key, std::uint64_t n) {
  // The last counter word is 1 here and 0 for elements, so that keys and elements never share a counter.
  const PhiloxBlock block = philox4x32({static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32), 0, 1},
                                       {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
  return std::uint64_t{block[1]} << 32 | block[0];
}

/// What split folds into a key first, so that its keys differ from those of fold_in: "split" in ASCII.
inline constexpr std::uint64_t split_stream = 0x73706c6974ull;

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
