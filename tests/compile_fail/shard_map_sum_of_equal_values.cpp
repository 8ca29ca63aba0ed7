// expect: the value does not vary along the axis of the collective
// lines: 7
#include <tessera/ops/shard_map/shard_map.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto total(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::shard_map<"{data,model} -> {}">([](auto a) { return ts::psum<"data", "model">(a); })(x);
#else
  return ts::shard_map<"{data} -> {}; model">([](auto a) { return ts::psum<"data", "model">(a); })(x);
#endif
}
