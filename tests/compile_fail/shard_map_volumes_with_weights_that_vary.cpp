// expect: shard_map. rank: where operands.*conv3d
// lines: 9
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

constexpr auto volumes = [](auto x, auto w) {
  return ts::shard_map<"{data}, {} -> {data}">([](auto a, auto taps) {
#ifdef TESSERA_TWIN
    return ts::conv3d(a, taps);
#else
    return ts::conv3d(a, ts::pvary<"data">(taps) * ts::sum(a));
#endif
  })(x, w);
};
constexpr ts::Mesh mesh({{"data", 2}});
static_assert(ts::plan(volumes, mesh, ts::abstract<float>({4, 3, 3, 3, 2}, {"data"}),
                       ts::abstract<float>({2, 2, 2, 2, 2}))
                  .implicit_count() == 0);
