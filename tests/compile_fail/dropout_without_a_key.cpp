// expect: random numbers need a key, such as the last argument of ts::dropout\(x, rate, key\)
#include <tessera/ops/ops.hpp>

namespace ts = tessera;

struct Dropped {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::dropout(x, 0.1, 7);
#else
    return ts::dropout(x, 0.1);
#endif
  }
};
static_assert(ts::Traced<Dropped, ts::ShardedTensor<float, 2>>::program().argument_count == 1);
