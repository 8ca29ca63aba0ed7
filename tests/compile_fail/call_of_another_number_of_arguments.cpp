// expect first: the traced function can't be called with these arguments; compare their number and types
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

inline auto run(const Matrix& w, const Matrix& x, [[maybe_unused]] const Matrix& target) {
  constexpr auto loss = ts::compile(
      [](const auto& weight, const auto& in, const auto& out) { return ts::mse(ts::matmul(in, weight), out); });
#ifdef TESSERA_TWIN
  return loss(w, x, target);
#else
  return loss(w, x);
#endif
}
