#ifndef TESSERA_BASE_ELEMENT_BF16_HPP
#define TESSERA_BASE_ELEMENT_BF16_HPP
#include <tessera/base/push_macros.hpp>

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/base/element/small_float.hpp>

namespace tessera {

/// bfloat16: the upper half of an IEEE single, with 8 bits of precision and the range of float. A storage type:
/// arithmetic converts to float, and storing rounds to the nearest, ties to even. NaN stays NaN; values above the
/// largest finite number by half a step or more become infinite.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  constexpr explicit bf16(float value) : bits(rounded(std::bit_cast<std::uint32_t>(value))) {}
  constexpr explicit bf16(double value) : bf16(detail::to_odd(value)) {}
  template <std::integral I> constexpr explicit bf16(I value) : bf16(static_cast<double>(value)) {}

  static constexpr bf16 from_bits(std::uint16_t bits) {
    bf16 value{};
    value.bits = bits;
    return value;
  }

  constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  constexpr bf16 operator-() const { return from_bits(static_cast<std::uint16_t>(bits ^ 0x8000)); }

 private:
  static constexpr std::uint16_t rounded(std::uint32_t single) {
    if ((single & 0x7fffffff) > 0x7f800000) return static_cast<std::uint16_t>(single >> 16 | 0x40);
    return static_cast<std::uint16_t>((single + 0x7fff + (single >> 16 & 1)) >> 16);
  }
};

static_assert(sizeof(bf16) == 2 && std::is_trivial_v<bf16>);

}  // namespace tessera

template <> struct std::numeric_limits<tessera::bf16> {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
  static constexpr bool has_infinity = true, has_quiet_NaN = true;
  static constexpr int digits = 8, radix = 2, max_exponent = 128, min_exponent = -125;
  static constexpr tessera::bf16 min() { return tessera::bf16::from_bits(0x0080); }
  static constexpr tessera::bf16 max() { return tessera::bf16::from_bits(0x7f7f); }
  static constexpr tessera::bf16 lowest() { return tessera::bf16::from_bits(0xff7f); }
  static constexpr tessera::bf16 epsilon() { return tessera::bf16::from_bits(0x3c00); }
  static constexpr tessera::bf16 infinity() { return tessera::bf16::from_bits(0x7f80); }
  static constexpr tessera::bf16 quiet_NaN() { return tessera::bf16::from_bits(0x7fc0); }
};

#include <tessera/base/pop_macros.hpp>

#endif
