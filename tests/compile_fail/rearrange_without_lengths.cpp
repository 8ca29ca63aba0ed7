// expect: a dim that is split needs a ts::len for all of its factors but one
// lines: 7
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto moved(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::rearrange<"a (b c) -> b a c">(x, ts::len<"c">(4));
#else
  return ts::rearrange<"a (b c) -> b a c">(x);
#endif
}
