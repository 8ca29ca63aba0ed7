// expect first: a mask is no index: the elements where it holds are ts::masked_select
// lines: 7
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto positive(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::masked_select(x, x > 0, 4);
#else
  return ts::index(x, std::tuple(x > 0));
#endif
}
