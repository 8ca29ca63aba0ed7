#ifndef TESSERA_KERNELS_GEMM_GEMM_TILES_HPP
#define TESSERA_KERNELS_GEMM_GEMM_TILES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/gemm_pack.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/kernels/isa.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Cache lines to prefetch while a tile is computed: `count` lines, `step` bytes apart.
struct Prefetch {
  const char* at = nullptr;
  std::int64_t step = 0, count = 0;
};

/// The operands of a micro-kernel, which computes one tile of C (+)= alpha A B from packed panels: element (i, k) of A
/// is a[k * a_step + i], element (k, j) of B is b[k * b_step + j].
template <class T> struct GemmTile {
  std::int64_t depth = 0;
  const T* a = nullptr;
  const T* b = nullptr;
  std::int64_t b_step = 0;
  T* c = nullptr;
  std::int64_t c_row = 0;
  T alpha = T(1);
  bool accumulate = false;
  Prefetch ahead[6];  ///< in this order; the last must have more lines than a tile prefetches
};

template <class T, int Bytes> struct GemmVector {
  typedef T type __attribute__((vector_size(Bytes)));
  typedef T in_memory __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};

/// The micro-kernels of one CpuLevel: the panel sizes, and a micro-kernel for each of three tile heights.
template <class T> struct GemmKernels {
  using Tile = void (*)(const GemmTile<T>&);
  static constexpr int most_rows = 14, most_cols = 32;

  int rows = 0, cols = 0;  ///< of a full tile
  int a_step = 0;          ///< width of a panel of A: rows, rounded up to whole registers
  int heights[3] = {};     ///< descending from `rows`; an edge tile uses the smallest height that covers its rows
  Tile tiles[3] = {};
  PackSteps<T> pack_steps = nullptr;

  /// Index of the smallest height that covers a tile of `height` rows.
  int fit(std::int64_t height) const {
    int i = 0;
    while (i < 2 && height <= heights[i + 1]) ++i;
    return i;
  }
};

#if defined(__x86_64__)
#define TESSERA_TARGET_AVX512 __attribute__((target("avx512f"), always_inline))
/// sum += *a * b in one instruction, which broadcasts *a from memory.
template <class Vector> TESSERA_TARGET_AVX512 inline void add_product(Vector& sum, const float* a, const Vector& b) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*a));
}
template <class Vector> TESSERA_TARGET_AVX512 inline void add_product(Vector& sum, const double* a, const Vector& b) {
  asm("vfmadd231pd %2%{1to8%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*a));
}
/// The same with an element of A in a register. By assembly too: below -O2 g++ would round the product before it is
/// added, and an element of C would depend on the row of the tile in which it is computed.
template <class Vector> TESSERA_TARGET_AVX512 inline void add_product(Vector& sum, const Vector& a, const Vector& b) {
  if constexpr (sizeof(sum[0]) == 4)
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(b), "v"(a));
  else
    asm("vfmadd231pd %2, %1, %0" : "+v"(sum) : "v"(b), "v"(a));
}
#undef TESSERA_TARGET_AVX512
/// The same with 16 registers of AVX2. From `sum += a * b` g++ 12 makes a load of b for each of its six uses in half of
/// the steps, which on processors with two loads a cycle takes one and a half times as long.
template <class Vector>
__attribute__((target("avx2,fma"), always_inline)) inline void add_product_avx2(Vector& sum, const Vector& a,
                                                                                const Vector& b) {
  if constexpr (sizeof(sum[0]) == 4)
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(b), "x"(a));
  else
    asm("vfmadd231pd %2, %1, %0" : "+x"(sum) : "x"(b), "x"(a));
}
#endif

// The accumulators are separate variables, two per row, since g++ would keep an array of them in memory. Compiler
// vector extensions instead of intrinsics, so that one source serves all instruction sets.
#define TESSERA_ROWS_4(F) F(0) F(1) F(2) F(3)
#define TESSERA_ROWS_6(F) TESSERA_ROWS_4(F) F(4) F(5)
#define TESSERA_ROWS_8(F) TESSERA_ROWS_6(F) F(6) F(7)
#define TESSERA_ROWS_14(F) TESSERA_ROWS_8(F) F(8) F(9) F(10) F(11) F(12) F(13)

#define TESSERA_TILE_ZERO(i) Vector left##i{}, right##i{};
#define TESSERA_TILE_MULTIPLY(i) left##i += a[i] * b0, right##i += a[i] * b1;
// Most rows use FMA with a broadcast memory operand. Compilers would load the element of A into a register, since it is
// used twice: one more instruction, and with hyper-threading instruction issue is the bottleneck. Every seventh row
// does use a register, since a core has fewer load ports than would be needed otherwise.
#define TESSERA_TILE_MULTIPLY_AVX512(i)                                    \
  if constexpr (i % 7 == 3) {                                              \
    const Vector element = a[i] - Vector{};                                \
    add_product(left##i, element, b0), add_product(right##i, element, b1); \
  } else {                                                                 \
    add_product(left##i, a + i, b0), add_product(right##i, a + i, b1);     \
  }
#define TESSERA_TILE_MULTIPLY_LOADED(i)                                    \
  {                                                                        \
    const Vector element = a[i] - Vector{};                                \
    add_product(left##i, element, b0), add_product(right##i, element, b1); \
  }
#define TESSERA_TILE_MULTIPLY_AVX2(i)                                                \
  {                                                                                  \
    const Vector element = a[i] - Vector{};                                          \
    add_product_avx2(left##i, element, b0), add_product_avx2(right##i, element, b1); \
  }
#define TESSERA_TILE_STEP(ROWS, MULTIPLY, a_step)                                                            \
  {                                                                                                          \
    const Vector b0 = *reinterpret_cast<const Loaded*>(b), b1 = *reinterpret_cast<const Loaded*>(b + lanes); \
    ROWS(MULTIPLY)                                                                                           \
    a += a_step, b += b_step;                                                                                \
  }
#define TESSERA_TILE_SCALE(i) left##i *= alpha, right##i *= alpha;
// All rows are read before any is written: rows are often a multiple of 4 KB apart, and a load waits for an earlier
// store with the same offset in its page.
#define TESSERA_TILE_ADD(i)                                   \
  left##i += *reinterpret_cast<const Loaded*>(c + i * c_row); \
  right##i += *reinterpret_cast<const Loaded*>(c + i * c_row + lanes);
#define TESSERA_TILE_STORE(i)                          \
  *reinterpret_cast<Loaded*>(c + i * c_row) = left##i; \
  *reinterpret_cast<Loaded*>(c + i * c_row + lanes) = right##i;

// Prefetches one cache line every fourth step: in a burst they would delay the loads of B's panel.
#define TESSERA_GEMM_TILE(name, target, bytes, ROWS, MULTIPLY, a_step)          \
  template <class T> target void name(const GemmTile<T>& tile) {                \
    using Vector = typename GemmVector<T, bytes>::type;                         \
    using Loaded = typename GemmVector<T, bytes>::in_memory;                    \
    constexpr std::int64_t lanes = bytes / sizeof(T);                           \
    const T *a = tile.a, *b = tile.b;                                           \
    const std::int64_t b_step = tile.b_step;                                    \
    const Prefetch* ahead = tile.ahead;                                         \
    const char* line = ahead->at;                                               \
    std::int64_t line_step = ahead->step, lines = ahead->count, k = tile.depth; \
    ROWS(TESSERA_TILE_ZERO)                                                     \
    for (; k >= 4; k -= 4) {                                                    \
      if (lines == 0) {                                                         \
        ++ahead;                                                                \
        line = ahead->at, line_step = ahead->step, lines = ahead->count;        \
      }                                                                         \
      __builtin_prefetch(line);                                                 \
      line += line_step, --lines;                                               \
      TESSERA_TILE_STEP(ROWS, MULTIPLY, a_step)                                 \
      TESSERA_TILE_STEP(ROWS, MULTIPLY, a_step)                                 \
      TESSERA_TILE_STEP(ROWS, MULTIPLY, a_step)                                 \
      TESSERA_TILE_STEP(ROWS, MULTIPLY, a_step)                                 \
    }                                                                           \
    for (; k > 0; --k) TESSERA_TILE_STEP(ROWS, MULTIPLY, a_step)                \
    T* const c = tile.c;                                                        \
    const std::int64_t c_row = tile.c_row;                                      \
    if (const T alpha = tile.alpha; alpha != T(1)) {                            \
      ROWS(TESSERA_TILE_SCALE)                                                  \
    }                                                                           \
    if (tile.accumulate) {                                                      \
      ROWS(TESSERA_TILE_ADD)                                                    \
    }                                                                           \
    ROWS(TESSERA_TILE_STORE)                                                    \
  }

#if defined(__x86_64__)
#define TESSERA_TARGET_AVX512 __attribute__((target("avx512f")))
#define TESSERA_TARGET_AVX2 __attribute__((target("avx2,fma")))
TESSERA_GEMM_TILE(avx512_tile_14, TESSERA_TARGET_AVX512, 64, TESSERA_ROWS_14, TESSERA_TILE_MULTIPLY_AVX512, 16)
TESSERA_GEMM_TILE(avx512_tile_14_loaded, TESSERA_TARGET_AVX512, 64, TESSERA_ROWS_14, TESSERA_TILE_MULTIPLY_LOADED, 16)
TESSERA_GEMM_TILE(avx512_tile_8, TESSERA_TARGET_AVX512, 64, TESSERA_ROWS_8, TESSERA_TILE_MULTIPLY_AVX512, 16)
TESSERA_GEMM_TILE(avx512_tile_4, TESSERA_TARGET_AVX512, 64, TESSERA_ROWS_4, TESSERA_TILE_MULTIPLY_AVX512, 16)
TESSERA_GEMM_TILE(avx2_tile_6, TESSERA_TARGET_AVX2, 32, TESSERA_ROWS_6, TESSERA_TILE_MULTIPLY_AVX2, 8)
TESSERA_GEMM_TILE(avx2_tile_4, TESSERA_TARGET_AVX2, 32, TESSERA_ROWS_4, TESSERA_TILE_MULTIPLY_AVX2, 8)
#undef TESSERA_TARGET_AVX512
#undef TESSERA_TARGET_AVX2
#endif
TESSERA_GEMM_TILE(portable_tile_6, , 16, TESSERA_ROWS_6, TESSERA_TILE_MULTIPLY, 8)
TESSERA_GEMM_TILE(portable_tile_4, , 16, TESSERA_ROWS_4, TESSERA_TILE_MULTIPLY, 8)

#undef TESSERA_GEMM_TILE
#undef TESSERA_TILE_STORE
#undef TESSERA_TILE_ADD
#undef TESSERA_TILE_SCALE
#undef TESSERA_TILE_STEP
#undef TESSERA_TILE_MULTIPLY_LOADED
#undef TESSERA_TILE_MULTIPLY_AVX512
#undef TESSERA_TILE_MULTIPLY_AVX2
#undef TESSERA_TILE_MULTIPLY
#undef TESSERA_TILE_ZERO
#undef TESSERA_ROWS_14
#undef TESSERA_ROWS_8
#undef TESSERA_ROWS_6
#undef TESSERA_ROWS_4

/// The micro-kernels of a member, whose level the processor must support. The members of a level differ only in tiles
/// of full height.
template <class T> const GemmKernels<T>& gemm_kernels(const GemmVariant& variant) {
  constexpr int scale = static_cast<int>(sizeof(T));
  static constexpr GemmKernels<T> portable{6,
                                           32 / scale,
                                           8,
                                           {6, 4, 4},
                                           {&portable_tile_6<T>, &portable_tile_4<T>, &portable_tile_4<T>},
                                           &portable_pack_steps<T>};
#if defined(__x86_64__)
  static constexpr GemmKernels<T> avx2{
      6, 64 / scale, 8, {6, 4, 4}, {&avx2_tile_6<T>, &avx2_tile_4<T>, &avx2_tile_4<T>}, &avx2_pack_steps<T>};
  static constexpr GemmKernels<T> avx512{14,
                                         128 / scale,
                                         16,
                                         {14, 8, 4},
                                         {&avx512_tile_14<T>, &avx512_tile_8<T>, &avx512_tile_4<T>},
                                         &avx512_pack_steps<T>};
  static constexpr GemmKernels<T> avx512_loads{14,
                                               128 / scale,
                                               16,
                                               {14, 8, 4},
                                               {&avx512_tile_14_loaded<T>, &avx512_tile_8<T>, &avx512_tile_4<T>},
                                               &avx512_pack_steps<T>};
  if (variant.level >= CpuLevel::avx512) return variant.loads_a ? avx512_loads : avx512;
  if (variant.level >= CpuLevel::avx2) return avx2;
#endif
  return portable;
}

/// The panel sizes and the packing of a level, which are the same for all its members.
template <class T> const GemmKernels<T>& gemm_kernels(CpuLevel level) {
  return gemm_kernels<T>(variants::default_gemm_variant(level));
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
