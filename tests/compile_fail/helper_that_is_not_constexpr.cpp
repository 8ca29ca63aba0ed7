// expect first: the traced function calls a function that is not constexpr; add constexpr to the function that the
#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

#ifdef TESSERA_TWIN
constexpr auto twice(const auto& x) { return x * 2; }
#else
auto twice(const auto& x) { return x * 2; }
#endif
struct Doubled {
  constexpr auto operator()(const auto& x) const { return twice(x) + 1; }
};
constexpr auto program = ts::Traced<Doubled, Matrix>::program();
#ifdef TESSERA_TWIN
static_assert(program.argument_count == 1);
#endif
