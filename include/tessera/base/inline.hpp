#ifndef TESSERA_BASE_INLINE_HPP
#define TESSERA_BASE_INLINE_HPP
#include <tessera/base/push_macros.hpp>

// Values of a kernel stay in registers only if all of its functions are inlined. Without optimisation nothing stays in
// registers, and kernels that share functions compile faster.
#ifdef __OPTIMIZE__
#define TESSERA_INLINE inline __attribute__((always_inline))
#define TESSERA_INLINE_LAMBDA __attribute__((always_inline))
#else
#define TESSERA_INLINE inline
#define TESSERA_INLINE_LAMBDA
#endif
// g++ inlines all that a flattened function calls in one step. With always_inline it would inline each function into
// its caller, level by level, and optimise the same code again at each level. clang flattens only one level.
#if defined(__OPTIMIZE__) && defined(__GNUC__) && !defined(__clang__)
#define TESSERA_FLATTEN __attribute__((flatten))
#define TESSERA_FLATTENED inline
#define TESSERA_FLATTENED_LAMBDA
#else
#define TESSERA_FLATTEN
#define TESSERA_FLATTENED TESSERA_INLINE
#define TESSERA_FLATTENED_LAMBDA TESSERA_INLINE_LAMBDA
#endif
#define TESSERA_NO_INLINE __attribute__((noinline))
// Accessors of containers: no call at any level of optimisation, and no function of its own to compile.
#define TESSERA_ACCESS __attribute__((always_inline))

#include <tessera/base/pop_macros.hpp>

#endif
