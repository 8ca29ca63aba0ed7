#ifndef TESSERA_BASE_ELEMENT_F8_HPP
#define TESSERA_BASE_ELEMENT_F8_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/base/element/small_float.hpp>

namespace tessera {

namespace detail {
/// The members of the two types of 8 bits. Conversions are explicit: the types have no arithmetic.
template <class Self, class Of> struct Float8 {
  using Format = Of;
  std::uint8_t bits;

  Float8() = default;
  constexpr explicit Float8(float value) : bits(static_cast<std::uint8_t>(Format::rounded(value))) {}
  static constexpr Self from_bits(std::uint8_t bits) {
    Self value{};
    value.bits = bits;
    return value;
  }
  constexpr explicit operator float() const { return Format::widened(bits); }
  constexpr explicit operator double() const { return Format::widened(bits); }
  friend constexpr bool operator==(const Self& x, const Self& y) {
    return static_cast<float>(x) == static_cast<float>(y);
  }
};
}  // namespace detail

/// A number of 8 bits with 4 bits of precision, from 2^-9 to 448, with NaN and without infinities: float8_e4m3fn of
/// PyTorch and JAX. A storage type: tensors of it are cast to other types before they are computed with. Casting to it
/// rounds to the nearest, ties to even; values above 464 become NaN. Source: arXiv 2209.05433.
struct f8_e4m3 : detail::Float8<f8_e4m3, detail::SmallFloat<4, 3, false>> {
  f8_e4m3() = default;
  constexpr explicit f8_e4m3(float value) : Float8(value) {}
  constexpr explicit f8_e4m3(double value) : Float8(detail::to_odd(value)) {}
  template <std::integral I> constexpr explicit f8_e4m3(I value) : f8_e4m3(static_cast<double>(value)) {}
};

/// A number of 8 bits with 3 bits of precision, from 2^-16 to 57344, with NaN and infinities: float8_e5m2 of PyTorch
/// and JAX. Otherwise as f8_e4m3; values from 61440 on become infinite.
struct f8_e5m2 : detail::Float8<f8_e5m2, detail::SmallFloat<5, 2, true>> {
  f8_e5m2() = default;
  constexpr explicit f8_e5m2(float value) : Float8(value) {}
  constexpr explicit f8_e5m2(double value) : Float8(detail::to_odd(value)) {}
  template <std::integral I> constexpr explicit f8_e5m2(I value) : f8_e5m2(static_cast<double>(value)) {}
};

static_assert(sizeof(f8_e4m3) == 1 && std::is_trivial_v<f8_e4m3>);
static_assert(sizeof(f8_e5m2) == 1 && std::is_trivial_v<f8_e5m2>);

}  // namespace tessera

template <> struct std::numeric_limits<tessera::f8_e4m3> {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
  static constexpr bool has_infinity = false, has_quiet_NaN = true;
  static constexpr int digits = 4, radix = 2, max_exponent = 9, min_exponent = -5;
  static constexpr tessera::f8_e4m3 min() { return tessera::f8_e4m3::from_bits(0x08); }
  static constexpr tessera::f8_e4m3 max() { return tessera::f8_e4m3::from_bits(0x7e); }
  static constexpr tessera::f8_e4m3 lowest() { return tessera::f8_e4m3::from_bits(0xfe); }
  static constexpr tessera::f8_e4m3 quiet_NaN() { return tessera::f8_e4m3::from_bits(0x7f); }
};
template <> struct std::numeric_limits<tessera::f8_e5m2> {
  static constexpr bool is_specialized = true, is_signed = true, is_integer = false, is_exact = false;
  static constexpr bool has_infinity = true, has_quiet_NaN = true;
  static constexpr int digits = 3, radix = 2, max_exponent = 16, min_exponent = -13;
  static constexpr tessera::f8_e5m2 min() { return tessera::f8_e5m2::from_bits(0x04); }
  static constexpr tessera::f8_e5m2 max() { return tessera::f8_e5m2::from_bits(0x7b); }
  static constexpr tessera::f8_e5m2 lowest() { return tessera::f8_e5m2::from_bits(0xfb); }
  static constexpr tessera::f8_e5m2 infinity() { return tessera::f8_e5m2::from_bits(0x7c); }
  static constexpr tessera::f8_e5m2 quiet_NaN() { return tessera::f8_e5m2::from_bits(0x7e); }
};

#include <tessera/base/pop_macros.hpp>

#endif
