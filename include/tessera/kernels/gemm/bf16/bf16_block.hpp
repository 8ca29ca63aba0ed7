#ifndef TESSERA_KERNELS_GEMM_BF16_BF16_BLOCK_HPP
#define TESSERA_KERNELS_GEMM_BF16_BF16_BLOCK_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <optional>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <tessera/base/element/bf16.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/bf16/amx.hpp>
#include <tessera/kernels/isa.hpp>

// Products of bf16 in blocks of 32 x 32, accumulated in float, from packed operands: with AMX, or with the dot products
// of AVX512_BF16. Both take denormal operands as 0, and both replace denormal sums by 0.
TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Elements along k of one step of packed operands, and rows and columns of a block of C.
inline constexpr std::int64_t bf16_step = 32, bf16_block = 32;

#if defined(__x86_64__)
#define TESSERA_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
/// Two bf16, in memory.
typedef std::int32_t Pair __attribute__((aligned(2), may_alias));

/// Eight rows of the block that Bf16Blocks::multiply() computes. Their sums are 16 registers: enough to hide the
/// latency of a dot product, even where two start in each cycle.
TESSERA_TARGET inline void dot_rows(const bf16* a, const bf16* b, std::int64_t steps, const float* f,
                                    std::int64_t f_row, float* c, std::int64_t c_row) {
  constexpr int rows = 8;
  __m512 left[rows], right[rows];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
    left[i] = f == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(f + i * f_row);
    right[i] = f == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(f + i * f_row + 16);
  }
  for (; steps > 0; --steps, a += bf16_block * bf16_step, b += bf16_block * bf16_step)
#pragma GCC unroll 2
    for (std::int64_t pair = 0; pair < bf16_step; pair += 2) {
      const auto b0 = (__m512bh)_mm512_loadu_si512(b + 16 * pair),
                 b1 = (__m512bh)_mm512_loadu_si512(b + 16 * (bf16_step + pair));
#pragma GCC unroll 8
      for (int i = 0; i < rows; ++i) {
        __m512i element;
        // By assembly, since clang 16 crashes when it combines loads and broadcasts of 32 bits here.
        asm("vpbroadcastd %1, %0" : "=v"(element) : "m"(*reinterpret_cast<const Pair*>(a + i * bf16_step + pair)));
        left[i] = _mm512_dpbf16_ps(left[i], (__m512bh)element, b0);
        right[i] = _mm512_dpbf16_ps(right[i], (__m512bh)element, b1);
      }
    }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i) {
    _mm512_storeu_ps(c + i * c_row, left[i]);
    _mm512_storeu_ps(c + i * c_row + 16, right[i]);
  }
}
#undef TESSERA_TARGET

/// Multiplies blocks with the instructions of a CpuLevel that has some for bf16. With AMX, its registers are configured
/// while this object exists.
class Bf16Blocks {
 public:
  explicit Bf16Blocks(CpuLevel level) {
    if (level >= CpuLevel::amx) amx_.emplace();
  }

  /// A 32 x 32 block: C = F + A B, or A B if F is null; row strides of F and C are in floats. A step along k is 2 KiB
  /// of A and of B: rows (columns) 0 to 15, then 16 to 31. A step of A is stored row by row; a step of B by pairs of
  /// rows, the two elements of a column adjacent.
  void multiply(const bf16* a, const bf16* b, std::int64_t steps, const float* f, std::int64_t f_row, float* c,
                std::int64_t c_row) const {
    if (amx_) return amx_multiply(a, b, steps, f, f_row, c, c_row);
    for (std::int64_t row = 0; row < bf16_block; row += 8)
      dot_rows(a + row * bf16_step, b, steps, f == nullptr ? nullptr : f + row * f_row, f_row, c + row * c_row, c_row);
  }

 private:
  std::optional<AmxRegisters> amx_;
};
#endif

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
