#ifndef TESSERA_KERNELS_SIMD_XSIMD_HPP
#define TESSERA_KERNELS_SIMD_XSIMD_HPP
#include <tessera/base/push_macros.hpp>

// g++ 12 takes the undefined registers that its own intrinsics of AVX-512 start from for mistakes, wherever they are
// inlined into. Of what is inlined, the state of warnings where it stands counts.
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
