#ifndef TESSERA_BASE_SEPARATE_HPP
#define TESSERA_BASE_SEPARATE_HPP
#include <tessera/base/push_macros.hpp>

/// Functions marked TESSERA_ONCE, and all that they call, are most of the machine code of a small program: the planner,
/// the executor, redistribution. As a rule they are inline. A project that defines TESSERA_SEPARATE for all its units
/// has them in the one unit that defines TESSERA_DEFINITIONS as well, and nowhere else: docs/build_times.md.
#ifdef TESSERA_SEPARATE
#define TESSERA_ONCE
#else
#define TESSERA_ONCE inline
#endif

#if !defined(TESSERA_SEPARATE) || defined(TESSERA_DEFINITIONS)
#define TESSERA_HAS_DEFINITIONS 1
#else
#define TESSERA_HAS_DEFINITIONS 0
#endif

#include <tessera/base/pop_macros.hpp>

#endif
