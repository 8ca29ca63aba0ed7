// expect: .tree_map. local tensors: .*take no.*shard_map.*14
// results
#include <tessera/ops/ops.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/optim/optim.hpp>

namespace ts = tessera;

struct Step {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::sgd(x, ts::shard_map<"{x} -> {x}">([](const auto& own) { return own * 2.0; })(x));
#else
    return ts::shard_map<"{x} -> {x}">([](const auto& own) { return ts::sgd(own, own * 2.0); })(x);
#endif
  }
};
constexpr auto program = ts::Traced<Step, ts::ShardedTensor<float, 1>>::program();
static_assert(program.argument_count > 0);
