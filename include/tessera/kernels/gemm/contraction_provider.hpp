#ifndef TESSERA_KERNELS_GEMM_CONTRACTION_PROVIDER_HPP
#define TESSERA_KERNELS_GEMM_CONTRACTION_PROVIDER_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/bf16_gemm.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/gemm/small_gemm.hpp>
#include <tessera/kernels/isa.hpp>

namespace tessera::kernels {

/// Where the choice is kept, one for the program; null for the default. Use contraction_provider().
inline std::atomic<const ContractionProvider*>& chosen_contraction_provider() {
  static std::atomic<const ContractionProvider*> chosen{nullptr};
  return chosen;
}

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

/// What our own kernels of f32 and f64 are called on this processor.
inline std::string_view packed_kernels_name() {
  constexpr std::array<std::string_view, 4> names = {"packed portable", "packed avx2", "packed avx512",
                                                     "packed avx512"};
  return names[static_cast<std::size_t>(cpu_level())];
}

/// Matrix products by our own packed kernels. A template, so that code for both types is compiled only for who asks for
/// the object.
template <class Interface = ContractionProvider> struct PackedProvider final : Interface {
  std::string_view name() const override { return packed_kernels_name(); }
  void gemm(const Gemm<float>& g) const override { packed_gemm(g); }
  void gemm(const Gemm<double>& g) const override { packed_gemm(g); }
};

/// The default provider, which needs nothing beyond this library.
template <class Provider = PackedProvider<>> const ContractionProvider& packed_provider() {
  static const Provider& provider = *new Provider;  // never destroyed: programs may still run at exit
  return provider;
}

/// The provider that contractions use from now on; any thread may ask or set at any time.
template <class Default = PackedProvider<>> const ContractionProvider& contraction_provider() {
  const ContractionProvider* chosen = chosen_contraction_provider().load(std::memory_order_acquire);
  return chosen ? *chosen : packed_provider<Default>();
}

/// Its name, without code for its products.
inline std::string_view contraction_provider_name() {
  const ContractionProvider* chosen = chosen_contraction_provider().load(std::memory_order_acquire);
  return chosen ? chosen->name() : packed_kernels_name();
}

/// Chooses the provider, and returns the one chosen before. `provider` must outlive the program's last contraction:
/// providers have no state, so a static object is the natural form. Contractions under way end with the old one.
template <class Default = PackedProvider<>>
const ContractionProvider& set_contraction_provider(const ContractionProvider& provider) {
  const ContractionProvider* before = chosen_contraction_provider().exchange(&provider, std::memory_order_acq_rel);
  return before ? *before : packed_provider<Default>();
}

/// One product by the chosen provider. The default one is called directly, so that a program has code for the element
/// types that it multiplies, and no others.
template <class T> void provided_gemm(const Gemm<T>& g, FinishedRows finished = {}) {
  const ContractionProvider* chosen = chosen_contraction_provider().load(std::memory_order_acquire);
  if (!chosen && !is_small(g)) return packed_gemm(g, finished);
  if (chosen)
    chosen->gemm(g);
  else
    small_gemm(g);
  finished(0, g.m);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
