#ifndef TESSERA_KERNELS_GEMM_GEMM_VARIANT_HPP
#define TESSERA_KERNELS_GEMM_GEMM_VARIANT_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <tessera/base/error.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/isa.hpp>

namespace tessera::kernels {

/// A member of the family of f32 and f64 products: what does not depend on the instructions of a processor, but on how
/// fast they are. All members of a level have the same tiles and the same blocks of k, so that their results are equal
/// bit for bit and operands that are packed for one member fit the others.
struct GemmVariant {
  std::string_view name;
  CpuLevel level;  ///< of its micro-kernels: portable, avx2 or avx512
  bool loads_a;    ///< all elements of A are broadcast to registers first, rather than most in the product itself
  std::int8_t cache_eighths;  ///< of the L2 cache, filled by the columns of B that are multiplied together
  bool fetches_c;             ///< the next tile of C is prefetched while a tile is computed
};

/// All members. The first member of a level is its default, for processors that are not in known_processors.
/// Figures: docs/decisions/0079-variants-of-products.md.
inline constexpr std::array gemm_variants = {
    GemmVariant{"portable_half", CpuLevel::portable, true, 4, true},
    GemmVariant{"avx2_half", CpuLevel::avx2, true, 4, true},
    GemmVariant{"avx2_whole", CpuLevel::avx2, true, 8, true},
    GemmVariant{"avx2_double", CpuLevel::avx2, true, 16, true},
    GemmVariant{"avx512_half", CpuLevel::avx512, false, 4, true},
    GemmVariant{"avx512_whole", CpuLevel::avx512, false, 8, true},
    GemmVariant{"avx512_double", CpuLevel::avx512, false, 16, true},
    GemmVariant{"avx512_loads", CpuLevel::avx512, true, 8, true},
    GemmVariant{"avx512_unfetched", CpuLevel::avx512, false, 4, false},
};

/// Why a member was chosen.
enum class VariantSource : std::uint8_t { by_default, environment, processor, timing, program };

/// "by default", "by TESSERA_GEMM_VARIANT", "for this processor", "by timing", "by the program".
constexpr std::string_view text_of(VariantSource source) {
  constexpr std::array<std::string_view, 5> texts = {"by default", "by TESSERA_GEMM_VARIANT", "for this processor",
                                                     "by timing", "by the program"};
  return texts[static_cast<std::size_t>(source)];
}

/// The member that products use.
struct GemmChoice {
  const GemmVariant* variant = nullptr;
  VariantSource source = VariantSource::by_default;
};

namespace variants {

/// A processor whose members were measured, as cpuid names it.
struct KnownProcessor {
  std::string_view vendor;
  int family, model;
  CpuLevel level;
  std::string_view variant;
};
inline constexpr std::array known_processors = {
    KnownProcessor{"AuthenticAMD", 0x1a, 0x02, CpuLevel::avx512, "avx512_loads"},   // EPYC 9005, Zen 5
    KnownProcessor{"AuthenticAMD", 0x19, 0x11, CpuLevel::avx512, "avx512_double"},  // EPYC 9004, Zen 4
    KnownProcessor{"AuthenticAMD", 0x19, 0x01, CpuLevel::avx2, "avx2_double"},      // EPYC 7003, Zen 3
};

constexpr CpuLevel level_of_variants(CpuLevel level) { return level < CpuLevel::avx512 ? level : CpuLevel::avx512; }

/// By level: the index of its default. A table, since small products ask for it too.
inline constexpr auto default_variants = [] {
  std::array<std::size_t, 3> first{};
  for (std::size_t i = gemm_variants.size(); i-- > 0;) first[static_cast<std::size_t>(gemm_variants[i].level)] = i;
  return first;
}();
constexpr const GemmVariant& default_gemm_variant(CpuLevel level) {
  return gemm_variants[default_variants[static_cast<std::size_t>(level_of_variants(level))]];
}

/// The member of a level with this name, or null.
constexpr const GemmVariant* find_gemm_variant(CpuLevel level, std::string_view name) {
  for (const GemmVariant& variant : gemm_variants)
    if (variant.level == level_of_variants(level) && variant.name == name) return &variant;
  return nullptr;
}

/// The choice of the whole process, as 1 + 8 * its index in gemm_variants + its source; 0 before the first question.
inline std::atomic<int>& settled_gemm_choice() {
  static std::atomic<int> code{0};
  return code;
}
inline int code_of(const GemmChoice& choice) {
  return 1 + 8 * static_cast<int>(choice.variant - gemm_variants.data()) + static_cast<int>(choice.source);
}

/// The member that TESSERA_GEMM_VARIANT names: "default", or a member of the level.
inline const GemmVariant& named_gemm_variant(CpuLevel level, std::string_view name) {
  if (name == "default") return default_gemm_variant(level);
  if (const GemmVariant* found = find_gemm_variant(level, name)) return *found;
  std::string members = "default";
  for (const GemmVariant& variant : gemm_variants)
    if (variant.level == level_of_variants(level)) members += concat_text(", ", variant.name);
  fail(errc::option, "[kernels] TESSERA_GEMM_VARIANT: \"", name, "\" is none of ", members,
       ", the members of the kernels that this process uses");
}

/// The member of a processor in known_processors, or null.
constexpr const GemmVariant* known_gemm_variant(CpuLevel level, std::string_view vendor, int family, int model) {
  for (const KnownProcessor& known : known_processors)
    if (known.vendor == vendor && known.family == family && known.model == model)
      if (const GemmVariant* found = find_gemm_variant(level, known.variant)) return found;
  return nullptr;
}

/// known_gemm_variant() of this processor.
inline const GemmVariant* measured_gemm_variant([[maybe_unused]] CpuLevel level) {
#if defined(__x86_64__)
  unsigned a = 0, words[3] = {}, other = 0;
  if (__get_cpuid(0, &a, &words[0], &words[2], &words[1]) == 0) return nullptr;
  char vendor[sizeof words];
  std::memcpy(vendor, words, sizeof words);
  if (__get_cpuid(1, &a, &words[0], &words[1], &other) == 0) return nullptr;
  const unsigned family = a >> 8 & 15, model = a >> 4 & 15;
  const bool extended = family == 6 || family == 15;
  return known_gemm_variant(level, {vendor, sizeof vendor},
                            static_cast<int>(family + (family == 15 ? a >> 20 & 255 : 0)),
                            static_cast<int>(model + (extended ? (a >> 16 & 15) << 4 : 0)));
#else
  return nullptr;
#endif
}

}  // namespace variants
}  // namespace tessera::kernels

namespace tessera::kernels::inline TESSERA_ISA {

/// The member that products at cpu_level() use. The environment variable TESSERA_GEMM_VARIANT names it ("default": that
/// of processors that were not measured, and no timing); without it, a table of measured processors; on other
/// processors it is the default until members are timed at the first large product. Thread-safe. Errors: errc::option
/// for a name that is not of this level.
inline GemmChoice gemm_choice() {
  std::atomic<int>& settled = variants::settled_gemm_choice();
  int code = settled.load(std::memory_order_acquire);
  if (code == 0) {
    const CpuLevel level = cpu_level();
    GemmChoice found{&variants::default_gemm_variant(level)};
    if (const char* name = std::getenv("TESSERA_GEMM_VARIANT"); name != nullptr && *name != '\0')
      found = {&variants::named_gemm_variant(level, name), VariantSource::environment};
    else if (const GemmVariant* known = variants::measured_gemm_variant(level))
      found = {known, VariantSource::processor};
    if (settled.compare_exchange_strong(code, variants::code_of(found), std::memory_order_acq_rel)) return found;
  }
  return {&gemm_variants[static_cast<std::size_t>((code - 1) / 8)], static_cast<VariantSource>((code - 1) % 8)};
}

/// The member of products at a level: the chosen member, or the default of a level that is not cpu_level()'s.
inline const GemmVariant& gemm_variant(CpuLevel level) {
  const GemmVariant& chosen = *gemm_choice().variant;
  return chosen.level == variants::level_of_variants(level) ? chosen : variants::default_gemm_variant(level);
}

/// Chooses the member of later products, for comparisons; members are not timed afterwards. Results do not depend on
/// it. Returns the member before. Errors: errc::option for an instruction set that the processor lacks.
inline const GemmVariant& set_gemm_variant(const GemmVariant& variant) {
  const GemmVariant* const member = variants::find_gemm_variant(variant.level, variant.name);
  if (member == nullptr || detail::detect_cpu() < member->level)
    fail(errc::option, "[kernels] set_gemm_variant: this processor has no member \"", variant.name, "\"");
  const GemmChoice before = gemm_choice();
  variants::settled_gemm_choice().store(variants::code_of({member, VariantSource::program}), std::memory_order_release);
  return *before.variant;
}

}  // namespace tessera::kernels::inline TESSERA_ISA

#include <tessera/base/pop_macros.hpp>

#endif
