// expect: an axis of the collective is not a manual axis of the shard_map
// lines: 7
#include <tessera/ops/shard_map/shard_map.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto total(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::shard_map<"{model} -> {}">([](auto a) { return ts::psum<"model">(a); })(x);
#else
  return ts::shard_map<"{model} -> {}">([](auto a) { return ts::psum<"modle">(a); })(x);
#endif
}
