#ifndef TESSERA_BASE_FIXED_STRING_HPP
#define TESSERA_BASE_FIXED_STRING_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>

namespace tessera {

/// A string literal as a template argument: `einsum<"bik,kj->bij">(x, w)`.
template <std::size_t N> struct FixedString {
  char text[N]{};
  consteval FixedString(const char (&literal)[N]) {
    for (std::size_t i = 0; i < N; ++i) text[i] = literal[i];
  }
  constexpr std::string_view view() const { return {text, N - 1}; }
};

namespace detail {
/// Tests whether an expression is constant: `requires { typename Constant<f()>; }`.
template <auto> struct Constant {};
}  // namespace detail

/// A short name held by value, for mesh axes: usable in constant expressions and as a template argument.
struct Name {
  static constexpr std::size_t max_length = 15;
  char text[max_length + 1]{};

  constexpr Name() = default;
  constexpr Name(std::string_view from) {
    check_length(from);
    for (std::size_t i = 0; i < from.size(); ++i) text[i] = from[i];
  }
  constexpr Name(const char* from) : Name(std::string_view(from)) {}

  static constexpr void check_length(std::string_view name, Source source = {}) {
    if (name.size() > max_length)
      fail(errc::capacity, "[name] length: '", name, "' has more than ", max_length, " characters", source);
  }
  constexpr std::string_view view() const {
    std::size_t n = 0;
    while (n < max_length && text[n] != '\0') ++n;
    return {text, n};
  }
  constexpr bool empty() const { return text[0] == '\0'; }
  friend constexpr bool operator==(const Name&, const Name&) = default;
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
