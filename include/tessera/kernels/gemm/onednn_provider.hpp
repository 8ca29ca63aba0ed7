#ifndef TESSERA_KERNELS_GEMM_ONEDNN_PROVIDER_HPP
#define TESSERA_KERNELS_GEMM_ONEDNN_PROVIDER_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>

#include <dnnl.h>

#include <tessera/kernels/gemm/dense_gemm.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/isa.hpp>

#if defined(__GNUC__) && !defined(_WIN32)
extern "C" {
/// Functions of OpenMP; null if oneDNN is built without it. Declared under other names, so as not to conflict with the
/// declarations of omp.h, which differ between compilers.
__attribute__((weak)) void tessera_omp_set_num_threads(int threads) __asm__("omp_set_num_threads");
__attribute__((weak)) int tessera_omp_get_max_threads() __asm__("omp_get_max_threads");
}
#endif

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Limits OpenMP to one thread while it is alive. OpenMP's setting is per calling thread.
class OneOmpThread {
 public:
#if defined(__GNUC__) && !defined(_WIN32)
  OneOmpThread() : before_(tessera_omp_get_max_threads ? tessera_omp_get_max_threads() : 1) {
    if (before_ != 1) tessera_omp_set_num_threads(1);
  }
  ~OneOmpThread() {
    if (before_ != 1) tessera_omp_set_num_threads(before_);
  }

 private:
  int before_;
#else
  OneOmpThread() = default;
  ~OneOmpThread() {}

 public:
#endif
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;
};

/// oneDNN's matrices are row-major: computes C^T = B^T A^T.
inline void onednn_gemm(const Gemm<float>& product) {
  dense_gemm(product, [&](const DenseGemm<float>& g) {
    const OneOmpThread alone;
    const dnnl_status_t status =
        dnnl_sgemm(g.b.row_major ? 'T' : 'N', g.a.row_major ? 'T' : 'N', g.n, g.m, g.k, g.alpha, g.b.data, g.b.stride,
                   g.a.data, g.a.stride, g.accumulate ? 1.0f : 0.0f, g.c, g.c_stride);
    if (status != dnnl_success) packed_gemm(product);
  });
}

}  // namespace detail

/// Matrix products of f32 by oneDNN's dnnl_sgemm; the program links oneDNN (CMake: the component `onednn`, the target
/// tessera::onednn). f64, which oneDNN lacks, uses this library's kernels.
template <class Interface = ContractionProvider> struct OneDnnProvider final : Interface {
  std::string_view name() const override { return "onednn"; }
  void gemm(const Gemm<float>& g) const override { detail::onednn_gemm(g); }
  void gemm(const Gemm<double>& g) const override { packed_gemm(g); }
};

/// The OneDnnProvider, as the argument of set_contraction_provider().
template <class Provider = OneDnnProvider<>> const ContractionProvider& onednn_provider() {
  static const Provider& provider = *new Provider;  // never destroyed: programs may still run at exit
  return provider;
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
