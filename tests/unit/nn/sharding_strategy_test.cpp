#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
using tessera_test::expect_error;

namespace {

constexpr ts::Mesh both({{"data", 2}, {"model", 4}});

static_assert(nn::single(both).column_weight == ts::PartitionSpec{} && nn::single(both).batch == ts::PartitionSpec{});
static_assert(nn::data_parallel(both).row_weight == ts::PartitionSpec{} &&
              nn::data_parallel(both).batch == ts::PartitionSpec{"data"});
static_assert(nn::tensor_parallel(both).weight(nn::Role::column) == ts::PartitionSpec{ts::none, "model"});
static_assert(nn::tensor_parallel(both).bias(nn::Role::column) == ts::PartitionSpec{"model"});
static_assert(nn::tensor_parallel(both).weight(nn::Role::row) == ts::PartitionSpec{"model", ts::none});
static_assert(nn::tensor_parallel(both).bias(nn::Role::row) == ts::PartitionSpec{});
static_assert(nn::tensor_parallel(both).batch == ts::PartitionSpec{"data"});
static_assert(nn::tensor_parallel(ts::Mesh({{"model", 4}})).batch == ts::PartitionSpec{});

TEST(ShardingStrategy, FsdpStoresWeightsSplitAndUsesThemWhole) {
  EXPECT_EQ(nn::fsdp(both).column_weight.text(), "{data*}");
  EXPECT_EQ(nn::fsdp(both).row_weight.text(), "{data*}");
  EXPECT_EQ(nn::fsdp(both).head_weight.text(), "{data*}");
  EXPECT_EQ(nn::fsdp(both).embedding.text(), "{-,data*}");
  EXPECT_EQ(nn::fsdp(both).vector.text(), "{}");
}

TEST(ShardingStrategy, BothAxesSplitTheTwoDimsOfAWeight) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(both);
  EXPECT_EQ(strategy.column_weight.text(), "{data*,model}");
  EXPECT_EQ(strategy.row_weight.text(), "{model,data*}");
  EXPECT_EQ(strategy.head_weight.text(), "{data*,model}");
  EXPECT_EQ(strategy.embedding.text(), "{model,data*}");
  EXPECT_EQ(strategy.positions.text(), "{-,data*}");
  EXPECT_EQ(strategy.column_bias.text(), "{model}");
  EXPECT_EQ(strategy.batch.text(), "{data}");
}

TEST(ShardingStrategy, AnAxisThatTheMeshLacksIsAnError) {
  expect_error(
      ts::errc::mesh_axis,
      [] {
        nn::data_parallel(ts::Mesh({{"x", 2}}));
      },
      "data");
  expect_error(
      ts::errc::mesh_axis,
      [] {
        nn::fsdp(ts::Mesh({{"x", 2}}));
      },
      "data");
  expect_error(
      ts::errc::mesh_axis,
      [] {
        nn::tensor_parallel(ts::Mesh({{"x", 2}}));
      },
      "model");
  expect_error(
      ts::errc::mesh_axis,
      [] {
        nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}}));
      },
      "model");
  // An optional axis may be absent by default, not by name.
  EXPECT_EQ(nn::tensor_parallel(ts::Mesh({{"model", 2}})).batch.text(), "{}");
  expect_error(
      ts::errc::mesh_axis,
      [] {
        nn::tensor_parallel(ts::Mesh({{"model", 2}}), "model", "date");
      },
      "'date'");
  expect_error(
      ts::errc::mesh_axis,
      [] {
        nn::sequence_parallel(ts::Mesh({{"model", 2}}), "model", "date");
      },
      "'date'");
  expect_error(
      ts::errc::mesh_axis,
      [] {
        nn::context_parallel(ts::Mesh({{"context", 2}}), "context", "date");
      },
      "'date'");
}

/// All elements of all tensors of a block and two tables on a strategy.
std::vector<float> initial_values(const nn::ShardingStrategy& strategy) {
  std::vector<float> values;
  const auto collect = [&](const std::string&, const auto& x) {
    const auto own = ts::to_host(x);
    values.insert(values.end(), own.begin(), own.end());
  };
  auto block = nn::block(ts::Key{7}, 12, 3, 20, strategy, 2);
  auto table = nn::embedding(ts::Key{8}, 11, 12, strategy);
  auto positions = nn::positions(ts::Key{9}, 5, 12, strategy);
  nn::for_each_named_parameter(block, collect);
  nn::for_each_named_parameter(table, collect);
  nn::for_each_named_parameter(positions, collect);
  return values;
}

TEST(Initialisation, IsEqualOnEveryMeshBitForBit) {
  const std::vector<float> want = initial_values(nn::single(ts::Mesh{}));
  for (int devices = 1; devices <= 8; ++devices) {
    EXPECT_EQ(initial_values(nn::data_parallel(ts::Mesh({{"data", devices}}))), want) << devices;
    EXPECT_EQ(initial_values(nn::fsdp(ts::Mesh({{"data", devices}}))), want) << devices;
    EXPECT_EQ(initial_values(nn::tensor_parallel(ts::Mesh({{"model", devices}}))), want) << devices;
    for (int data = 1; data <= devices; ++data) {
      if (devices % data != 0) continue;
      const ts::Mesh mesh({{"data", data}, {"model", devices / data}});
      EXPECT_EQ(initial_values(nn::fsdp_tensor_parallel(mesh)), want) << mesh.text();
    }
  }
}

double deviation(const ts::ShardedTensor<float, 2>& x) {
  double sum = 0, square = 0;
  const std::vector<float> values = ts::to_host(x);
  for (float v : values) {
    sum += v;
    square += double{v} * v;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 4 * std::sqrt(square / n / n));  // four standard errors
  return std::sqrt(square / n);
}

TEST(Initialisation, HasTheDeviationsOfGpt2) {
  const auto block = nn::block(ts::Key{1}, 128, 4, 512, nn::single(ts::Mesh{}), 8);
  EXPECT_NEAR(deviation(block.attention.qkv.weight), 0.02, 0.0003);
  EXPECT_NEAR(deviation(block.mlp.up.weight), 0.02, 0.0003);
  EXPECT_NEAR(deviation(block.attention.out.weight), 0.02 / 4, 0.0001);  // over sqrt(2 * 8)
  EXPECT_NEAR(deviation(block.mlp.down.weight), 0.02 / 4, 0.0001);
  EXPECT_EQ(ts::to_host(block.attention.qkv.bias), std::vector<float>(384, 0));
  EXPECT_EQ(ts::to_host(block.mlp_norm.gain), std::vector<float>(128, 1));
}

TEST(Initialisation, GivesEveryWeightItsOwnNumbers) {
  const auto block = nn::gated_block(ts::Key{1}, 8, 2, 8, nn::single(ts::Mesh{}));
  std::vector<std::vector<float>> weights;
  nn::for_each_named_parameter(block, [&](const std::string& name, const auto& x) {
    if (name.find("weight") != std::string::npos) weights.push_back(ts::to_host(x));
  });
  ASSERT_EQ(weights.size(), 5u);
  for (std::size_t i = 0; i < weights.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_GT(std::fabs(weights[i][1] / weights[i][0] - weights[j][1] / weights[j][0]), 1e-3) << i << " and " << j;
}

TEST(Attention, HeadsThatDoNotDivideTheFeaturesAreAnError) {
  expect_error(
      ts::errc::not_divisible, [] { nn::attention(ts::Key{1}, 10, 4, nn::single(ts::Mesh{})); },
      "10 features are not divisible by 4 heads");
  expect_error(
      ts::errc::not_divisible, [] { nn::attention(ts::Key{1}, 10, 0, nn::single(ts::Mesh{})); }, "0 heads");
}

struct Net {
  nn::Embedding<> tokens;
  ts::Stack<nn::Block<>> blocks;
  std::tuple<ts::ShardedTensor<float, 1>, std::array<ts::ShardedTensor<float, 1>, 2>> rest;
  static constexpr std::array field_names{"tokens", "blocks", "rest"};  // the fields of the tuple go by their positions
};

TEST(Parameters, HaveNamesCountsAndBytes) {
  const nn::ShardingStrategy strategy = nn::fsdp_tensor_parallel(ts::Mesh({{"data", 2}, {"model", 2}}));
  const auto vector = [&](int n) { return ts::ones<float>({n}, strategy.mesh, strategy.vector); };
  Net net{nn::embedding(ts::Key{1}, 7, 8, strategy),
          ts::Stack<nn::Block<>>(2,
                                 [&](int i) {
                                   return nn::block(ts::fold_in(ts::Key{1}, static_cast<std::uint64_t>(i)), 8, 2, 32,
                                                    strategy, 2);
                                 }),
          {vector(3), {vector(4), vector(5)}}};
  std::vector<std::string> names;
  std::int64_t largest_device = 0;
  nn::for_each_named_parameter(net, [&](const std::string& name, auto&) { names.push_back(name); });
  ASSERT_EQ(names.size(), 1 + 2 * 12 + 3u);
  EXPECT_EQ(names[0], "tokens.table");
  EXPECT_EQ(names[1], "blocks.0.attention_norm.gain");
  EXPECT_EQ(names[3], "blocks.0.attention.qkv.weight");
  EXPECT_EQ(names[24], "blocks.1.mlp.down.bias");
  EXPECT_EQ(names[25], "rest.0");
  EXPECT_EQ(names[27], "rest.1.1");
  EXPECT_EQ(nn::parameter_count(net), 7 * 8 + 2 * (12 * 64 + 13 * 8) + 12);
  // Weights a quarter each, column biases (3 + 4) h a half, the other vectors whole; the table's larger half of 4 rows.
  const std::int64_t on_first = 4 * 4 + 2 * (12 * 64 / 4 + 7 * 8 / 2 + 6 * 8) + 12;
  EXPECT_EQ(nn::parameter_bytes_per_device(net), 4 * on_first);
  for (int device = 0; device < 4; ++device)
    largest_device = std::max(largest_device, nn::parameter_bytes(net, device));
  EXPECT_EQ(largest_device, 4 * on_first);
}

}  // namespace
