// expect: the two operands have different element types; convert one of them with ts::cast<T>
// lines: 25
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto total(const Matrix& x, const ts::ShardedTensor<int, 2>& count) {
#ifdef TESSERA_TWIN
  return x + ts::cast<float>(count);
#else
  return x + count;
#endif
}
