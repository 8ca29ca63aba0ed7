// expect first: the index of x.i. is an integer.*ts::embedding\(x, indices\) for rows by a tensor of indices
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return x[0];
#else
    return x[ts::cast<int>(x)];
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
