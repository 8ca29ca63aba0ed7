// expect: a result varies .*along an axis that its out spec .*does not name.*11
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;

struct Layer {
  ts::ShardedTensor<float, 2> up, down;
};
constexpr auto product = [](auto layer, auto x) {
  return ts::shard_map<"[{-,model}, {model}], {} -> {}">([](auto own, auto in) {
#ifdef TESSERA_TWIN
    return ts::psum<"model">(ts::matmul(ts::matmul(in, own.up), own.down));
#else
    return ts::matmul(ts::matmul(in, own.up), own.down);
#endif
  })(layer, x);
};
constexpr ts::Mesh mesh({{"model", 4}});
static_assert(ts::plan(product, mesh, ts::abstract<Layer>({{{8, 8}}, {{8, 8}}}), ts::abstract<float>({8, 8}))
                  .implicit_count() == 0);
