#ifndef TESSERA_KERNELS_CPU_HPP
#define TESSERA_KERNELS_CPU_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#if defined(__linux__)
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <tessera/base/error.hpp>
#include <tessera/kernels/isa.hpp>

namespace tessera::kernels {

/// Instruction sets of kernels that are chosen at run time, in ascending order: each includes all before it.
enum class CpuLevel : std::uint8_t { portable, avx2, avx512, avx512_bf16, amx };

inline constexpr std::array all_cpu_levels = {CpuLevel::portable, CpuLevel::avx2, CpuLevel::avx512,
                                              CpuLevel::avx512_bf16, CpuLevel::amx};

/// "portable", "avx2", "avx512", "avx512_bf16", "amx".
constexpr std::string_view name_of(CpuLevel level) {
  constexpr std::array<std::string_view, 5> names = {"portable", "avx2", "avx512", "avx512_bf16", "amx"};
  return names[static_cast<std::size_t>(level)];
}

}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

#if defined(__x86_64__)
/// Whether the processor has AMX with bf16, and the operating system saves the AMX registers. The process must still
/// request permission to use them: bf16_level() does so before the first bf16 product.
inline bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned saves = 1u << 27, bfloat16 = 1u << 22, tiles = 1u << 24, state = 3u << 17;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & saves) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & bfloat16) == 0 || (d & tiles) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & state) == state;
}
#endif

inline CpuLevel detect_cpu() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return CpuLevel::portable;
  if (!__builtin_cpu_supports("avx512f")) return CpuLevel::avx2;
  // Kernels of bf16 need all four extensions.
  const bool bf16_products = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
  if (!bf16_products) return CpuLevel::avx512;
  return has_amx() ? CpuLevel::amx : CpuLevel::avx512_bf16;
#else
  return CpuLevel::portable;
#endif
}

/// The lower of `has` and the level named `wanted`, the value of TESSERA_KERNELS; null means no limit.
inline CpuLevel restricted(CpuLevel has, const char* wanted) {
  if (wanted == nullptr || *wanted == '\0') return has;
  for (const CpuLevel level : all_cpu_levels)
    if (name_of(level) == wanted) return level < has ? level : has;
  fail(errc::option, "[kernels] TESSERA_KERNELS: \"", wanted, "\" is none of portable, avx2, avx512, avx512_bf16, amx");
}

/// Bytes of a core's L2 cache, or a typical size if the system does not report it.
inline std::int64_t second_level_cache() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  static constinit std::atomic<long> known{0};
  long bytes = known.load(std::memory_order_relaxed);
  if (bytes == 0) known.store(bytes = sysconf(_SC_LEVEL2_CACHE_SIZE), std::memory_order_relaxed);
  if (bytes >= 1 << 17) return bytes;
#endif
  return 1 << 20;
}

}  // namespace detail

/// The level of kernels chosen at run time, detected once. The environment variable TESSERA_KERNELS (portable, avx2,
/// avx512, avx512_bf16, amx) can lower it, for tests and comparisons. Errors: errc::option for any other value.
inline CpuLevel cpu_level() {
  static constinit std::atomic<int> known{-1};
  int level = known.load(std::memory_order_relaxed);
  if (level < 0) [[unlikely]] {
    level = static_cast<int>(detail::restricted(detail::detect_cpu(), std::getenv("TESSERA_KERNELS")));
    known.store(level, std::memory_order_relaxed);
  }
  return static_cast<CpuLevel>(level);
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
