// expect: .stack. result: a field of all.*tensor 1.*result.*19
#include <tuple>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix w;
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, w); }
};
struct Step {
  constexpr auto operator()(const auto& layers, const auto& x) const {
#ifdef TESSERA_TWIN
    return std::tuple(layers(x), ts::all_layers(layers, &Layer::w) * 2.0);
#else
    return std::tuple(layers(x), layers[0].w * 2.0);
#endif
  }
};
constexpr auto program = ts::Traced<Step, ts::Stack<Layer>, Matrix>::program();
static_assert(program.argument_count == 2);
