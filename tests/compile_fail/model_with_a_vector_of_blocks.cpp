// expect first: a model can't contain this container or string; use std::array .* and ts::Stack for layers of one type
#include <vector>

#include <tessera/graph/trace/trace.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace ts = tessera;
using Matrix = ts::ShardedTensor<float, 2>;

struct Block {
  Matrix w;
  constexpr auto operator()(const auto& x) const { return x * w; }
};
struct Model {
#ifdef TESSERA_TWIN
  ts::Stack<Block> blocks;
#else
  std::vector<Block> blocks;
#endif
};
struct Apply {
  constexpr auto operator()(const auto& model, const auto& x) const { return model.blocks(x); }
};
constexpr auto program = ts::Traced<Apply, Model, Matrix>::program();
