// expect: the indices of gather are 32- or 64-bit integers
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto rows(const Matrix& table, const ts::ShardedTensor<float, 1>& ids) {
#ifdef TESSERA_TWIN
  return ts::gather(table, ts::cast<int>(ids));
#else
  return ts::gather(table, ids);
#endif
}
