// expect first: tensors are immutable; write x = x \+ y instead of x \+= y
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Next {
  constexpr auto operator()(auto x) const {
#ifdef TESSERA_TWIN
    x = x + 1;
#else
    x += 1;
#endif
    return x;
  }
};
constexpr auto program = ts::Traced<Next, Matrix>::program();
