#ifndef TESSERA_KERNELS_SIMD_LANE_OPS_HPP
#define TESSERA_KERNELS_SIMD_LANE_OPS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/kernels/simd/lane_math.hpp>
#include <tessera/ops/rows.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace simd {
/// Integer quotient, truncated. x / 0 is 0 and min / -1 wraps, both of which would trap in hardware.
template <class T> constexpr T quotient(T a, T b) {
  using Unsigned = std::make_unsigned_t<T>;
  return b == 0 ? T(0) : b == T(-1) ? static_cast<T>(Unsigned(0) - static_cast<Unsigned>(a)) : static_cast<T>(a / b);
}
/// Integer power modulo 2^bits; with a negative exponent, the truncated quotient: 1, -1 or 0.
template <class T> constexpr T whole_power(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? (exponent % 2 == 0 ? T(1) : T(-1)) : T(0);
  using Unsigned = std::common_type_t<unsigned, std::make_unsigned_t<T>>;  // narrow types would be promoted to int
  Unsigned result = 1, factor = static_cast<Unsigned>(base);
  for (T left = exponent; left > 0; left /= 2, factor *= factor)
    if (left % 2 == 1) result *= factor;
  return static_cast<T>(result);
}
}  // namespace simd

// Operators and functions of lanes and masks, in terms of which elementwise operations are defined. Masks are one-bit
// integers: max and sum are "or", min and product are "and", false < true.

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
          // A compiler vector product: xsimd lacks 64-bit integer products for some instruction sets.
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
    return simd::each_part([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return simd::divide<T>(a, b); }, x,
                           y);
}
template <class T> TESSERA_INLINE Mask operator==(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a == b; }, x, y);
}
// Not xsimd's !=, which in xsimd 8.1 is false for NaN in some instruction sets.
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

/// Applies an elementwise operation to lanes. Casts are convert().
template <Op O, class... T> TESSERA_INLINE auto apply(const Lanes<T>&... x) {
  using Operation = ops::elementwise_operation<O>;
  if constexpr (Operation::divides_in_xsimd && simd::estimates_quotients && (std::is_same_v<T, float> && ...))
    return convert<float>(apply<O>(convert<double>(x)...));
  else if constexpr (Operation::by_part)
    return simd::each_part([](const auto&... part) TESSERA_INLINE_LAMBDA { return Operation::value(part...); }, x...);
  else
    return Operation::value(x...);
}

/// Reduces all lanes to a scalar, by monoid M.
template <class M, class T> TESSERA_INLINE T reduce_lanes(const Lanes<T>& x) {
  if constexpr (std::is_same_v<T, bool>) {
    return reduce_lanes<M>(convert<std::int32_t>(x)) != 0;
  } else {
    // Makes Lanes of one register. If Lanes have two registers, the second is a dummy, and its result is not used.
    const auto lanes = [](const xsimd::batch<T>& part) TESSERA_INLINE_LAMBDA {
      if constexpr (Lanes<T>::parts == 1)
        return Lanes<T>{{part}};
      else
        return Lanes<T>{{part, part}};
    };
    return horizontal([&](const xsimd::batch<T>& a, const xsimd::batch<T>& b)
                          TESSERA_INLINE_LAMBDA { return monoids::combined<M>(lanes(a), lanes(b)).part[0]; },
                      x);
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
