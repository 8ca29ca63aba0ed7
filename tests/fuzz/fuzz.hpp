#ifndef TESSERA_TESTS_FUZZ_FUZZ_HPP
#define TESSERA_TESTS_FUZZ_FUZZ_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/base/error.hpp>

/// What every target checks of its input: text is read or refused with a tessera::error, and what was read is printed
/// in a way that reads back as itself.
namespace fuzz {

inline void expect(bool holds, std::string_view rule, std::string_view input, std::string_view output = {}) {
  if (holds) return;
  std::fprintf(stderr, "%.*s\n  input  '%.*s'\n  output '%.*s'\n", static_cast<int>(rule.size()), rule.data(),
               static_cast<int>(input.size()), input.data(), static_cast<int>(output.size()), output.data());
  std::abort();
}

/// Calls read(), whose errors refuse the input, then check(value).
template <class Read, class Check> void read_and_check(Read read, Check check) {
  bool is_read = false;
  try {
    const auto value = read();
    is_read = true;
    check(value);
  } catch (const tessera::error& e) {
    expect(!is_read, "what was read is refused later", e.what());
  }
}

}  // namespace fuzz

#endif
