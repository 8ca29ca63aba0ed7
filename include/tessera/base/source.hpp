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

  static constexpr Source from(std::source_location at) { return {at.file_name(), at.line()}; }

  /// Whether the line is the library's own: of a header in tessera/nn/, ops/, graph/ or parallel/, or of the single
  /// header.
  constexpr bool in_library() const {
    const std::string_view path(file);
    if (path.ends_with("tessera.hpp")) return true;
    int folders = 0;
    for (std::size_t i = path.size(); i > 8 && folders < 5; --i) {
      if (file[i - 1] != '/') continue;
      ++folders;
      if (path.substr(i - 8, 8) != "tessera/") continue;
      const std::string_view inside = path.substr(i);
      return inside.starts_with("nn/") || inside.starts_with("ops/") || inside.starts_with("graph/") ||
             inside.starts_with("parallel/");
    }
    return false;
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
