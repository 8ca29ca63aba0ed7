// expect first: tensors have no operator.*; write ts::select<0>\(x, 2\) for x.*ts::slice<0>\(x, start, size\) for a
// range of rows
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct FirstRow {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::slice<0>(x, 0, 1);
#else
    return x[0];
#endif
  }
};
constexpr auto program = ts::Traced<FirstRow, Matrix>::program();
