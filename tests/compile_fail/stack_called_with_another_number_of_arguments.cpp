// expect first: the layers of a ts::Stack can't be called with these arguments; compare their number and types
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix w;
  constexpr auto operator()(const auto& x, const auto& memory) const { return x + ts::matmul(memory, w); }
};
struct Step {
  constexpr auto operator()(const auto& layers, const auto& x) const {
#ifdef TESSERA_TWIN
    return layers(x, x);
#else
    return layers(x);
#endif
  }
};
constexpr auto program = ts::Traced<Step, ts::Stack<Layer>, Matrix>::program();
static_assert(program.argument_count == 2);
