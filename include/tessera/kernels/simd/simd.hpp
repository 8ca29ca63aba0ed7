#ifndef TESSERA_KERNELS_SIMD_SIMD_HPP
#define TESSERA_KERNELS_SIMD_SIMD_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/simd/xsimd.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

/// Lanes of every value in a kernel, for all element types: the floats of one register. A double takes two registers.
inline constexpr int width = static_cast<int>(xsimd::batch<float>::size);

/// `width` values of type float, double, int32_t, int64_t (in registers) or bool (a mask).
template <class T> struct Lanes {
  using Batch = xsimd::batch<T>;
  static constexpr int parts = static_cast<int>(sizeof(T) / sizeof(float));
  static constexpr int part_width = width / parts;
  Batch part[parts];
};

template <> struct Lanes<bool> {
  xsimd::batch_bool<float> bits;
};

using Mask = Lanes<bool>;

/// The type in which elements of T are computed: int32_t for narrow integers, which wrap() reduces to their range;
/// float for floating types of 16 and 8 bits, which are rounded when they are stored.
template <class T>
using lane_t = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool> && (sizeof(T) < 4), std::int32_t,
                                  computed_t<T>>;

namespace simd {

template <class T, int N> struct NativeVector {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
/// A compiler vector type. At most one register, so that functions that pass it have a stable ABI.
template <class T, int N> using native = typename NativeVector<T, N>::type;

template <class T> using part_vector = native<T, Lanes<T>::part_width>;

inline constexpr int half = width / 2;
/// Whether masks are bit masks (AVX-512) rather than vector registers.
inline constexpr bool bit_masks = sizeof(xsimd::batch_bool<float>) < sizeof(xsimd::batch<float>);

template <class T> TESSERA_INLINE part_vector<T> to_native(const xsimd::batch<T>& x) { return (part_vector<T>)x.data; }

template <class T> TESSERA_INLINE xsimd::batch<T> to_batch(const part_vector<T>& x) {
  return xsimd::batch<T>((typename xsimd::batch<T>::register_type)x);
}

/// Calls `f(part)` for each register of the operands.
template <class F, class T, class... More> TESSERA_INLINE auto each_part(F f, const Lanes<T>& a, const More&... more) {
  using Out = decltype(f(a.part[0], more.part[0]...));
  using Result = Lanes<typename Out::value_type>;
  if constexpr (Lanes<T>::parts == 1)
    return Result{{f(a.part[0], more.part[0]...)}};
  else
    return Result{{f(a.part[0], more.part[0]...), f(a.part[1], more.part[1]...)}};
}

template <int Half, class T, std::size_t... I>
TESSERA_INLINE native<T, half> half_of(const native<T, width>& x, std::index_sequence<I...>) {
  return __builtin_shufflevector(x, x, (static_cast<int>(I) + Half * half)...);
}
template <int Half, class T> TESSERA_INLINE native<T, half> half_of(const native<T, width>& x) {
  return half_of<Half, T>(x, std::make_index_sequence<half>{});
}

template <class T, std::size_t... I>
TESSERA_INLINE native<T, width> join(const native<T, half>& low, const native<T, half>& high,
                                     std::index_sequence<I...>) {
  return __builtin_shufflevector(low, high, static_cast<int>(I)...);
}
template <class T> TESSERA_INLINE native<T, width> join(const native<T, half>& low, const native<T, half>& high) {
  return join<T>(low, high, std::make_index_sequence<width>{});
}

/// The part of a mask for register `Part` of Lanes<T>. B is always bool: a template parameter, so that code for masks
/// of other instruction sets is not instantiated.
template <class T, int Part, class B> TESSERA_INLINE xsimd::batch_bool<T> part_mask(const Lanes<B>& mask) {
  using Register = typename xsimd::batch_bool<T>::register_type;
  if constexpr (bit_masks) {
    return xsimd::batch_bool<T>(static_cast<Register>(mask.bits.data >> (Part * Lanes<T>::part_width)));
  } else if constexpr (sizeof(T) == 4) {
    return xsimd::batch_bool<T>((Register)mask.bits.data);
  } else {
    const native<std::int32_t, half> narrow = half_of<Part, std::int32_t>((native<std::int32_t, width>)mask.bits.data);
    return xsimd::batch_bool<T>((Register) __builtin_convertvector(narrow, native<std::int64_t, half>));
  }
}

template <class T> TESSERA_INLINE Mask to_mask(const xsimd::batch_bool<T>& all) {
  return {xsimd::batch_bool<float>((typename xsimd::batch_bool<float>::register_type)all.data)};
}
template <class T> TESSERA_INLINE Mask to_mask(const xsimd::batch_bool<T>& low, const xsimd::batch_bool<T>& high) {
  using Register = typename xsimd::batch_bool<std::conditional_t<sizeof(T) == 8, float, T>>::register_type;
  if constexpr (bit_masks) {
    return {xsimd::batch_bool<float>(static_cast<Register>(low.data | (high.data << half)))};
  } else {
    using Wide = native<std::int64_t, half>;
    using Narrow = native<std::int32_t, half>;
    const Narrow a = __builtin_convertvector((Wide)low.data, Narrow);
    const Narrow b = __builtin_convertvector((Wide)high.data, Narrow);
    return {xsimd::batch_bool<float>((Register)join<std::int32_t>(a, b))};
  }
}

/// The mask of a comparison `f` of two operands.
template <class F, class T> TESSERA_INLINE Mask compare(F f, const Lanes<T>& a, const Lanes<T>& b) {
  if constexpr (Lanes<T>::parts == 1)
    return to_mask<T>(f(a.part[0], b.part[0]));
  else
    return to_mask<T>(f(a.part[0], b.part[0]), f(a.part[1], b.part[1]));
}

/// xsimd::select. For AVX-512 integers, xsimd 8.1 writes it in a way that g++ compiles only with optimisation.
template <class T>
TESSERA_INLINE xsimd::batch<T> choose(const xsimd::batch_bool<T>& condition, const xsimd::batch<T>& then,
                                      const xsimd::batch<T>& otherwise) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, std::int32_t>)
    return xsimd::batch<T>(_mm512_mask_blend_epi32(condition.data, otherwise.data, then.data));
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return xsimd::batch<T>(_mm512_mask_blend_epi64(condition.data, otherwise.data, then.data));
  else
#endif
    return xsimd::select(condition, then, otherwise);
}

/// a ^ b of masks: xsimd 8.1 computes | instead of ^ for AVX-512 masks.
TESSERA_INLINE Mask differ(const Mask& a, const Mask& b) { return {(a.bits & ~b.bits) | (b.bits & ~a.bits)}; }

}  // namespace simd

// ---- constants

template <class T> TESSERA_INLINE Lanes<T> splat(T value) {
  if constexpr (std::is_same_v<T, bool>) {
    return {xsimd::batch_bool<float>(value)};
  } else if constexpr (Lanes<T>::parts == 1) {
    return {{xsimd::batch<T>(value)}};
  } else {
    return {{xsimd::batch<T>(value), xsimd::batch<T>(value)}};
  }
}

namespace simd {
template <class T> struct Iota {
  alignas(64) T value[width];
  constexpr Iota() : value{} {
    for (int i = 0; i < width; ++i) value[i] = static_cast<T>(i);
  }
};
template <class T> inline constexpr Iota<T> iota_lanes{};
}  // namespace simd

namespace simd {
/// Floats rounded to bf16, as float bits: the upper 16 bits are the bf16, the lower 16 bits are to be ignored.
TESSERA_INLINE native<std::uint32_t, width> rounded_bf16(const Lanes<float>& x) {
  using Words = native<std::uint32_t, width>;
  const Words bits = (Words)to_native<float>(x.part[0]);
  const Words near = bits + 0x7fff + (bits >> 16 & 1);
  // A vector comparison gives all ones for true.
  const Words is_nan = (Words)((bits & 0x7fffffff) > 0x7f800000);
  return (near & ~is_nan) | ((bits | 0x400000) & is_nan);
}

/// Codes of a small format (detail::SmallFloat, whose scalar functions these are) in 32-bit lanes.
template <class Format> TESSERA_INLINE native<std::uint32_t, width> rounded_to(const Lanes<float>& x) {
  using Words = native<std::uint32_t, width>;
  using Floats = native<float, width>;
  constexpr int drop = Format::drop;
  const Words bits = (Words)to_native<float>(x.part[0]), size = bits & 0x7fffffff;
  const Words step = Words{} + Format::denormal_step;
  const Words small = (Words)((Floats)size + (Floats)step) - step;
  const Words whole =
      ((size + (1u << (drop - 1)) - 1 + (size >> drop & 1)) >> drop) - (Format::rebias << Format::mantissa);
  const Words nan = Format::quiet_nan | (size >> drop & ((1u << Format::mantissa) - 1));
  const Words is_small = (Words)(size < Format::least_normal), is_nan = (Words)(size > 0x7f800000);
  const Words fits = (Words)(whole < Format::beyond);
  const Words near = (whole & fits) | (Format::beyond & ~fits);
  return (((near & ~is_small) | (small & is_small)) & ~is_nan) | (nan & is_nan) |
         (bits >> (31 - Format::sign_bit) & Format::sign);
}
template <class Format> TESSERA_INLINE Lanes<float> widened_from(const native<std::uint32_t, width>& code) {
  using Words = native<std::uint32_t, width>;
  using Floats = native<float, width>;
  const Words size = code & Format::magnitude, step = Words{} + Format::denormal_step;
  const Words whole = (size << Format::drop) + (Format::rebias << 23);
  const Words small = (Words)((Floats)(size + step) - (Floats)step);
  const Words special = Format::infinite ? (size << Format::drop) | 0x7f800000 : Words{} + 0x7fc00000;
  const Words is_small = (Words)(size < 1u << Format::mantissa), is_special = (Words)(size >= Format::beyond);
  const Words bits = (whole & ~is_small & ~is_special) | (small & is_small) | (special & is_special);
  return {{to_batch<float>((Floats)(bits | (code & Format::sign) << (31 - Format::sign_bit)))}};
}

// Processors with AVX convert f16; g++ and clang use the instructions where F16C (or AVX-512) is enabled.
TESSERA_INLINE Lanes<float> widen_halves(const std::uint16_t* from) {
#if defined(__AVX512F__)
  return {{xsimd::batch<float>(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))))}};
#elif defined(__AVX__) && defined(__F16C__)
  return {{xsimd::batch<float>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))}};
#else
  native<std::uint16_t, width> codes;
  std::memcpy(&codes, from, sizeof codes);
  return widened_from<f16::Format>(__builtin_convertvector(codes, native<std::uint32_t, width>));
#endif
}
TESSERA_INLINE void round_to_halves(std::uint16_t* to, const Lanes<float>& x) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(x.part[0].data, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX__) && defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x.part[0].data, _MM_FROUND_TO_NEAREST_INT));
#else
  const auto codes = __builtin_convertvector(rounded_to<f16::Format>(x), native<std::uint16_t, width>);
  std::memcpy(to, &codes, sizeof codes);
#endif
}
}  // namespace simd

// ---- memory

/// Loads `width` elements of T, with any alignment.
template <class T> TESSERA_INLINE Lanes<lane_t<T>> load(const T* from) {
  if constexpr (std::is_same_v<T, bool>) {
    // Loaded as integers, since any non-zero byte is true.
    const auto bytes = load(reinterpret_cast<const std::uint8_t*>(from));
    return simd::to_mask<std::int32_t>(bytes.part[0] != xsimd::batch<std::int32_t>(0));
  } else if constexpr (std::is_same_v<T, bf16>) {
    simd::native<std::uint16_t, width> halves;
    std::memcpy(&halves, from, sizeof halves);
    const auto words = __builtin_convertvector(halves, simd::native<std::uint32_t, width>) << 16;
    return {{simd::to_batch<float>((simd::native<float, width>)words)}};
  } else if constexpr (std::is_same_v<T, f16>) {
    return simd::widen_halves(&from->bits);
  } else if constexpr (is_float8_v<T>) {
    simd::native<std::uint8_t, width> codes;
    std::memcpy(&codes, from, sizeof codes);
    return simd::widened_from<typename T::Format>(__builtin_convertvector(codes, simd::native<std::uint32_t, width>));
  } else if constexpr (sizeof(T) < 4) {
    simd::native<T, width> narrow;
    std::memcpy(&narrow, from, sizeof narrow);
    // Widened in two steps, since g++ 12 widens 8 to 32 bits element by element.
    const auto middle = __builtin_convertvector(narrow, simd::native<std::int16_t, width>);
    return {{simd::to_batch<std::int32_t>(__builtin_convertvector(middle, simd::native<std::int32_t, width>))}};
  } else if constexpr (Lanes<T>::parts == 1) {
    return {{xsimd::batch<T>::load_unaligned(from)}};
  } else {
    return {{xsimd::batch<T>::load_unaligned(from), xsimd::batch<T>::load_unaligned(from + Lanes<T>::part_width)}};
  }
}

/// Stores `width` elements of T, with any alignment.
template <class T> TESSERA_INLINE void store(T* to, const Lanes<lane_t<T>>& x) {
  if constexpr (std::is_same_v<T, bool>) {
    using Batch = xsimd::batch<std::int32_t>;
    const Lanes<std::int32_t> bytes{
        {simd::choose<std::int32_t>(simd::part_mask<std::int32_t, 0>(x), Batch(1), Batch(0))}};
    store(reinterpret_cast<std::uint8_t*>(to), bytes);
  } else if constexpr (std::is_same_v<T, bf16>) {
    const auto halves = __builtin_convertvector(simd::rounded_bf16(x) >> 16, simd::native<std::uint16_t, width>);
    std::memcpy(to, &halves, sizeof halves);
  } else if constexpr (std::is_same_v<T, f16>) {
    simd::round_to_halves(&to->bits, x);
  } else if constexpr (is_float8_v<T>) {
    const auto codes =
        __builtin_convertvector(simd::rounded_to<typename T::Format>(x), simd::native<std::uint8_t, width>);
    std::memcpy(to, &codes, sizeof codes);
  } else if constexpr (sizeof(T) < 4) {
    const auto middle =
        __builtin_convertvector(simd::to_native<std::int32_t>(x.part[0]), simd::native<std::int16_t, width>);
    const auto narrow = __builtin_convertvector(middle, simd::native<T, width>);
    std::memcpy(to, &narrow, sizeof narrow);
  } else if constexpr (Lanes<T>::parts == 1) {
    x.part[0].store_unaligned(to);
  } else {
    x.part[0].store_unaligned(to);
    x.part[1].store_unaligned(to + Lanes<T>::part_width);
  }
}

/// store() with non-temporal stores, for results that are not read soon. `to` must be aligned to `width` elements; call
/// finish_stores() before other threads read. Without such instructions, the same as store().
template <class T> TESSERA_INLINE void store_past_caches(T* to, const Lanes<lane_t<T>>& x) {
#if defined(__SSE2__)
  if constexpr (sizeof(T) >= 4) {
    for (int p = 0; p < Lanes<lane_t<T>>::parts; ++p) {
      void* const at = to + p * Lanes<lane_t<T>>::part_width;
      const auto bits = simd::to_native<T>(x.part[p]);
#if defined(__AVX512F__)
      _mm512_stream_si512(static_cast<__m512i*>(at), (__m512i)bits);
#elif defined(__AVX__)
      _mm256_stream_si256(static_cast<__m256i*>(at), (__m256i)bits);
#else
      _mm_stream_si128(static_cast<__m128i*>(at), (__m128i)bits);
#endif
    }
    return;
  }
#endif
  store(to, x);
}
inline void finish_stores() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

// ---- choice and conversion

template <class T>
TESSERA_INLINE Lanes<T> select(const Mask& condition, const Lanes<T>& then, const Lanes<T>& otherwise) {
  if constexpr (std::is_same_v<T, bool>)
    return {(condition.bits & then.bits) | (otherwise.bits & ~condition.bits)};
  else if constexpr (Lanes<T>::parts == 1)
    return {{simd::choose<T>(simd::part_mask<T, 0>(condition), then.part[0], otherwise.part[0])}};
  else
    return {{simd::choose<T>(simd::part_mask<T, 0>(condition), then.part[0], otherwise.part[0]),
             simd::choose<T>(simd::part_mask<T, 1>(condition), then.part[1], otherwise.part[1])}};
}

namespace simd {
/// The conversion of the compiler's vectors, which is not defined for floats beyond the range of an integer type.
template <class To, class From> TESSERA_INLINE Lanes<To> converted(const Lanes<From>& x) {
  if constexpr (sizeof(To) == sizeof(From)) {
    return each_part(
        [](const auto& a) TESSERA_INLINE_LAMBDA {
          return to_batch<To>(__builtin_convertvector(to_native<From>(a), part_vector<To>));
        },
        x);
  } else if constexpr (sizeof(To) > sizeof(From)) {
    const native<From, width> all = to_native<From>(x.part[0]);
    const native<From, half> low = half_of<0, From>(all), high = half_of<1, From>(all);
    return {{to_batch<To>(__builtin_convertvector(low, part_vector<To>)),
             to_batch<To>(__builtin_convertvector(high, part_vector<To>))}};
  } else {
    using Narrow = native<To, half>;
    const Narrow low = __builtin_convertvector(to_native<From>(x.part[0]), Narrow);
    const Narrow high = __builtin_convertvector(to_native<From>(x.part[1]), Narrow);
    return {{to_batch<To>(join<To>(low, high))}};
  }
}

/// `integers`, those of the floats x, with the nearest integer of the type for floats beyond its range, and 0
/// for NaN.
template <class To, class From> TESSERA_INLINE Lanes<To> saturated(const Lanes<To>& integers, const Lanes<From>& x) {
  constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
  constexpr auto below = static_cast<From>(least);  // a power of two, so exact; -below is the first float beyond
  const Mask fits = compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a < b; }, x,
                            splat<From>(-below)),
             sinks = compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a < b; }, x,
                             splat<From>(below)),
             ordered = compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a == b; }, x, x);
  const Lanes<To> raised = select(sinks, splat<To>(least), select(fits, integers, splat<To>(most)));
  return select(ordered, raised, splat<To>(To{0}));
}
}  // namespace simd

/// Converts each lane as static_cast would, but floats to integers as simd::saturated(); to bool, whether it is not
/// zero.
template <class To, class From> TESSERA_INLINE Lanes<To> convert(const Lanes<From>& x) {
  using namespace simd;
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>) {
    if constexpr (sizeof(To) > sizeof(From))
      return convert<To>(convert<double>(x));
    else
      return saturated(converted<To>(x), x);
  } else if constexpr (std::is_same_v<From, bool>) {
    return select(x, splat<To>(To{1}), splat<To>(To{0}));
  } else if constexpr (std::is_same_v<To, bool>) {
    return {~compare([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a == b; }, x, splat<From>(From{0}))
                 .bits};
  } else {
    return converted<To>(x);
  }
}

/// Reduces lanes to the values of T: narrow integers modulo 2^bits; rounds to floating types of 16 and 8 bits.
template <class T> TESSERA_INLINE Lanes<lane_t<T>> wrap(const Lanes<lane_t<T>>& x) {
  if constexpr (std::is_same_v<T, lane_t<T>>) {
    return x;
  } else if constexpr (std::is_same_v<T, bf16>) {
    return {{simd::to_batch<float>((simd::native<float, width>)(simd::rounded_bf16(x) & 0xffff0000))}};
  } else if constexpr (std::is_same_v<lane_t<T>, float>) {
    T rounded[width];
    store(rounded, x);
    return load(rounded);
  } else {
    constexpr int shift = 32 - 8 * static_cast<int>(sizeof(T));
    using Signless = simd::native<std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>, width>;
    const Signless up = (Signless)(simd::to_native<std::int32_t>(x.part[0]) << shift);
    return {{simd::to_batch<std::int32_t>((simd::native<std::int32_t, width>)(up >> shift))}};
  }
}

/// Lanes as elements of type T. Integers wrap around; floats beyond the range of an integer type become its nearest
/// integer.
template <class T, class From> TESSERA_INLINE Lanes<lane_t<T>> cast_to(const Lanes<From>& x) {
  const Lanes<lane_t<T>> value = convert<lane_t<T>>(x);
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<T> && !std::is_same_v<T, lane_t<T>>)
    return simd::each_part(
        [](const auto& a) TESSERA_INLINE_LAMBDA {
          using Batch = xsimd::batch<lane_t<T>>;
          return xsimd::min(xsimd::max(a, Batch(std::numeric_limits<T>::min())), Batch(std::numeric_limits<T>::max()));
        },
        value);
  else
    return wrap<T>(value);
}

/// start, start + 1, ..., exact as long as T represents the values exactly.
template <class T> TESSERA_INLINE Lanes<T> iota(std::int64_t start) {
  if constexpr (std::is_floating_point_v<T>) {
    return convert<T>(iota<std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>>(start));
  } else {
    const Lanes<T> base = splat<T>(static_cast<T>(start)), step = load(simd::iota_lanes<T>.value);
    return simd::each_part([](const auto& a, const auto& b) TESSERA_INLINE_LAMBDA { return a + b; }, base, step);
  }
}

/// True in the lanes below `count`.
TESSERA_INLINE Mask first_lanes(std::int64_t count) {
  const std::int32_t limit = static_cast<std::int32_t>(count < 0 ? 0 : count > width ? width : count);
  const Lanes<std::int32_t> lane = load(simd::iota_lanes<std::int32_t>.value);
  return simd::to_mask<std::int32_t>(lane.part[0] < xsimd::batch<std::int32_t>(limit));
}

// ---- across lanes

namespace simd {
template <int Distance, class T, std::size_t... I>
TESSERA_INLINE xsimd::batch<T> exchange(const xsimd::batch<T>& x, std::index_sequence<I...>) {
  const part_vector<T> v = to_native<T>(x);
  return to_batch<T>(__builtin_shufflevector(v, v, (static_cast<int>(I) ^ Distance)...));
}
template <int Distance, class T, class F>
TESSERA_INLINE xsimd::batch<T> reduce_register(F f, const xsimd::batch<T>& x) {
  if constexpr (Distance == 0) {
    return x;
  } else {
    constexpr auto lanes = std::make_index_sequence<Lanes<T>::part_width>{};
    return reduce_register<Distance / 2, T>(f, f(x, exchange<Distance, T>(x, lanes)));
  }
}
}  // namespace simd

/// Combines all lanes with `f`, pairwise.
template <class F, class T> TESSERA_INLINE T horizontal(F f, const Lanes<T>& x) {
  xsimd::batch<T> all = x.part[0];
  if constexpr (Lanes<T>::parts == 2) all = f(all, x.part[1]);
  return simd::to_native<T>(simd::reduce_register<Lanes<T>::part_width / 2, T>(f, all))[0];
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
