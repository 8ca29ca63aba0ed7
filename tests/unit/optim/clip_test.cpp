#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "../../support/traced.hpp"
#include "every_leaf.hpp"
#include <gtest/gtest.h>

#include <tessera/optim/clip.hpp>
#include <tessera/optim/tree_vdot.hpp>

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
