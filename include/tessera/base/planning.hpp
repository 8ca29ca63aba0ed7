#ifndef TESSERA_BASE_PLANNING_HPP
#define TESSERA_BASE_PLANNING_HPP
#include <tessera/base/push_macros.hpp>

/// Code that runs once per program (graph passes, partitioner, memory assignment) is most of the machine code of a
/// small program. In a header-only build g++ compiles it at -Og, which takes about a third of the compile time of -O2;
/// tessera::compiled, which is built once, compiles it with the project's own flags.
///
///     TESSERA_PLANNING_BEGIN                       // after a header's includes
///     namespace tessera { ... }
///     TESSERA_PLANNING_END
///
///     TESSERA_PLANNING Step(const PlanStep& step)  // one function of a class whose other functions run in each call
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(TESSERA_COMPILED)
#define TESSERA_PLANNING_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"Og\")")
#define TESSERA_PLANNING_END _Pragma("GCC pop_options")
#define TESSERA_PLANNING __attribute__((optimize("Og")))
#else
#define TESSERA_PLANNING_BEGIN
#define TESSERA_PLANNING_END
#define TESSERA_PLANNING
#endif

#include <tessera/base/pop_macros.hpp>

#endif
