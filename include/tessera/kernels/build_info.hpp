#ifndef TESSERA_KERNELS_BUILD_INFO_HPP
#define TESSERA_KERNELS_BUILD_INFO_HPP
#include <tessera/base/push_macros.hpp>

#include <string>
#include <string_view>

#include <tessera/base/error.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/gemm_variant.hpp>
#include <tessera/kernels/isa.hpp>

namespace tessera {

/// Which instructions a program uses.
struct BuildInfo {
  std::string_view compiler;  ///< such as "g++ 12.2.0"
  bool is_optimised;          ///< compiled with -O1 or more
  /// Of fused elementwise operations and reductions, such as "sse2" or "avx2_fma": those that -march allows.
  std::string_view instructions;
  std::string_view products;    ///< the kernels of products and attention, chosen when the program runs: "avx512", ...
  kernels::CpuLevel level;      ///< the highest level that `instructions` include
  kernels::CpuLevel processor;  ///< the highest level of this processor
  /// The member of the kernels of f32 and f64 products, such as "avx512_double", and why it was chosen, such as "for
  /// this processor". "by default": unless another member turns out to be faster, which is timed at the first large
  /// product.
  std::string_view variant = {}, variant_source = {};

  /// Whether the processor has wider vectors, or FMA, that `instructions` lack.
  bool is_narrow() const {
    const auto widest = [](kernels::CpuLevel of) {
      return of > kernels::CpuLevel::avx512 ? kernels::CpuLevel::avx512 : of;
    };
    return widest(level) < widest(processor);
  }
  /// One line, such as "compiled for sse2; this processor has avx512: -march=native makes fused operations up to four
  /// times as fast". docs/tuning.md has the factors.
  std::string text() const {
    std::string made = concat_text("compiled for ", instructions);
    if (!is_optimised) made += ", without optimisation";
    if (is_narrow())
      made += concat_text("; this processor has ", kernels::name_of(processor),
                          ": -march=native makes fused operations up to ",
                          level < kernels::CpuLevel::avx2 ? "four times" : "twice", " as fast");
    return made;
  }
};

namespace kernels::inline TESSERA_ISA {

/// The build of the translation unit that calls it.
inline BuildInfo build_info() {
#define TESSERA_TEXT(x) #x
#define TESSERA_TEXT_OF(x) TESSERA_TEXT(x)
  BuildInfo info{};
#if defined(__clang__)
  info.compiler = "clang++ " __clang_version__;
#else
  info.compiler = "g++ " __VERSION__;
#endif
#if defined(__OPTIMIZE__)
  info.is_optimised = true;
#endif
  info.instructions = TESSERA_TEXT_OF(TESSERA_ISA);
#undef TESSERA_TEXT_OF
#undef TESSERA_TEXT
#if defined(__AVX512F__)
  info.level = CpuLevel::avx512;
#elif defined(__AVX2__) && defined(__FMA__)
  info.level = CpuLevel::avx2;
#else
  info.level = CpuLevel::portable;
#endif
  info.products = name_of(cpu_level());
  info.processor = detail::detect_cpu();
  const GemmChoice choice = gemm_choice();
  info.variant = choice.variant->name, info.variant_source = text_of(choice.source);
  return info;
}

}  // namespace kernels::inline TESSERA_ISA

/// Inside a program: which instructions its kernels use, and whether the processor has wider ones. `explain` ends with
/// its text.
///
///     std::puts(ts::build_info().text().c_str());
using kernels::build_info;

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
