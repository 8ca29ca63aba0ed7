#ifndef TESSERA_BASE_NAME_PATTERN_HPP
#define TESSERA_BASE_NAME_PATTERN_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
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

/// Some layers of a tensor of a Stack, from `first` to `last`: see selected_layers.
struct LayerRange {
  int dim = -1;  ///< the dim of the traced tensor that counts these layers; -1: the pattern selects no layers
  std::int64_t first = 0, last = 0;
};

namespace detail {

/// Calls f(begin, end) for the parts of a name between its dots, until one call returns true.
template <class F> constexpr bool any_part(std::string_view name, F&& f) {
  for (std::size_t begin = 0; begin <= name.size();) {
    std::size_t end = name.find('.', begin);
    if (end == std::string_view::npos) end = name.size();
    if (f(begin, end)) return true;
    begin = end + 1;
  }
  return false;
}
/// Reads a number of up to 9 digits at the begin of a text, and removes it; -1 if there is none.
constexpr std::int64_t take_number(std::string_view& text) {
  std::int64_t number = -1;
  for (int digits = 0; digits < 9 && !text.empty() && text[0] >= '0' && text[0] <= '9'; ++digits) {
    number = (number < 0 ? 0 : number * 10) + (text[0] - '0');
    text.remove_prefix(1);
  }
  return number;
}
/// A part of a pattern that is the number of a layer or a range: "3", "0-5".
constexpr bool is_layer_range(std::string_view part, LayerRange& range) {
  range.first = range.last = take_number(part);
  if (range.first >= 0 && part.size() > 1 && part[0] == '-') {
    part.remove_prefix(1);
    range.last = take_number(part);
  }
  return part.empty() && range.first >= 0 && range.last >= range.first;
}

}  // namespace detail

/// Whether a part of a pattern is the number of a layer or a range.
constexpr bool has_layer_range(std::string_view pattern) {
  return detail::any_part(pattern, [&](std::size_t from, std::size_t to) {
    LayerRange range;
    return detail::is_layer_range(pattern.substr(from, to - from), range);
  });
}
/// The layers that a pattern selects of a tensor of a Stack: `blocks.3.*` and `blocks.0-5.*`, both ends included,
/// select layers of "blocks.*.mlp.up.weight", the name of the tensor of all layers.
constexpr LayerRange selected_layers(std::string_view name, std::string_view pattern) {
  LayerRange range;
  int dim = 0;
  detail::any_part(name, [&](std::size_t begin, std::size_t end) {
    if (name.substr(begin, end - begin) != "*") return false;
    const bool selected = detail::any_part(pattern, [&](std::size_t from, std::size_t to) {
      return detail::is_layer_range(pattern.substr(from, to - from), range) &&
             matches_pattern(name.substr(0, begin), pattern.substr(0, from)) &&
             matches_pattern(name.substr(end), pattern.substr(to));
    });
    if (selected) range.dim = dim;
    ++dim;
    return selected;
  });
  return range;
}
/// Whether a pattern with a range matches a name with a number: `blocks.0-5.*` matches "blocks.3.mlp.up.weight".
constexpr bool matches_in_range(std::string_view name, std::string_view pattern) {
  return detail::any_part(name, [&](std::size_t begin, std::size_t end) {
    std::string_view digits = name.substr(begin, end - begin);
    const std::int64_t layer = detail::take_number(digits);
    return layer >= 0 && digits.empty() && detail::any_part(pattern, [&](std::size_t from, std::size_t to) {
             LayerRange range;
             return detail::is_layer_range(pattern.substr(from, to - from), range) && range.first <= layer &&
                    layer <= range.last && matches_pattern(name.substr(0, begin), pattern.substr(0, from)) &&
                    matches_pattern(name.substr(end), pattern.substr(to));
           });
  });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
