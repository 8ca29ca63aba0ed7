#ifndef TESSERA_RUNTIME_ORACLE_ORACLE_ROUNDING_HPP
#define TESSERA_RUNTIME_ORACLE_ORACLE_ROUNDING_HPP
#include <tessera/base/push_macros.hpp>

#include <cmath>

#include <tessera/base/dtype.hpp>

namespace tessera::runtime {

/// The unit in the last place (ulp) of 1: the relative difference of two results that round differently.
inline double rounding_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    case DType::f8_e4m3:
      return 0x1p-3;
    case DType::f8_e5m2:
      return 0x1p-2;
    default:
      return 0;
  }
}

/// Bound of the difference of a sum of n terms in two orders, in units of eps * sum(|term|): n in the worst case; for
/// n > 64, 8 standard deviations of a random walk of independent roundings (Higham and Mary 2019). The 2 is for a
/// factor of the sum and its final rounding.
inline double order_factor(double n) { return std::min(n, 8 * std::sqrt(n)) + 2; }

}  // namespace tessera::runtime

#include <tessera/base/pop_macros.hpp>

#endif
