// expect first: the gradients that an optimizer takes have the structure of the model
// lines: 11
#include <utility>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/sgd.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Number = ts::ShardedTensor<float, 0>;

struct Step {
  constexpr auto operator()(const auto& both, const auto& x) const {
    const auto of_matrix = both.first * x;
#ifdef TESSERA_TWIN
    return ts::sgd(both, std::pair(of_matrix, ts::exp(both.second)));
#else
    return ts::sgd(both, of_matrix);
#endif
  }
};
constexpr auto program = ts::Traced<Step, std::pair<Matrix, Number>, Matrix>::program();
static_assert(program.argument_count == 3);
