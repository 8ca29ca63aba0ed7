// expect: need a mesh, ts::zeros<float>\(\{4, 2\}, mesh\), or in a traced function any tensor of it
#include <tessera/ops/ops.hpp>

namespace ts = tessera;

struct Shifted {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return x + ts::zeros<float>({4, 2}, x);
#else
    return x + ts::zeros<float>({4, 2});
#endif
  }
};
static_assert(ts::Traced<Shifted, ts::ShardedTensor<float, 2>>::program().argument_count == 1);
