// expect: the result of a layer of a Stack must have the rank of the layer's first argument
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix w;
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::softmax<1>(ts::matmul(x, w));
#else
    return ts::sum<1>(ts::matmul(x, w));
#endif
  }
};
struct Step {
  constexpr auto operator()(const auto& layers, const auto& x) const { return layers(x); }
};
constexpr auto program = ts::Traced<Step, ts::Stack<Layer>, Matrix>::program();
static_assert(program.argument_count == 2);
