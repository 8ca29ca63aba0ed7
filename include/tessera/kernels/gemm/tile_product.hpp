#ifndef TESSERA_KERNELS_GEMM_TILE_PRODUCT_HPP
#define TESSERA_KERNELS_GEMM_TILE_PRODUCT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/kernels/simd/lane_arithmetic.hpp>
#include <tessera/kernels/simd/simd.hpp>

TESSERA_KERNEL_CODE_BEGIN
namespace tessera::kernels::inline TESSERA_ISA {

/// An operand that is read element by element and broadcast to a register. Any strides; not packed.
template <class T> struct Broadcast {
  const T* data = nullptr;
  std::int64_t row = 0, col = 0;
};

namespace detail {

/// x, a value that was loaded and is used many times, in a register. Otherwise g++ 12 makes a load of each use, an
/// operand in memory: one and a half loads for each product, where processors have one load port for each multiplier.
template <class T> TESSERA_INLINE xsimd::batch<T> in_register(xsimd::batch<T> x) {
#if defined(__AVX512F__)
  asm("" : "+v"(x.data));
#elif defined(__x86_64__)
  asm("" : "+x"(x.data));
#endif
  return x;
}

/// A micro-kernel: a block of M rows and N registers of C, accumulated in registers over the whole depth.
template <int M, int N, class T>
void product_block(T* c, std::int64_t c_row, const Broadcast<T>& a, const T* b, std::int64_t b_row, std::int64_t depth,
                   bool adds) {
  using Batch = xsimd::batch<T>;
  constexpr auto lanes = static_cast<std::int64_t>(Batch::size);
  [&]<std::size_t... I, std::size_t... J>(std::index_sequence<I...>, std::index_sequence<J...>) TESSERA_INLINE_LAMBDA {
    Batch sum[M * N];
    // One address for each row, in turn: g++ 12 would compute and keep all of them.
    T* at = c;
    const auto next = [&](std::size_t i) TESSERA_INLINE_LAMBDA {
      T* const own = at;
      if (i % N == N - 1) at += c_row;
      return own + static_cast<std::int64_t>(i % N) * lanes;
    };
    if (adds)
      ((sum[I] = Batch::load_unaligned(next(I))), ...);
    else
      ((sum[I] = Batch(T(0))), ...);
    const T* x = a.data;
    for (std::int64_t k = 0; k < depth; ++k, x += a.col, b += b_row) {
      const Batch row[N] = {in_register<T>(Batch::load_unaligned(b + static_cast<std::int64_t>(J) * lanes))...};
      ((sum[I] = simd::fma<T>(Batch(x[static_cast<std::int64_t>(I / N) * a.row]), row[I % N], sum[I])), ...);
    }
    at = c;
    (sum[I].store_unaligned(next(I)), ...);
  }(std::make_index_sequence<static_cast<std::size_t>(M * N)>{},
    std::make_index_sequence<static_cast<std::size_t>(N)>{});
}

/// Registers along a row of a block: with 32 vector registers 24 are accumulators, with 16 there are 12.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int block_columns = 4;
#else
inline constexpr int block_columns = 2;
#endif
inline constexpr int block_rows = 6;

template <int N, class T>
void product_columns(T* c, std::int64_t c_row, Broadcast<T> a, const T* b, std::int64_t b_row, std::int64_t rows,
                     std::int64_t depth, bool adds) {
  const auto step = [&]<int M>(std::integral_constant<int, M>) {
    product_block<M, N, T>(c, c_row, a, b, b_row, depth, adds);
    rows -= M;
    c += M * c_row;
    a.data += M * a.row;
  };
  while (rows >= block_rows) step(std::integral_constant<int, block_rows>{});
  if (rows >= 4) step(std::integral_constant<int, 4>{});
  if (rows >= 2) step(std::integral_constant<int, 2>{});
  if (rows >= 1) step(std::integral_constant<int, 1>{});
}

}  // namespace detail

/// C = A B or C += A B for operands in the L1 cache. A is [rows, depth]; B is [depth, registers] and C [rows,
/// registers], both with stride 1 along registers. Sums are in the order of depth, whatever the block.
template <class T>
void tile_product(T* c, std::int64_t c_row, const Broadcast<T>& a, const T* b, std::int64_t b_row, std::int64_t rows,
                  std::int64_t registers, std::int64_t depth, bool adds) {
  constexpr auto lanes = static_cast<std::int64_t>(xsimd::batch<T>::size);
  constexpr int most = detail::block_columns;
  std::int64_t j = 0;
  for (; j + most <= registers; j += most)
    detail::product_columns<most, T>(c + j * lanes, c_row, a, b + j * lanes, b_row, rows, depth, adds);
  if constexpr (most == 4) {
    if (registers - j == 3)
      return detail::product_columns<3, T>(c + j * lanes, c_row, a, b + j * lanes, b_row, rows, depth, adds);
    if (registers - j == 2)
      return detail::product_columns<2, T>(c + j * lanes, c_row, a, b + j * lanes, b_row, rows, depth, adds);
  }
  if (registers - j == 1)
    detail::product_columns<1, T>(c + j * lanes, c_row, a, b + j * lanes, b_row, rows, depth, adds);
}

namespace simd {

/// The low or high half of the interleaving of two registers.
template <int Half, class T, std::size_t... I>
TESSERA_INLINE xsimd::batch<T> interleave(const xsimd::batch<T>& a, const xsimd::batch<T>& b,
                                          std::index_sequence<I...>) {
  constexpr int lanes = Lanes<T>::part_width;
  return to_batch<T>(
      __builtin_shufflevector(to_native<T>(a), to_native<T>(b),
                              (static_cast<int>(I) / 2 + static_cast<int>(I) % 2 * lanes + Half * lanes / 2)...));
}

/// Transposes a square of registers in log2(lanes) rounds of interleaving.
template <int Rounds, class T, std::size_t... I>
TESSERA_INLINE void transpose_square(xsimd::batch<T>* x, std::index_sequence<I...> halves) {
  if constexpr (Rounds > 1) {
    constexpr std::size_t middle = sizeof...(I);
    constexpr auto all = std::make_index_sequence<2 * middle>{};
    const xsimd::batch<T> low[middle] = {interleave<0, T>(x[I], x[I + middle], all)...};
    const xsimd::batch<T> high[middle] = {interleave<1, T>(x[I], x[I + middle], all)...};
    ((x[2 * I] = low[I], x[2 * I + 1] = high[I]), ...);
    transpose_square<Rounds / 2, T>(x, halves);
  }
}

/// Transposes a square of elements from `from` to `to` and multiplies by `factor`.
template <class T, std::size_t... I>
TESSERA_INLINE void copy_transposed(T* to, std::int64_t to_row, const T* from, std::int64_t from_row,
                                    const xsimd::batch<T>& factor, std::index_sequence<I...>) {
  xsimd::batch<T> x[] = {xsimd::batch<T>::load_unaligned(from + static_cast<std::int64_t>(I) * from_row)...};
  transpose_square<static_cast<int>(sizeof...(I)), T>(x, std::make_index_sequence<sizeof...(I) / 2>{});
  ((x[I] * factor).store_unaligned(to + static_cast<std::int64_t>(I) * to_row), ...);
}

}  // namespace simd

/// to[c * to_row + r] = factor * from[r * from_row + c * from_col], zeros for r in [rows, padded).
template <class T>
void transpose_tile(T* to, std::int64_t to_row, const T* from, std::int64_t from_row, std::int64_t from_col,
                    std::int64_t rows, std::int64_t cols, std::int64_t padded, T factor) {
  using Batch = xsimd::batch<T>;
  constexpr auto lanes = static_cast<std::int64_t>(Batch::size);
  std::int64_t whole_rows = 0, whole_cols = 0;
  if (from_col == 1) {
    whole_rows = rows / lanes * lanes;
    whole_cols = cols / lanes * lanes;
    const Batch scale(factor);
    for (std::int64_t r = 0; r < whole_rows; r += lanes)
      for (std::int64_t c = 0; c < whole_cols; c += lanes)
        simd::copy_transposed<T>(to + c * to_row + r, to_row, from + r * from_row + c, from_row, scale,
                                 std::make_index_sequence<static_cast<std::size_t>(lanes)>{});
  }
  for (std::int64_t c = 0; c < cols; ++c) {
    for (std::int64_t r = c < whole_cols ? whole_rows : 0; r < rows; ++r)
      to[c * to_row + r] = factor * from[r * from_row + c * from_col];
    for (std::int64_t r = rows; r < padded; ++r) to[c * to_row + r] = T(0);
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA
TESSERA_KERNEL_CODE_END

#include <tessera/base/pop_macros.hpp>

#endif
