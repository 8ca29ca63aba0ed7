#ifndef TESSERA_KERNELS_GEMM_LOOP_GEMM_HPP
#define TESSERA_KERNELS_GEMM_LOOP_GEMM_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/long_sums.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// c + a * b, where integers wrap. Narrow integers are multiplied as unsigned, since int overflow is undefined.
template <class T> T multiply_add(T c, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::common_type_t<unsigned, std::make_unsigned_t<T>>;
    return static_cast<T>(static_cast<U>(c) + static_cast<U>(a) * static_cast<U>(b));
  } else {
    return c + a * b;
  }
}

template <class T> T scale(T value, T alpha) { return multiply_add(T(0), value, alpha); }

/// Dot product of one run of terms, in 32 partial sums, so that the compiler vectorises it without -ffast-math.
template <class T>
product_t<T> dot_run(const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, std::int64_t count) {
  using R = product_t<T>;
  constexpr std::int64_t lanes = 32;
  R total(0);
  std::int64_t i = 0;
  if (a_step == 1 && b_step == 1 && count >= lanes) {
    R sums[lanes] = {};
    for (; i + lanes <= count; i += lanes)
      for (std::int64_t lane = 0; lane < lanes; ++lane)
        sums[lane] = multiply_add<R>(sums[lane], a[i + lane], b[i + lane]);
    for (std::int64_t width = lanes / 2; width > 0; width /= 2)
      for (std::int64_t lane = 0; lane < width; ++lane)
        sums[lane] = multiply_add<R>(sums[lane], sums[lane + width], R(1));
    total = sums[0];
  }
  for (; i < count; ++i) total = multiply_add<R>(total, a[i * a_step], b[i * b_step]);
  return total;
}

/// Dot product of any length: f32 runs are added in f64.
template <class T>
product_t<T> dot(const T* a, std::int64_t a_step, const T* b, std::int64_t b_step, std::int64_t count) {
  using R = product_t<T>;
  const std::int64_t run = a_step == 1 && b_step == 1 ? 32 * sum_run : sum_run;
  if (count <= run) return dot_run(a, a_step, b, b_step, count);
  long_sum_t<R> total(0);
  for (std::int64_t i = 0; i < count; i += run)
    total = multiply_add<long_sum_t<R>>(
        total, dot_run(a + i * a_step, a_step, b + i * b_step, b_step, std::min(run, count - i)), 1);
  return static_cast<R>(total);
}

}  // namespace detail

/// A matrix product by loops over blocks that fit the L1 cache, for types that providers lack. Integers wrap around.
template <class T> void loop_gemm(const Gemm<T>& given) {
  const Gemm<T> g = given.c_col != 1 && given.c_row == 1 ? transposed(given) : given;
  constexpr std::int64_t k_block = 32, n_block = 128;
  T b[k_block * n_block], row[n_block];
  if (g.k == 0 && !g.accumulate) {
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) g.c[i * g.c_row + j * g.c_col] = T(0);
  }
  for (std::int64_t j0 = 0; j0 < g.n; j0 += n_block) {
    const std::int64_t cols = std::min(n_block, g.n - j0);
    for (std::int64_t k0 = 0; k0 < g.k; k0 += k_block) {
      const std::int64_t depth = std::min(k_block, g.k - k0);
      const bool add = g.accumulate || k0 > 0;
      for (std::int64_t k = 0; k < depth; ++k)
        for (std::int64_t j = 0; j < cols; ++j)
          b[k * n_block + j] = detail::scale(g.b[(k0 + k) * g.b_row + (j0 + j) * g.b_col], g.alpha);
      for (std::int64_t i = 0; i < g.m; ++i) {
        T* c = g.c + i * g.c_row + j0 * g.c_col;
        const T* a = g.a + i * g.a_row + k0 * g.a_col;
        for (std::int64_t j = 0; j < cols; ++j) row[j] = add ? c[j * g.c_col] : T(0);
        for (std::int64_t k = 0; k < depth; ++k) {
          const T value = a[k * g.a_col];
          for (std::int64_t j = 0; j < cols; ++j) row[j] = detail::multiply_add(row[j], value, b[k * n_block + j]);
        }
        for (std::int64_t j = 0; j < cols; ++j) c[j * g.c_col] = row[j];
      }
    }
  }
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
