#ifndef TESSERA_KERNELS_SIMD_LANE_ARITHMETIC_HPP
#define TESSERA_KERNELS_SIMD_LANE_ARITHMETIC_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/kernels/simd/simd.hpp>

// What elementary functions are made of: bits of floats, products and quotients with one rounding, powers of two.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA::simd {

template <class T> struct Format;

template <> struct Format<float> {
  using Int = std::int32_t;
  static constexpr int mantissa = 23, bias = 127;
  static constexpr float round = 12582912.0f;  ///< 1.5 * 2^23: adding it rounds to an integer, in the low bits
  static constexpr float smallest_normal = 1.17549435e-38f, denormal_scale = 8388608.0f;
  static constexpr std::int32_t sqrt_half_bits = 0x3f3504f3;
  // ln 2 = ln2_high + ln2_low: ln2_high has trailing zeros, so that its product with an exponent is exact without FMA.
  static constexpr float ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, log2_e = 1.44269504f;
  static constexpr float exp_lowest = -104.0f, exp_normal = -87.0f, exp_highest = 89.0f;
  /// (exp(x) - 1 - x) / x^2 for |x| < ln 2 / 2.
  static constexpr std::size_t exp_terms = 5;
  static constexpr float exp_tail[] = {0.5f, 0.166665733f, 0.0416665487f, 0.00836377405f, 0.00139269268f};
};

template <> struct Format<double> {
  using Int = std::int64_t;
  static constexpr int mantissa = 52, bias = 1023;
  static constexpr double round = 6755399441055744.0;
  static constexpr double smallest_normal = 2.2250738585072014e-308, denormal_scale = 4503599627370496.0;
  static constexpr std::int64_t sqrt_half_bits = 0x3fe6a09e667f3bcd;
  static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33, log2_e = 0x1.71547652b82fep+0;
  static constexpr double exp_lowest = -746.0, exp_normal = -708.0, exp_highest = 710.0;
  static constexpr std::size_t exp_terms = 10;
  static constexpr double exp_tail[] = {0.5,
                                        0x1.5555555555556p-3,
                                        0x1.5555555553b6cp-5,
                                        0x1.1111111110918p-7,
                                        0x1.6c16c1794e1dcp-10,
                                        0x1.a01a01a83ba17p-13,
                                        0x1.a019b621f9d08p-16,
                                        0x1.71de0be2b5e96p-19,
                                        0x1.2894f52583578p-22,
                                        0x1.af3ce42b12b24p-26};
};

template <class T> using int_batch = xsimd::batch<typename Format<T>::Int>;

template <class T> TESSERA_INLINE int_batch<T> bits_of(const xsimd::batch<T>& x) {
  using Int = typename Format<T>::Int;
  return to_batch<Int>((part_vector<Int>)to_native<T>(x));
}
template <class T> TESSERA_INLINE xsimd::batch<T> from_bits(const int_batch<T>& x) {
  return to_batch<T>((part_vector<T>)to_native<typename Format<T>::Int>(x));
}

/// x * y + z, rounded once if the instruction set has FMA. (For AVX-512, xsimd 8.1 leaves the contraction to the
/// compiler.)
template <class T>
TESSERA_INLINE xsimd::batch<T> fma(const xsimd::batch<T>& x, const xsimd::batch<T>& y, const xsimd::batch<T>& z) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>)
    return xsimd::batch<T>(_mm512_fmadd_ps(x.data, y.data, z.data));
  else
    return xsimd::batch<T>(_mm512_fmadd_pd(x.data, y.data, z.data));
#else
  return xsimd::fma(x, y, z);
#endif
}

/// z - x * y, as fma().
template <class T>
TESSERA_INLINE xsimd::batch<T> fnma(const xsimd::batch<T>& x, const xsimd::batch<T>& y, const xsimd::batch<T>& z) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>)
    return xsimd::batch<T>(_mm512_fnmadd_ps(x.data, y.data, z.data));
  else
    return xsimd::batch<T>(_mm512_fnmadd_pd(x.data, y.data, z.data));
#else
  return xsimd::fnma(x, y, z);
#endif
}

/// Whether xsimd's quotients and roots of floats are estimates, up to 4 ulp off, as are those of xsimd 8.1 for NEON.
#if defined(__SSE2__)
inline constexpr bool estimates_quotients = false;
#else
inline constexpr bool estimates_quotients = true;
#endif

/// x / y, rounded as IEEE 754 requires.
template <class T> TESSERA_INLINE xsimd::batch<T> divide(const xsimd::batch<T>& x, const xsimd::batch<T>& y) {
  return to_batch<T>(to_native<T>(x) / to_native<T>(y));
}
/// The square root, rounded likewise.
template <class T> TESSERA_INLINE xsimd::batch<T> sqrt(const xsimd::batch<T>& x) {
#if defined(__aarch64__)
  if constexpr (std::is_same_v<T, float>) return xsimd::batch<T>(vsqrtq_f32(x.data));
#endif
  return xsimd::sqrt(x);
}

/// c0 + c1 x + c2 x^2 ...
template <class T, class... More>
TESSERA_INLINE xsimd::batch<T> polynomial(const xsimd::batch<T>& x, T c0, More... more) {
  if constexpr (sizeof...(More) == 0)
    return xsimd::batch<T>(c0);
  else
    return simd::fma<T>(polynomial<T>(x, more...), x, xsimd::batch<T>(c0));
}

template <class T> TESSERA_INLINE xsimd::batch<T> magnitude(const xsimd::batch<T>& x) {
  return x & from_bits<T>(int_batch<T>(std::numeric_limits<typename Format<T>::Int>::max()));
}
/// -x. Flips the sign bit of floats, zeros and NaN included; xsimd 8.1 computes 0 - x in some instruction sets.
template <class T> TESSERA_INLINE xsimd::batch<T> negative(const xsimd::batch<T>& x) {
  if constexpr (std::is_floating_point_v<T>)
    return to_batch<T>(-to_native<T>(x));
  else
    return xsimd::batch<T>(T(0)) - x;
}
template <class T> TESSERA_INLINE xsimd::batch<T> sign_bit(const xsimd::batch<T>& x) {
  return x & xsimd::batch<T>(T(-0.0));
}

/// x / d for loop-invariant d: with FMA, the compiler hoists the reciprocal of d out of the loop. Rounded correctly, as
/// a division.
template <class T>
TESSERA_INLINE xsimd::batch<T> divide_by_invariant(const xsimd::batch<T>& x, const xsimd::batch<T>& d) {
#if defined(__FMA__)
  using Batch = xsimd::batch<T>;
  constexpr T large = std::is_same_v<T, float> ? T(0x1p+64) : T(0x1p+512), small = 1 / large;
  // d is scaled so that its reciprocal is normal.
  const Batch size = magnitude<T>(d);
  const Batch factor =
      xsimd::select(size < Batch(small), Batch(large), xsimd::select(size > Batch(large), Batch(small), Batch(T(1))));
  const Batch divisor = d * factor, inverse = divide<T>(Batch(T(1)), divisor);
  const Batch dividend = x * factor, near = dividend * inverse;
  const Batch result = simd::fma<T>(simd::fnma<T>(near, divisor, dividend), inverse, near);
  // The remainder is NaN for an infinite quotient and loses the sign of -0: restore both from `near`.
  return xsimd::select(result == result, result, near) | sign_bit<T>(near);
#else
  return divide<T>(x, d);
#endif
}

/// 2^k for k in the range of normal exponents.
template <class T> TESSERA_INLINE xsimd::batch<T> power_of_two(const int_batch<T>& k) {
  return from_bits<T>((k + int_batch<T>(Format<T>::bias)) << Format<T>::mantissa);
}

/// x * 2^n for integer n, rounded once, also if the result is denormal or infinite.
template <class T> TESSERA_INLINE xsimd::batch<T> scale(const xsimd::batch<T>& x, const xsimd::batch<T>& n) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>)
    return xsimd::batch<T>(_mm512_scalef_ps(x.data, n.data));
  else
    return xsimd::batch<T>(_mm512_scalef_pd(x.data, n.data));
#else
  using Batch = xsimd::batch<T>;
  const Batch round(Format<T>::round);
  // Two factors, 2^(n/2) each: 2^n may overflow or be denormal even if the result is not.
  const Batch first = n * Batch(T(0.5)) + round;
  const int_batch<T> zero = bits_of<T>(round), a = bits_of<T>(first) - zero, b = bits_of<T>(n + round) - zero - a;
  return x * power_of_two<T>(a) * power_of_two<T>(b);
#endif
}

/// x * 2^n for integer n, where x, 2^n and the result are normal.
template <class T> TESSERA_INLINE xsimd::batch<T> scale_normal(const xsimd::batch<T>& x, const xsimd::batch<T>& n) {
#if defined(__AVX512F__)
  return scale<T>(x, n);
#else
  const xsimd::batch<T> round(Format<T>::round);
  return from_bits<T>(bits_of<T>(x) + (bits_of<T>(n + round) << Format<T>::mantissa));
#endif
}

/// 1 / d for d in [1, 2^126], within little more than half an ulp. A division costs several times as much.
template <class T> TESSERA_INLINE xsimd::batch<T> reciprocal(const xsimd::batch<T>& d) {
  const xsimd::batch<T> one(T(1));
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) {
    const xsimd::batch<T> guess(_mm512_rcp14_ps(d.data));
    return simd::fma<T>(simd::fnma<T>(d, guess, one), guess, guess);
  }
#endif
  return divide<T>(one, d);
}

/// An integer n, rounded from a float: also as bits, whose lowest ones are those of n in two's complement.
template <class T> struct RoundedExponent {
  xsimd::batch<T> shifted;  ///< n + Format<T>::round

  TESSERA_INLINE xsimd::batch<T> value() const { return shifted - xsimd::batch<T>(Format<T>::round); }
  /// The bits of 2^n without those of 2^0, for n in the range of normal exponents: added to the bits of a normal number
  /// they multiply it by 2^n, if the result is normal.
  TESSERA_INLINE int_batch<T> bits() const { return bits_of<T>(shifted) << Format<T>::mantissa; }
  TESSERA_INLINE xsimd::batch<T> power() const {
    using Int = typename Format<T>::Int;
    return from_bits<T>(bits() + int_batch<T>(Int(Format<T>::bias) << Format<T>::mantissa));
  }
};

}  // namespace tessera::kernels::inline TESSERA_ISA::simd
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
