// expect first: a number in a model or an argument of a traced function is a ts::Dim if it is a size, else a ts::Scalar
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;

struct Model {
  Matrix w;
#ifdef TESSERA_TWIN
  ts::Dim heads;
#else
  int heads;
#endif
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, w); }
};
struct Apply {
  constexpr auto operator()(const auto& model, const auto& x) const { return model(x); }
};
constexpr auto program = ts::Traced<Apply, Model, Matrix>::program();
#ifdef TESSERA_TWIN
static_assert(program.argument_count == 3);
#endif
