// expect: this kernel of nn::Attention has no
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/attention/attention.hpp>

namespace ts = tessera;

struct Window {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::band_attention(q, k, v, 255, 0);
  }
};
struct Call {
  constexpr auto operator()(const auto& layer, const auto& x) const {
#ifdef TESSERA_TWIN
    return layer(x, ts::nn::layer_dropout(0.1, 1, 0));
#else
    return layer(x, ts::nn::layer_dropout(0.1, 1));
#endif
  }
};
constexpr auto program =
    ts::Traced<Call, ts::nn::Attention<float, true, Window>, ts::ShardedTensor<float, 3>>::program();
static_assert(program.argument_count > 1);
