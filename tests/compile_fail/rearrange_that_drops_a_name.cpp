// expect: a rearrange pattern is written .*both sides have the same names, each once
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto moved(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::rearrange<"a b -> b a">(x);
#else
  return ts::rearrange<"a b -> b c">(x);
#endif
}
