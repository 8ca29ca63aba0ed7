// expect first: the extents of a shape are in braces: ts::reshape\(x, \{3, 5\}\) for ts::reshape\(x, 3, 5\)
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto result(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::reshape(x, {3, 5});
#else
  return ts::reshape(x, 3, 5);
#endif
}
