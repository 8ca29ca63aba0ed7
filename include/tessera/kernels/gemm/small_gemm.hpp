#ifndef TESSERA_KERNELS_GEMM_SMALL_GEMM_HPP
#define TESSERA_KERNELS_GEMM_SMALL_GEMM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <cstring>

#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/isa.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// A member type, since as a template argument a vector type loses its attribute.
template <class T, int W> struct SmallLanes {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
};
template <class T> struct SmallLanes<T, 1> {
  using type = T;
};

/// Computes rows [row, row + R) and columns [col, col + W) of C. B and C have contiguous rows.
template <int R, int W, class T> TESSERA_INLINE void small_tile(const Gemm<T>& g, std::int64_t row, std::int64_t col) {
  using Lanes = typename SmallLanes<T, W>::type;
  Lanes sums[R] = {};
  for (std::int64_t k = 0; k < g.k; ++k) {
    Lanes right;
    std::memcpy(&right, g.b + k * g.b_row + col, sizeof right);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] += right * g.a[(row + r) * g.a_row + k * g.a_col];
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    T* const to = g.c + (row + r) * g.c_row + col;
    Lanes result = sums[r] * g.alpha;
    if (g.accumulate) {
      Lanes before;
      std::memcpy(&before, to, sizeof before);
      result += before;
    }
    std::memcpy(to, &result, sizeof result);
  }
}

template <int R, class T> void small_rows(const Gemm<T>& g, std::int64_t row) {
  constexpr int wide = 32 / sizeof(T), narrow = 16 / sizeof(T);
  std::int64_t col = 0;
  for (; col + wide <= g.n; col += wide) small_tile<R, wide>(g, row, col);
  for (; col + narrow <= g.n; col += narrow) small_tile<R, narrow>(g, row, col);
  for (; col < g.n; ++col) small_tile<R, 1>(g, row, col);
}

}  // namespace detail

/// Whether small_gemm() is faster than packed_gemm(), whose packing and dispatch cost more than a small product.
template <class T> bool is_small(const Gemm<T>& g) {
#if defined(__FMA__)
  constexpr std::int64_t most = 4096;
#else
  constexpr std::int64_t most = 1024;  // packed_gemm() may use FMA, which it detects at run time
#endif
  return g.b_col == 1 && g.c_col == 1 && g.m > 1 && g.n > 1 && g.m * g.n * g.k <= most;
}

/// C (+)= alpha A B without packing, summed in the order of k. B and C have contiguous rows.
template <class T> void small_gemm(const Gemm<T>& g) {
  std::int64_t row = 0;
  for (; row + 4 <= g.m; row += 4) detail::small_rows<4>(g, row);
  for (; row < g.m; ++row) detail::small_rows<1>(g, row);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
