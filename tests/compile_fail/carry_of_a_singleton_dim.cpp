// expect: dim 1 of.*tensor 1 of the.*carry
// lines: 6
#include <utility>

#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Step {
  constexpr auto operator()(const auto& h, const auto& total, const auto& xs) const {
    const auto step = [](const auto& carry, const auto& x) {
      const auto& [a, b] = carry;
#ifdef TESSERA_TWIN
      return std::tuple(std::pair(a + x, b + ts::broadcast_like(ts::sum<1>(x, ts::keepdims), b)), std::tuple());
#else
      return std::tuple(std::pair(a + x, ts::sum<1>(b + x, ts::keepdims)), std::tuple());
#endif
    };
    return std::get<0>(ts::scan(step, std::pair(h, total), xs));
  }
};
constexpr auto program = ts::Traced<Step, Matrix, Matrix, ts::ShardedTensor<float, 3>>::program();
static_assert(program.argument_count == 3);
