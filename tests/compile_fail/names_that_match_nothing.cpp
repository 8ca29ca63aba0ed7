// expect: pattern: it names no.*: dwon.*24
#include <array>

#include <tessera/nn/freeze.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using Matrix = ts::ShardedTensor<float, 2>;

struct Net {
  nn::Linear<> up, down;
  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x) const { return down(ts::gelu(up(x))); }
};
struct Tuned {
  constexpr auto operator()(const auto& model, const auto& x) const {
#ifdef TESSERA_TWIN
    constexpr nn::Names frozen("up.*", "down.bias");
#else
    constexpr nn::Names frozen("up.*", "dwon.bias");
#endif
    return nn::freeze(model, frozen)(x);
  }
};
constexpr auto program = ts::Traced<Tuned, Net, Matrix>::program();
static_assert(program.argument_count == 5);
