// expect first: for tensors write ts::logical_and\(x, y\) instead of x && y
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Inside {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::select(ts::logical_and(x > 0, x < 1), x, 0);
#else
    return ts::select(x > 0 && x < 1, x, 0);
#endif
  }
};
constexpr auto program = ts::Traced<Inside, Matrix>::program();
