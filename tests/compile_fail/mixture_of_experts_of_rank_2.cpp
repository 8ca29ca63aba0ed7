// expect first: a mixture of experts takes x of .batch, time, features
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/moe.hpp>

namespace ts = tessera;

struct Loss {
  constexpr auto operator()(const auto& moe, const auto& x) const {
#ifdef TESSERA_TWIN
    const auto [y, balance, z] = moe(ts::unsqueeze<0>(x));
#else
    const auto [y, balance, z] = moe(x);
#endif
    return ts::mean(y) + 0.01 * balance + 0.001 * z;
  }
};
constexpr auto program = ts::Traced<Loss, ts::nn::MoE<>, ts::ShardedTensor<float, 2>>::program();
static_assert(program.argument_count > 1);
