// expect first: a model is a plain struct of .*: without constructors, private fields, virtual functions and base
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Model {
  Matrix w;
#ifndef TESSERA_TWIN
  constexpr Model() {}
#endif
  constexpr auto operator()(const auto& x) const { return x * w; }
};
struct Apply {
  constexpr auto operator()(const auto& model, const auto& x) const { return model(x); }
};
constexpr auto program = ts::Traced<Apply, Model, Matrix>::program();
