// expect: a result of a shard_map varies along an axis that its out spec does not name
// lines: 9
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

constexpr auto product = [](auto x, auto w) {
  return ts::shard_map<"{-,model}, {model} -> {}">([](auto a, auto b) {
#ifdef TESSERA_TWIN
    return ts::psum<"model">(ts::matmul(a, b));
#else
    return ts::matmul(a, b);
#endif
  })(x, w);
};
constexpr ts::Mesh mesh({{"model", 4}});
static_assert(ts::plan(product, mesh, ts::abstract<float>({8, 8}), ts::abstract<float>({8, 8})).implicit_count() == 0);
