#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/traced.hpp"
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
    const auto all = ts::value_and_grad([&](const auto& own, const auto& in) { return low(own, in); })(model, x);
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
    const auto all = ts::value_and_grad([](const auto& own, const auto& in) {
      return ts::mean(ts::square(ts::einsum<"ik,kj->ij", P>(own.layers(in), own.head)));
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

// ---- ts::autocast

constexpr auto both_classes = [](const auto& q, const auto& image, const auto& filter, const auto& w) {
  // Products
  const auto y = ts::matmul(ts::einsum<"bthd,bshd->bths">(q, q), w);
  const auto attended = ts::causal_attention(q, q, q);
  const auto convolved = ts::conv2d(image, filter), widened = ts::conv_transpose2d(image, filter);
  // Sensitive operations
  const auto soft = ts::softmax(y), logs = ts::log_softmax(y);
  const auto x = ts::exp(ts::layer_norm(y, ts::mean<0, 1, 2>(y), ts::mean<0, 1, 2>(y))) + ts::pow(ts::abs(y), 0.3);
  const auto other = ts::log(ts::abs(x) + 1.0) + ts::cumsum<1>(soft * logs);
  return ts::mse(other, y) + ts::sum(attended) + ts::sum(convolved) + ts::sum(widened) +
         ts::sum(ts::corrcoef(ts::squeeze<0>(ts::squeeze<1>(ts::slice<1>(ts::slice<0>(y, 0, 1), 0, 1)))));
};
template <class Wrap> constexpr auto traced_classes = [](const auto&... x) { return Wrap::of(both_classes)(x...); };
struct Plain {
  static constexpr auto of(const auto& f) { return f; }
};
struct Cast {
  static constexpr auto of(const auto& f) { return ts::autocast<ts::bf16>(f); }
};
struct Off {
  static constexpr auto of(const auto& f) {
    return ts::autocast<ts::bf16>([f](const auto&... x) { return ts::autocast_off(f)(x...); });
  }
};
template <class Wrap> oracle::Program program_of() {
  using F = std::decay_t<decltype(traced_classes<Wrap>)>;
  return oracle::trace<F, ts::ShardedTensor<float, 4>, ts::ShardedTensor<float, 4>, ts::ShardedTensor<float, 4>,
                       ts::ShardedTensor<float, 2>>();
}

// Operands of products are bf16, everything else is what it is without autocast.
TEST(Autocast, CastsTheOperandsOfProductsAlone) {
  using ts::DType, ts::Op;
  const oracle::Program plain = program_of<Plain>(), cast = program_of<Cast>(), off = program_of<Off>();
  const auto products = [](const oracle::Program& program, DType type) {
    int found = 0;
    const ts::GraphView& graph = program.main();
    for (int id = 0; id < graph.size; ++id)
      found += (graph[id].op == Op::einsum || graph[id].op == Op::attention || graph[id].op == Op::attention_lse) &&
                       graph.operand_node(id, 0).dtype == type
                   ? 1
                   : 0;
    return found;
  };
  // matmul, einsum, two convolutions, attention and its logarithms; the statistics of corrcoef stay in f32.
  EXPECT_EQ(products(plain, DType::f32), 7);
  EXPECT_EQ(products(plain, DType::bf16), 0);
  EXPECT_EQ(products(cast, DType::bf16), 6);
  EXPECT_EQ(products(cast, DType::f32), 1);
  EXPECT_EQ(products(off, DType::f32), 7);
  EXPECT_EQ(off.main().size, plain.main().size);
  // Nothing but products, casts and the movement of their operands has an element type of bf16.
  const ts::GraphView& graph = cast.main();
  for (int id = 0; id < graph.size; ++id)
    if (graph[id].dtype == DType::bf16) {
      EXPECT_TRUE(ts::row_of(graph[id]).kind != ts::OpKind::elementwise || graph[id].op == Op::cast)
          << ts::row_of(graph[id]).name;
    }
  for (Op op : {Op::exp, Op::log, Op::sum, Op::max, Op::sub, Op::mul, Op::div, Op::add}) {
    const auto of_f32 = [op](const oracle::Program& program) {
      int found = 0;
      for (int id = 0; id < program.main().size; ++id)
        found += program.main()[id].op == op && program.main()[id].dtype == DType::f32 ? 1 : 0;
      return found;
    };
    EXPECT_EQ(of_f32(cast), of_f32(plain)) << ts::row_of(op).name;
  }
}

/// The loss of the model above, with autocast, and its gradients.
struct CastStep {
  constexpr auto operator()(const Model& model, const auto& x) const {
    return ts::value_and_grad([](const auto& own, const auto& in) { return ts::autocast<ts::bf16>(loss)(own, in); })(
        model, x);
  }
};
bool is_bf16(float x) { return static_cast<float>(ts::bf16(x)) == x; }

// Products are rounded once; their operands are bf16 numbers; gradients of parameters are sums in f32.
TEST(Autocast, RoundsProductsOnceAndGradientsOfParametersNever) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::normal<float>(ts::Key(1), {6, 40}, mesh, {"x"}), w = ts::normal<float>(ts::Key(2), {40, 3}, mesh);
  static constexpr auto f = ts::compile([](auto a, auto b) {
    const auto y = ts::autocast<ts::bf16>([](const auto& p, const auto& q) {
      return std::tuple(ts::matmul(p, q), ts::matmul<float>(p, q), ts::matmul<Precision::bf16_x3>(p, q));
    })(a, b);
    const auto loss_of = [&](const auto& own) {
      return ts::sum(ts::autocast<ts::bf16>([](const auto& p, const auto& q) { return ts::matmul(p, q); })(a, own) *
                     0.3);
    };
    return std::tuple(
        y, ts::grad(loss_of)(b), ts::cast<float>(ts::matmul(ts::cast<ts::bf16>(a), ts::cast<ts::bf16>(b))),
        ts::matmul<float>(ts::cast<ts::bf16>(a), ts::cast<ts::bf16>(b)), ts::matmul<Precision::bf16_x3>(a, b));
  });
  const auto [y, gradient, rounded, sums, x3] = f(x, w);
  static_assert(std::is_same_v<std::decay_t<decltype(gradient)>, ts::ShardedTensor<float, 2>>);
  EXPECT_EQ(ts::to_host(std::get<0>(y)), ts::to_host(rounded));
  EXPECT_EQ(ts::to_host(std::get<1>(y)), ts::to_host(sums));  // an element type of the result was given
  EXPECT_EQ(ts::to_host(std::get<2>(y)), ts::to_host(x3));    // a precision was given
  for (float v : ts::to_host(std::get<0>(y))) EXPECT_TRUE(is_bf16(v));
  int unrounded = 0;
  for (float v : ts::to_host(gradient)) unrounded += is_bf16(v) ? 0 : 1;
  EXPECT_GT(unrounded, 0);
}

TEST(Autocast, TheInnermostSettingCounts) {
  const ts::Mesh mesh({{"x", 1}});
  const auto x = ts::normal<float>(ts::Key(1), {6, 40}, mesh), w = ts::normal<float>(ts::Key(2), {40, 3}, mesh);
  static constexpr auto f = ts::compile([](auto a, auto b) {
    const auto dot = [](const auto& p, const auto& q) { return ts::matmul(p, q); };
    const auto inner = [&](const auto& p, const auto& q) {
      return std::tuple(ts::autocast_off(dot)(p, q), ts::default_matmul_precision<Precision::bf16_x3>(dot)(p, q),
                        dot(p, q));
    };
    const auto outer = [&](const auto& p, const auto& q) { return ts::autocast<ts::bf16>(dot)(p, q); };
    return std::tuple(ts::autocast<ts::bf16>(inner)(a, b),
                      ts::default_matmul_precision<Precision::bf16_x6>(outer)(a, b), dot(a, b),
                      ts::matmul<Precision::bf16_x3>(a, b));
  });
  const auto [inside, outside, full, x3] = f(x, w);
  EXPECT_EQ(ts::to_host(std::get<0>(inside)), ts::to_host(full));
  EXPECT_EQ(ts::to_host(std::get<1>(inside)), ts::to_host(x3));
  EXPECT_EQ(ts::to_host(std::get<2>(inside)), ts::to_host(outside));
  EXPECT_NE(ts::to_host(outside), ts::to_host(full));
  EXPECT_THROW(ts::autocast<ts::bf16>([](const auto& a) { return a; })(x), ts::error);
}

// Weights that are split over devices are gathered as bf16, and what a gradient keeps of a layer is bf16.
TEST(Autocast, GathersAndKeepsHalfTheBytes) {
  const ts::Mesh mesh({{"x", 4}});
  const auto weight = [&](int i) {
    return ts::normal<float>(ts::Key(static_cast<std::uint64_t>(i)), {8, 8}, mesh, {"x"});
  };
  const Model model{ts::Stack<Layer>(3, [&](int i) { return Layer{weight(i)}; }),
                    ts::normal<float>(ts::Key(9), {8, 4}, mesh, {"x"})};
  const auto x = ts::normal<float>(ts::Key(10), {64, 8}, mesh, {"x"});
  static constexpr auto product_of_rows = [](const auto& a, const auto& b) {
    return ts::with_sharding(ts::matmul(a, b), {"x", ts::none});
  };
  static constexpr auto gathers = ts::compile(product_of_rows);
  static constexpr auto gathers_cast =
      ts::compile([](const auto& a, const auto& b) { return ts::autocast<ts::bf16>(product_of_rows)(a, b); });
  const auto columns = ts::normal<float>(ts::Key(11), {8, 16}, mesh, {ts::none, "x"});
  using ts::Collective;
  EXPECT_EQ(gathers.plan(x, columns).payload_bytes(Collective::all_gather), 4 * 8 * 16) << gathers.explain(x, columns);
  EXPECT_EQ(gathers_cast.plan(x, columns).payload_bytes(Collective::all_gather), 2 * 8 * 16)
      << gathers_cast.explain(x, columns);
  static constexpr auto plain =
      ts::compile([](const Model& own, const auto& in) { return ts::value_and_grad(loss)(own, in); });
  static constexpr auto cast = ts::compile(CastStep{});
  const ts::Plan &of_cast = cast.plan(model, x), &of_plain = plain.plan(model, x);
  EXPECT_LT(of_cast.main().arena_bytes, of_plain.main().arena_bytes) << cast.explain(model, x);
}

}  // namespace
