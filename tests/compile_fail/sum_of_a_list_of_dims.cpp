// expect first: the dims of a reduction are template arguments
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::sum<0, 1>(x);
#else
    return ts::sum(x, {0, 1});
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
