#ifndef TESSERA_BASE_ELEMENT_SMALL_FLOAT_HPP
#define TESSERA_BASE_ELEMENT_SMALL_FLOAT_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <cstdint>
#include <limits>

namespace tessera::detail {

/// A floating-point format of at most 16 bits: a sign, `Exponent` bits and `Mantissa` bits, with denormals. With
/// `Infinite` the largest exponent is that of infinities and NaNs, as in IEEE 754; without it only the code of all ones
/// is a NaN, and there is no infinity.
template <int Exponent, int Mantissa, bool Infinite> struct SmallFloat {
  static constexpr int mantissa = Mantissa, sign_bit = Exponent + Mantissa, drop = 23 - Mantissa,
                       bias = (1 << (Exponent - 1)) - 1;
  static constexpr bool infinite = Infinite;
  static constexpr std::uint32_t sign = 1u << sign_bit, magnitude = sign - 1;
  /// The code of infinity, or without infinities that of NaN: larger numbers are rounded to it.
  static constexpr std::uint32_t beyond = Infinite ? magnitude >> Mantissa << Mantissa : magnitude;
  static constexpr std::uint32_t quiet_nan = Infinite ? beyond | 1u << (Mantissa - 1) : magnitude;
  /// Float bits: of the smallest normal number; of a number with the unit in the last place of a denormal.
  static constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(128 - bias) << 23,
                                 denormal_step = static_cast<std::uint32_t>(128 - bias - Mantissa + 23) << 23;
  static constexpr std::uint32_t rebias = static_cast<std::uint32_t>(127 - bias);

  /// The code of a float, rounded to the nearest, ties to even. NaN keeps the upper bits of its payload.
  static constexpr std::uint32_t rounded(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value), size = bits & 0x7fffffff;
    const std::uint32_t negative = bits >> 31 << sign_bit;
    if (size > 0x7f800000) return negative | quiet_nan | (size >> drop & ((1u << Mantissa) - 1));
    if (size < least_normal)  // float addition rounds to a multiple of the smallest denormal
      return negative |
             (std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + std::bit_cast<float>(denormal_step)) -
              denormal_step);
    const std::uint32_t near = ((size + (1u << (drop - 1)) - 1 + (size >> drop & 1)) >> drop) - (rebias << Mantissa);
    return negative | (near < beyond ? near : beyond);
  }

  static constexpr float widened(std::uint32_t code) {
    const std::uint32_t size = code & magnitude, negative = (code & sign) << (31 - sign_bit);
    std::uint32_t bits = (size << drop) + (rebias << 23);
    if (size >= beyond)
      bits = Infinite ? size << drop | 0x7f800000 : 0x7fc00000;
    else if (size < 1u << Mantissa)
      bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(denormal_step + size) -
                                          std::bit_cast<float>(denormal_step));
    return std::bit_cast<float>(bits | negative);
  }
};

/// A double to float, rounded to odd (towards zero, with the last bit set if inexact): rounding that to a smaller
/// format gives the same as rounding the double directly.
constexpr float to_odd(double value) {
  if (value != value) return std::numeric_limits<float>::quiet_NaN();
  constexpr double most = static_cast<double>(std::numeric_limits<float>::max());
  const double size = value < 0 ? -value : value;
  if (size > most) return value < 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  const float near = static_cast<float>(value);
  if (static_cast<double>(near) == value) return near;
  std::uint32_t single = std::bit_cast<std::uint32_t>(near);
  if (static_cast<double>(near < 0 ? -near : near) > size) --single;
  return std::bit_cast<float>(single | 1);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
