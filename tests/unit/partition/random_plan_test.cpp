#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "planned.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>

// Random shardings of the arguments: every plan satisfies its invariants (verify_plan throws otherwise), and its
// communication and memory are consistent.

namespace {

namespace ts = tessera;
using ts::tests::number;
using ts::tests::Planned;
using Matrix = ts::ShardedTensor<float, 2>;
using Vector = ts::ShardedTensor<float, 1>;
using Cube = ts::ShardedTensor<float, 3>;

struct Block {
  Matrix qkv, out;
  Vector gain;
  ts::Dim heads;
  constexpr auto operator()(const auto& x) const {
    const auto all = ts::rearrange<"b t (h c e) -> b t h c e">(ts::matmul(ts::rms_norm(x, gain), qkv),
                                                               ts::len<"h">(heads), ts::len<"c">(3));
    const auto q = ts::squeeze<3>(ts::slice<3>(all, 0, 1));
    const auto k = ts::squeeze<3>(ts::slice<3>(all, 1, 1));
    const auto v = ts::squeeze<3>(ts::slice<3>(all, 2, 1));
    return x + ts::matmul(ts::rearrange<"b t h e -> b t (h e)">(ts::causal_attention(q, k, v)), out);
  }
};
struct Model {
  Matrix table;
  ts::Stack<Block> blocks;
  Matrix head;
  constexpr auto operator()(const auto& tokens) const { return ts::matmul(blocks(ts::embedding(table, tokens)), head); }
};
struct Step {
  constexpr auto operator()(auto model, auto momentum, auto tokens, auto targets) const {
    auto [loss, g] = ts::value_and_grad([](const auto& m, auto in, auto out) { return ts::cross_entropy(m(in), out); })(
        model, tokens, targets);
    return std::tuple(loss, model.head - g.head * 0.1, model.table - (momentum + g.table) * 0.1, g);
  }
};
using Tokens = ts::ShardedTensor<int, 2>;
using Program = ts::Traced<Step, Model, Matrix, Tokens, Tokens>;

class Layouts {
 public:
  Layouts(const ts::Mesh& mesh, unsigned seed) : mesh_(mesh), random_(seed) {}

  ts::ArgumentInfo tensor(const ts::Shape& shape, bool stacked = false) {
    ts::Sharding sharding = ts::replicated(static_cast<int>(shape.size()));
    for (int axis = 0; axis < mesh_.rank(); ++axis) {
      const int d = pick(static_cast<int>(shape.size()) + 1);
      if (d == static_cast<int>(shape.size()) || (stacked && d == 0)) continue;
      sharding.dims[d].push_back(static_cast<std::uint8_t>(axis));
      sharding.priority[d] = static_cast<std::uint8_t>(pick(3) == 0);
    }
    return {shape, sharding, 0};
  }
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

 private:
  ts::Mesh mesh_;
  std::mt19937 random_;
};

class RandomPlan : public testing::TestWithParam<int> {};

TEST_P(RandomPlan, KeepsItsInvariants) {
  const ts::Mesh meshes[]{ts::Mesh({{"x", 2}}), ts::Mesh({{"x", 2}, {"y", 4}}), ts::Mesh({{"x", 3}, {"y", 2}}),
                          ts::Mesh({{"x", 2}, {"y", 2}, {"z", 2}})};
  for (int i = 0; i < 40; ++i) {
    const unsigned seed = static_cast<unsigned>(GetParam() * 1000 + i);
    const ts::Mesh& mesh = meshes[i % 4];
    Layouts layouts(mesh, seed);
    const std::int64_t h = 24, classes = 32 + layouts.pick(3);
    const std::vector<ts::ArgumentInfo> arguments{
        layouts.tensor({classes, h}), layouts.tensor({2, h, 3 * h}, true),      layouts.tensor({2, h, h}, true),
        layouts.tensor({2, h}, true), number(layouts.pick(2) ? 4 : 6),          layouts.tensor({h, classes}),
        layouts.tensor({classes, h}), layouts.tensor({4 + layouts.pick(3), 8}), layouts.tensor({4, 8}),
    };
    auto same = arguments;
    same[8].shape = same[7].shape;
    try {
      const Planned made(Program::program(), mesh, same);
      std::int64_t wire = 0;
      made.plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
        EXPECT_NE(c.axes, 0);
        EXPECT_GE(c.payload_bytes, 0);
        wire += c.wire_bytes * times;
      });
      EXPECT_EQ(wire, made.plan.wire_bytes());
      EXPECT_FALSE(made.text().empty());
      for (const ts::GraphPlan& graph : made.plan.graphs)
        for (const ts::PlanValue& value : graph.values) {
          const ts::Mesh& own = made.plan.mesh;  // with axes cut where heads take them in parts
          const ts::ShardGrid grid(own, value.sharding);
          std::int64_t exact = 0;
          for (int shard = 0; shard < grid.count(); ++shard)
            if (const ts::Coordinates at = grid.coordinates(shard); value.parts.holds(own, at))
              exact += ts::volume(ts::extents(ts::shard_box(value.shape, value.sharding, own, at))) *
                       static_cast<std::int64_t>(ts::size_of(value.dtype));
          EXPECT_GE(value.stored_bytes, exact);
          EXPECT_LE(value.stored_bytes, exact + 63 * grid.count() * (value.stacked ? value.shape[0] : 1));
        }
    } catch (const ts::error& e) {
      FAIL() << "seed " << seed << " on " << mesh.text() << ": " << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPlan, testing::Range(0, 25));

}  // namespace
