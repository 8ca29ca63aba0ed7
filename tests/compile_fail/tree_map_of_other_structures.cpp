// expect first: the models of tree_map must have equal structures
// lines: 8
#include <tuple>

#include <tessera/ops/ops.hpp>
#include <tessera/optim/tree_map.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Model = std::tuple<ts::ShardedTensor<float, 1>, Matrix>;

struct Step {
  constexpr auto operator()(const auto& model, const auto& x) const {
#ifdef TESSERA_TWIN
    (void)x;
    return ts::optim::tree_map([](auto p, auto q) { return p + q; }, model, model);
#else
    return ts::optim::tree_map([](auto p, auto q) { return p + q; }, model, x);
#endif
  }
};
constexpr auto program = ts::Traced<Step, Model, Matrix>::program();
static_assert(program.argument_count > 0);
