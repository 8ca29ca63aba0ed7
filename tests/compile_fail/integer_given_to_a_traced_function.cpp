// expect first: a number .* given to a traced function, is a ts::Dim where it is a size and a ts::Scalar otherwise
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Scaled {
  constexpr auto operator()(const auto& x, const auto& factor) const { return x * factor; }
};
#ifdef TESSERA_TWIN
constexpr auto program = ts::Traced<Scaled, Matrix, ts::Scalar>::program();
#else
constexpr auto program = ts::Traced<Scaled, Matrix, int>::program();
#endif
