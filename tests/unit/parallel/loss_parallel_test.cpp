#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/nn/nn.hpp>
#include <tessera/parallel/parallelize_module.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;

namespace {

/// A table and a head that are split by class over "model".
struct Words {
  nn::Embedding<> table;
  nn::Linear<float, false> head;
  static constexpr std::array field_names{"table", "head"};
  constexpr auto operator()(const auto& tokens) const { return head(table(tokens)); }
};
Words words() {
  const nn::ShardingStrategy one = nn::single(ts::Mesh{});
  return {nn::embedding(ts::Key(1), 50, 8, one), nn::linear<float, false>(ts::Key(2), 8, 50, one)};
}
struct WordsGradient {
  constexpr auto operator()(const auto& model, const auto& tokens, const auto& targets) const {
    return ts::value_and_grad([](const auto& m, const auto& in, const auto& out) {
      return ts::cross_entropy(m(in), out);
    })(model, tokens, targets);
  }
};
constexpr auto words_gradient = ts::compile(WordsGradient{});

// Vocabulary-split cross entropy: a maximum and a sum are reduced, each a value for a token, and the two terms of the
// loss.
TEST(LossParallel, LogitsAndTablesAreNotGathered) {
  constexpr std::int64_t rows = 4, time = 7;
  std::vector<std::int32_t> in, out;
  for (int i = 0; i < rows * time; ++i) in.push_back(i * 11 % 50), out.push_back(i * 7 % 50);
  const auto run = [&](const ts::Mesh& mesh, const Words& model) {
    return words_gradient(model, ts::shard(in, {rows, time}, mesh), ts::shard(out, {rows, time}, mesh));
  };
  const auto [loss, gradient] = run(ts::Mesh{}, words());
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"model", devices}});
    SCOPED_TRACE(mesh.text());
    const Words split = ts::parallelize_module(
        words(), mesh, "model", {{"table", ts::ParallelStyle::rowwise}, {"head", ts::ParallelStyle::colwise}});
    const auto [own_loss, own_gradient] = run(mesh, split);
    EXPECT_NEAR(ts::item(own_loss), ts::item(loss), 1e-5);
    const auto expect_same = [](const auto& a, const auto& b) {
      const std::vector<float> got = ts::to_host(a), wanted = ts::to_host(b);
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-6);
    };
    expect_same(own_gradient.table.table, gradient.table.table);
    expect_same(own_gradient.head.weight, gradient.head.weight);
    const ts::Plan made =
        words_gradient.plan(split, ts::shard(in, {rows, time}, mesh), ts::shard(out, {rows, time}, mesh));
    EXPECT_EQ(made.count(ts::all_gather), 0);
    EXPECT_EQ(made.count(ts::all_to_all), 0);
    EXPECT_EQ(made.count(ts::reduce_scatter), 0);
    // The rows of the table and the cotangent of the head's input have features; the loss has an f64 for a token, and
    // is one number.
    int of_features = 0, of_tokens = 0;
    made.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
      if (c.payload_bytes == 4 * rows * time * 8)
        of_features += static_cast<int>(times);
      else if (c.payload_bytes == 8 * rows * time)
        of_tokens += static_cast<int>(times);
      else
        EXPECT_EQ(c.payload_bytes, 4);
    });
    EXPECT_EQ(of_features, 2);
    EXPECT_EQ(of_tokens, 2);
  }
}

}  // namespace
