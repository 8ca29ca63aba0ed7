// expect first: shapes are not known while a function is traced; use the ts::Dim ts::extent<0>.x. in place of
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>

namespace ts = tessera;

inline auto run(const ts::ShardedTensor<float, 2>& x) {
  return ts::compile([](const auto& in) {
#ifdef TESSERA_TWIN
    return ts::sum(in) * ts::extent<0>(in);
#else
    return ts::sum(in) * ts::shape(in)[0];
#endif
  })(x);
}
