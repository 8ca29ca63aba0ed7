// expect: the traced function can't be called with these arguments; compare their number and types
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

constexpr auto product = [](auto x, auto w) { return ts::matmul(x, w); };
#ifdef TESSERA_TWIN
constexpr ts::Plan plan() {
  return ts::plan(product, ts::mesh_1d(4), ts::abstract<float>({8, 8}), ts::abstract<float>({8, 8}));
}
#else
constexpr ts::Plan plan() { return ts::plan(product, ts::mesh_1d(4), ts::abstract<float>({8, 8})); }
#endif
static_assert(plan().implicit_count() == 0);
