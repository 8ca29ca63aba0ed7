// expect: and the number of steps of a loop are C.. numbers
// lines: 6
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Vector = ts::ShardedTensor<float, 1>;

struct Sum {
  constexpr auto operator()(const auto& x) const {
    const auto add = [&](const auto&, const auto& sum) { return sum + ts::sum(x); };
#ifdef TESSERA_TWIN
    return ts::fori_loop(0, ts::extent<0>(x), add, 0.0);
#else
    return ts::fori_loop(0, 4, add, 0.0);
#endif
  }
};
constexpr auto program = ts::Traced<Sum, Vector>::program();
static_assert(program.argument_count == 1);
