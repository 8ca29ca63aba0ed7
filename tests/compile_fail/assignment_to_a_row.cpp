// expect first: tensors are immutable; instead of x.i. = y write x = ts::select_scatter<0>\(x, y, i\)
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::select_scatter<0>(x, x[1], 0);
#else
    x[0] = x[1];
    return x;
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
