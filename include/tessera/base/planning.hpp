#ifndef TESSERA_BASE_PLANNING_HPP
#define TESSERA_BASE_PLANNING_HPP
#include <tessera/base/push_macros.hpp>

/// What runs once per program (the graph passes, the partitioner, the layout of buffers) is most of the machine code of
/// a small program. In a header-only unit g++ compiles it at -Og, whose passes take about a third of the time of -O2's;
/// tessera::compiled, which is compiled once, has all of what its project asks for.
///
///     TESSERA_PLANNING_BEGIN                       // after a header's includes
///     namespace tessera { ... }
///     TESSERA_PLANNING_END
///
///     TESSERA_PLANNING Step(const PlanStep& step)  // one function, in a class whose others run for each call
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
