// Sums of products whose terms are in the shards of several devices: docs/decisions/0010.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

std::vector<float> values(std::int64_t count, int seed) {
  std::vector<float> made;
  for (std::int64_t i = 0; i < count; ++i)
    made.push_back(std::sin(static_cast<float>(seed) + 1.7f * static_cast<float>(i)) / 2);
  return made;
}

// The operands of the product are intermediates.
constexpr auto of_intermediates =
    ts::compile([](auto x, auto y) { return ts::matmul(ts::transpose<1, 0>(ts::tanh(x)), ts::sin(y)); });
constexpr auto of_arguments = ts::compile([](auto x, auto y) { return ts::matmul(ts::transpose<1, 0>(x), y); });

/// tanh(x)^T sin(y), or x^T y, in double.
std::vector<double> expected(const std::vector<float>& x, const std::vector<float>& y, std::size_t rows,
                             bool intermediates) {
  const std::size_t m = x.size() / rows, n = y.size() / rows;
  std::vector<double> sum(m * n, 0.0);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        const double a = x[r * m + i], b = y[r * n + j];
        sum[i * n + j] += intermediates ? std::tanh(a) * std::sin(b) : a * b;
      }
  return sum;
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size()) << where;
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-5) << where << ", element " << i;
}

struct Layer {
  ts::ShardedTensor<float, 2> w;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, w)); }
};
constexpr auto gradient = ts::compile([](auto layers, auto x) {
  return ts::grad([](const auto& own, const auto& in) { return ts::sum(ts::square(own(in))); })(layers, x);
});

}  // namespace

TEST(SumsOfParts, AreTheProductOfAllTerms) {
  struct Case {
    std::int64_t rows, m, n;
  };
  // Shards that fill whole blocks of memory, shards with a gap behind them, and shards of uneven numbers of rows.
  for (const auto [rows, m, n] : {Case{256, 32, 48}, Case{256, 20, 24}, Case{24, 5, 7}, Case{27, 16, 33}}) {
    const auto x = values(rows * m, 1), y = values(rows * n, 2);
    for (const int devices : {1, 2, 3, 8}) {
      const ts::Mesh mesh({{"data", devices}});
      const auto a = ts::shard(x, {rows, m}, mesh, {"data"}), b = ts::shard(y, {rows, n}, mesh, {"data"});
      const auto where = std::to_string(rows) + " rows on " + std::to_string(devices) + " devices";
      expect_near(ts::to_host(of_intermediates(a, b)), expected(x, y, static_cast<std::size_t>(rows), true), where);
      expect_near(ts::to_host(of_arguments(a, b)), expected(x, y, static_cast<std::size_t>(rows), false), where);
    }
  }
}

// Shards of intermediates lie one behind another, so that the sum is one product, with the bits of that on one device.
TEST(SumsOfParts, OfIntermediatesAreOneProduct) {
  constexpr std::int64_t rows = 256, m = 32, n = 48;
  const auto x = values(rows * m, 1), y = values(rows * n, 2);
  const auto on = [&](int devices) {
    const ts::Mesh mesh({{"data", devices}});
    return ts::to_host(
        of_intermediates(ts::shard(x, {rows, m}, mesh, {"data"}), ts::shard(y, {rows, n}, mesh, {"data"})));
  };
  const auto one = on(1);
  for (const int devices : {2, 4, 8}) EXPECT_EQ(on(devices), one) << devices << " devices";
}

// Other axes split the result, so that shards of one sum do not lie one behind another.
TEST(SumsOfParts, OfSeveralAxes) {
  constexpr std::int64_t rows = 64, m = 32, n = 48;
  const auto x = values(rows * m, 1), y = values(rows * n, 2);
  for (const bool data_first : {true, false}) {
    const ts::Mesh mesh = data_first ? ts::Mesh({{"data", 4}, {"model", 2}}) : ts::Mesh({{"model", 2}, {"data", 4}});
    const auto a = ts::shard(x, {rows, m}, mesh, {"data"});
    for (const bool split : {true, false}) {
      const auto b = split ? ts::shard(y, {rows, n}, mesh, {"data", "model"}) : ts::shard(y, {rows, n}, mesh, {"data"});
      expect_near(ts::to_host(of_intermediates(a, b)), expected(x, y, rows, true), split ? "split" : "whole");
    }
  }
}

TEST(SumsOfParts, InTheBodyOfALoop) {
  constexpr std::int64_t rows = 128, m = 32;
  const auto x = values(rows * m, 1);
  const auto on = [&](int devices) {
    const ts::Mesh mesh({{"data", devices}});
    const auto layers = ts::Stack<Layer>(3, [&](int l) {
      return Layer{ts::shard(values(m * m, 3 + l), {m, m}, mesh)};
    });
    std::vector<double> all;
    const auto made = gradient(layers, ts::shard(x, {rows, m}, mesh, {"data"}));
    for (const auto& layer : made.layers())
      for (const float value : ts::to_host(layer.w)) all.push_back(value);
    return all;
  };
  const auto one = on(1);
  double largest = 0;
  for (const double value : one) largest = std::max(largest, std::abs(value));
  for (const int devices : {2, 4, 8}) {
    const auto many = on(devices);
    ASSERT_EQ(many.size(), one.size());
    for (std::size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(many[i], one[i], 1e-5 * largest) << devices << ", " << i;
  }
}
