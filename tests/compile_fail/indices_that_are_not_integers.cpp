// expect: the indices of embedding and index_select must be std::int32_t or std::int64_t
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto rows(const Matrix& table, const ts::ShardedTensor<float, 1>& ids) {
#ifdef TESSERA_TWIN
  return ts::embedding(table, ts::cast<int>(ids));
#else
  return ts::embedding(table, ids);
#endif
}
