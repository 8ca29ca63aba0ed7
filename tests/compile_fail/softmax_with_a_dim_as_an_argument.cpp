// expect first: the dim of a softmax is a template argument: ts::softmax<1>\(x\) for ts::softmax\(x, 1\)
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto columns(const Matrix& x) {
#ifdef TESSERA_TWIN
  return ts::softmax<0>(x);
#else
  return ts::softmax(x, 1);
#endif
}
