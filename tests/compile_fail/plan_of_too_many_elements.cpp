// expect: fail_large
// lines: 7
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

struct Product {
  constexpr auto operator()(const auto& x, const auto& w) const { return ts::matmul(x, w); }
};
constexpr ts::Mesh mesh({{"model", 4}});
#ifdef TESSERA_TWIN
constexpr std::int64_t n = 1 << 20;
#else
constexpr std::int64_t n = std::int64_t{1} << 31;
#endif
// The result has n * n elements.
static_assert(ts::plan(Product{}, mesh, ts::abstract<float>({n, 0}), ts::abstract<float>({0, n})).wire_bytes() == 0);
