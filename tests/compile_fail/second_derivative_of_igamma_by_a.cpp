// expect: random_gamma_grad. gradient:
// lines: 6
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;

struct Step {
  constexpr auto operator()(const auto& a) const {
    const auto slope = [](const auto& p) {
      return ts::grad([](const auto& q) { return ts::sum(ts::igamma(q, 0.5)); })(p);
    };
#ifdef TESSERA_TWIN
    return slope(a);
#else
    return ts::grad([&](const auto& p) { return ts::sum(slope(p)); })(a);
#endif
  }
};
constexpr auto program = ts::Traced<Step, ts::ShardedTensor<double, 1>>::program();
static_assert(program.argument_count > 0);
