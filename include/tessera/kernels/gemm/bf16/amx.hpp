#ifndef TESSERA_KERNELS_GEMM_BF16_AMX_HPP
#define TESSERA_KERNELS_GEMM_BF16_AMX_HPP
#include <tessera/base/push_macros.hpp>

#include <atomic>
#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <tessera/base/element/bf16.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/isa.hpp>

// Products of bf16 with Intel AMX. Inline assembly, since g++ 12 miscompiles _tile_loadconfig, and since it needs no
// compiler flags of the user's program.
namespace tessera::kernels::inline TESSERA_ISA {

namespace detail {

/// Requests permission from Linux to use AMX, once per process: each thread that uses AMX then needs memory to save it.
inline bool ask_for_amx() {
#if defined(__x86_64__) && defined(__linux__) && defined(SYS_arch_prctl)
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace detail

/// The CpuLevel of bf16 products. The first call requests AMX from the system; if refused, the level is avx512_bf16.
inline CpuLevel bf16_level() {
  static constinit std::atomic<int> known{-1};
  int level = known.load(std::memory_order_relaxed);
  if (level < 0) [[unlikely]] {
    const bool refused = cpu_level() == CpuLevel::amx && !detail::ask_for_amx();
    level = static_cast<int>(refused ? CpuLevel::avx512_bf16 : cpu_level());
    known.store(level, std::memory_order_relaxed);
  }
  return static_cast<CpuLevel>(level);
}

namespace detail {

#if defined(__x86_64__)
/// Configures the AMX tile registers, eight of 16 rows x 64 bytes, and releases them in the destructor.
class AmxRegisters {
 public:
  AmxRegisters() {
    struct alignas(64) {
      std::uint8_t palette = 1, start = 0, reserved[14]{};
      std::uint16_t row_bytes[16]{64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16]{16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    asm volatile("ldtilecfg %0" : : "m"(shape));
  }
  AmxRegisters(const AmxRegisters&) = delete;
  AmxRegisters& operator=(const AmxRegisters&) = delete;
  ~AmxRegisters() { asm volatile("tilerelease"); }
};

/// Bf16Blocks::multiply() with AMX, whose registers are configured.
__attribute__((target("amx-tile,amx-bf16"))) inline void amx_multiply(const bf16* a, const bf16* b, std::int64_t steps,
                                                                      const float* f, std::int64_t f_row, float* c,
                                                                      std::int64_t c_row) {
  const std::int64_t line = 64, row = c_row * 4;
  if (f != nullptr)
    asm volatile("tileloadd (%0,%2,1), %%tmm0\n\ttileloadd 64(%0,%2,1), %%tmm1\n\t"
                 "tileloadd (%1,%2,1), %%tmm2\n\ttileloadd 64(%1,%2,1), %%tmm3"
                 :
                 : "r"(f), "r"(f + 16 * f_row), "r"(f_row * 4)
                 : "memory");
  else
    asm volatile("tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3" : :);
  // One tile register per operand. Keeping both halves of A and B would save a load, but is slower by half with
  // hyper-threading, since no register is left for renaming.
  for (; steps > 0; --steps, a += 1024, b += 1024)
    asm volatile("tileloadd (%0,%2,1), %%tmm4\n\ttileloadd (%1,%2,1), %%tmm5\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm0\n\t"
                 "tileloadd 1024(%1,%2,1), %%tmm5\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm1\n\t"
                 "tileloadd 1024(%0,%2,1), %%tmm4\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm3\n\t"
                 "tileloadd (%1,%2,1), %%tmm5\n\ttdpbf16ps %%tmm5, %%tmm4, %%tmm2"
                 :
                 : "r"(a), "r"(b), "r"(line)
                 : "memory");
  asm volatile("tilestored %%tmm0, (%0,%2,1)\n\ttilestored %%tmm1, 64(%0,%2,1)\n\t"
               "tilestored %%tmm2, (%1,%2,1)\n\ttilestored %%tmm3, 64(%1,%2,1)"
               :
               : "r"(c), "r"(c + 16 * c_row), "r"(row)
               : "memory");
}
#endif

}  // namespace detail

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
