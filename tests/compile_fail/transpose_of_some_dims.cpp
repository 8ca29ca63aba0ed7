// expect: transpose needs each dim of the tensor once
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto moved(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::transpose<1, 0>(x);
#else
  return ts::transpose<1, 1>(x);
#endif
}
