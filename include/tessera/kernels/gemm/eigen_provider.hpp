#ifndef TESSERA_KERNELS_GEMM_EIGEN_PROVIDER_HPP
#define TESSERA_KERNELS_GEMM_EIGEN_PROVIDER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <Eigen/Core>

#include <tessera/kernels/gemm/dense_gemm.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Panel sizes of Eigen's kernel, with panels in the thread's scratch: Eigen itself allocates them anew for every
/// product, which causes page faults.
template <class T> class EigenPanels : public Eigen::internal::level3_blocking<T, T> {
 public:
  EigenPanels(std::int64_t m, std::int64_t n, std::int64_t k) {
    constexpr std::int64_t depth = 256, rows = 1008, cols = 256;
    const auto split = [](std::int64_t size, std::int64_t most, std::int64_t multiple) {
      const std::int64_t parts = (size + most - 1) / most;
      return ((size + parts - 1) / parts + multiple - 1) / multiple * multiple;
    };
    this->m_kc = split(k, depth, 8);
    this->m_mc = split(m, rows, 48);
    this->m_nc = split(n, cols, 4);
    const auto count = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
    this->m_blockA = thread_scratch<Scratch::panel_a, T>(count(this->m_mc, this->m_kc));
    this->m_blockB = thread_scratch<Scratch::panel_b, T>(count(this->m_kc, this->m_nc));
  }
};

/// C += alpha A B by the kernel behind Eigen's operator*. Called directly, since operator* allocates its panels and, in
/// a program built with OpenMP, starts threads.
template <class T, bool RowMajorA, bool RowMajorB> void eigen_product(const DenseGemm<T>& g) {
  using Eigen::Index;
  constexpr int order_a = RowMajorA ? Eigen::RowMajor : Eigen::ColMajor;
  constexpr int order_b = RowMajorB ? Eigen::RowMajor : Eigen::ColMajor;
  EigenPanels<T> panels(g.m, g.n, g.k);
  Eigen::internal::general_matrix_matrix_product<Index, T, order_a, false, T, order_b, false, Eigen::ColMajor, 1>::run(
      Index(g.m), Index(g.n), Index(g.k), g.a.data, Index(g.a.stride), g.b.data, Index(g.b.stride), g.c, 1,
      Index(g.c_stride), g.alpha, panels, nullptr);
}

template <class T> void eigen_gemm(const Gemm<T>& product) {
  dense_gemm(product, [](const DenseGemm<T>& g) {
    if (!g.accumulate) strided_fill_zero(g.c, {1, g.c_stride}, {g.m, g.n}, sizeof(T));
    if (g.a.row_major) {
      g.b.row_major ? eigen_product<T, true, true>(g) : eigen_product<T, true, false>(g);
    } else {
      g.b.row_major ? eigen_product<T, false, true>(g) : eigen_product<T, false, false>(g);
    }
  });
}

}  // namespace detail

/// Matrix products by Eigen. A template, so that only programs that use the provider instantiate Eigen's kernels.
template <class Interface = ContractionProvider> struct EigenProvider final : Interface {
  std::string_view name() const override { return "eigen"; }
  void gemm(const Gemm<float>& g) const override { detail::eigen_gemm(g); }
  void gemm(const Gemm<double>& g) const override { detail::eigen_gemm(g); }
};

/// The EigenProvider, as the argument of set_contraction_provider().
template <class Provider = EigenProvider<>> const ContractionProvider& eigen_provider() {
  static const Provider& provider = *new Provider;  // never destroyed: programs may still run at exit
  return provider;
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
