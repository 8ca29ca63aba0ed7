#ifndef TESSERA_KERNELS_ATTENTION_ATTENTION_KERNELS_HPP
#define TESSERA_KERNELS_ATTENTION_ATTENTION_KERNELS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <tessera/kernels/attention/attention_shape.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/simd/lane_arithmetic.hpp>

namespace tessera::kernels {

/// An operand that is read element by element and broadcast to a vector. Any strides; not packed.
template <class T> struct Broadcast {
  const T* data = nullptr;
  std::int64_t row = 0, col = 0;
};

/// The state of online softmax of a tile of queries: the maximum score, the sum of exponentials, and the sum of values
/// weighted by the exponentials, by query.
template <class T> struct RunningSoftmax {
  T *largest, *totals, *sums;
  std::int64_t width;  ///< width of the values: rows of `sums`
};

/// A tile of the gradient, with a row for each key: scores, which become the weights of the softmax; products of the
/// cotangents with the values, which become the gradients of the scores, times `factor`.
template <class T> struct SlopeRows {
  T *weights, *slopes;
  const T *logarithms, *products;  ///< by query: logsumexp of its scores, product of its cotangent with its output
  T factor;
};

/// The vector code of attention for one CpuLevel. A column is a query or an element of a row; columns are whole vectors
/// and, except in multiply(), rows of tiles are attention_queries apart.
template <class T> struct AttentionKernels {
  std::int64_t lanes;          ///< of a vector
  std::int64_t block_columns;  ///< of a block of a product, which reads each row of its left operand once
  /// C = A B, or C += A B, for operands in the L1 cache. A is [rows, depth], B [depth, columns]. Sums are in the order
  /// of depth.
  void (*multiply)(T* c, std::int64_t c_row, const Broadcast<T>& a, const T* b, std::int64_t b_row, std::int64_t rows,
                   std::int64_t columns, std::int64_t depth, bool adds);
  /// to[c * to_row + r] = factor * from[r * from_row + c] for whole vectors of rows and columns.
  void (*transpose)(T* to, std::int64_t to_row, const T* from, std::int64_t from_row, std::int64_t rows,
                    std::int64_t columns, T factor);
  /// Replaces the scores of `keys` rows, in the vector at column `c`, by exp(score - maximum). If the maximum grows,
  /// rescales the sums.
  void (*take)(const RunningSoftmax<T>& softmax, T* scores, std::int64_t keys, std::int64_t c);
  /// Divides the sums by the totals. A query without keys gets 0.
  void (*divide)(const RunningSoftmax<T>& softmax, std::int64_t columns);
  void (*find_slopes)(const SlopeRows<T>& of, std::int64_t keys, std::int64_t columns);
  /// to = factor * to + from; without `from` if that is null.
  void (*scale_and_add)(T* to, const T* from, T factor, std::int64_t rows, std::int64_t columns);
  /// to[c] = the sum of x[i, c] * y[i, c] over the rows i.
  void (*column_products)(T* to, const T* x, const T* y, std::int64_t rows, std::int64_t columns);
};

}  // namespace tessera::kernels

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Member types, since as a template argument a vector type loses its attribute.
template <class T, int Bytes> struct LevelVector {
  typedef T type __attribute__((vector_size(Bytes)));
  typedef T in_memory __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};

#if defined(__x86_64__)
#define TESSERA_LEVEL avx512_attention
#define TESSERA_LEVEL_TARGET __attribute__((target("avx512f")))
#define TESSERA_LEVEL_BYTES 64
#define TESSERA_LEVEL_COLUMNS 4
#include <tessera/kernels/attention/attention_level.inc>

#define TESSERA_LEVEL avx2_attention
#define TESSERA_LEVEL_TARGET __attribute__((target("avx2,fma")))
#define TESSERA_LEVEL_BYTES 32
#define TESSERA_LEVEL_COLUMNS 2
#include <tessera/kernels/attention/attention_level.inc>
#endif

// With 32 vector registers 24 are accumulators, with 16 there are 12.
#define TESSERA_LEVEL portable_attention
#define TESSERA_LEVEL_TARGET
#define TESSERA_LEVEL_BYTES 16
#if defined(__aarch64__)
#define TESSERA_LEVEL_COLUMNS 4
#else
#define TESSERA_LEVEL_COLUMNS 2
#endif
#include <tessera/kernels/attention/attention_level.inc>

}  // namespace detail

/// The kernels of a level, which the processor must support.
template <class T> const AttentionKernels<T>& attention_kernels([[maybe_unused]] CpuLevel level) {
#if defined(__x86_64__)
  if (level >= CpuLevel::avx512) return detail::avx512_attention::attention_kernels<T>;
  if (level >= CpuLevel::avx2) return detail::avx2_attention::attention_kernels<T>;
#endif
  return detail::portable_attention::attention_kernels<T>;
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
