#ifndef TESSERA_KERNELS_SIMD_LANE_OPS_HPP
#define TESSERA_KERNELS_SIMD_LANE_OPS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/kernels/simd/lane_math.hpp>
#include <tessera/ops/rows.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace simd {
/// Quotient towards zero. Division by zero gives 0, and the one quotient that overflows wraps: neither may trap.
template <class T> constexpr T quotient(T a, T b) {
  using Unsigned = std::make_unsigned_t<T>;
  return b == 0 ? T(0) : b == T(-1) ? static_cast<T>(Unsigned(0) - static_cast<Unsigned>(a)) : static_cast<T>(a / b);
}
/// Whole powers modulo 2^bits; a negative exponent leaves what truncation does.
template <class T> constexpr T whole_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
  using Unsigned = std::common_type_t<unsigned, std::make_unsigned_t<T>>;  // short ones would be multiplied as ints
  Unsigned result = 1, factor = static_cast<Unsigned>(base);
  for (T left = exponent; left > 0; left /= 2, factor *= factor)
    if (left % 2 == 1) result *= factor;
  return static_cast<T>(result);
}
}  // namespace simd

// The operators and functions that elementwise operations are written with, of lanes and of masks. A mask is a number
// of one bit: max and sum are or, min and product are and, false orders before true.

template <class T> TESSERA_INLINE Lanes<T> operator-(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::negative<T>(a); }, x);
}
template <class T> TESSERA_INLINE Lanes<T> operator+(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::each_part([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a + b; }, x, y);
}
template <class T> TESSERA_INLINE Lanes<T> operator-(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::each_part([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a - b; }, x, y);
}
template <class T> TESSERA_INLINE Lanes<T> operator*(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::each_part(
      [](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA {
        if constexpr (std::is_integral_v<T>) {
          // The compiler's own product: xsimd has none of 64-bit integers for every instruction set.
          using Wrapping = simd::native<std::make_unsigned_t<T>, Lanes<T>::part_width>;
          const Wrapping product = (Wrapping)simd::to_native<T>(a) * (Wrapping)simd::to_native<T>(b);
          return simd::to_batch<T>((simd::part_vector<T>)product);
        } else {
          return a * b;
        }
      },
      x, y);
}
template <class T> TESSERA_INLINE Lanes<T> operator/(const Lanes<T>& x, const Lanes<T>& y) {
  if constexpr (std::is_integral_v<T>)
    return each_lane([](T a, T b) { return simd::quotient<T>(a, b); }, x, y);
  else
    return simd::each_part([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a / b; }, x, y);
}
template <class T> TESSERA_INLINE Mask operator==(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a == b; }, x, y);
}
// xsimd 8.1 takes NaN for equal to everything in some instruction sets, so this is the opposite of equal.
template <class T> TESSERA_INLINE Mask operator!=(const Lanes<T>& x, const Lanes<T>& y) { return {~(x == y).bits}; }
template <class T> TESSERA_INLINE Mask operator<(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a < b; }, x, y);
}
template <class T> TESSERA_INLINE Mask operator<=(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a <= b; }, x, y);
}
template <class T> TESSERA_INLINE Mask operator>(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a > b; }, x, y);
}
template <class T> TESSERA_INLINE Mask operator>=(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a >= b; }, x, y);
}

TESSERA_INLINE Mask operator+(const Mask& x, const Mask& y) { return {x.bits | y.bits}; }
TESSERA_INLINE Mask operator*(const Mask& x, const Mask& y) { return {x.bits & y.bits}; }
TESSERA_INLINE Mask maximum(const Mask& x, const Mask& y) { return {x.bits | y.bits}; }
TESSERA_INLINE Mask minimum(const Mask& x, const Mask& y) { return {x.bits & y.bits}; }
TESSERA_INLINE Mask operator==(const Mask& x, const Mask& y) { return {~simd::differ(x, y).bits}; }
TESSERA_INLINE Mask operator!=(const Mask& x, const Mask& y) { return simd::differ(x, y); }
TESSERA_INLINE Mask operator<(const Mask& x, const Mask& y) { return {~x.bits & y.bits}; }
TESSERA_INLINE Mask operator<=(const Mask& x, const Mask& y) { return {~x.bits | y.bits}; }
TESSERA_INLINE Mask operator>(const Mask& x, const Mask& y) { return {x.bits & ~y.bits}; }
TESSERA_INLINE Mask operator>=(const Mask& x, const Mask& y) { return {x.bits | ~y.bits}; }

template <class T> TESSERA_INLINE Mask logical_not(const Lanes<T>& x) { return {~convert<bool>(x).bits}; }
template <class T> TESSERA_INLINE Mask logical_and(const Lanes<T>& x, const Lanes<T>& y) {
  return {convert<bool>(x).bits & convert<bool>(y).bits};
}
template <class T> TESSERA_INLINE Mask logical_or(const Lanes<T>& x, const Lanes<T>& y) {
  return {convert<bool>(x).bits | convert<bool>(y).bits};
}

template <class T>
  requires(std::is_integral_v<T>)
TESSERA_INLINE Lanes<T> pow(const Lanes<T>& x, const Lanes<T>& y) {
  return each_lane([](T a, T b) { return simd::whole_power<T>(a, b); }, x, y);
}

/// An elementwise operation on lanes. Conversions have a form of their own.
template <Op O, class... T> TESSERA_INLINE auto apply(const Lanes<T>&... x) {
  using Operation = ops::elementwise_operation<O>;
  if constexpr (Operation::by_part)
    return simd::each_part([](const auto&... part) TESSERA_INLINE_LAMBDA { return Operation::value(part...); }, x...);
  else
    return Operation::value(x...);
}

/// How a reduction combines two values.
constexpr Op combining(Op reduction) {
  return reduction == Op::max ? Op::maximum : reduction == Op::min ? Op::minimum : Op::add;
}

/// What a reduction of nothing gives.
template <Op Reduction, class T> constexpr T identity() {
  using Limits = std::numeric_limits<T>;
  if constexpr (Reduction == Op::sum)
    return T(0);
  else if constexpr (Limits::has_infinity)
    return Reduction == Op::max ? -Limits::infinity() : Limits::infinity();
  else
    return Reduction == Op::max ? Limits::lowest() : Limits::max();
}

/// Combines two scalars as the lanes of a reduction are; NaN propagates.
template <Op Reduction, class T> constexpr T combine(T x, T y) {
  if constexpr (Reduction == Op::sum)
    return static_cast<T>(x + y);
  else if constexpr (Reduction == Op::max)
    return x != x || x > y ? x : y;
  else
    return x != x || x < y ? x : y;
}

/// Reduces all lanes to one value.
template <Op Reduction, class T> TESSERA_INLINE T reduce_lanes(const Lanes<T>& x) {
  if constexpr (std::is_same_v<T, bool>) {
    const Lanes<std::int32_t> bits = convert<std::int32_t>(x);
    return reduce_lanes < Reduction == Op::sum ? Op::max : Reduction > (bits) != 0;
  } else {
    return horizontal(
        [](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA {
          if constexpr (Reduction == Op::sum)
            return xsimd::batch<T>(a + b);
          else if constexpr (Reduction == Op::max)
            return simd::maximum<T>(a, b);
          else
            return simd::minimum<T>(a, b);
        },
        x);
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
