#ifndef TESSERA_BASE_NAME_PATTERN_HPP
#define TESSERA_BASE_NAME_PATTERN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <string_view>

namespace tessera {

/// Whether a whole name matches a pattern, in which `*` stands for any characters, dots too, and `?` for one character:
/// "blocks.3.mlp.up.weight" matches "blocks.*.weight" and "*.weight".
constexpr bool matches_pattern(std::string_view name, std::string_view pattern) {
  std::size_t n = 0, p = 0, star = pattern.size(), taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == name[n] || pattern[p] == '?')) {
      ++n, ++p;
    } else if (star < pattern.size()) {  // the last * takes one character more
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
