#ifndef TESSERA_KERNELS_SIMD_XSIMD_HPP
#define TESSERA_KERNELS_SIMD_XSIMD_HPP
#include <tessera/base/push_macros.hpp>

// g++ 12 warns where it inlines its own AVX-512 intrinsics, which start from undefined registers on purpose. For
// inlined code, the warning settings at its definition apply, so that this pragma suffices.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <xsimd/xsimd.hpp>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <tessera/base/pop_macros.hpp>

#endif
