// expect: a struct with fields of fixed ranks arrives in the function of ts::vmap as the std::tuple of its fields'
// lines: 8
// examples
#include <tuple>

#include <tessera/ops/ops.hpp>
#include <tessera/ops/vmap/vmap.hpp>

namespace ts = tessera;
using Vector = ts::ShardedTensor<float, 1>;

struct Particles {
  Vector x, v;
};
struct Energy {
  constexpr auto operator()(const auto& all) const {
#ifdef TESSERA_TWIN
    return ts::vmap([](const auto& one) { return std::get<0>(one) * std::get<1>(one); })(all);
#else
    return ts::vmap([](const Particles& one) { return one.x * one.v; })(all);
#endif
  }
};
constexpr auto program = ts::Traced<Energy, Particles>::program();
static_assert(program.argument_count == 2);
