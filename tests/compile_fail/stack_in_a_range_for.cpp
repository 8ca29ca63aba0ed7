// expect first: call a ts::Stack, blocks\(x\), or scan over it
// lines: 12
#include <tessera/graph/trace/trace.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/ops/control_flow.hpp>

namespace ts = tessera;

struct Call {
  constexpr auto operator()(const auto& blocks, const auto& x) const {
#ifdef TESSERA_TWIN
    return blocks(x);
#else
    auto h = x;
    for (const auto& block : blocks) h = block(h);
    return h;
#endif
  }
};
constexpr auto program = ts::Traced<Call, ts::Stack<ts::nn::Linear<>>, ts::ShardedTensor<float, 2>>::program();
static_assert(program.argument_count > 1);
