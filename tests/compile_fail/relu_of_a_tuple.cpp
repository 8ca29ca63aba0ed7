// expect first: an operation takes a tensor, and was given a tuple; a layer that returns a tuple
// lines: 10
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/moe.hpp>

namespace ts = tessera;

struct Activated {
  constexpr auto operator()(const auto& moe, const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::relu(std::get<0>(moe(x)));
#else
    return ts::relu(moe(x));
#endif
  }
};
constexpr auto program = ts::Traced<Activated, ts::nn::MoE<>, ts::ShardedTensor<float, 3>>::program();
static_assert(program.argument_count > 1);
