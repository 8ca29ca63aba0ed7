// expect first: the traced function returns nothing; add a return statement
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Doubled {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return x * 2;
#else
    x * 2;
#endif
  }
};
constexpr auto program = ts::Traced<Doubled, Matrix>::program();
