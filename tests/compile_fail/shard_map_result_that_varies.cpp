// expect: a result of a shard_map varies along an axis that its out spec does not name
// lines: 7
#include <tessera/ops/shard_map/shard_map.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto product(const Matrix& x, const Matrix& w) {
  return ts::shard_map<"{-,model}, {model} -> {}">([](auto a, auto b) {
#ifdef TESSERA_TWIN
    return ts::psum<"model">(ts::matmul(a, b));
#else
    return ts::matmul(a, b);
#endif
  })(x, w);
}
