#ifndef TESSERA_BASE_SOURCE_HPP
#define TESSERA_BASE_SOURCE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>

#include <tessera/base/planning.hpp>

namespace tessera {

/// The user's line that a node, a collective or an error comes from. As part of a message it reads " at train.cpp:41";
/// it is empty where the line is unknown.
struct Source {
  const char* file = "";
  std::uint32_t line = 0;
  /// The function of the library that the line calls, or the header of its layer, if an error of one of its operations
  /// should name it.
  const char* inside = nullptr;

  static constexpr Source from(std::source_location at) { return {at.file_name(), at.line()}; }

  /// Whether the line is the library's own: of a header in tessera/nn/, ops/, graph/, parallel/ or distributions/, or
  /// of the single header.
  constexpr bool in_library() const {
    // Each step counts: programs are traced in constant expressions, and of most lines the last letters decide.
    const char* at = file + __builtin_strlen(file);
    if (at - file < 12 || at[-1] != 'p' || at[-3] != 'h') return false;
    if (__builtin_memcmp(at - 12, "/tessera.hpp", 12) == 0) return true;
    for (const char* const begin = file + 8; at > begin;)
      if (*--at == '/' && __builtin_memcmp(at - 8, "/tessera", 8) == 0)
        return __builtin_strncmp(at, "/nn/", 4) == 0 || __builtin_strncmp(at, "/ops/", 5) == 0 ||
               __builtin_strncmp(at, "/graph/", 7) == 0 || __builtin_strncmp(at, "/parallel/", 10) == 0 ||
               __builtin_strncmp(at, "/distributions/", 15) == 0;
    return false;
  }

  /// "cross_entropy", of .../nn/moe.hpp "moe"; empty when the line calls the operation itself, and of headers that
  /// don't have the name of a layer, such as the single header.
  TESSERA_PLANNING std::string_view function() const {
    std::string_view name(inside == nullptr ? "" : inside);
    if (const auto slash = name.rfind('/'); slash != name.npos) {
      if (name.find("/nn/") == name.npos) return {};
      name.remove_prefix(slash + 1);
    }
    return name.substr(0, name.find('.'));
  }

  /// "train.cpp:41"; empty when unknown.
  TESSERA_PLANNING std::string text() const {
    if (line == 0) return {};
    std::string_view path(file);
    if (auto slash = path.rfind('/'); slash != std::string_view::npos) path.remove_prefix(slash + 1);
    return std::string(path) + ":" + std::to_string(line);
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
