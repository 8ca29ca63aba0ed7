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
// Accessors of containers: no call at any level of optimisation, and no function of its own to compile.
#define TESSERA_ACCESS __attribute__((always_inline))

#include <tessera/base/pop_macros.hpp>

#endif
