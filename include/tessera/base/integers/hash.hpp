#ifndef TESSERA_BASE_INTEGERS_HASH_HPP
#define TESSERA_BASE_INTEGERS_HASH_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Mixes one more word into a hash. The order of words matters. Not resistant to adversarial input.
constexpr std::uint64_t hash_mix(std::uint64_t hash, std::uint64_t word) {
  hash ^= word + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 33);
}
constexpr std::uint64_t hash_mix(std::uint64_t hash, double value) {
  return hash_mix(hash, std::bit_cast<std::uint64_t>(value));
}
constexpr std::uint64_t hash_mix(std::uint64_t hash, std::string_view text) {
  for (char c : text) hash = hash_mix(hash, static_cast<std::uint64_t>(static_cast<unsigned char>(c)));
  return hash_mix(hash, static_cast<std::uint64_t>(text.size()));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
