#ifndef TESSERA_TENSOR_KEY_HPP
#define TESSERA_TENSOR_KEY_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/integers/philox.hpp>
#include <tessera/base/source.hpp>

namespace tessera {

/// The key of a counter-based random number generator, as in jax.random. It has no state: the same key gives the same
/// random numbers, so derive a new key for each use with `fold_in` or `split`.
///
///     auto [up, down] = ts::split<2>(ts::Key{42});
///     auto w = ts::normal<float>(up, {64, 256}, mesh, {ts::none, "model"});
struct Key {
  std::uint64_t seed = 0;

  constexpr Key() = default;
  constexpr explicit Key(std::uint64_t from) : seed(from) {}
  friend constexpr bool operator==(const Key&, const Key&) = default;
};

/// A key that depends on `key` and n. Keys for different n, such as the number of a layer or a step, are independent.
constexpr Key fold_in(Key key, std::uint64_t n) { return Key(kernels::fold_in(key.seed, n)); }

/// N independent keys, which are also independent of the keys from fold_in.
template <std::size_t N> constexpr std::array<Key, N> split(Key key) {
  std::array<Key, N> keys;
  // Without this step split(key)[1] would equal fold_in(key, 1).
  const Key stream = fold_in(key, kernels::split_stream);
  for (std::size_t i = 0; i < N; ++i) keys[i] = fold_in(stream, i);
  return keys;
}
/// `count` such keys, where the number is known only when the program runs; those of split<N> come first. On the host.
/// Errors: option for a count below 0.
inline std::vector<Key> split(Key key, std::int64_t count, Here at = Here::current()) {
  if (count < 0) fail(errc::option, "[split] count: ", count, " is below 0", Source::from(at));
  std::vector<Key> keys;
  const Key stream = fold_in(key, kernels::split_stream);
  for (std::int64_t i = 0; i < count; ++i) keys.push_back(fold_in(stream, static_cast<std::uint64_t>(i)));
  return keys;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
