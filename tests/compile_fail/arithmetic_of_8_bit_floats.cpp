// expect: f8_e4m3 and f8_e5m2 are storage types without arithmetic
// lines: 12
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Stored = ts::ShardedTensor<ts::f8_e4m3, 2>;

auto sum(const Stored& x, const Stored& y) {
#ifdef TESSERA_TWIN
  return ts::cast<float>(x) + ts::cast<float>(y);
#else
  return x + y;
#endif
}
