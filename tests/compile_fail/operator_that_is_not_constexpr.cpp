// expect first: calls a function that is not constexpr; add constexpr to the function that the next error names
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Model {
  Matrix w;
#ifdef TESSERA_TWIN
  constexpr
#endif
      auto
      operator()(const auto& x) const {
    return x * w;
  }
};
struct Apply {
  constexpr auto operator()(const auto& model, const auto& x) const { return model(x); }
};
constexpr auto program = ts::Traced<Apply, Model, Matrix>::program();
