#ifndef TESSERA_OPS_SHARD_MAP_AXIS_TEXT_HPP
#define TESSERA_OPS_SHARD_MAP_AXIS_TEXT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>

#include <tessera/base/fixed_string.hpp>

namespace tessera::detail {

/// The text of a shard_map in which each @ is replaced by the name of an axis.
template <FixedString Text, FixedString Axis> consteval auto with_axis() {
  constexpr std::size_t size = [] {
    std::size_t n = 1;
    for (char c : Text.view()) n += c == '@' ? Axis.view().size() : 1;
    return n;
  }();
  char made[size]{};
  std::size_t at = 0;
  for (char c : Text.view()) {
    if (c != '@') {
      made[at++] = c;
      continue;
    }
    for (char letter : Axis.view()) made[at++] = letter;
  }
  return FixedString<size>(made);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
