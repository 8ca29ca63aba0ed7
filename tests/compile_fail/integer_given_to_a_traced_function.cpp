// expect first: a number .* an argument of a traced function is a ts::Dim if it is a size, else a ts::Scalar, never int
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
