#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

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

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(Precision, ExplainShowsTheProducts) {
  const ts::Mesh mesh({{"x", 1}});
  const auto x = ts::ones<float>({4, 8}, mesh), w = ts::ones<float>({8, 2}, mesh);
  EXPECT_EQ(count(product<Precision::bf16_x3>.explain(x, w), "einsum bf16_x3"), 3);
  EXPECT_EQ(count(product<Precision::bf16_x6>.explain(x, w), "einsum bf16_x6"), 6);
  EXPECT_EQ(count(product<Precision::bf16>.explain(x, w), "einsum bf16 "), 1);
  EXPECT_EQ(count(product<Precision::full>.explain(x, w), "einsum bf16"), 0);
  EXPECT_EQ(count(product<Precision::full>.explain(x, w), "of bf16"), 0);
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

struct Layer {
  ts::ShardedTensor<float, 2> weight;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, weight)); }
};
struct Model {
  ts::Stack<Layer> layers;
  ts::ShardedTensor<float, 2> head;
};
constexpr auto loss = [](const Model& model, const auto& x) {
  return ts::mean(ts::square(ts::einsum<"ik,kj->ij">(model.layers(x), model.head)));
};
/// The loss with its gradients, and a product after it that is in f32.
template <Precision P> struct ByDefault {
  constexpr auto operator()(const Model& model, const auto& x) const {
    const auto low = ts::default_matmul_precision<P>(loss);
    const auto all = ts::value_and_grad([&](const auto& m, const auto& in) { return low(m, in); })(model, x);
    return std::tuple(std::get<0>(all), std::get<1>(all), ts::matmul(x, model.head));
  }
};
/// The same, with a precision at each product.
template <Precision P> struct AtEachProduct {
  struct Low {
    Layer layer;
    constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul<P>(x, layer.weight)); }
  };
  constexpr auto operator()(const auto& model, const auto& x) const {
    const auto all = ts::value_and_grad([](const auto& m, const auto& in) {
      return ts::mean(ts::square(ts::einsum<"ik,kj->ij", P>(m.layers(in), m.head)));
    })(model, x);
    return std::tuple(std::get<0>(all), std::get<1>(all), ts::matmul(x, model.head));
  }
};

TEST(Precision, OfAllProductsOfAFunctionAndTheirGradients) {
  const ts::Mesh mesh({{"x", 2}});
  const auto drawn = [&](std::uint64_t key, const ts::Shape& shape, const ts::PartitionSpec& spec) {
    return ts::normal<float, 2>(ts::Key(key), shape, mesh, spec);
  };
  const auto x = drawn(1, {6, 8}, {"x"});
  const auto head = drawn(5, {8, 3}, {});
  const auto weight = [&](int i) { return drawn(static_cast<std::uint64_t>(2 + i), {8, 8}, {}); };
  const Model model{ts::Stack<Layer>(3, [&](int i) { return Layer{weight(i)}; }), head};
  using Low = AtEachProduct<Precision::bf16>;
  struct LowModel {
    ts::Stack<Low::Low> layers;
    ts::ShardedTensor<float, 2> head;
  };
  const LowModel low{ts::Stack<Low::Low>(3, [&](int i) { return Low::Low{{weight(i)}}; }), head};
  static constexpr auto by_default = ts::compile(ByDefault<Precision::bf16>{});
  static constexpr auto at_each = ts::compile(Low{});
  const auto [value, gradient, plain] = by_default(model, x);
  const auto [want, want_gradient, want_plain] = at_each(low, x);
  EXPECT_EQ(ts::to_host(value), ts::to_host(want));
  EXPECT_EQ(ts::to_host(gradient.head), ts::to_host(want_gradient.head));
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(ts::to_host(gradient.layers[i].weight), ts::to_host(want_gradient.layers[i].layer.weight));
  EXPECT_EQ(ts::to_host(plain), ts::to_host(want_plain));
  // Forward a layer and the head; backward two products of a layer and two of the head; the last product is in f32.
  const std::string text = by_default.explain(model, x);
  EXPECT_EQ(count(text, "einsum bf16 "), 2 + 4) << text;
  EXPECT_EQ(count(text, " = einsum %"), 1) << text;

  // An inner call's precision, and a product's own.
  static constexpr auto nested = ts::compile([](auto a, auto b) {
    const auto full =
        ts::default_matmul_precision<Precision::full>([](const auto& p, const auto& q) { return ts::matmul(p, q); });
    return ts::default_matmul_precision<Precision::bf16>([&](const auto& p, const auto& q) {
      return std::tuple(full(p, q), ts::matmul<Precision::bf16_x3>(p, q), ts::matmul(p, q));
    })(a, b);
  });
  const auto [f32, x3, bf16] = nested(x, head);
  EXPECT_EQ(ts::to_host(f32), ts::to_host(product<Precision::full>(x, head)));
  EXPECT_EQ(ts::to_host(x3), ts::to_host(product<Precision::bf16_x3>(x, head)));
  EXPECT_EQ(ts::to_host(bf16), ts::to_host(product<Precision::bf16>(x, head)));
}

}  // namespace
