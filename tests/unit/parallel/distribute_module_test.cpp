#include <cstdint>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/parallel/distribute_module.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using tessera_test::expect_error;

namespace {

struct Layer {
  ts::ShardedTensor<float, 2> weight;
  ts::ShardedTensor<float, 1> bias;
  ts::Dim heads;
};
struct Model {
  ts::ShardedTensor<float, 2> table;
  ts::Stack<Layer> layers;
};

TEST(distribute_module, lays_every_tensor_out) {
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const Model model{ts::shard(values, {2, 3}, mesh), ts::Stack<Layer>(2, [&](int) {
                      return Layer{ts::shard(values, {3, 2}, mesh), ts::shard(values, {6}, mesh), 4};
                    })};
  std::vector<int> order;
  const Model placed = ts::distribute_module(model, mesh, [&](int n, const ts::Shape& shape) {
    order.push_back(n);
    return shape.size() == 2 ? ts::Placements{ts::Replicate(), ts::Shard(-1)}
                             : ts::Placements{ts::StridedShard(0, 2), ts::Shard(0)};
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(ts::sharded_type_text(placed.table), "f32[2,3]{-,model}");
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(ts::sharded_type_text(placed.layers[i].weight), "f32[3,2]{-,model}");
    EXPECT_EQ(ts::sharded_type_text(placed.layers[i].bias), "f32[6]{(model,data)}");
    EXPECT_EQ(ts::to_host(placed.layers[i].bias), values);
    EXPECT_EQ(placed.layers[i].heads.value(), 4);
  }
  EXPECT_TRUE(ts::sharding(model.table).is_replicated()) << "the model that was given stays";
}

TEST(distribute_module, mistakes_are_named) {
  const ts::Mesh mesh({{"data", 2}});
  const Layer layer{ts::zeros<float>({3, 2}, mesh), ts::zeros<float>({6}, mesh), 4};
  const auto with = [&](const ts::Placement& p) {
    ts::distribute_module(layer, mesh, [&](int, const ts::Shape&) { return ts::Placements{p}; });
  };
  expect_error(
      ts::errc::dim_range, [&] { with(ts::Shard(1)); },
      "[distribute_module] dim of a placement: 1 is out of range in (S(1))");
  expect_error(
      ts::errc::unsupported, [&] { with(ts::Partial()); },
      "[distribute_module] placements of tensor 0: (P(sum)) has a Partial");
  expect_error(
      ts::errc::empty_tensor,
      [&] {
        ts::distribute_module(Layer{}, mesh, [](int, const ts::Shape&) { return ts::Placements{ts::Replicate()}; });
      },
      "tensor 0 of the model is empty");
}

}  // namespace
