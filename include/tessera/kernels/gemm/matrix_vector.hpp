#ifndef TESSERA_KERNELS_GEMM_MATRIX_VECTOR_HPP
#define TESSERA_KERNELS_GEMM_MATRIX_VECTOR_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/loop_gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// A matrix operand that is contiguous along rows or columns.
template <class T> struct DenseOperand {
  const T* data;
  std::int64_t stride;  ///< between columns, or between rows when row_major
  bool row_major;
};

/// The operand in place if it is contiguous along a dim, otherwise copied to scratch.
template <Scratch Use, class T>
DenseOperand<T> dense_operand(const T* data, std::int64_t rows, std::int64_t cols, std::int64_t row_stride,
                              std::int64_t col_stride) {
  if (row_stride == 1 || rows == 1) return {data, col_stride, false};
  if (col_stride == 1 || cols == 1) return {data, row_stride, true};
  T* packed = thread_scratch<Use, T>(static_cast<std::size_t>(rows * cols));
  strided_copy(packed, {cols, 1}, data, {row_stride, col_stride}, {rows, cols}, sizeof(T));
  return {packed, cols, true};
}

/// y += alpha A x, for a Gemm with n == 1. Bound by memory bandwidth, so plain loops suffice: a dot product per row, or
/// y += x[j] * column j.
template <class T> void matrix_vector(const Gemm<T>& g) {
  const auto a = dense_operand<Scratch::packed_a>(g.a, g.m, g.k, g.a_row, g.a_col);
  if (a.row_major) {
    for (std::int64_t i = 0; i < g.m; ++i)
      g.c[i * g.c_row] += g.alpha * dot(a.data + i * a.stride, 1, g.b, g.b_row, g.k);
    return;
  }
  T* y = g.c;
  if (g.c_row != 1) {
    y = thread_scratch<Scratch::packed_c, T>(static_cast<std::size_t>(g.m));
    for (std::int64_t i = 0; i < g.m; ++i) y[i] = g.c[i * g.c_row];
  }
  const auto add_columns = [&](T* to, std::int64_t first, std::int64_t end) {
    for (std::int64_t k = first; k < end; ++k) {
      const T factor = g.alpha * g.b[k * g.b_row];
      const T* column = a.data + k * a.stride;
      for (std::int64_t i = 0; i < g.m; ++i) to[i] += factor * column[i];
    }
  };
  if (std::is_same_v<T, long_sum_t<T>> || g.k <= sum_run) {
    add_columns(y, 0, g.k);
  } else {
    const auto m = static_cast<std::size_t>(g.m);
    auto* const sums = thread_scratch<Scratch::long_sums, long_sum_t<T>>(2 * m);
    T* const run = reinterpret_cast<T*>(sums + m);
    for (std::int64_t i = 0; i < g.m; ++i) sums[i] = y[i];
    for (std::int64_t k = 0; k < g.k; k += sum_run) {
      std::fill_n(run, m, T(0));
      add_columns(run, k, std::min(k + sum_run, g.k));
      for (std::int64_t i = 0; i < g.m; ++i) sums[i] += run[i];
    }
    for (std::int64_t i = 0; i < g.m; ++i) y[i] = static_cast<T>(sums[i]);
  }
  if (y != g.c)
    for (std::int64_t i = 0; i < g.m; ++i) g.c[i * g.c_row] = y[i];
}

/// Computes the product if m, n or k is 0 or m or n is 1, and returns whether it did.
template <class T> bool thin_gemm(Gemm<T> g) {
  if (g.m == 0 || g.n == 0) return true;
  if (g.m > 1 && g.n > 1 && g.k > 0) return false;
  if (!g.accumulate) strided_fill_zero(g.c, {g.c_row, g.c_col}, {g.m, g.n}, sizeof(T));
  if (g.k == 0) return true;
  if (g.m == 1 && g.n == 1) {
    *g.c += g.alpha * dot(g.a, g.a_col, g.b, g.b_row, g.k);
  } else {
    matrix_vector(g.m == 1 ? transposed(g) : g);
  }
  return true;
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
