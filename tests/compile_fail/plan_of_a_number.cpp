// expect: the plan of a function takes a mesh and arguments without data
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

constexpr auto twice = [](auto x) { return x * 2.0f; };
#ifdef TESSERA_TWIN
inline const ts::Plan plan = ts::plan(twice, ts::mesh_1d(4), ts::abstract<float>({8, 8}));
#else
inline void plan() { ts::plan(twice, 1.0f); }
#endif
