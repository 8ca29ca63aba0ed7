// expect first: the key of random numbers is a ts::Key, a number or a ts::Scalar
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/tensor/key.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Dropped {
  constexpr auto operator()(const auto& x) const {
#ifdef TESSERA_TWIN
    return ts::dropout(x, 0.1, ts::Key(3));
#else
    return ts::dropout(x, 0.1, "3");
#endif
  }
};
constexpr auto program = ts::Traced<Dropped, Matrix>::program();
