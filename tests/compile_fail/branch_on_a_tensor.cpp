// expect first: if, .* and ! can.t use a tensor, whose values are not known .*; use ts::select\(condition, yes, no\)
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Branch {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::select(ts::sum(x) > 0, x + 1, x + 2);
#else
    if (ts::sum(x) > 0) return x + 1;
    return x + 2;
#endif
  }
};
constexpr auto program = ts::Traced<Branch, Matrix>::program();
