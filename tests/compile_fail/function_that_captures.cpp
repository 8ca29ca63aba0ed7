// expect: a traced function must not capture anything; pass what it needs as arguments
// lines: 25
#include <tessera/graph/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;

inline constexpr auto scaled = [](float factor) {
#ifdef TESSERA_TWIN
  (void)factor;
  return [](const auto& x) { return x * 2; };
#else
  return [factor](const auto& x) { return x * factor; };
#endif
};
constexpr auto program = ts::Traced<decltype(scaled(2)), Matrix>::program();
static_assert(program.argument_count == 1);
