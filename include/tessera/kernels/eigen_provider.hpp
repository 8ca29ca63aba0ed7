#ifndef TESSERA_KERNELS_EIGEN_PROVIDER_HPP
#define TESSERA_KERNELS_EIGEN_PROVIDER_HPP

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <Eigen/Core>

#include <tessera/kernels/gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/matrix_vector.hpp>
#include <tessera/kernels/scratch.hpp>
#include <tessera/kernels/strided.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Panel sizes of Eigen's kernel, and room for the packed panels that outlives the call: its own is allocated, and
/// touched for the first time, at every product.
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

/// C += alpha A B with C column-major, by the packed kernel that Eigen's operator* ends in. It is called directly,
/// since the public form allocates its panels, and would start threads of its own in a program built with OpenMP.
template <class T, bool RowMajorA, bool RowMajorB>
void eigen_product(const Gemm<T>& g, const DenseOperand<T>& a, const DenseOperand<T>& b) {
  using Eigen::Index;
  constexpr int order_a = RowMajorA ? Eigen::RowMajor : Eigen::ColMajor;
  constexpr int order_b = RowMajorB ? Eigen::RowMajor : Eigen::ColMajor;
  EigenPanels<T> panels(g.m, g.n, g.k);
  Eigen::internal::general_matrix_matrix_product<Index, T, order_a, false, T, order_b, false, Eigen::ColMajor, 1>::run(
      Index(g.m), Index(g.n), Index(g.k), a.data, Index(a.stride), b.data, Index(b.stride), g.c, 1, Index(g.c_col),
      g.alpha, panels, nullptr);
}

template <class T> void eigen_gemm(Gemm<T> g) {
  if (thin_gemm(g)) return;
  if (!g.accumulate) {
    strided_fill_zero(g.c, {g.c_row, g.c_col}, {g.m, g.n}, sizeof(T));
    g.accumulate = true;
  }
  if (g.c_row != 1) g = transposed(g);
  T* scattered = nullptr;
  const Gemm<T> target = g;
  if (g.c_row != 1) {
    scattered = thread_scratch<Scratch::packed_c, T>(static_cast<std::size_t>(g.m * g.n));
    strided_copy(scattered, {1, g.m}, g.c, {g.c_row, g.c_col}, {g.m, g.n}, sizeof(T));
    g.c = scattered, g.c_row = 1, g.c_col = g.m;
  }
  const auto a = dense_operand<Scratch::packed_a>(g.a, g.m, g.k, g.a_row, g.a_col);
  const auto b = dense_operand<Scratch::packed_b>(g.b, g.k, g.n, g.b_row, g.b_col);
  if (a.row_major) {
    b.row_major ? eigen_product<T, true, true>(g, a, b) : eigen_product<T, true, false>(g, a, b);
  } else {
    b.row_major ? eigen_product<T, false, true>(g, a, b) : eigen_product<T, false, false>(g, a, b);
  }
  if (scattered) strided_copy(target.c, {target.c_row, target.c_col}, scattered, {1, g.m}, {g.m, g.n}, sizeof(T));
}

}  // namespace detail

/// Matrix products by Eigen's packed kernels. A template, so that Eigen is compiled only for who asks for the object.
template <class Interface = ContractionProvider> struct EigenProvider final : Interface {
  std::string_view name() const override { return "eigen"; }
  void gemm(const Gemm<float>& g) const override { detail::eigen_gemm(g); }
  void gemm(const Gemm<double>& g) const override { detail::eigen_gemm(g); }
};

/// The one object of it, for set_contraction_provider.
template <class Provider = EigenProvider<>> const ContractionProvider& eigen_provider() {
  static const Provider provider;
  return provider;
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#endif
