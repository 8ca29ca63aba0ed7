#ifndef TESSERA_DATA_JSON_READER_HPP
#define TESSERA_DATA_JSON_READER_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/compiled.hpp>

#if TESSERA_HAS_DEFINITIONS
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>

namespace tessera::detail {

/// Reads JSON of objects, texts, whole numbers and arrays of whole numbers, and passes over other values. Errors:
/// `file` with the operation, the name of the file, and what is wrong.
struct JsonReader {
  std::string_view rest;
  std::string_view operation;
  std::string_view name;
  Here at;

  [[noreturn]] void refuse(std::string_view why) const {
    fail(errc::file, "[", operation, "] ", name, ": ", why, Source::from(at));
  }
  bool take(char c) {
    const std::size_t begin = rest.find_first_not_of(" \t\r\n");
    if (begin == rest.npos || rest[begin] != c) return false;
    rest.remove_prefix(begin + 1);
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(concat_text("is not the expected JSON: ", std::string_view(&c, 1), " is missing"));
  }
  /// Calls f with each key of an object; f reads the value.
  template <class F> void object(F&& f) {
    expect('{');
    if (take('}')) return;
    do {
      const std::string key = text();
      expect(':');
      f(key);
    } while (take(','));
    expect('}');
  }
  std::string text() {
    expect('"');
    std::string made;
    while (!rest.empty() && rest[0] != '"') {
      char c = rest[0];
      rest.remove_prefix(1);
      if (c != '\\') {
        made += c;
        continue;
      }
      if (rest.empty()) break;
      c = rest[0];
      rest.remove_prefix(1);
      constexpr std::string_view letters = "bfnrt", meanings = "\b\f\n\r\t";
      if (c == 'u')
        add_code_point(made);
      else if (const std::size_t letter = letters.find(c); letter != letters.npos)
        made += meanings[letter];
      else if (c == '"' || c == '\\' || c == '/')
        made += c;
      else
        refuse("has an unknown escape in a text");
    }
    expect('"');
    return made;
  }
  std::int64_t number() {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    std::int64_t made = 0;
    std::size_t digits = 0;
    while (digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9') {
      if (digits == 18) refuse("has a number of more than 18 digits");
      made = 10 * made + (rest[digits++] - '0');
    }
    if (digits == 0) refuse("is not the expected JSON: a whole number is missing");
    rest.remove_prefix(digits);
    return made;
  }
  template <class F> void array(F&& f) {
    expect('[');
    if (take(']')) return;
    do f(number());
    while (take(','));
    expect(']');
  }

  /// Passes over a value of any kind. Nested more than 100 deep it is refused.
  void skip(int depth = 0) {
    if (depth > 100) refuse("has values nested more than 100 deep");
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t\r\n"), rest.size()));
    if (take('{')) {
      if (take('}')) return;
      do {
        (void)text();
        expect(':');
        skip(depth + 1);
      } while (take(','));
      return expect('}');
    }
    if (take('[')) {
      if (take(']')) return;
      do skip(depth + 1);
      while (take(','));
      return expect(']');
    }
    if (rest.starts_with('"')) {
      (void)text();
      return;
    }
    const std::size_t length = std::min(rest.find_first_of(",]} \t\r\n"), rest.size());
    if (length == 0) refuse("is not the expected JSON: a value is missing");
    rest.remove_prefix(length);
  }
  /// Refuses what follows the last value.
  void end() const {
    if (rest.find_first_not_of(" \t\r\n") != rest.npos) refuse("has text behind its JSON");
  }

 private:
  unsigned four_digits() {
    unsigned made = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = rest.empty() ? ' ' : rest[0];
      const unsigned digit = c >= '0' && c <= '9'   ? static_cast<unsigned>(c - '0')
                             : c >= 'a' && c <= 'f' ? static_cast<unsigned>(c - 'a') + 10
                             : c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10
                                                    : 16;
      if (digit == 16) refuse("has an unknown escape in a text");
      made = 16 * made + digit;
      rest.remove_prefix(1);
    }
    return made;
  }
  /// \u00e4, or \ud83d\ude00 for a code point beyond 16 bits, as UTF-8.
  void add_code_point(std::string& made) {
    unsigned code = four_digits();
    if (code >= 0xd800 && code < 0xe000) {
      if (code >= 0xdc00 || !rest.starts_with("\\u")) refuse("has half a pair of surrogates");
      rest.remove_prefix(2);
      const unsigned low = four_digits();
      if (low < 0xdc00 || low >= 0xe000) refuse("has half a pair of surrogates");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    const int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    constexpr unsigned first[] = {0, 0xc0, 0xe0, 0xf0};
    made += static_cast<char>(first[more] | code >> (6 * more));
    for (int i = more - 1; i >= 0; --i) made += static_cast<char>(0x80 | (code >> (6 * i) & 0x3f));
  }
};

}  // namespace tessera::detail
#endif

#include <tessera/base/pop_macros.hpp>

#endif
