// expect: no if, while .*a ts::Dim of a .*a loop over .*ts::fori_loop.*14
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Sums {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::fori_loop(
        0, ts::extent<0>(x), [](const auto&, const auto& y) { return y + y; }, x);
#else
    auto y = ts::relu(x);
    for (int i = 0; i < ts::extent<0>(x); ++i) y = y + x;
    return y;
#endif
  }
};
constexpr auto program = ts::Traced<Sums, Matrix>::program();
