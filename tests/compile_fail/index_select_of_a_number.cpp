// expect first: ts::index_select<D>\(x, indices\) takes a vector of indices, or a list
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::index_select<0>(x, {2});
#else
    return ts::index_select<0>(x, 2);
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
