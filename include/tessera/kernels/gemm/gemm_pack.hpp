#ifndef TESSERA_KERNELS_GEMM_GEMM_PACK_HPP
#define TESSERA_KERNELS_GEMM_GEMM_PACK_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/isa.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// A matrix to be packed. Its lanes are the rows of A or the columns of B; a step is an index along k.
template <class T> struct PackSource {
  const T* data = nullptr;
  std::int64_t lane = 0, step = 0;  ///< strides in elements
};

/// Elements in 16 bytes: the steps of a block that is transposed in registers.
template <class T> inline constexpr int transposed_steps = 16 / static_cast<int>(sizeof(T));

/// Transposes a block of 4 lanes x 4 steps (f32) or 2 x 2 (f64): lane l is read at from[l] + k, step s is written at
/// to + s * stride.
struct PortableTranspose {
  template <class T> static constexpr int lanes = transposed_steps<T>;

  static void run(const float* const* from, std::int64_t k, float* to, std::int64_t stride) {
    const auto a = load(from[0] + k), b = load(from[1] + k), c = load(from[2] + k), d = load(from[3] + k);
    const auto ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const auto ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    store(to, __builtin_shufflevector(ab, cd, 0, 1, 4, 5));
    store(to + stride, __builtin_shufflevector(ab, cd, 2, 3, 6, 7));
    store(to + 2 * stride, __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5));
    store(to + 3 * stride, __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7));
  }
  static void run(const double* const* from, std::int64_t k, double* to, std::int64_t stride) {
    const auto a = load(from[0] + k), b = load(from[1] + k);
    store(to, __builtin_shufflevector(a, b, 0, 2));
    store(to + stride, __builtin_shufflevector(a, b, 1, 3));
  }
  /// Transposes squares of whole registers, if a level has them. Returns the steps that are done.
  template <class T> static std::int64_t squares(const T* const*, std::int64_t, std::int64_t, T*) { return 0; }

 private:
  template <class T> struct Native {
    typedef T type __attribute__((vector_size(16)));
  };
  template <class T> static typename Native<T>::type load(const T* from) {
    typename Native<T>::type value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  template <class T, class V> static void store(T* to, const V& value) { std::memcpy(to, &value, sizeof(value)); }
};

#if defined(__x86_64__)
/// PortableTranspose for a whole register of lanes. Each quarter of a register is loaded from a different lane, without
/// a shuffle, so that only two rounds of shuffles within quarters remain.
struct Avx512Transpose {
  template <class T> static constexpr int lanes = 64 / static_cast<int>(sizeof(T));
#define TESSERA_TARGET __attribute__((target("avx512f"), always_inline))

  TESSERA_TARGET static inline void run(const float* const* from, std::int64_t k, float* to, std::int64_t stride) {
    const __m512 a = quarters<4>(from, k), b = quarters<4>(from + 1, k), c = quarters<4>(from + 2, k),
                 d = quarters<4>(from + 3, k);
    const __m512 ab = _mm512_unpacklo_ps(a, b), cd = _mm512_unpacklo_ps(c, d);
    const __m512 ab_high = _mm512_unpackhi_ps(a, b), cd_high = _mm512_unpackhi_ps(c, d);
    _mm512_storeu_ps(to, _mm512_shuffle_ps(ab, cd, 0x44));
    _mm512_storeu_ps(to + stride, _mm512_shuffle_ps(ab, cd, 0xee));
    _mm512_storeu_ps(to + 2 * stride, _mm512_shuffle_ps(ab_high, cd_high, 0x44));
    _mm512_storeu_ps(to + 3 * stride, _mm512_shuffle_ps(ab_high, cd_high, 0xee));
  }
  TESSERA_TARGET static inline void run(const double* const* from, std::int64_t k, double* to, std::int64_t stride) {
    const __m512d a = _mm512_castps_pd(quarters<2>(from, k)), b = _mm512_castps_pd(quarters<2>(from + 1, k));
    _mm512_storeu_pd(to, _mm512_unpacklo_pd(a, b));
    _mm512_storeu_pd(to + stride, _mm512_unpackhi_pd(a, b));
  }
  /// Squares of 16 lanes x 16 steps, which read each cache line of a lane once: where lanes are a multiple of 4 KB
  /// apart, as rows of a matrix often are, 14 lanes do not fit into a set of the L1 cache and would be read from the L2
  /// cache for each 4 steps.
  TESSERA_TARGET static inline std::int64_t squares(const float* const* from, std::int64_t depth, std::int64_t width,
                                                    float* to) {
    std::int64_t k = 0;
    for (; k + 16 <= depth; k += 16)
      for (std::int64_t l = 0; l < width; l += 16) square(from + l, k, to + k * width + l, width);
    return k;
  }
  TESSERA_TARGET static inline std::int64_t squares(const double* const*, std::int64_t, std::int64_t, double*) {
    return 0;
  }
  /// Indices of x and y are constants once the loops are unrolled.
  TESSERA_TARGET static inline void square(const float* const* from, std::int64_t k, float* to, std::int64_t stride) {
    __m512 x[16], y[16];
#pragma GCC unroll 16
    for (int l = 0; l < 16; ++l) x[l] = _mm512_loadu_ps(from[l] + k);
#pragma GCC unroll 16
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
      y[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    // Quarter c of x[4 q + p] then holds step 4 c + p of lanes 4 q to 4 q + 3.
#pragma GCC unroll 16
    for (int i = 0; i < 4; ++i) {
      x[4 * i] = _mm512_shuffle_ps(y[4 * i], y[4 * i + 2], 0x44);
      x[4 * i + 1] = _mm512_shuffle_ps(y[4 * i], y[4 * i + 2], 0xee);
      x[4 * i + 2] = _mm512_shuffle_ps(y[4 * i + 1], y[4 * i + 3], 0x44);
      x[4 * i + 3] = _mm512_shuffle_ps(y[4 * i + 1], y[4 * i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int p = 0; p < 4; ++p) {
      const __m512 a = _mm512_shuffle_f32x4(x[p], x[4 + p], 0x44), b = _mm512_shuffle_f32x4(x[p], x[4 + p], 0xee);
      const __m512 c = _mm512_shuffle_f32x4(x[8 + p], x[12 + p], 0x44),
                   d = _mm512_shuffle_f32x4(x[8 + p], x[12 + p], 0xee);
      _mm512_storeu_ps(to + p * stride, _mm512_shuffle_f32x4(a, c, 0x88));
      _mm512_storeu_ps(to + (4 + p) * stride, _mm512_shuffle_f32x4(a, c, 0xdd));
      _mm512_storeu_ps(to + (8 + p) * stride, _mm512_shuffle_f32x4(b, d, 0x88));
      _mm512_storeu_ps(to + (12 + p) * stride, _mm512_shuffle_f32x4(b, d, 0xdd));
    }
  }
  /// 16 bytes of each of the lanes 0, Apart, 2 * Apart, 3 * Apart.
  template <int Apart, class T> TESSERA_TARGET static inline __m512 quarters(const T* const* from, std::int64_t k) {
    const auto quarter = [&](int i) { return reinterpret_cast<const float*>(from[i * Apart] + k); };
    __m512 value = _mm512_castps128_ps512(_mm_loadu_ps(quarter(0)));
    value = _mm512_mask_broadcast_f32x4(value, 0x00f0, _mm_loadu_ps(quarter(1)));
    value = _mm512_mask_broadcast_f32x4(value, 0x0f00, _mm_loadu_ps(quarter(2)));
    return _mm512_mask_broadcast_f32x4(value, 0xf000, _mm_loadu_ps(quarter(3)));
  }
#undef TESSERA_TARGET
};

struct Avx2Transpose {
  template <class T> static constexpr int lanes = 32 / static_cast<int>(sizeof(T));
#define TESSERA_TARGET __attribute__((target("avx2,fma"), always_inline))

  TESSERA_TARGET static inline void run(const float* const* from, std::int64_t k, float* to, std::int64_t stride) {
    const __m256 a = halves<4>(from, k), b = halves<4>(from + 1, k), c = halves<4>(from + 2, k),
                 d = halves<4>(from + 3, k);
    const __m256 ab = _mm256_unpacklo_ps(a, b), cd = _mm256_unpacklo_ps(c, d);
    const __m256 ab_high = _mm256_unpackhi_ps(a, b), cd_high = _mm256_unpackhi_ps(c, d);
    _mm256_storeu_ps(to, _mm256_shuffle_ps(ab, cd, 0x44));
    _mm256_storeu_ps(to + stride, _mm256_shuffle_ps(ab, cd, 0xee));
    _mm256_storeu_ps(to + 2 * stride, _mm256_shuffle_ps(ab_high, cd_high, 0x44));
    _mm256_storeu_ps(to + 3 * stride, _mm256_shuffle_ps(ab_high, cd_high, 0xee));
  }
  TESSERA_TARGET static inline void run(const double* const* from, std::int64_t k, double* to, std::int64_t stride) {
    const __m256d a = _mm256_castps_pd(halves<2>(from, k)), b = _mm256_castps_pd(halves<2>(from + 1, k));
    _mm256_storeu_pd(to, _mm256_unpacklo_pd(a, b));
    _mm256_storeu_pd(to + stride, _mm256_unpackhi_pd(a, b));
  }
  template <class T>
  TESSERA_TARGET static inline std::int64_t squares(const T* const*, std::int64_t, std::int64_t, T*) {
    return 0;
  }
  template <int Apart, class T> TESSERA_TARGET static inline __m256 halves(const T* const* from, std::int64_t k) {
    const __m256 value = _mm256_castps128_ps256(_mm_loadu_ps(reinterpret_cast<const float*>(from[0] + k)));
    return _mm256_insertf128_ps(value, _mm_loadu_ps(reinterpret_cast<const float*>(from[Apart] + k)), 1);
  }
#undef TESSERA_TARGET
};
#endif

/// Packs lanes that are contiguous along k into one panel. Padding lanes repeat the last lane: their results are not
/// used, but uninitialised memory could contain denormals, which are slow.
template <class T>
using PackSteps = void (*)(const PackSource<T>& from, std::int64_t lanes, std::int64_t depth, std::int64_t width,
                           T* to);

#define TESSERA_PACK_STEPS(name, target, Transpose)                                                                \
  template <class T>                                                                                               \
  target void name(const PackSource<T>& from, std::int64_t lanes, std::int64_t depth, std::int64_t width, T* to) { \
    constexpr std::int64_t most = 32, together = Transpose::template lanes<T>, steps = transposed_steps<T>;        \
    const T* rows[most];                                                                                           \
    for (std::int64_t l = 0; l < width; ++l) rows[l] = from.data + (l < lanes ? l : lanes - 1) * from.lane;        \
    std::int64_t k = Transpose::squares(rows, depth, width, to);                                                   \
    for (; k + steps <= depth; k += steps)                                                                         \
      for (std::int64_t l = 0; l < width; l += together) Transpose::run(rows + l, k, to + k * width + l, width);   \
    for (; k < depth; ++k)                                                                                         \
      for (std::int64_t l = 0; l < width; ++l) to[k * width + l] = rows[l][k];                                     \
  }
TESSERA_PACK_STEPS(portable_pack_steps, , PortableTranspose)
#if defined(__x86_64__)
TESSERA_PACK_STEPS(avx2_pack_steps, __attribute__((target("avx2,fma"))), Avx2Transpose)
TESSERA_PACK_STEPS(avx512_pack_steps, __attribute__((target("avx512f"))), Avx512Transpose)
#endif
#undef TESSERA_PACK_STEPS

/// Copies one step of a full panel from lanes that are contiguous in memory.
template <class T> void copy_lanes(const T* from, std::int64_t width, T* to) {
  constexpr std::int64_t piece = 32 / sizeof(T);
  for (std::int64_t i = 0; i < width; i += piece) std::memcpy(to + i, from + i, piece * sizeof(T));
}

/// Prefetches one step of contiguous lanes into the L2 cache. Hardware prefetch does not cross pages, and each step may
/// be on another page.
template <class T> void fetch_lanes(const T* from, std::int64_t width) {
  constexpr std::int64_t line = 64 / sizeof(T);
  for (std::int64_t i = 0; i < width; i += line) __builtin_prefetch(from + i, 0, 2);
}

/// Packs `lanes` lanes and `depth` steps into consecutive panels of `width` lanes, a multiple of a register: lane l of
/// step k is at k * width + l of its panel. The last panel is padded. Tiles of A use only the first `apart` lanes of a
/// panel: the next panel begins with the lane after them, and the rest is whatever follows, up to lane `end`.
template <class T>
void pack_panels(PackSteps<T> along_steps, const PackSource<T>& from, std::int64_t lanes, std::int64_t depth,
                 std::int64_t width, T* to, std::int64_t apart, std::int64_t end) {
  const std::int64_t panels = (lanes + apart - 1) / apart;
  if (from.step == 1 && from.lane != 1) {
    for (std::int64_t p = 0; p < panels; ++p)
      along_steps({from.data + p * apart * from.lane, from.lane, 1}, std::min(width, end - p * apart), depth, width,
                  to + p * width * depth);
    return;
  }
  // A few steps of all panels at a time, so that the source is read in long rows and from few pages.
  constexpr std::int64_t steps = 8;
  for (std::int64_t k0 = 0; k0 < depth; k0 += steps) {
    const std::int64_t k1 = std::min(k0 + steps, depth);
    for (std::int64_t p = 0; p < panels; ++p) {
      const std::int64_t count = std::min(width, end - p * apart);
      const T* source = from.data + p * apart * from.lane;
      T* target = to + p * width * depth;
      for (std::int64_t k = k0; k < k1; ++k) {
        if (from.lane == 1 && count == width) {
          if (k + steps < depth) fetch_lanes(source + (k + steps) * from.step, width);
          copy_lanes(source + k * from.step, width, target + k * width);
          continue;
        }
        for (std::int64_t l = 0; l < count; ++l) target[k * width + l] = source[k * from.step + l * from.lane];
        for (std::int64_t l = count; l < width; ++l) target[k * width + l] = T(0);
      }
    }
  }
}
template <class T>
void pack_panels(PackSteps<T> along_steps, const PackSource<T>& from, std::int64_t lanes, std::int64_t depth,
                 std::int64_t width, T* to) {
  pack_panels(along_steps, from, lanes, depth, width, to, width, lanes);
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
