// expect first: the function of ts::grad and ts::value_and_grad can't be called with these arguments
// lines: 8
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;

struct Step {
  constexpr auto operator()(const auto& w, const auto& x) const {
    const auto loss = [](const auto& own, const auto& in) { return ts::mean(own * in); };
#ifdef TESSERA_TWIN
    return ts::grad(loss)(w, x);
#else
    (void)x;
    return ts::grad(loss)(w);
#endif
  }
};
using Matrix = ts::ShardedTensor<float, 2>;
constexpr auto program = ts::Traced<Step, Matrix, Matrix>::program();
static_assert(program.argument_count > 0);
