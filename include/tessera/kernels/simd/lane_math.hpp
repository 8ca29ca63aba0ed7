#ifndef TESSERA_KERNELS_SIMD_LANE_MATH_HPP
#define TESSERA_KERNELS_SIMD_LANE_MATH_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/kernels/simd/lane_arithmetic.hpp>
#include <tessera/kernels/simd/simd.hpp>

// Elementary functions on lanes of float and double. Polynomials and rational functions are near-minimax approximations
// on the stated ranges; tests check the error bounds. All functions propagate NaN.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace simd {

template <class T, std::size_t... I>
TESSERA_INLINE xsimd::batch<T> exp_tail(const xsimd::batch<T>& r, std::index_sequence<I...>) {
  return polynomial<T>(r, Format<T>::exp_tail[I]...);
}

/// Returns q and sets n with exp(x) = 2^n (1 + q), n an integer and |q| < 0.42.
template <class T> TESSERA_INLINE xsimd::batch<T> split_exp(const xsimd::batch<T>& x, RoundedExponent<T>& exponent) {
  using Batch = xsimd::batch<T>;
  using F = Format<T>;
  exponent.shifted = simd::fma<T>(x, Batch(F::log2_e), Batch(F::round));
  const Batch n = exponent.value();
  const Batch r = simd::fma<T>(n, Batch(-F::ln2_low), simd::fma<T>(n, Batch(-F::ln2_high), x));
  return simd::fma<T>(r * r, exp_tail<T>(r, std::make_index_sequence<F::exp_terms>{}), r);
}

#if defined(__AVX512F__)
/// exp(x) for x in the range of exp_lowest to exp_highest: 2^n of 16 powers of two from a register and a short
/// polynomial. Two multiplications less than split_exp().
TESSERA_INLINE xsimd::batch<float> exp_by_table(const xsimd::batch<float>& x) {
  using Batch = xsimd::batch<float>;
  using F = Format<float>;
  const __m512 powers =
      _mm512_setr_ps(1.0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f, 0x1.306fep+0f,  //
                     0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f, 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f,
                     0x1.9c4918p+0f, 0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f);
  const Batch round(F::round / 16);  // rounds to sixteenths, whose lowest bits select the power
  const Batch shifted = simd::fma<float>(x, Batch(F::log2_e), round), n = shifted - round;
  const Batch r = simd::fma<float>(n, Batch(-F::ln2_low), simd::fma<float>(n, Batch(-F::ln2_high), x));
  const Batch q = simd::fma<float>(r * r, polynomial<float>(r, 0.5f, 0.166666672f), r);
  const Batch power(_mm512_permutexvar_ps(_mm512_castps_si512(shifted.data), powers));
  return scale<float>(simd::fma<float>(power, q, power), n);
}
#endif

template <class T> TESSERA_INLINE xsimd::batch<T> exp(const xsimd::batch<T>& x) {
  using Batch = xsimd::batch<T>;
  using F = Format<T>;
  RoundedExponent<T> n;
#if !defined(__AVX512F__)
  // Without an instruction that scales, the bounds and the second factor are two fifths of the operations. Hardly any
  // vector needs them.
  if (xsimd::all(magnitude<T>(x) <= Batch(-F::exp_normal))) {
    const Batch power = split_exp<T>(x, n) + Batch(T(1));
    return from_bits<T>(bits_of<T>(power) + n.bits());
  }
#endif
  // xsimd::min and max return the second operand if one is NaN, so that x must be second.
  const Batch bounded = xsimd::min(Batch(F::exp_highest), xsimd::max(Batch(F::exp_lowest), x));
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) return exp_by_table(bounded);
#endif
  const Batch q = split_exp<T>(bounded, n);
  return scale<T>(q + Batch(T(1)), n.value());
}

/// exp(x) for x <= 0. For float below exp_normal, 2^64 * exp(max(x, -120)): always normal, since an operation with a
/// denormal result costs some hundred cycles.
template <class T> TESSERA_INLINE xsimd::batch<T> decay(const xsimd::batch<T>& x) {
  using Batch = xsimd::batch<T>;
  RoundedExponent<T> n;
  if constexpr (std::is_same_v<T, float>) {
    const Batch q = split_exp<T>(xsimd::max(Batch(-120.0f), x), n);
    const Batch power = q + Batch(1.0f),
                up = xsimd::select(x < Batch(Format<T>::exp_normal), Batch(64.0f), Batch(0.0f));
    // A product, so that NaN stays NaN.
    return power * RoundedExponent<T>{n.shifted + up}.power();
  } else {
    const Batch q = split_exp<T>(xsimd::max(Batch(Format<T>::exp_normal), x), n);
    return (q + Batch(T(1))) * n.power();
  }
}

/// x * power / 2^64 if that is denormal or slightly larger; power >= 2^-110, and |x| at most some hundreds for such
/// powers. Computed without denormal operations: adding 2^23 rounds the result to an integer multiple of the smallest
/// denormal.
TESSERA_INLINE xsimd::batch<float> faded(const xsimd::batch<float>& x, const xsimd::batch<float>& power) {
  using Batch = xsimd::batch<float>;
  const Batch most(8388608.0f);  // 2^23: the smallest normal number in units of the smallest denormal
  const Batch units = magnitude<float>(xsimd::max(x, Batch(-256.0f)) * power) * Batch(0x1p+85f);
  const Batch denormal = from_bits<float>(bits_of<float>(xsimd::min(units, most) + most) - bits_of<float>(most));
  const Batch normal = xsimd::max(units, most) * Batch(0x1p-75f) * Batch(0x1p-74f);
  return xsimd::select(units < most, denormal, normal) | sign_bit<float>(x);
}

template <class T> TESSERA_INLINE xsimd::batch<T> log(const xsimd::batch<T>& x) {
  using Batch = xsimd::batch<T>;
  using F = Format<T>;
  using Int = typename F::Int;
  using Ints = int_batch<T>;
  const auto denormal = x < Batch(F::smallest_normal);
  const Batch normal = xsimd::select(denormal, x * Batch(F::denormal_scale), x);
  // x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  const Ints offset(static_cast<Int>(Int(F::bias) << F::mantissa) - F::sqrt_half_bits);
  const Ints shifted = bits_of<T>(normal) + offset;
  const Ints exponent = to_batch<Int>(to_native<Int>(shifted) >> F::mantissa) - Ints(F::bias);
  const Ints fraction = (shifted & Ints((Int(1) << F::mantissa) - 1)) + Ints(F::sqrt_half_bits);
  const Batch f = from_bits<T>(fraction) - Batch(T(1));
  const Batch rounded = from_bits<T>(bits_of<T>(Batch(F::round)) + exponent) - Batch(F::round);
  const Batch k = xsimd::select(denormal, rounded - Batch(T(F::mantissa)), rounded);
  const Batch half_square = Batch(T(0.5)) * f * f;
  Batch result;
  if constexpr (std::is_same_v<T, float>) {
    const Batch r = polynomial<T>(f, 0.333333313f, -0.24999997f, 0.200007156f, -0.166678026f, 0.142490581f,
                                  -0.124256872f, 0.116854198f, -0.114797339f, 0.0697161183f);
    const Batch low = simd::fma<T>(k, Batch(F::ln2_low), simd::fma<T>(f * f * f, r, -half_square));
    result = simd::fma<T>(k, Batch(F::ln2_high), f + low);
  } else {
    const Batch s = divide<T>(f, f + Batch(2.0)), z = s * s;
    const Batch r =
        z * polynomial<T>(z, 0x1.5555555555558p-1, 0x1.99999999952e2p-2, 0x1.2492492df148dp-2, 0x1.c71c62e5800a1p-3,
                          0x1.7462b4ab2ef6bp-3, 0x1.39fe606542ddep-3, 0x1.2b584aae78a57p-3);
    const Batch low = simd::fma<T>(s, half_square + r, k * Batch(F::ln2_low)) - half_square;
    result = simd::fma<T>(k, Batch(F::ln2_high), f + low);
  }
  constexpr T infinity = std::numeric_limits<T>::infinity();
  const Batch defined = xsimd::select(x < Batch(infinity), result, x);
  const Batch at_zero = xsimd::select(x == Batch(T(0)), Batch(-infinity), defined);
  return xsimd::select(x < Batch(T(0)), Batch(std::numeric_limits<T>::quiet_NaN()), at_zero);
}

template <class T> TESSERA_INLINE xsimd::batch<T> tanh(const xsimd::batch<T>& x) {
  using Batch = xsimd::batch<T>;
  const Batch one(T(1)), a = magnitude<T>(x);
  // (e - 1) / (e + 1) with e = exp(2a), where e - 1 = 2^n q + (2^n - 1) avoids cancellation near 0.
  RoundedExponent<T> n;
  const Batch q = split_exp<T>(xsimd::min(Batch(T(44)), a + a), n), power = n.power();
  const Batch above = simd::fma<T>(power, q, power - one), below = above + Batch(T(2));
  Batch result;
  if constexpr (std::is_same_v<T, float>) {
    const Batch inverse = reciprocal<T>(below), near = above * inverse;
    result = simd::fma<T>(simd::fnma<T>(near, below, above), inverse, near);
  } else {
    result = divide<T>(above, below);
  }
  return result | sign_bit<T>(x);
}

/// x / (1 + exp(-p)), to which sigmoid, silu and gelu reduce. Computed from exp(-|p|), which cannot overflow, and
/// without cancellation.
template <class T> TESSERA_INLINE xsimd::batch<T> gated(const xsimd::batch<T>& x, const xsimd::batch<T>& p) {
  using Batch = xsimd::batch<T>;
  const Batch e = decay<T>(p | Batch(T(-0.0)));
  const Batch result = xsimd::select(p < Batch(T(0)), x * e, x) * reciprocal<T>(e + Batch(T(1)));
  const auto fades = p < Batch(Format<T>::exp_normal);
  if constexpr (std::is_same_v<T, float>)
    return xsimd::any(fades) ? xsimd::select(fades, faded(x, e), result) : result;
  else
    return xsimd::any(fades) ? xsimd::select(fades, x * exp<T>(p), result) : result;
}

/// gelu in the tanh form, x / (1 + exp(-p)) with p = sqrt(8 / pi) (x + 0.044715 x^3).
template <class T> TESSERA_INLINE xsimd::batch<T> gelu(const xsimd::batch<T>& x) {
  using Batch = xsimd::batch<T>;
  // sqrt(8 / pi) and sqrt(8 / pi) * 0.044715, the product rounded once.
  constexpr double linear = 1.5957691216057307, cubic = 0.07135481627260025;
  if constexpr (std::is_same_v<T, float>) {
    // exp(-p) = 2^n 2^f with f in [-1/2, 1/2]: p is rounded anyway, so the change of base loses no accuracy. exp(-p)
    // may be large, since 1 + exp(-p) has no cancellation; this needs fewer operations than exp(-|p|).
    constexpr double log2_e = 1.4426950408889634;
    const Batch log2 = x * simd::fma<T>(x * x, Batch(T(-cubic * log2_e)), Batch(T(-linear * log2_e)));
    const Batch bounded = xsimd::min(Batch(173.0f), xsimd::max(Batch(-60.0f), log2));
    const Batch n = (bounded + Batch(Format<T>::round)) - Batch(Format<T>::round);
    const Batch power = polynomial<T>(bounded - n, 1.0000001f, 0.693146944f, 0.240221202f, 0.0555071309f,
                                      0.00967554096f, 0.00132764725f);  // within 0.65 ulp
    const auto fades = bounded > Batch(125.0f);
    const Batch divisor = scale_normal<T>(power, xsimd::select(fades, n - Batch(64.0f), n)) + Batch(1.0f);
    const Batch inverse = reciprocal<T>(divisor), result = x * inverse;
    return xsimd::any(fades) ? xsimd::select(fades, faded(x, inverse), result) : result;
  } else {
    return gated<T>(x, x * simd::fma<T>(x * x, Batch(T(cubic)), Batch(T(linear))));
  }
}

template <class T> TESSERA_INLINE xsimd::batch<T> maximum(const xsimd::batch<T>& x, const xsimd::batch<T>& y) {
  if constexpr (std::is_floating_point_v<T>)
    // xsimd::max returns y if either operand is NaN.
    return xsimd::select(xsimd::isnan(x), x, xsimd::max(x, y));
  else
    return xsimd::max(x, y);
}
template <class T> TESSERA_INLINE xsimd::batch<T> minimum(const xsimd::batch<T>& x, const xsimd::batch<T>& y) {
  if constexpr (std::is_floating_point_v<T>)
    return xsimd::select(xsimd::isnan(x), x, xsimd::min(x, y));
  else
    return xsimd::min(x, y);
}

}  // namespace simd

/// Within 1.2 ulp, also for denormal results; overflow gives infinity, exp(-inf) = 0.
template <class T> TESSERA_INLINE Lanes<T> exp(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::exp<T>(a); }, x);
}

/// Within 1 ulp, also for denormals; log(0) = -inf, NaN for x < 0.
template <class T> TESSERA_INLINE Lanes<T> log(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::log<T>(a); }, x);
}

/// Within 3 ulp; |tanh(x)| <= 1.
template <class T> TESSERA_INLINE Lanes<T> tanh(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::tanh<T>(a); }, x);
}

/// 1 / (1 + exp(-x)), within 3 ulp for positive and negative x.
template <class T> TESSERA_INLINE Lanes<T> sigmoid(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::gated<T>(xsimd::batch<T>(T(1)), a); },
                         x);
}

/// The tanh form: x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
template <class T> TESSERA_INLINE Lanes<T> gelu(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::gelu<T>(a); }, x);
}

/// x / (1 + exp(-x)).
template <class T> TESSERA_INLINE Lanes<T> silu(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::gated<T>(a, a); }, x);
}

template <class T> TESSERA_INLINE Lanes<T> sqrt(const Lanes<T>& x) {
  return simd::each_part([](const auto& a) TESSERA_INLINE_LAMBDA { return simd::sqrt<T>(a); }, x);
}

template <class T> TESSERA_INLINE Lanes<T> rsqrt(const Lanes<T>& x) {
  return simd::each_part(
      [](const auto& a) TESSERA_INLINE_LAMBDA { return simd::divide<T>(xsimd::batch<T>(T(1)), simd::sqrt<T>(a)); }, x);
}

/// x / d for a loop-invariant d.
template <class T> TESSERA_INLINE Lanes<T> divide_by_invariant(const Lanes<T>& x, const Lanes<T>& d) {
  return simd::each_part(
      [](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return simd::divide_by_invariant<T>(a, b); }, x, d);
}

/// Calls a scalar function for each lane, for functions without vector instructions.
template <class T, class F> TESSERA_INLINE Lanes<T> each_lane(F f, const Lanes<T>& x, const Lanes<T>& y) {
  alignas(64) T a[width], b[width];
  store(a, x);
  store(b, y);
  for (int i = 0; i < width; ++i) a[i] = f(a[i], b[i]);
  return load(a);
}

namespace simd {
/// |x|^y for floats, computed in double, so that the only error is the final rounding.
TESSERA_INLINE Lanes<float> power_of_magnitude(const Lanes<float>& x, const Lanes<float>& y) {
  const Lanes<double> base = convert<double>(x), exponent = convert<double>(y);
  return convert<float>(
      each_part([](const auto& a, const auto& b)
                    TESSERA_INLINE_LAMBDA { return simd::exp<double>(b * simd::log<double>(magnitude<double>(a))); },
                base, exponent));
}
}  // namespace simd

/// std::pow including its special cases, within 1 ulp for floats.
template <class T>
  requires(std::is_floating_point_v<T>)
TESSERA_INLINE Lanes<T> pow(const Lanes<T>& x, const Lanes<T>& y) {
  if constexpr (std::is_same_v<T, float>) {
    const Lanes<float> size = simd::power_of_magnitude(x, y);
    return simd::each_part(
        [](const auto& a, const auto& b, const auto& p) TESSERA_INLINE_LAMBDA {
          using Batch = xsimd::batch<float>;
          const Batch zero(0.0f), one(1.0f), half = b * Batch(0.5f);
          const Batch base = simd::magnitude<float>(a);
          // 1^y, x^0 and (-1)^(+-inf) are 1, also where the computation by log gives NaN.
          const Batch unit = xsimd::select((b == zero) | ((base == one) & ((a == one) | (b == b))), one, p);
          const auto whole = xsimd::trunc(b) == b, odd = whole & ~(xsimd::trunc(half) == half);
          const auto below = simd::bits_of<float>(a) < xsimd::batch<std::int32_t>(0);
          const auto signed_base = simd::part_mask<float, 0>(simd::to_mask<std::int32_t>(below));
          const Batch with_sign = xsimd::select(odd & signed_base, simd::negative<float>(unit), unit);
          const auto undefined = (a < zero) & ~whole & (base < Batch(std::numeric_limits<float>::infinity()));
          return Batch(xsimd::select(undefined, Batch(std::numeric_limits<float>::quiet_NaN()), with_sign));
        },
        x, y, size);
  } else {
    return each_lane([](T a, T b) { return static_cast<T>(std::pow(a, b)); }, x, y);
  }
}

/// The larger operand; NaN if either operand is NaN, as torch.maximum.
template <class T> TESSERA_INLINE Lanes<T> maximum(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::each_part([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return simd::maximum<T>(a, b); }, x,
                         y);
}

/// The smaller operand; NaN if either operand is NaN, as torch.minimum.
template <class T> TESSERA_INLINE Lanes<T> minimum(const Lanes<T>& x, const Lanes<T>& y) {
  return simd::each_part([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return simd::minimum<T>(a, b); }, x,
                         y);
}

template <class T> TESSERA_INLINE Lanes<T> relu(const Lanes<T>& x) {
  return simd::each_part(
      [](const auto& a) TESSERA_INLINE_LAMBDA {
        // xsimd::max returns the second operand if it is NaN.
        return xsimd::batch<T>(xsimd::max(xsimd::batch<T>(T(0)), a));
      },
      x);
}

template <class T> TESSERA_INLINE Lanes<T> abs(const Lanes<T>& x) {
  return simd::each_part(
      [](const auto& a) TESSERA_INLINE_LAMBDA {
        if constexpr (std::is_floating_point_v<T>)
          return simd::magnitude<T>(a);
        else
          return simd::choose<T>(a < xsimd::batch<T>(T(0)), simd::negative<T>(a), a);
      },
      x);
}

/// -1, 0 or 1; NaN for NaN.
template <class T> TESSERA_INLINE Lanes<T> sign(const Lanes<T>& x) {
  return simd::each_part(
      [](const auto& a) TESSERA_INLINE_LAMBDA {
        using Batch = xsimd::batch<T>;
        const Batch zero(T(0)), below = simd::choose<T>(a < zero, Batch(T(-1)), a);
        return simd::choose<T>(a > zero, Batch(T(1)), below);
      },
      x);
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
