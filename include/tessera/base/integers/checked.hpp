#ifndef TESSERA_BASE_INTEGERS_CHECKED_HPP
#define TESSERA_BASE_INTEGERS_CHECKED_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/base/source.hpp>

namespace tessera {

// Arithmetic on extents and on counts of elements, bytes and operations, which are signed 64-bit integers. Sizes throw
// on overflow; a count of operations saturates, since nothing is allocated by it and training steps of the largest
// models exceed 2^63.

/// The most elements of a tensor, 2^52: more than any process can address, and small enough that sums of a few byte
/// counts, strides or operation counts fit 64 bits for every element type.
inline constexpr std::int64_t max_elements = std::int64_t{1} << 52;
/// The most elements of all values of a program together.
inline constexpr std::int64_t max_program_elements = max_elements << 3;

/// Whether the exact result fits a 64-bit integer; `out` gets its last 64 bits.
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
  fail(errc::capacity, "[size] ", what, ": ", a, op, b, " does not fit a signed 64-bit integer", at);
}
}  // namespace detail

/// a + b and a * b. Errors: `capacity` on overflow; the message says `what` overflows, and the user's line if known.
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

/// a + b and a * b of nonnegative integers; INT64_MAX on overflow.
constexpr std::int64_t saturating_sum(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return add_fits(a, b, sum) ? sum : INT64_MAX;
}
constexpr std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return multiply_fits(a, b, product) ? product : INT64_MAX;
}

/// total += a * times. Errors: `capacity` on overflow.
constexpr void add_times(std::int64_t& total, std::int64_t a, std::int64_t times, std::string_view what,
                         const Source& at = {}) {
  total = checked_sum(total, checked_product(a, times, what, at), what, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
