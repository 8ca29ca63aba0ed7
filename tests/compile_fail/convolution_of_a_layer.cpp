// expect first: a convolution takes a tensor; call a layer that is given to it
// lines: 8
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/conv.hpp>
#include <tessera/nn/normalization/group_norm.hpp>

namespace ts = tessera;

struct Net {
  ts::nn::GroupNorm<> norm;
  ts::nn::Conv2d<> conv;
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return conv(norm(x));
#else
    (void)x;
    return conv(norm);
#endif
  }
};
struct Call {
  constexpr auto operator()(const auto& model, const auto& x) const { return model(x); }
};
constexpr auto program = ts::Traced<Call, Net, ts::ShardedTensor<float, 4>>::program();
static_assert(program.argument_count > 0);
