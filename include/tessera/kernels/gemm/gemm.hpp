#ifndef TESSERA_KERNELS_GEMM_GEMM_HPP
#define TESSERA_KERNELS_GEMM_GEMM_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/base/dtype.hpp>

namespace tessera::kernels {

/// The type in which products of T are accumulated and stored: T itself, but float for bf16 and f16.
template <class T> using product_t = computed_t<T>;

/// A matrix product C = alpha A B, or C += alpha A B. A is [m, k], B is [k, n], C is [m, n], with any strides, in
/// elements. C must not overlap A or B, and its elements must have distinct addresses.
template <class T> struct Gemm {
  std::int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;
  std::int64_t a_row = 0, a_col = 0;
  const T* b = nullptr;
  std::int64_t b_row = 0, b_col = 0;
  product_t<T>* c = nullptr;
  std::int64_t c_row = 0, c_col = 0;
  bool accumulate = false;
  product_t<T> alpha = product_t<T>(1);
};

/// C^T = alpha B^T A^T: the same product with rows and columns exchanged.
template <class T> constexpr Gemm<T> transposed(const Gemm<T>& g) {
  return {g.n, g.m, g.k, g.b, g.b_col, g.b_row, g.a, g.a_col, g.a_row, g.c, g.c_col, g.c_row, g.accumulate, g.alpha};
}

/// Interface of matrix product libraries: this library's kernels by default; Eigen, CBLAS or oneDNN. An implementation
/// runs on the calling thread alone (callers divide products among threads), has no state, and accepts any strides and
/// extents, 0 included.
struct ContractionProvider {
  ContractionProvider() = default;
  ContractionProvider(const ContractionProvider&) = delete;
  ContractionProvider& operator=(const ContractionProvider&) = delete;
  virtual ~ContractionProvider() = default;

  virtual std::string_view name() const = 0;
  virtual bool supports(DType type) const { return type == DType::f32 || type == DType::f64; }
  virtual void gemm(const Gemm<float>& g) const = 0;
  virtual void gemm(const Gemm<double>& g) const = 0;
};

}  // namespace tessera::kernels

#include <tessera/base/pop_macros.hpp>

#endif
