#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace {

namespace ts = tessera;
using ts::Precision;

template <Precision P> constexpr auto product = ts::compile([](auto a, auto b) { return ts::matmul<P>(a, b); });

constexpr std::int64_t m = 50, n = 40, k = 300;

/// The largest error of an element, relative to the sum of the magnitudes of its terms, in double.
template <Precision P> double error_of(const ts::Mesh& mesh) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> a(m * k), b(k * n);
  for (float& x : a) x = normal(random);
  for (float& x : b) x = normal(random);
  const ts::ShardedTensor<float, 2> x = ts::shard(a, {m, k}, mesh, {ts::none, "x"}), w = ts::shard(b, {k, n}, mesh);
  const std::vector<float> c = ts::to_host(product<P>(x, w));
  double worst = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t p = 0; p < k; ++p) {
        const double term = static_cast<double>(a[static_cast<std::size_t>(i * k + p)]) *
                            static_cast<double>(b[static_cast<std::size_t>(p * n + j)]);
        sum += term, size += std::fabs(term);
      }
      worst = std::max(worst, std::fabs(static_cast<double>(c[static_cast<std::size_t>(i * n + j)]) - sum) / size);
    }
  return worst;
}

TEST(Precision, ErrorsAreWithinTheirBounds) {
  for (const ts::Mesh& mesh : {ts::Mesh({{"x", 1}}), ts::Mesh({{"x", 3}})}) {
    const double bf16 = error_of<Precision::bf16>(mesh), x3 = error_of<Precision::bf16_x3>(mesh),
                 x6 = error_of<Precision::bf16_x6>(mesh);
    // Summing in f32 adds an error of a few units of 2^-24.
    constexpr double summing = 0x1p-21;
    EXPECT_LT(bf16, 0x1p-8);
    EXPECT_LT(x3, 0x1p-16 + summing);
    EXPECT_LT(x6, 0x1p-25 + summing);
    // More products give smaller errors.
    EXPECT_LT(20 * x3, bf16);
    EXPECT_LT(x6, x3);
    EXPECT_GT(bf16, 0x1p-13);
  }
}

TEST(Precision, ExplainShowsTheProducts) {
  const ts::Mesh mesh({{"x", 1}});
  const auto x = ts::ones<float>({4, 8}, mesh), w = ts::ones<float>({8, 2}, mesh);
  const auto count = [](const std::string& text, const std::string& word) {
    int found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(product<Precision::bf16_x3>.explain(x, w), "einsum bf16_x3"), 3);
  EXPECT_EQ(count(product<Precision::bf16_x6>.explain(x, w), "einsum bf16_x6"), 6);
  EXPECT_EQ(count(product<Precision::bf16>.explain(x, w), "einsum bf16 "), 1);
  EXPECT_EQ(count(product<Precision::full>.explain(x, w), "bf16"), 0);
  EXPECT_EQ(count(product<Precision::full>.explain(x, w), "products by packed "), 1);
  EXPECT_EQ(count(product<Precision::bf16>.explain(x, w), ", of bf16 by packed "), 1);
  // Names that read like an operation or an element type, and bf16 that is in no product.
  const ts::Mesh named({{"einsum", 1}, {"bf16", 2}});
  const auto a = ts::ones<float>({4, 8}, named), b = ts::ones<float>({8, 2}, named);
  EXPECT_EQ(count(ts::explain(a + a), "products by"), 0);
  const std::string rounded = ts::explain(ts::cast<ts::bf16>(ts::matmul(a, b)));
  EXPECT_EQ(count(rounded, "products by packed "), 1);
  EXPECT_EQ(count(rounded, "of bf16 by"), 0);
}

}  // namespace
