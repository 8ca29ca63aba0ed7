// expect first: ts::squeeze<D>\(x\) removes dim D
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::squeeze<0>(ts::unsqueeze<0>(x));
#else
    return ts::squeeze(ts::unsqueeze<0>(x));
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
