// expect: the targets of cross_entropy must be an integer tensor of class indices
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto loss(const Matrix& logits, const ts::ShardedTensor<int, 1>& targets) {
#ifdef TESSERA_TWIN
  return ts::cross_entropy(logits, targets);
#else
  return ts::cross_entropy(logits, ts::cast<float>(targets));
#endif
}
