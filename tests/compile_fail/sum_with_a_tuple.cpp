// expect first: a tensor and a tuple or struct have no sum; a layer or an operation
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/moe.hpp>

namespace ts = tessera;

struct Residual {
  constexpr auto operator()(const auto& moe, const auto& x) const {
#ifdef TESSERA_TWIN
    return x + std::get<0>(moe(x));
#else
    return x + moe(x);
#endif
  }
};
constexpr auto program = ts::Traced<Residual, ts::nn::MoE<>, ts::ShardedTensor<float, 3>>::program();
static_assert(program.argument_count > 1);
