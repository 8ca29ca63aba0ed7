// A user's first programs, with nothing but the umbrella header: of include/, and once more of single_include/.

#include <vector>

#include <gtest/gtest.h>

#include <tessera/tessera.hpp>

namespace ts = tessera;

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

TEST(umbrella, an_expression_runs_on_a_mesh) {
  const auto x = ts::shard<float>({{1, 2}, {3, 4}, {-5, 6}, {7, -8}}, mesh, {"data", "model"});
  const auto w = ts::shard<float>({{1, -1}, {0.5f, 2}}, mesh, {"model"});
  const auto b = ts::shard<float>({0, -4}, mesh);
  const ts::ShardedTensor<float, 2> y = ts::relu(ts::matmul(x, w) + b);
  EXPECT_EQ(ts::to_host(y), (std::vector<float>{2, 0, 5, 1, 0, 13, 3, 0}));
}

TEST(umbrella, a_compiled_function_has_a_gradient) {
  constexpr auto step = ts::compile([](auto weights, auto x, auto target) {
    return ts::value_and_grad([](auto w, auto in, auto out) { return ts::mse(ts::matmul(in, w), out); })(weights, x,
                                                                                                         target);
  });
  // x w is (3, 7) and should be (1, 4): the loss is (4 + 9) / 2, its gradient 2 / 2 x' (2, 3).
  const auto x = ts::shard<float>({{1, 2}, {3, 4}}, mesh, {"data"});
  const auto w = ts::shard<float>({{1}, {1}}, mesh, {"model"});
  const auto target = ts::shard<float>({{1}, {4}}, mesh, {"data"});
  const auto [loss, gradient] = step(w, x, target);
  EXPECT_EQ(ts::item(loss), 6.5f);
  EXPECT_EQ(ts::to_host(gradient), (std::vector<float>{11, 16}));
  EXPECT_EQ(ts::mesh(gradient), mesh);
}

namespace {

struct Layer {
  constexpr auto operator()(auto x, auto w) const { return ts::relu(ts::matmul(x, w)); }
};

constexpr ts::Plan plan(const ts::PartitionSpec& weight) {
  return ts::plan(Layer{}, mesh, ts::abstract<float>({8, 4}, {"data", "model"}), ts::abstract<float>({4, 6}, weight));
}

}  // namespace

// Both of the product's operands are split along the dim that is summed: half of the rows, 6 columns, 4 bytes each.
static_assert(plan({"model"}).count(ts::all_reduce) == 1);
static_assert(plan({"model"}).payload_bytes(ts::all_reduce, "model") == 4 * 6 * 4);

TEST(umbrella, a_plan_at_run_time_is_the_constant_one) {
  const auto at_run_time = plan({"model"});
  EXPECT_EQ(at_run_time.count(ts::all_reduce), 1);
  EXPECT_EQ(at_run_time.wire_bytes("model"), ts::ring_bytes(ts::all_reduce, 4 * 6 * 4, 2));
}
