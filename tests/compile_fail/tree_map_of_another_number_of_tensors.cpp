// expect: the function of tree_map must return as many tensors for each rank and element type
// lines: 21
#include <tuple>

#include <tessera/ops/ops.hpp>
#include <tessera/optim/tree_map.hpp>

namespace ts = tessera;

struct Step {
  constexpr auto operator()(const auto& model) const {
    return ts::optim::tree_map(
        [](auto x) {
#ifdef TESSERA_TWIN
          return std::tuple(x, x * 2.0);
#else
          if constexpr (decltype(x)::rank == 1)
            return std::tuple(x, x * 2.0);
          else
            return x * 2.0;
#endif
        },
        model);
  }
};
using Model = std::tuple<ts::ShardedTensor<float, 1>, ts::ShardedTensor<float, 2>>;
constexpr auto program = ts::Traced<Step, Model>::program();
static_assert(program.argument_count > 0);
