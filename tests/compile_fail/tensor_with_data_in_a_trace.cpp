// expect: captured tensor: a traced .*function can.*t use a stored tensor .*the tensor as an argument
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;

struct Shifted {
  constexpr auto operator()(const auto& x, const auto& shift) const {
#ifdef TESSERA_TWIN
    return x + shift;
#else
    (void)shift;
    return x + Matrix();
#endif
  }
};
constexpr auto program = ts::Traced<Shifted, Matrix, Matrix>::program();
static_assert(program.argument_count == 2);
