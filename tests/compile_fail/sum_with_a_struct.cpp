// expect first: a tensor and a tuple or struct have no sum; a layer or an operation
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Add {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return x + ts::max<1>(x, ts::keepdims);
#else
    return x + ts::topk<1>(x, 2);
#endif
  }
};
constexpr auto program = ts::Traced<Add, Matrix>::program();
