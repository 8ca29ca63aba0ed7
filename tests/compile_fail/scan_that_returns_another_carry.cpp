// expect: the function of a scan must return a carry with the element types, ranks and structure
// lines: 6
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Step {
  constexpr auto operator()(const auto& h, const auto& xs) const {
    const auto step = [](const auto& carry, const auto& x) {
#ifdef TESSERA_TWIN
      return std::tuple(carry + x, x);
#else
      return std::tuple(ts::sum<0>(carry + x), x);
#endif
    };
    const auto [last, all] = ts::scan(step, h, xs);
    return ts::sum(last) + ts::mean(all);  // no error follows
  }
};
constexpr auto program = ts::Traced<Step, Matrix, ts::ShardedTensor<float, 3>>::program();
static_assert(program.argument_count == 2);
