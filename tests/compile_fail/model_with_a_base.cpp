// expect first: a model is a plain struct of tensors, .*, and a field instead of a base class
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Weight {
  Matrix w;
};
#ifdef TESSERA_TWIN
struct Model {
  Weight base;
  Matrix b;
  constexpr auto operator()(const auto& x) const { return x * base.w + b; }
};
#else
struct Model : Weight {
  Matrix b;
  constexpr auto operator()(const auto& x) const { return x * w + b; }
};
#endif
struct Apply {
  constexpr auto operator()(const auto& model, const auto& x) const { return model.first(x); }
};
constexpr auto program = ts::Traced<Apply, std::pair<Model, Matrix>, Matrix>::program();
