// expect: a_layer_returns_another_shape_than_it_is_given
// lines: 7
#include <tessera/static.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Layer {
  Matrix w;
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, w); }
};
struct AddOne {
  constexpr auto operator()(const auto& x) const { return x + 1.0; }
};
struct Model {
  ts::Stack<Layer> layers;
  ts::Stack<AddOne> last;
};
struct Step {
  constexpr auto operator()(const auto& model, const auto& x) const { return model.last(model.layers(x)); }
};
#ifdef TESSERA_TWIN
constexpr std::int64_t width = 8;
#else
constexpr std::int64_t width = 16;
#endif
constexpr ts::Mesh mesh({{"data", 2}});
constexpr ts::Plan plan() {
  const auto model = ts::abstract<Model>({ts::stacked(3, ts::Abstract({8, width})), ts::Abstract::dim(5)});
  return ts::plan(Step{}, mesh, model, ts::abstract<float>({4, 8}, {"data"}));
}
static_assert(plan().main().steps[1].layers == 5);
