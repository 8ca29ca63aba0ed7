// expect first: dims are template arguments.*ts::flip<0, 1>\(x\) for ts::flip\(x, {0, 1}\)
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::flip<0>(x);
#else
    return ts::flip(x, {0});
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
