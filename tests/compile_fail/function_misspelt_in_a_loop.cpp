// expect first: tanhh
// lines: 8
#include <tuple>

#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>

namespace ts = tessera;

// One error: none that follows from it, in the loop or where its result is used.
inline auto run(const ts::ShardedTensor<float, 2>& x) {
  return ts::compile([](const auto& in) {
    const auto step = [](const auto& h, const auto& row) {
#ifdef TESSERA_TWIN
      const auto next = ts::tanh(h + row);
#else
      const auto next = tanhh(h + row);
#endif
      return std::tuple(next, next);
    };
    const auto all = std::get<1>(ts::scan(step, ts::sum<0>(in), in));
    return ts::cond(
        ts::sum(in) > 0.0, [&] { return all * 1.0; }, [&] { return all * 2.0; });
  })(x);
}
