// The examples of docs/shard_map.md, section DTensor, in its order. The last test compares the two texts.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "../../support/page.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/parallel/distribute_module.hpp>
#include <tessera/parallel/local_map.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

constexpr ts::Mesh mesh({{"data", 2}, {"model", 2}});

struct Layer {
  ts::ShardedTensor<float, 2> weight;
  ts::ShardedTensor<float, 1> bias;
};

template <class A> auto multiply(const A& a, const A& b) {
  auto [array, out] = ts::LocalTensor<float, 2>::allocate({a.shape[0], b.shape[1]});
  for (std::int64_t i = 0; i < a.shape[0]; ++i)
    for (std::int64_t j = 0; j < b.shape[1]; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < a.shape[1]; ++k) sum += a.data[i * a.shape[1] + k] * b.data[k * b.shape[1] + j];
      out[i * b.shape[1] + j] = sum;
    }
  return array;
}

}  // namespace

TEST(dtensor_page, runs) {
  std::vector<float> values;
  for (int i = 0; i < 24; ++i) values.push_back(static_cast<float>(i));
  auto x = ts::shard(values, {4, 6}, mesh);
  auto rows = ts::distribute_tensor(x, {ts::Shard(0), ts::Replicate()});  // f32[4,6] (S(0), R)
  EXPECT_EQ(rows.text(), "f32[4,6] (S(0), R)");

  tessera_test::Output output;
  ts::CommunicationScope scope;
  auto columns = ts::redistribute(rows, {ts::Shard(1), ts::Replicate()});
  std::cout << scope.text();
  EXPECT_EQ(output.text(), R"(1 all_to_all over data: 96 B, 24 B on the wire
)");

  auto weight = ts::distribute_tensor(ts::ones<float>({6, 2}, mesh), {ts::Shard(0), ts::Replicate()});
  auto product = ts::local_map([](const auto& a, const auto& b) { return multiply(a, b); },  // [4, 6/2] x [6/2, 2]
                               {ts::Partial(), ts::Replicate()},
                               ts::LocalMapInputs<2>{{columns.placements(), weight.placements()}}, columns, weight);
  scope.clear();
  std::vector<float> sums = ts::full_values(product);  // one all-reduce
  EXPECT_EQ(scope.count(ts::all_reduce, "data"), 1);
  ts::ShardedTensor<float, 2> tensor = ts::to_sharded(product, {"data"});  // for use in programs
  EXPECT_EQ(sums, (std::vector<float>{15, 15, 51, 51, 87, 87, 123, 123}));
  EXPECT_EQ(ts::to_host(tensor), sums);

  const auto tensor_placed = ts::distribute_tensor(tensor, {ts::Replicate(), ts::Shard(0)});
  auto gradient = ts::to_local_gradient(product.local(), {ts::Partial(), ts::Replicate()}, tensor_placed);
  EXPECT_EQ(gradient.text(), "f32[4,2] (R, S(0))");
  EXPECT_EQ(ts::full_values(gradient), sums);

  const Layer layer{ts::ones<float>({4, 6}, mesh), ts::ones<float>({6}, mesh)};
  Layer placed = ts::distribute_module(layer, mesh, [](int, const ts::Shape& shape) {
    return ts::Placements{ts::Replicate(), shape.size() == 2 ? ts::Shard(1) : ts::Replicate()};
  });
  EXPECT_EQ(ts::sharded_type_text(placed.weight), "f32[4,6]{-,model}");

  tessera_test::expect_error(
      ts::errc::structure, [&] { ts::redistribute(rows, {ts::Shard(0)}); },
      "[redistribute] one placement for each mesh axis: (S(0)) for mesh(data=2,model=2)");
}

TEST(dtensor_page, holds_the_lines_of_this_file) {
  tessera_test::expect_lines({.name = "shard_map.md", .section = "DTensor", .lines = 21}, __FILE__);
}
