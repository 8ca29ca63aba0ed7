// expect first: the dims of a local value of a shard_map and the axes along which it varies are at most 8 together
// lines: 28
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

constexpr auto reshaped = [](auto x) {
  return ts::shard_map<"{data} -> {data}">([](auto a) {
#ifdef TESSERA_TWIN
    return ts::reshape(ts::reshape(a, {-1, 2, 1, 1, 1, 1, 2}), {-1, 2});
#else
    return ts::reshape(ts::reshape(a, {-1, 2, 1, 1, 1, 1, 1, 2}), {-1, 2});
#endif
  })(x);
};
constexpr ts::Mesh mesh({{"data", 2}});
static_assert(ts::plan(reshaped, mesh, ts::abstract<float>({8, 2}, {"data"})).implicit_count() == 0);
