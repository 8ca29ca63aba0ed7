// expect first: the function of tree_map returns nothing; add a return statement
// lines: 8
#include <tessera/ops/ops.hpp>
#include <tessera/optim/tree_map.hpp>

namespace ts = tessera;

struct Step {
  constexpr auto operator()(const auto& x) const {
    return ts::optim::tree_map(
        [](auto p) {
          const auto y = p * 2.0;
#ifdef TESSERA_TWIN
          return y;
#else
          (void)y;
#endif
        },
        x);
  }
};
constexpr auto program = ts::Traced<Step, ts::ShardedTensor<float, 2>>::program();
static_assert(program.argument_count > 0);
