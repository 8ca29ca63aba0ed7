// expect: an axis of the inner shard_map is a manual axis of the outer shard_map already
// lines: 18
#include <tessera/ops/shard_map/shard_map.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto rows(const Matrix& x) {
  return ts::shard_map<"{model} -> {model}">([](auto a) {
#ifdef TESSERA_TWIN
    return ts::shard_map<"{-,data} -> {-,data}">([](auto b) { return b * 2.0; })(a);
#else
    return ts::shard_map<"{-,model} -> {-,model}">([](auto b) { return b * 2.0; })(a);
#endif
  })(x);
}
