#ifndef TESSERA_KERNELS_GEMM_CONTRACTION_PROVIDER_HPP
#define TESSERA_KERNELS_GEMM_CONTRACTION_PROVIDER_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/bf16/bf16_gemm.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/gemm/small_gemm.hpp>
#include <tessera/kernels/isa.hpp>

namespace tessera::kernels {

/// The chosen provider of the whole program, or null for the default. Callers use contraction_provider().
inline std::atomic<const ContractionProvider*>& chosen_contraction_provider() {
  static std::atomic<const ContractionProvider*> chosen{nullptr};
  return chosen;
}

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

/// Name of this library's f32 and f64 kernels on this processor.
inline std::string_view packed_kernels_name() {
  constexpr std::array<std::string_view, 3> names = {"packed portable", "packed avx2", "packed avx512"};
  return names[static_cast<std::size_t>(variants::level_of_variants(cpu_level()))];
}

/// Matrix products by this library's kernels. A template, so that only programs that name the provider instantiate its
/// code for both types.
template <class Interface = ContractionProvider> struct PackedProvider final : Interface {
  std::string_view name() const override { return packed_kernels_name(); }
  void gemm(const Gemm<float>& g) const override { packed_gemm(g); }
  void gemm(const Gemm<double>& g) const override { packed_gemm(g); }
};

/// The default provider, without dependencies.
template <class Provider = PackedProvider<>> const ContractionProvider& packed_provider() {
  static const Provider& provider = *new Provider;  // never destroyed: programs may still run at exit
  return provider;
}

/// The provider that contractions use. Thread-safe, as is set_contraction_provider().
template <class Default = PackedProvider<>> const ContractionProvider& contraction_provider() {
  const ContractionProvider* chosen = chosen_contraction_provider().load(std::memory_order_acquire);
  return chosen ? *chosen : packed_provider<Default>();
}

/// The name of contraction_provider(), without instantiating its products.
inline std::string_view contraction_provider_name() {
  const ContractionProvider* chosen = chosen_contraction_provider().load(std::memory_order_acquire);
  return chosen ? chosen->name() : packed_kernels_name();
}

/// Chooses the provider of later contractions and returns the previous provider. `provider` must outlive the program's
/// last contraction, as a static object does. Contractions that are running finish with the previous provider.
template <class Default = PackedProvider<>>
const ContractionProvider& set_contraction_provider(const ContractionProvider& provider) {
  const ContractionProvider* before = chosen_contraction_provider().exchange(&provider, std::memory_order_acq_rel);
  return before ? *before : packed_provider<Default>();
}

/// A matrix product by the chosen provider. The default provider's kernel is called directly, not through its virtual
/// functions, so that only the program's element types are instantiated.
template <class T> void provided_gemm(const Gemm<T>& g, FinishedPart finished = {}) {
  const ContractionProvider* chosen = chosen_contraction_provider().load(std::memory_order_acquire);
  if (!chosen && !is_small(g)) return packed_gemm(g, finished);
  if (chosen)
    chosen->gemm(g);
  else
    small_gemm(g);
  finished({0, g.m, 0, g.n});
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
