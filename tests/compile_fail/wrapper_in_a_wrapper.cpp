// expect first: the model is a ts::Fsdp already, and a model is wrapped once
#include <array>

#include <tessera/ops/ops.hpp>
#include <tessera/parallel/fsdp.hpp>

namespace ts = tessera;

struct Layer {
  ts::ShardedTensor<float, 2> w;
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, w); }
};
#ifdef TESSERA_TWIN
struct Model {
  ts::Fsdp<Layer> layer;
  constexpr auto operator()(const auto& x) const { return layer(x); }
};
#else
using Model = ts::Fsdp<Layer>;
#endif
ts::Fsdp<Model> wrapped(Model model, const ts::Mesh& mesh) { return ts::fsdp(std::move(model), mesh); }
