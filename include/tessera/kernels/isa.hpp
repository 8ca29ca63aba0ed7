#ifndef TESSERA_KERNELS_ISA_HPP
#define TESSERA_KERNELS_ISA_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/inline.hpp>

// TESSERA_ISA names the instruction set of this translation unit. Kernels and steps are in inline namespaces of that
// name, so that units compiled with different -m flags don't violate the one-definition rule. Planning code and traced
// programs are shared: a program that several units trace runs with the kernels of one of these units.
// What does not depend on it is in kernels itself; a namespace there may not be called detail, which is one of the
// inline namespaces': g++ finds both, depending on the order of includes.

#if defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define TESSERA_ISA_LEVEL avx512bw
#elif defined(__AVX512F__)
#define TESSERA_ISA_LEVEL avx512f
#elif defined(__AVX2__)
#define TESSERA_ISA_LEVEL avx2
#elif defined(__AVX__)
#define TESSERA_ISA_LEVEL avx
#elif defined(__SSE4_2__)
#define TESSERA_ISA_LEVEL sse42
#elif defined(__SSE4_1__)
#define TESSERA_ISA_LEVEL sse41
#elif defined(__SSSE3__)
#define TESSERA_ISA_LEVEL ssse3
#elif defined(__SSE3__)
#define TESSERA_ISA_LEVEL sse3
#elif defined(__SSE2__)
#define TESSERA_ISA_LEVEL sse2
#elif defined(__aarch64__)
#define TESSERA_ISA_LEVEL neon64
#else
#define TESSERA_ISA_LEVEL generic
#endif

#if defined(__FMA__)
#define TESSERA_ISA_FMA _fma
#else
#define TESSERA_ISA_FMA
#endif
#if defined(__AVX512VBMI2__)
#define TESSERA_ISA_VBMI2 _vbmi2
#else
#define TESSERA_ISA_VBMI2
#endif
#if defined(__AVX512BF16__)
#define TESSERA_ISA_BF16 _bf16
#else
#define TESSERA_ISA_BF16
#endif
#if defined(__AVX512FP16__)
#define TESSERA_ISA_FP16 _fp16
#else
#define TESSERA_ISA_FP16
#endif
#if defined(__AMX_TILE__)
#define TESSERA_ISA_AMX _amx
#else
#define TESSERA_ISA_AMX
#endif

// Two macros, so that the arguments are expanded before they are pasted.
#define TESSERA_ISA_PASTE(a, b, c, d, e, f) a##b##c##d##e##f
#define TESSERA_ISA_JOIN(a, b, c, d, e, f) TESSERA_ISA_PASTE(a, b, c, d, e, f)
#define TESSERA_ISA                                                                                           \
  TESSERA_ISA_JOIN(TESSERA_ISA_LEVEL, TESSERA_ISA_FMA, TESSERA_ISA_VBMI2, TESSERA_ISA_BF16, TESSERA_ISA_FP16, \
                   TESSERA_ISA_AMX)

// g++ 12 warns where it inlines its own AVX-512 intrinsics, which have an undefined operand on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#define TESSERA_KERNEL_CODE_BEGIN                                                      \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wuninitialized\"") \
      _Pragma("GCC diagnostic ignored \"-Wmaybe-uninitialized\"")
#define TESSERA_KERNEL_CODE_END _Pragma("GCC diagnostic pop")
#else
#define TESSERA_KERNEL_CODE_BEGIN
#define TESSERA_KERNEL_CODE_END
#endif

#include <tessera/base/pop_macros.hpp>

#endif
