#ifndef TESSERA_GRAPH_IR_HOST_NUMBER_HPP
#define TESSERA_GRAPH_IR_HOST_NUMBER_HPP
#include <tessera/base/push_macros.hpp>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/integers/checked.hpp>
#include <tessera/base/integers/hash.hpp>
#include <tessera/graph/ir/node.hpp>

namespace tessera {

/// The value of a host scalar: an extent, a Dim, a Scalar. It has a double and a 64-bit integer; the integer is exact
/// if it was made from one (doubles can't hold odd integers above 2^53).
class HostNumber {
 public:
  constexpr HostNumber() = default;
  constexpr HostNumber(double number) : real_(number), integer_(truncated(number)) {}
  template <class T>
    requires(std::is_integral_v<T>)
  constexpr HostNumber(T number) : real_(static_cast<double>(number)), integer_(static_cast<std::int64_t>(number)) {}

  constexpr double real() const { return real_; }
  constexpr std::int64_t integer() const { return integer_; }
  /// The value as an element of a tensor.
  template <class T> constexpr T as() const {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      return static_cast<T>(integer_);
    else
      return static_cast<T>(real_);
  }

  friend constexpr bool operator==(const HostNumber& a, const HostNumber& b) {
    return a.real_ == b.real_ && a.integer_ == b.integer_;
  }

 private:
  double real_ = 0;
  std::int64_t integer_ = 0;

  /// Rounds towards zero; NaN becomes 0, and what exceeds 64 bits the nearest 64-bit integer.
  static constexpr std::int64_t truncated(double number) {
    if (!(number > -9223372036854775808.0)) return number != number ? 0 : INT64_MIN;
    return number < 9223372036854775808.0 ? static_cast<std::int64_t>(number) : INT64_MAX;
  }
};

constexpr std::uint64_t hash_mix(std::uint64_t hash, const HostNumber& number) {
  return hash_mix(hash_mix(hash, number.real()), static_cast<std::uint64_t>(number.integer()));
}

/// An integer constant. Node::value is a double: for an integer beyond 2^53 it holds all but the last 11 bits, which
/// are in the first two attribute bytes.
constexpr Node integer_node(std::int64_t number, DType dtype) {
  constexpr std::int64_t exact = std::int64_t{1} << 53;
  Node made{.dtype = dtype, .value = static_cast<double>(number)};
  if (number >= -exact && number <= exact) return made;
  made.labels[0] = static_cast<std::int8_t>(number & 0x7f);
  made.labels[1] = static_cast<std::int8_t>(number >> 7 & 0x0f);
  made.value = static_cast<double>(number - (number & 0x7ff));
  return made;
}
/// The value of a constant node.
constexpr HostNumber number_of(const Node& constant) {
  const std::int64_t low = constant.labels[0] | constant.labels[1] << 7;
  if (low == 0) return constant.value;
  return static_cast<std::int64_t>(constant.value) + low;
}

/// How a computation with integers ended.
enum class IntegerResult : std::uint8_t {
  known,
  too_large,  ///< the result exceeds 64 bits
  division_by_zero,
};

/// A 64-bit integer together with whether its computation overflowed or divided by zero. Division rounds towards zero.
struct ExactInteger {
  std::int64_t value = 0;
  IntegerResult result = IntegerResult::known;

  friend constexpr ExactInteger operator+(ExactInteger a, ExactInteger b) {
    std::int64_t sum = 0;
    const bool fits = add_fits(a.value, b.value, sum);
    return {sum, ended(fits)};
  }
  friend constexpr ExactInteger operator-(ExactInteger a, ExactInteger b) {
    std::int64_t difference = 0;
    const bool fits = subtract_fits(a.value, b.value, difference);
    return {difference, ended(fits)};
  }
  friend constexpr ExactInteger operator*(ExactInteger a, ExactInteger b) {
    std::int64_t product = 0;
    const bool fits = multiply_fits(a.value, b.value, product);
    return {product, ended(fits)};
  }
  friend constexpr ExactInteger operator/(ExactInteger a, ExactInteger b) {
    if (b.value == 0) return {0, IntegerResult::division_by_zero};
    return b.value == -1 ? -a : ExactInteger{a.value / b.value};
  }
  friend constexpr ExactInteger operator-(ExactInteger a) { return ExactInteger{} - a; }
  friend constexpr ExactInteger abs(ExactInteger a) { return a.value < 0 ? -a : a; }
  friend constexpr ExactInteger minimum(ExactInteger a, ExactInteger b) { return b.value < a.value ? b : a; }
  friend constexpr ExactInteger maximum(ExactInteger a, ExactInteger b) { return a.value < b.value ? b : a; }
  friend constexpr bool operator==(ExactInteger a, ExactInteger b) { return a.value == b.value; }
  friend constexpr auto operator<=>(ExactInteger a, ExactInteger b) { return a.value <=> b.value; }

 private:
  static constexpr IntegerResult ended(bool fits) { return fits ? IntegerResult::known : IntegerResult::too_large; }
};

/// Throws the error for a result that is not `known`. Errors: `dim_range` for a division by zero, `capacity` otherwise.
[[noreturn]] inline void fail_integers(IntegerResult why, std::string_view name, std::int64_t a, std::int64_t b,
                                       const Source& source = {}) {
  const bool by_zero = why == IntegerResult::division_by_zero;
  fail(by_zero ? errc::dim_range : errc::capacity, "[dim] ", by_zero ? "division by zero" : "64-bit overflow", ": ",
       name, "(", a, ", ", b, ")", source);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
