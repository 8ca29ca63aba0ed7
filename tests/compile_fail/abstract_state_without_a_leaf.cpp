// expect first: an abstract argument has one leaf for each tensor, Dim and Scalar of its type
#include <tessera/optim/adam/adamw.hpp>
#include <tessera/optim/state/abstract_state.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Mlp {
  Matrix up, down;
};
constexpr auto state() {
#ifdef TESSERA_TWIN
  const auto model = ts::abstract<Mlp>({{{8, 16}}, {{16, 8}}});
#else
  const auto model = ts::abstract<Mlp>({{{8, 16}}, {{16, 8}}, {{4}}});
#endif
  return ts::optim::init_state(ts::optim::AdamW{}, model, ts::nn::Names("0"));
}
static_assert(sizeof(state().leaves) > 0);
