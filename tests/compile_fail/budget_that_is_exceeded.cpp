// expect: static assertion failed
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

struct Product {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::matmul(x, w); }
};
constexpr ts::Mesh mesh({{"model", 4}});
constexpr std::int64_t bytes = ts::plan(Product{}, mesh, ts::abstract<float>({8, 16}, {ts::none, "model"}),
                                        ts::abstract<float>({16, 8}, {"model"}))
                                   .wire_bytes();
// One all-reduce of [8, 8]: 2 * 3/4 of 256 bytes.
#ifdef TESSERA_TWIN
static_assert(bytes < 400);
#else
static_assert(bytes < 300);
#endif
