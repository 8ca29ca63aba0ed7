// expect first: this kernel of nn::Attention has no `cached\(q, k, v, cache, position\)`
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/attention/attention.hpp>

namespace ts = tessera;

struct Window {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
    return ts::band_attention(q, k, v, 255, 0);
  }
#ifdef TESSERA_TWIN
  constexpr auto cached(const auto& q, const auto& k, const auto& v, const auto& cache, const auto& at) const {
    const auto next = cache.updated(k, v, at);
    return std::tuple(ts::band_attention(q, next.keys, next.values, 255, 0, at), next);
  }
#endif
};
struct Call {
  constexpr auto operator()(const auto& layer, const auto& x, const auto& cache, const auto& position) const {
    return layer.cached(x, cache, position);
  }
};
constexpr auto program = ts::Traced<Call, ts::nn::Attention<float, true, Window>, ts::ShardedTensor<float, 3>,
                                    ts::nn::KvCache<>, ts::Scalar>::program();
static_assert(program.argument_count > 1);
