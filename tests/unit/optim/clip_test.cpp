#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "../../support/traced.hpp"
#include "every_leaf.hpp"
#include <gtest/gtest.h>

#include <tessera/optim/gradients/clip.hpp>
#include <tessera/optim/tree_vdot.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using namespace every_leaf;

namespace {

struct ClipValue {
  constexpr auto operator()(const auto& gradients, const auto& limit) const {
    return ts::clip_by_value(gradients, limit);
  }
};

TEST(Clip, ByValueClipsEachElement) {
  const oracle::Program program = oracle::trace<ClipValue, Model, ts::Scalar>();
  std::vector<Array> arguments = random_model(3), want = arguments;
  arguments.push_back(Array::number(0.3));
  for_each_parameter([](const LeafKind&, double& x, double) { x = std::clamp(x, -0.3, 0.3); }, want, want);
  expect_models_near(model_at(oracle::run(program.view(), arguments), 0), want, 0);
}

struct ClipNorm {
  constexpr auto operator()(const auto& gradients, const auto& limit) const {
    return ts::clip_by_norm(gradients, limit);
  }
};

// tf.clip_by_norm of each tensor, and of each layer's tensor of a Stack.
TEST(Clip, ByNormScalesEachTensor) {
  const oracle::Program program = oracle::trace<ClipNorm, Model, ts::Scalar>();
  const std::vector<Array> g = random_model(3);
  for (const double limit : {0.3, 1.2, 1e3}) {
    std::vector<Array> arguments = g, want = g;
    arguments.push_back(Array::number(limit));
    for (std::size_t leaf = 0; leaf < g.size(); ++leaf) {
      if (!kinds[leaf].parameter) continue;
      const std::size_t layers = leaf == 1 || leaf == 2 ? 3 : 1, size = g[leaf].data.size() / layers;
      for (std::size_t layer = 0; layer < layers; ++layer) {
        double square = 0;
        for (std::size_t i = 0; i < size; ++i) square += std::pow(g[leaf].data[layer * size + i], 2);
        for (std::size_t i = 0; i < size; ++i)
          want[leaf].data[layer * size + i] *= std::min(1.0, limit / std::sqrt(square));
      }
    }
    expect_models_near(model_at(oracle::run(program.view(), arguments), 0), want, limit == 1e3 ? 0 : 1e-12);
  }
}

struct Clip {
  constexpr auto operator()(const auto& gradients, const auto& limit) const {
    const auto [clipped, norm] = ts::clip_by_global_norm(gradients, limit);
    return std::tuple(norm, ts::global_norm(gradients), clipped);
  }
};

TEST(Clip, ScalesTheWholeGradientDownToTheLimit) {
  const oracle::Program program = oracle::trace<Clip, Model, ts::Scalar>();
  std::vector<Array> g = random_model(3);
  double square = 0;
  for_each_parameter([&](const LeafKind&, double&, double x) { square += x * x; }, g,
                     g);  // every layer of the stack too
  const double norm = std::sqrt(square);
  for (const double limit : {norm / 3, norm * 0.999, norm * 1.001, norm * 5}) {
    std::vector<Array> arguments = g, want = g;
    arguments.push_back(Array::number(limit));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    EXPECT_NEAR(results[0].data[0], norm, 1e-12 * norm);
    EXPECT_NEAR(results[1].data[0], norm, 1e-12 * norm);
    for_each_parameter([&](const LeafKind&, double& x, double) { x *= std::min(1.0, limit / norm); }, want, g);
    expect_models_near(model_at(results, 0, 2), want, 1e-12);
    if (limit < norm) continue;
    for (std::size_t leaf = 0; leaf < g.size(); ++leaf)
      EXPECT_EQ(results[2 + leaf].data, g[leaf].data) << "touched below the limit";
  }
}

struct Products {
  constexpr auto operator()(const auto& a, const auto& b) const {
    return std::tuple(ts::tree_vdot(a, b), ts::tree_sum(a));
  }
};

TEST(TreeVdot, AddsUpTheProductsOfAllTensors) {
  const oracle::Program program = oracle::trace<Products, Model, Model>();
  std::vector<Array> a = random_model(3), b = random_model(4), arguments = a;
  arguments.insert(arguments.end(), b.begin(), b.end());
  double product = 0, sum = 0;
  for_each_parameter([&](const LeafKind&, double& x, double y) { product += x * y, sum += x; }, a, b);
  const std::vector<Array> results = oracle::run(program.view(), arguments);
  EXPECT_NEAR(results.at(0).data[0], product, 1e-12 * std::fabs(product));
  EXPECT_NEAR(results.at(1).data[0], sum, 1e-12);
}

template <class T> struct Layers {
  ts::Stack<ts::nn::Linear<T>> layers;
  ts::ShardedTensor<std::int64_t, 1> indices;
};
struct NormsAndSums {
  constexpr auto operator()(const auto& m) const {
    const auto clipped = ts::clip_by_global_norm(m, 1.0), torch = ts::clip_grad_norm(m, 1.0, 3);
    return std::tuple(ts::global_norm(m), std::get<1>(clipped), std::get<1>(torch), ts::tree_vdot(m, m),
                      ts::tree_sum(m));
  }
};
template <class Result, class T>
inline constexpr bool gives_v =
    std::is_same_v<decltype(NormsAndSums{}(std::declval<const Result&>())),
                   std::tuple<ts::Sym<T, 0>, ts::Sym<T, 0>, ts::Sym<T, 0>, ts::Sym<T, 0>, ts::Sym<T, 0>>>;
template <class T> using Pair = std::tuple<ts::Sym<float, 1>, ts::Sym<T, 2>>;
static_assert(gives_v<Model, double> && gives_v<Layers<double>, double> && gives_v<Pair<double>, double>);
static_assert(gives_v<Layers<float>, float> && gives_v<Layers<ts::bf16>, float> && gives_v<Pair<ts::f16>, float> &&
              gives_v<Pair<std::int64_t>, float>);

// 1 + 2^-40 and 2^-40 can't be told from 1 and 0 in f32.
TEST(TreeVdot, AndNormsOfDoublesKeepTheirDigits) {
  constexpr auto run = ts::compile(NormsAndSums{});
  const double small = 0x1p-40;
  const auto sums = run(std::tuple(ts::shard<float>({1, 0}, ts::Mesh()), ts::shard<double>({small}, ts::Mesh())));
  EXPECT_EQ(ts::item(std::get<4>(sums)), 1 + small);
  const auto long_one = run(std::tuple(ts::shard<float>({1, 0}, ts::Mesh()), ts::shard<double>({0x1p-20}, ts::Mesh())));
  EXPECT_EQ(ts::item(std::get<3>(long_one)), 1 + small);
  EXPECT_DOUBLE_EQ(ts::item(std::get<0>(long_one)), std::sqrt(1 + small));
  EXPECT_DOUBLE_EQ(ts::item(std::get<1>(long_one)), std::sqrt(1 + small));
  EXPECT_DOUBLE_EQ(ts::item(std::get<2>(long_one)), std::cbrt(1 + 0x1p-60));
  EXPECT_DOUBLE_EQ(ts::item(ts::global_norm(ts::shard<double>({1, 0x1p-20}, ts::Mesh()))), std::sqrt(1 + small));
}

struct ClippedHalves {
  constexpr auto operator()(const auto& g) const {
    const auto [clipped, norm] = ts::clip_by_global_norm(g, 1.0);
    const auto [cubic, third] = ts::clip_grad_norm(g, 1.0, 3);
    return std::tuple(ts::global_norm(g), norm, third, clipped, cubic, ts::clip_by_norm(g, 1.0));
  }
};
// Squares, cubes and their sums end at 65504 in f16, and have 8 bits in bf16; norms are f32.
template <class T> void expect_norms_in_f32() {
  constexpr auto run = ts::compile(ClippedHalves{});
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const std::vector<float> values = {30, -30, 30, 30, 300, 30, 30, 300, -3000};
    const ts::ShardedTensor<T, 1> g = ts::cast<T>(ts::shard(values, {9}, mesh, {"x"}));
    double squares = 0, cubes = 0;
    for (const T v : ts::to_host(g)) {
      const double x = std::abs(static_cast<double>(static_cast<float>(v)));
      squares += x * x, cubes += x * x * x;
    }
    const auto [norm, same, third, clipped, cubic, own] = run(g);
    EXPECT_NEAR(ts::item(norm), std::sqrt(squares), 1e-6 * std::sqrt(squares));
    EXPECT_EQ(ts::item(same), ts::item(norm));
    EXPECT_NEAR(ts::item(third), std::cbrt(cubes), 1e-5 * std::cbrt(cubes));
    const auto expect_scaled = [&](const ts::ShardedTensor<T, 1>& got, double by) {
      const std::vector<T> found = ts::to_host(got), from = ts::to_host(g);
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double want = static_cast<double>(static_cast<float>(from[i])) * by;
        EXPECT_NEAR(static_cast<double>(static_cast<float>(found[i])), want, 0x1p-8 * std::abs(want)) << i;
      }
    };
    expect_scaled(clipped, 1 / std::sqrt(squares));
    expect_scaled(own, 1 / std::sqrt(squares));
    expect_scaled(cubic, 1 / std::cbrt(cubes));
  }
}
TEST(Clip, NormsOfHalvesAreF32) {
  expect_norms_in_f32<ts::bf16>();
  expect_norms_in_f32<ts::f16>();
}

TEST(Clip, OfZerosIsZero) {
  const oracle::Program program = oracle::trace<Clip, Model, ts::Scalar>();
  const std::vector<Array> zero = zeros_for(random_model(1));
  std::vector<Array> arguments = zero;
  arguments.push_back(Array::number(1));
  const std::vector<Array> results = oracle::run(program.view(), arguments);
  EXPECT_EQ(results[0].data[0], 0);
  expect_models_near(model_at(results, 0, 2), zero, 0);
}

}  // namespace
