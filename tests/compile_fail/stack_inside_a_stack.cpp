// expect first: the layers of a ts::Stack can't contain a ts::Stack or take a ts::Stack as an argument
#include <array>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Inner {
  Matrix w;
  constexpr auto operator()(const auto& x) const { return ts::matmul(x, w); }
};
struct Layer {
#ifdef TESSERA_TWIN
  std::array<Inner, 2> blocks;
  constexpr auto operator()(const auto& x) const { return blocks[1](blocks[0](x)); }
#else
  ts::Stack<Inner> blocks;
  constexpr auto operator()(const auto& x) const { return blocks(x); }
#endif
};
struct Step {
  constexpr auto operator()(const auto& layers, const auto& x) const { return layers(x); }
};
constexpr auto program = ts::Traced<Step, ts::Stack<Layer>, Matrix>::program();
#ifdef TESSERA_TWIN
static_assert(program.argument_count == 3);
#endif
