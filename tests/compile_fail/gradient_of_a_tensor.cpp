// expect: returns a loss of rank 0; reduce the loss with ts::mean or ts::sum
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;

struct Step {
  constexpr auto operator()(const auto& w, const auto& x) const {
    return ts::value_and_grad([](const auto& a, const auto& b) {
#ifdef TESSERA_TWIN
      return ts::mean(ts::matmul(b, a));
#else
      return ts::matmul(b, a);
#endif
    })(w, x);
  }
};
constexpr auto program = ts::Traced<Step, Matrix, Matrix>::program();
static_assert(program.argument_count == 2);
