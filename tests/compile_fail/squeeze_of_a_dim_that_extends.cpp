// expect: only a dim of static .*extent 1, as from keepdims or .*ts::unsqueeze, can be squeezed.*14
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;

struct Rows {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::squeeze<0>(ts::sum<0>(x, ts::keepdims));
#else
    return ts::squeeze<0>(x);
#endif
  }
};
constexpr auto program = ts::Traced<Rows, Matrix>::program();
static_assert(program.argument_count == 1);
