// expect: of a tensor in a struct, write ts::local_of
// lines: 7
#include <tessera/ops/shard_map/shard_map.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix up;
};
struct Total {
  constexpr auto operator()(const Layer& layer, const Matrix& x) const {
    return ts::shard_map<"{}, {data} -> {data}">([](auto own, auto in) {
#ifdef TESSERA_TWIN
      return ts::pvary<"data">(ts::local_of(own.up, in));
#else
      return ts::pvary<"data">(own.up);
#endif
    })(layer, x);
  }
};
constexpr auto program = ts::Traced<Total, Layer, Matrix>::program();
static_assert(program.argument_count == 2);
