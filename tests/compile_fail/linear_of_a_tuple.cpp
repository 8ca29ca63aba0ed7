// expect first: a Linear takes a tensor; a layer that returns a tuple, such as ts::nn::MoE or ts::nn::Lstm
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/moe.hpp>

namespace ts = tessera;

struct Experts {
  ts::nn::MoE<> moe;
  ts::nn::Linear<> head;
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return head(std::get<0>(moe(x)));
#else
    return ts::mean(head(moe(x)));
#endif
  }
};
struct Call {
  constexpr auto operator()(const auto& model, const auto& x) const { return model(x); }
};
constexpr auto program = ts::Traced<Call, Experts, ts::ShardedTensor<float, 3>>::program();
static_assert(program.argument_count > 1);
