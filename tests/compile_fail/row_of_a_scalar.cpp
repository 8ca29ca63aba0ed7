// expect first: a tensor of rank 0 has no rows
// lines: 7
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Call {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return x[0][1];
#else
    return x[0][1][2];
#endif
  }
};
constexpr auto program = ts::Traced<Call, Matrix>::program();
