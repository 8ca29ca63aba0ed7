// expect first: ts::while_loop takes the greatest number of steps as its last argument
// lines: 12
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;

struct Halved {
  constexpr auto operator()(const auto& x) const {
    const auto large = [](const auto& v) { return ts::sum(v) > 1.0; };
    const auto half = [](const auto& v) { return v * 0.5; };
#ifdef TESSERA_TWIN
    return ts::while_loop(large, half, x, 10);
#else
    return ts::while_loop(large, half, x);
#endif
  }
};
constexpr auto program = ts::Traced<Halved, ts::ShardedTensor<float, 2>>::program();
static_assert(program.argument_count == 1);
