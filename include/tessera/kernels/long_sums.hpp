#ifndef TESSERA_KERNELS_LONG_SUMS_HPP
#define TESSERA_KERNELS_LONG_SUMS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

// Summation of many f32 terms in the whole library: docs/decisions/0029. Runs of at most `sum_run` terms are added in
// f32 and the sums of runs in f64, so that the error is at most (sum_run + 4) 2^-24 of the sum of magnitudes for any
// number of terms. Where f64 sums are not affordable, the sums of runs are themselves added in runs.

namespace tessera::kernels {

/// Most terms that are added sequentially in f32.
inline constexpr std::int64_t sum_run = 64;

/// Most blocks of a matrix product along the contracted dim, each some hundred terms deep, that are added in f32.
inline constexpr std::int64_t product_run = 32;

/// The type in which sums of runs of T are accumulated.
template <class T> using long_sum_t = std::conditional_t<std::is_same_v<T, float>, double, T>;

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
