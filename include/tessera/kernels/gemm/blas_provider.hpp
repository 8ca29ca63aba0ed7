#ifndef TESSERA_KERNELS_GEMM_BLAS_PROVIDER_HPP
#define TESSERA_KERNELS_GEMM_BLAS_PROVIDER_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <cblas.h>

#include <tessera/kernels/gemm/dense_gemm.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/isa.hpp>

#if defined(__GNUC__) && !defined(_WIN32)
extern "C" {
/// The function of OpenBLAS; null with another BLAS library.
__attribute__((weak)) void tessera_openblas_set_num_threads(int threads) __asm__("openblas_set_num_threads");
}
#endif

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

inline void blas_multiply(const DenseGemm<float>& g, CBLAS_TRANSPOSE a, CBLAS_TRANSPOSE b) {
  cblas_sgemm(CblasColMajor, a, b, static_cast<int>(g.m), static_cast<int>(g.n), static_cast<int>(g.k), g.alpha,
              g.a.data, static_cast<int>(g.a.stride), g.b.data, static_cast<int>(g.b.stride),
              g.accumulate ? 1.0f : 0.0f, g.c, static_cast<int>(g.c_stride));
}
inline void blas_multiply(const DenseGemm<double>& g, CBLAS_TRANSPOSE a, CBLAS_TRANSPOSE b) {
  cblas_dgemm(CblasColMajor, a, b, static_cast<int>(g.m), static_cast<int>(g.n), static_cast<int>(g.k), g.alpha,
              g.a.data, static_cast<int>(g.a.stride), g.b.data, static_cast<int>(g.b.stride), g.accumulate ? 1.0 : 0.0,
              g.c, static_cast<int>(g.c_stride));
}

template <class T> void blas_gemm(const Gemm<T>& product) {
  dense_gemm(product, [&](const DenseGemm<T>& g) {
    if (!g.fits_int()) return packed_gemm(product);
    blas_multiply(g, g.a.row_major ? CblasTrans : CblasNoTrans, g.b.row_major ? CblasTrans : CblasNoTrans);
  });
}

}  // namespace detail

/// Matrix products by a CBLAS library, which the program links (CMake: the component `blas`, the target tessera::blas).
/// Called from several threads concurrently, so it should itself use one thread: the provider sets this for OpenBLAS;
/// for other libraries set the environment variable OMP_NUM_THREADS=1 or MKL_NUM_THREADS=1.
template <class Interface = ContractionProvider> struct BlasProvider final : Interface {
  BlasProvider() {
#if defined(__GNUC__) && !defined(_WIN32)
    if (tessera_openblas_set_num_threads) tessera_openblas_set_num_threads(1);
#endif
  }
  std::string_view name() const override { return "blas"; }
  void gemm(const Gemm<float>& g) const override { detail::blas_gemm(g); }
  void gemm(const Gemm<double>& g) const override { detail::blas_gemm(g); }
};

/// The BlasProvider, as the argument of set_contraction_provider().
template <class Provider = BlasProvider<>> const ContractionProvider& blas_provider() {
  static const Provider& provider = *new Provider;  // never destroyed: programs may still run at exit
  return provider;
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
