// expect first: shapes can't depend on values.*ts::unique\(x, size\)
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::unique(x, 3).values;
#else
    return ts::unique(x);
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
