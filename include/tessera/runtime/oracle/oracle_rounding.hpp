#ifndef TESSERA_RUNTIME_ORACLE_ORACLE_ROUNDING_HPP
#define TESSERA_RUNTIME_ORACLE_ORACLE_ROUNDING_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>

#include <tessera/base/dtype.hpp>

namespace tessera::runtime {

/// The unit in the last place of what is near 1: results that are rounded differ by that much.
inline double rounding_of(DType dtype) {
  return dtype == DType::bf16 ? 0x1p-7 : dtype == DType::f32 ? 0x1p-23 : dtype == DType::f64 ? 0x1p-52 : 0;
}

/// How far apart two orders of a sum of n terms can be, in units of eps times the sum of the terms' sizes: n in the
/// worst case, and past 64 terms, where roundings behave as if independent, 8 standard deviations of their random walk
/// (Higham and Mary 2019). 2 are for what the sum is multiplied by and rounded to.
inline double order_factor(double n) { return std::min(n, 8 * std::sqrt(n)) + 2; }

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
