#ifndef TESSERA_MESH_TEXT_READER_HPP
#define TESSERA_MESH_TEXT_READER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/planning.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Whether `c` may be in an axis name: separators of the text forms of meshes and specs may not.
constexpr bool is_name_char(char c) {
  return static_cast<unsigned char>(c) > ' ' && std::string_view("{}()[]=,;*'\"").find(c) == std::string_view::npos;
}

/// The length of a suffix ":(12)34", with which the name of a sub-axis ends; 0 for any other text.
constexpr std::size_t sub_axis_suffix(std::string_view text) {
  if (!text.starts_with(":(")) return 0;
  const auto digits = [&](std::size_t from) {
    while (from < text.size() && text[from] >= '0' && text[from] <= '9') ++from;
    return from;
  };
  const std::size_t before = digits(2);
  if (before == 2 || before == text.size() || text[before] != ')') return 0;
  const std::size_t end = digits(before + 1);
  return end == before + 1 ? 0 : end;
}
/// The position of a sub-axis suffix in a name; the size of the name where there is none.
constexpr std::size_t sub_axis_at(std::string_view name) {
  std::size_t colon = 0;  // g++ 12 can't evaluate find() in some constants
  while (colon < name.size() && !(name[colon] == ':' && colon + 1 < name.size() && name[colon + 1] == '(')) ++colon;
  const bool has_suffix = colon > 0 && sub_axis_suffix(name.substr(colon)) == name.size() - colon;
  return has_suffix ? colon : name.size();
}

/// Whether a text can be an axis name. "-" can't: it stands for a dim that is not split.
constexpr bool is_axis_name(std::string_view whole) {
  const std::string_view name = whole.substr(0, sub_axis_at(whole));
  for (char c : name)
    if (!is_name_char(c)) return false;
  return !name.empty() && name != "-";
}

/// The index that a name of digits stands for; -1 for any other name.
constexpr int index_of_digits(std::string_view name) {
  int index = 0;
  for (char c : name) {
    if (c < '0' || c > '9' || index > 9999) return -1;
    index = index * 10 + (c - '0');
  }
  return name.empty() ? -1 : index;
}
constexpr Name name_of_index(int index) {
  char digits[Name::max_length]{};
  std::size_t begin = sizeof(digits);
  do {
    digits[--begin] = static_cast<char>('0' + index % 10);
    index /= 10;
  } while (index > 0);
  return Name(std::string_view(digits + begin, sizeof(digits) - begin));
}

/// "x:(before)size", the name of a sub-axis of x.
constexpr Name name_of_sub_axis(std::string_view axis, std::int64_t before, std::int64_t size) {
  char text[64]{};
  std::size_t at = 0;
  const auto add = [&](std::string_view piece) {
    for (std::size_t i = 0; i < piece.size() && at < 64; ++i) text[at++] = piece[i];
  };
  add(axis);
  add(":(");
  add(name_of_index(static_cast<int>(before)).view());
  add(")");
  add(name_of_index(static_cast<int>(size)).view());
  return Name(std::string_view(text, at));
}

/// Reads a short text from left to right. Each step skips spaces, and consumes nothing where it does not match.
struct TextReader {
  std::string_view rest;

  constexpr void skip_spaces() {
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  }
  constexpr bool done() {
    skip_spaces();
    return rest.empty();
  }
  constexpr bool take(std::string_view word) {
    skip_spaces();
    if (!rest.starts_with(word)) return false;
    rest.remove_prefix(word.size());
    return true;
  }
  /// Reads a decimal number of 32 bits, with an optional minus.
  constexpr bool take(std::int32_t& value) {
    skip_spaces();
    std::size_t at = rest.starts_with('-') ? 1 : 0;
    const bool negative = at == 1;
    std::int64_t number = 0;
    const std::size_t first = at;
    for (; at < rest.size() && rest[at] >= '0' && rest[at] <= '9'; ++at) {
      number = number * 10 + (rest[at] - '0');
      if (number > INT32_MAX) return false;
    }
    if (at == first) return false;
    rest.remove_prefix(at);
    value = static_cast<std::int32_t>(negative ? -number : number);
    return true;
  }
  /// Reads the longest run of name characters; empty if there is none.
  constexpr std::string_view take_name() {
    skip_spaces();
    std::size_t n = 0;
    while (n < rest.size() && is_name_char(rest[n])) ++n;
    if (n > 1 && rest[n - 1] == ':' && sub_axis_suffix(rest.substr(n - 1)) > 0)
      n += sub_axis_suffix(rest.substr(n - 1)) - 1;
    const std::string_view name = rest.substr(0, n);
    rest.remove_prefix(n);
    return name;
  }
};

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
