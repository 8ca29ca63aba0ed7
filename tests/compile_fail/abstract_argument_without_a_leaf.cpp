// expect: an abstract argument has one leaf for each tensor, Dim and Scalar of its type
// lines: 6
#include <tessera/ops/ops.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Mlp {
  Matrix up, down;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::matmul(x, up), down); }
};
struct Apply {
  constexpr auto operator()(const auto& model, const auto& x) const { return model(x); }
};
constexpr ts::Mesh mesh({{"data", 2}});
#ifdef TESSERA_TWIN
constexpr auto model = ts::abstract<Mlp>({{{8, 16}}, {{16, 8}}});
#else
constexpr auto model = ts::abstract<Mlp>({{{8, 16}, {"data"}}});
#endif
static_assert(ts::plan(Apply{}, mesh, model, ts::abstract<float>({4, 8}, {"data"})).wire_bytes() == 0);
