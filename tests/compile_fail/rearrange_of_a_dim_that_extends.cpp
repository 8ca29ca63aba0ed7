// expect: 1: in a pattern, 1 is a .*dim of .*static extent 1.*13
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Rows {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::rearrange<"1 a -> a">(ts::sum<0>(x, ts::keepdims));
#else
    return ts::rearrange<"1 a -> a">(x);
#endif
  }
};
constexpr auto program = ts::Traced<Rows, Matrix>::program();
static_assert(program.argument_count == 1);
