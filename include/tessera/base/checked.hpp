#ifndef TESSERA_BASE_CHECKED_HPP
#define TESSERA_BASE_CHECKED_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>

namespace tessera {

// Arithmetic of extents, elements, bytes and operations, all of them signed 64-bit integers. A count of operations that
// is none stops at the largest: nothing is allocated by it, and a training step of the largest models has more than
// 2^63.

/// Most elements of a tensor, 2^52: no process addresses them, and what is counted of a few such (bytes, strides,
/// operations) stays a 64-bit integer for every element type.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 52;
/// Most elements of all values of a program together.
inline constexpr std::int64_t max_program_elements = max_elements << 3;

/// True where the exact result is a 64-bit integer; otherwise `out` holds its last 64 bits.
constexpr bool add_fits(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_add_overflow(a, b, &out);
}
constexpr bool subtract_fits(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_sub_overflow(a, b, &out);
}
constexpr bool multiply_fits(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

namespace detail {
[[noreturn]] inline void fail_size(std::string_view what, std::int64_t a, const char* op, std::int64_t b,
                                   const Source& at) {
  fail(errc::capacity, "[size] ", what, ": ", a, op, b, " is no 64-bit integer", at);
}
}  // namespace detail

/// a + b and a * b, or `capacity`: the message says what they count, and names the user's line where it is known.
constexpr std::int64_t checked_sum(std::int64_t a, std::int64_t b, std::string_view what, const Source& at = {}) {
  std::int64_t sum = 0;
  if (!add_fits(a, b, sum)) detail::fail_size(what, a, " + ", b, at);
  return sum;
}
constexpr std::int64_t checked_product(std::int64_t a, std::int64_t b, std::string_view what, const Source& at = {}) {
  std::int64_t product = 0;
  if (!multiply_fits(a, b, product)) detail::fail_size(what, a, " * ", b, at);
  return product;
}

/// a + b and a * b of numbers that are not negative, or the largest there is.
constexpr std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return add_fits(a, b, sum) ? sum : INT64_MAX;
}
constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return multiply_fits(a, b, product) ? product : INT64_MAX;
}

/// total += a * times, or `capacity`.
constexpr void add_times(std::int64_t& total, std::int64_t a, std::int64_t times, std::string_view what,
                         const Source& at = {}) {
  total = checked_sum(total, checked_product(a, times, what, at), what, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
