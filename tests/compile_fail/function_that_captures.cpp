// expect first: a traced function can.t capture variables; pass them as arguments
#include <tessera/tensor/compile.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

auto scaled(const Matrix& x, float factor) {
#ifdef TESSERA_TWIN
  constexpr auto scale = ts::compile([](const auto& value, const auto& by) { return value * by; });
  return scale(x, factor);
#else
  const auto scale = ts::compile([factor](const auto& value) { return value * factor; });
  const Matrix y = scale(x);
  return y;
#endif
}
