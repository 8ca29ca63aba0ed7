#ifndef TESSERA_KERNELS_GEMM_DENSE_GEMM_HPP
#define TESSERA_KERNELS_GEMM_DENSE_GEMM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/matrix_vector.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// A product in the form of BLAS gemm: C = alpha A B or C += alpha A B with C column-major with leading dimension
/// `c_stride`, A and B row-major or column-major. m and n are at least 2, k at least 1.
template <class T> struct DenseGemm {
  std::int64_t m = 0, n = 0, k = 0;
  T alpha = T(1);
  DenseOperand<T> a, b;
  T* c = nullptr;
  std::int64_t c_stride = 0;
  bool accumulate = false;

  /// Whether all extents and strides fit the int of a BLAS interface.
  bool fits_int() const {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    return m <= most && n <= most && k <= most && a.stride <= most && b.stride <= most && c_stride <= most;
  }
};

/// dense_operand() whose rows or columns don't overlap, as BLAS requires of the leading dimension.
template <Scratch Use, class T>
DenseOperand<T> library_operand(const T* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                                std::int64_t col_stride) {
  if (row_stride == 1 && col_stride >= rows) return {data, col_stride, false};
  if (col_stride == 1 && row_stride >= cols) return {data, row_stride, true};
  T* packed = thread_scratch<Use, T>(static_cast<std::size_t>(rows * cols));
  strided_copy(packed, {cols, 1}, data, {row_stride, col_stride}, {rows, cols}, sizeof(T));
  return {packed, cols, true};
}

/// Computes any Gemm by `multiply(DenseGemm<T>)`; operands and results with unsuitable strides are copied.
template <class T, class Multiply> void dense_gemm(Gemm<T> g, const Multiply& multiply) {
  if (thin_gemm(g)) return;
  if (g.c_row != 1) g = transposed(g);
  DenseGemm<T> dense{g.m, g.n, g.k, g.alpha, {}, {}, g.c, g.c_col, g.accumulate};
  const bool scattered = g.c_row != 1 || g.c_col < g.m;
  if (scattered) {
    dense.c = thread_scratch<Scratch::packed_c, T>(static_cast<std::size_t>(g.m * g.n));
    dense.c_stride = g.m;
    if (g.accumulate) strided_copy(dense.c, {1, g.m}, g.c, {g.c_row, g.c_col}, {g.m, g.n}, sizeof(T));
  }
  dense.a = library_operand<Scratch::packed_a>(g.a, g.m, g.k, g.a_row, g.a_col);
  dense.b = library_operand<Scratch::packed_b>(g.b, g.k, g.n, g.b_row, g.b_col);
  multiply(dense);
  if (scattered) strided_copy(g.c, {g.c_row, g.c_col}, dense.c, {1, g.m}, {g.m, g.n}, sizeof(T));
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
