#ifndef TESSERA_KERNELS_RANDOM_HPP
#define TESSERA_KERNELS_RANDOM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/integers/philox.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/simd/lane_math.hpp>
#include <tessera/kernels/strided.hpp>
#include <tessera/ops/random/random_draw.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Counters that are computed together. Groups are aligned to the global index and always computed whole, by the same
/// instructions, so that an element does not depend on the box that a shard holds.
inline constexpr std::int64_t philox_lanes = 16;

using PhiloxWords = std::uint32_t[4][philox_lanes];

inline void philox_group(std::uint64_t key, std::uint64_t first_counter, PhiloxWords& words) {
  const auto low = static_cast<std::uint32_t>(key), high = static_cast<std::uint32_t>(key >> 32);
  for (std::uint32_t i = 0; i < philox_lanes; ++i) {
    // A group begins at a multiple of its size, so only the low word of the counter differs within it.
    std::uint32_t a = static_cast<std::uint32_t>(first_counter) + i,
                  b = static_cast<std::uint32_t>(first_counter >> 32);
    std::uint32_t c = 0, d = 0, k0 = low, k1 = high;
#pragma GCC unroll 10
    for (int round = 0; round < philox::rounds; ++round) {
      const std::uint64_t first = std::uint64_t{philox::multiplier[0]} * a;
      const std::uint64_t second = std::uint64_t{philox::multiplier[1]} * c;
      a = static_cast<std::uint32_t>(second >> 32) ^ b ^ k0;
      b = static_cast<std::uint32_t>(second);
      c = static_cast<std::uint32_t>(first >> 32) ^ d ^ k1;
      d = static_cast<std::uint32_t>(first);
      k0 += philox::weyl[0];
      k1 += philox::weyl[1];
    }
    words[0][i] = a;
    words[1][i] = b;
    words[2][i] = c;
    words[3][i] = d;
  }
}

/// Constants of a floating-point type T. `Bits` is the unsigned integer of the same size.
template <class T> struct RandomReal;
template <> struct RandomReal<float> {
  using Bits = std::uint32_t;
  using Int = std::int32_t;
  static constexpr int mantissa = 23, log_terms = 5, sine_terms = 5;
  static constexpr float unit = 0x1p-24f;
};
template <> struct RandomReal<double> {
  using Bits = std::uint64_t;
  using Int = std::int64_t;
  static constexpr int mantissa = 52, log_terms = 11, sine_terms = 9;
  static constexpr double unit = 0x1p-53;
};

/// Uniform in [0, 1): a multiple of 2^-24 for float, of 2^-53 for double.
template <class T> TESSERA_INLINE T uniform_of(typename RandomReal<T>::Bits bits) {
  using R = RandomReal<T>;
  constexpr int unused = static_cast<int>(sizeof(T)) * 8 - R::mantissa - 1;
  return static_cast<T>(static_cast<typename R::Int>(bits >> unused)) * R::unit;
}

/// -2 log(u) for u in (0, 1], by the series of atanh on [sqrt(1/2), sqrt(2)).
template <class T> TESSERA_INLINE T minus_two_log(T u) {
  using R = RandomReal<T>;
  using Int = typename R::Int;
  constexpr T root_half = T(0.70710678118654752440), log_two = T(0.69314718055994530942);
  const Int bits = std::bit_cast<Int>(u);
  const Int exponent = (bits - std::bit_cast<Int>(root_half)) >> R::mantissa;
  const T m = std::bit_cast<T>(bits - (exponent << R::mantissa));
  const T s = (m - T(1)) / (m + T(1)), square = s * s;
  T series = T(1) / T(2 * R::log_terms - 1);
#pragma GCC unroll 16
  for (int term = R::log_terms - 1; term > 0; --term) series = series * square + T(1) / T(2 * term - 1);
  return T(-2) * (static_cast<T>(exponent) * log_two + T(2) * s * series);
}

/// cos and sin of 2 pi bits / 2^n, where the reduction to an eighth of a turn is exact.
template <class T> TESSERA_INLINE void cos_sin_of(typename RandomReal<T>::Bits bits, T& cos, T& sin) {
  using R = RandomReal<T>;
  using Bits = typename R::Bits;
  using Int = typename R::Int;
  constexpr int size = static_cast<int>(sizeof(T)) * 8;
  constexpr T turn = T(6.28318530717958647693) / (T(2) * static_cast<T>(Bits{1} << (size - 1)));
  const Bits quadrant = (bits + (Bits{1} << (size - 3))) >> (size - 2);
  const T x = static_cast<T>(static_cast<Int>(bits - (quadrant << (size - 2)))) * turn;
  const T square = x * x;
  T s = T(1), c = T(1);
#pragma GCC unroll 16
  for (int term = R::sine_terms; term > 0; --term) {
    s = T(1) - square * s * (T(1) / T(2 * term * (2 * term + 1)));
    c = T(1) - square * c * (T(1) / T(2 * term * (2 * term - 1)));
  }
  s *= x;
  const bool odd = (quadrant & 1) != 0;
  const Bits cos_sign = ((quadrant + 1) & 2) << (size - 2), sin_sign = (quadrant & 2) << (size - 2);
  cos = std::bit_cast<T>(std::bit_cast<Bits>(odd ? s : c) ^ cos_sign);
  sin = std::bit_cast<T>(std::bit_cast<Bits>(odd ? c : s) ^ sin_sign);
}

template <class T> void square_roots(T* values, std::int64_t count) {
  using Batch = xsimd::batch<T>;
  constexpr auto lanes = static_cast<std::int64_t>(Batch::size);
  for (std::int64_t i = 0; i < count; i += lanes)
    simd::sqrt<T>(Batch::load_unaligned(values + i)).store_unaligned(values + i);
}

/// Number of elements computed from one counter.
template <class T> inline constexpr std::int64_t per_counter = 16 / static_cast<std::int64_t>(sizeof(T));

/// Elements of one group of counters.
template <class T> inline constexpr std::int64_t group_size = philox_lanes * per_counter<T>;

/// Elements [group_size * group, group_size * (group + 1)) of the stream. Not inlined, since the compiler could
/// contract multiplications and additions to FMA differently at each call.
template <class T, Distribution D>
__attribute__((noinline)) void random_group(std::uint64_t key, std::int64_t group, T* out) {
  using Bits = typename RandomReal<T>::Bits;
  using Int = typename RandomReal<T>::Int;
  constexpr std::int64_t parts = per_counter<T>;
  constexpr int size = static_cast<int>(sizeof(T)) * 8;
  alignas(64) PhiloxWords words;
  philox_group(key, static_cast<std::uint64_t>(group * philox_lanes), words);
  alignas(64) Bits bits[parts][philox_lanes];
  for (std::int64_t part = 0; part < parts; ++part)
    for (std::int64_t i = 0; i < philox_lanes; ++i) {
      if constexpr (size == 32) {
        bits[part][i] = words[part][i];
      } else {
        bits[part][i] = Bits{words[2 * part][i]} << 32 | words[2 * part + 1][i];
      }
    }
  alignas(64) T values[parts][philox_lanes];
  if constexpr (D == Distribution::uniform) {
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::int64_t i = 0; i < philox_lanes; ++i) values[part][i] = uniform_of<T>(bits[part][i]);
  } else {
    // Box-Muller: two adjacent elements share a radius and an angle.
    constexpr int unused = size == 32 ? 1 : 12;
    constexpr T scale = T(0.5) / static_cast<T>(Bits{1} << (size - unused - 1));
    alignas(64) T radius[philox_lanes], cos[philox_lanes], sin[philox_lanes];
    for (std::int64_t part = 0; part < parts; part += 2) {
      for (std::int64_t i = 0; i < philox_lanes; ++i)
        radius[i] = minus_two_log((static_cast<T>(static_cast<Int>(bits[part][i] >> unused)) + T(0.5)) * scale);
      square_roots(radius, philox_lanes);
      for (std::int64_t i = 0; i < philox_lanes; ++i) cos_sin_of(bits[part + 1][i], cos[i], sin[i]);
      for (std::int64_t i = 0; i < philox_lanes; ++i) {
        values[part][i] = radius[i] * cos[i];
        values[part + 1][i] = radius[i] * sin[i];
      }
    }
  }
  for (std::int64_t i = 0; i < philox_lanes; ++i)
    for (std::int64_t part = 0; part < parts; ++part) out[i * parts + part] = values[part][i];
}

}  // namespace detail

/// Fills the box [begin, begin + extents) of a tensor of shape `global` with random values, uniform in [0, 1) or normal
/// with mean 0 and variance 1. An element depends only on the key and its row-major index in the global tensor, so that
/// results are bitwise equal for every mesh and number of threads.
template <class T, Distribution D>
void fill_random(T* dst, const Strides& strides, std::uint64_t key, const Shape& global, const Shape& begin,
                 const Shape& extents) {
  if (detail::is_empty(extents)) return;
  const Strides global_strides = contiguous_strides(global);
  const detail::Loops loops = detail::make_loops(extents, global_strides, strides);
  const auto inner = loops.from_inside(0);
  const std::int64_t step = detail::stride_of(strides, inner);
  // Step of the innermost loop in the global index: 1, unless the last dims have extent 1 in this box.
  const std::int64_t index_step = detail::stride_of(global_strides, inner);
  std::int64_t first = 0;
  for (std::size_t d = 0; d < begin.size(); ++d) first += begin[d] * global_strides[d];

  constexpr std::int64_t size = detail::group_size<T>;
  alignas(64) T group[size];
  std::int64_t held = -1;
  detail::for_each_outer(loops, 1, [&](const std::int64_t* at) {
    const std::int64_t index = first + detail::offset_of(loops, 1, at, global_strides);
    T* row = dst + detail::offset_of(loops, 1, at, strides);
    for (std::int64_t i = 0; i < inner.extent;) {
      const std::int64_t element = index + i * index_step;
      const std::int64_t in_group = element % size;
      if (const std::int64_t wanted = element / size; wanted != held) {
        held = wanted;
        if (in_group == 0 && index_step == 1 && step == 1 && inner.extent - i >= size) {
          detail::random_group<T, D>(key, wanted, row + i);
          held = -1;
          i += size;
          continue;
        }
        detail::random_group<T, D>(key, wanted, group);
      }
      if (index_step == 1) {
        const std::int64_t count = std::min(size - in_group, inner.extent - i);
        for (std::int64_t j = 0; j < count; ++j) row[(i + j) * step] = group[in_group + j];
        i += count;
      } else {
        row[i * step] = group[in_group];
        ++i;
      }
    }
  });
}

template <class T>
void fill_uniform(T* dst, const Strides& strides, std::uint64_t key, const Shape& global, const Shape& begin,
                  const Shape& extents) {
  fill_random<T, Distribution::uniform>(dst, strides, key, global, begin, extents);
}

template <class T>
void fill_normal(T* dst, const Strides& strides, std::uint64_t key, const Shape& global, const Shape& begin,
                 const Shape& extents) {
  fill_random<T, Distribution::normal>(dst, strides, key, global, begin, extents);
}

/// fill_random for a dtype known at run time: f32 or f64.
inline void fill_random(DType type, Distribution distribution, void* dst, const Strides& strides, std::uint64_t key,
                        const Shape& global, const Shape& begin, const Shape& extents) {
  const auto fill = [&]<class T>(T* to) {
    distribution == Distribution::uniform ? fill_uniform(to, strides, key, global, begin, extents)
                                          : fill_normal(to, strides, key, global, begin, extents);
  };
  if (type == DType::f32) return fill(static_cast<float*>(dst));
  if (type == DType::f64) return fill(static_cast<double*>(dst));
  fail(errc::dtype_mismatch, "[random] dtype: ", name_of(type), " is neither f32 nor f64");
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
