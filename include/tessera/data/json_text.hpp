#ifndef TESSERA_DATA_JSON_TEXT_HPP
#define TESSERA_DATA_JSON_TEXT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdio>
#include <string>
#include <string_view>

namespace tessera::detail {

/// A text as JSON has it: in quotes, with control characters, quotes and backslashes escaped.
inline std::string json_text(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      made += escape;
      continue;
    }
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + '"';
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
