// expect first: inside of ts::no_sync gradients are reduced once, by the wrapper around the whole model
#include <array>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/parallel/no_sync.hpp>
#include <tessera/tensor/compile.hpp>

namespace ts = tessera;

struct Layer {
  ts::ShardedTensor<float, 2> w;
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, w); }
};
#ifdef TESSERA_TWIN
constexpr ts::FsdpPolicy policy{};
#else
constexpr ts::FsdpPolicy policy{.reduce_dtype = ts::DType::bf16};
#endif
struct Model {
  ts::Fsdp<Layer, policy> layer;
  constexpr auto operator()(const auto& x) const { return layer(x); }
};
constexpr auto step = ts::compile([](auto model, auto x) {
  return ts::no_sync(model, [&](const auto& m) {
    return ts::value_and_grad([](const auto& own, const auto& in) { return ts::mean(own(in)); })(m, x);
  });
});
auto called(const ts::Fsdp<Model>& model, const ts::ShardedTensor<float, 2>& x) { return step(model, x); }
