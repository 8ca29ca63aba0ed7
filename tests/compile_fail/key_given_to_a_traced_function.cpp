// expect first: a ts::Key can't be in a model or an argument of a traced function; pass a ts::Scalar
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/tensor/key.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Dropped {
  constexpr auto operator()(const auto& x, const auto& key) const { return ts::dropout(x, 0.1, key); }
};
#ifdef TESSERA_TWIN
constexpr auto program = ts::Traced<Dropped, Matrix, ts::Scalar>::program();
#else
constexpr auto program = ts::Traced<Dropped, Matrix, ts::Key>::program();
#endif
