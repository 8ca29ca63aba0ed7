#ifndef TESSERA_BASE_ELEMENT_F16_HPP
#define TESSERA_BASE_ELEMENT_F16_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/base/element/small_float.hpp>

namespace tessera {

/// IEEE 754 binary16 (half precision): 11 bits of precision, from 2^-24 (6e-8) to 65504. A storage type: arithmetic
/// converts to float, and storing rounds to the nearest, ties to even. NaN stays NaN; values from 65520 on become
/// infinite.
struct f16 {
  std::uint16_t bits;

  f16() = default;
  constexpr explicit f16(float value) : bits(static_cast<std::uint16_t>(Format::rounded(value))) {}
  constexpr explicit f16(double value) : f16(detail::to_odd(value)) {}
  template <std::integral I> constexpr explicit f16(I value) : f16(static_cast<double>(value)) {}

  static constexpr f16 from_bits(std::uint16_t bits) {
    f16 value{};
    value.bits = bits;
    return value;
  }

  constexpr operator float() const { return Format::widened(bits); }
  constexpr f16 operator-() const { return from_bits(static_cast<std::uint16_t>(bits ^ 0x8000)); }

  using Format = detail::SmallFloat<5, 10, true>;
};

static_assert(sizeof(f16) == 2 && std::is_trivial_v<f16>);

}  // namespace tessera

template <> struct std::numeric_limits<tessera::f16> {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
  static constexpr bool has_infinity = true, has_quiet_NaN = true;
  static constexpr int digits = 11, radix = 2, max_exponent = 16, min_exponent = -13;
  static constexpr tessera::f16 min() { return tessera::f16::from_bits(0x0400); }
  static constexpr tessera::f16 max() { return tessera::f16::from_bits(0x7bff); }
  static constexpr tessera::f16 lowest() { return tessera::f16::from_bits(0xfbff); }
  static constexpr tessera::f16 epsilon() { return tessera::f16::from_bits(0x1400); }
  static constexpr tessera::f16 infinity() { return tessera::f16::from_bits(0x7c00); }
  static constexpr tessera::f16 quiet_NaN() { return tessera::f16::from_bits(0x7e00); }
  static constexpr tessera::f16 denorm_min() { return tessera::f16::from_bits(0x0001); }
};

#include <tessera/base/pop_macros.hpp>

#endif
