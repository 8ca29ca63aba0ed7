#ifndef TESSERA_KERNELS_GEMM_GEMM_TIMING_HPP
#define TESSERA_KERNELS_GEMM_GEMM_TIMING_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/base/planning.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/gemm.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/kernels/gemm/packed_gemm.hpp>
#include <tessera/kernels/isa.hpp>
#include <tessera/kernels/made_once.hpp>

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// The member that is fastest in a small product, timed in turns for at most `seconds`. A member other than the default
/// must be faster by 5 %, since single runs differ by some percent.
TESSERA_PLANNING inline const GemmVariant& fastest_gemm_variant(CpuLevel level, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t m = 56, n = 1024, k = 320;
  const auto start = Clock::now();
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const PackedLayout layout = packed_layout<float>(k, n, level);
  const std::vector<float> a(m * k, 1.0f), b(static_cast<std::size_t>(layout.size()), 1.0f);
  std::vector<float> c(m * n);
  std::array<double, gemm_variants.size()> best;
  best.fill(1e9);
  double longest = 0;
  for (bool has_time = true; has_time;)
    for (std::size_t i = 0; i < gemm_variants.size(); ++i) {
      if (gemm_variants[i].level != variants::level_of_variants(level)) continue;
      has_time = since(start) + 1.5 * longest < seconds;
      if (!has_time) break;
      const auto begin = Clock::now();
      packed_gemm(Gemm<float>{m, n, k, a.data(), k, 1, nullptr, 0, 0, c.data(), n, 1}, layout, b.data(), {},
                  gemm_variants[i]);
      const double time = since(begin);
      longest = std::max(longest, time), best[i] = std::min(best[i], time);
    }
  const GemmVariant* fastest = &variants::default_gemm_variant(level);
  double least = 0.95 * best[static_cast<std::size_t>(fastest - gemm_variants.data())];
  for (std::size_t i = 0; i < gemm_variants.size(); ++i)
    if (best[i] < least) least = best[i], fastest = &gemm_variants[i];
  return *fastest;
}

/// Called before a large product: times the members, once in the process, if neither the environment nor the program
/// nor the table of processors has chosen a member. Takes at most 5 ms, while other threads that call it wait.
TESSERA_PLANNING inline void time_gemm_variants() {
  constexpr double seconds = 4.5e-3;  // the rest of the 5 ms is for allocations
  if (gemm_choice().source != VariantSource::by_default ||
      variants::level_of_variants(cpu_level()) == CpuLevel::portable)
    return;
  const tessera::detail::Making making;
  const GemmChoice before = gemm_choice();
  if (before.source != VariantSource::by_default) return;
  const GemmChoice found{&fastest_gemm_variant(cpu_level(), seconds), VariantSource::timing};
  int code = variants::code_of(before);
  variants::settled_gemm_choice().compare_exchange_strong(code, variants::code_of(found), std::memory_order_acq_rel);
}

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
