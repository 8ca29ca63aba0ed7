// NAdam and RAdam against the pseudo code of torch.optim, one element after the other, in double.
#include <cmath>
#include <cstddef>
#include <vector>

#include "../../support/traced.hpp"
#include "leaves.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>

namespace ts = tessera;
using oracle::Array;
using oracle::joined;
using oracle::numbers;
using oracle::random_array;

namespace {

struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<float, 1> bias;
};
struct Model {
  Layer first;
  ts::ShardedTensor<double, 1> rest;
};
const std::vector<ts::Shape> shapes = {{3, 2}, {4}, {3}};

std::vector<Array> random_model(unsigned seed) {
  std::vector<Array> leaves;
  for (const ts::Shape& shape : shapes)
    leaves.push_back(random_array(shape, seed * 10 + static_cast<unsigned>(leaves.size())));
  return leaves;
}
std::vector<Array> zeros() { return {Array(shapes[0]), Array(shapes[1]), Array(shapes[2])}; }
std::vector<Array> model_at(const std::vector<Array>& results, std::ptrdiff_t n) {
  return {results.begin() + 3 * n, results.begin() + 3 * n + 3};
}
void expect_models_near(const std::vector<Array>& got, const std::vector<Array>& want) {
  for (std::size_t leaf = 0; leaf < 3; ++leaf) oracle::expect_near(got[leaf], want[leaf], 1e-11);
}
/// Calls f(p, g, m, v) on all elements.
template <class F>
void for_each_element(F f, std::vector<Array>& p, const std::vector<Array>& g, std::vector<Array>& m,
                      std::vector<Array>& v) {
  for (std::size_t leaf = 0; leaf < 3; ++leaf)
    for (std::size_t i = 0; i < p[leaf].data.size(); ++i)
      f(p[leaf].data[i], g[leaf].data[i], m[leaf].data[i], v[leaf].data[i]);
}

constexpr double rate = 0.1, b1 = 0.8, epsilon = 1e-3, decay = 0.2;

struct NAdamStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::nadam(model, gradients, state, config);
  }
};
TEST(NAdam, IsThePublishedUpdateForTwentySteps) {
  const double b2 = 0.9, rise = 0.3;
  const oracle::Program program =
      oracle::trace<NAdamStep, Model, Model, ts::optim::NAdamState<Model>, ts::optim::NAdam>();
  std::vector<Array> p = random_model(1), m = zeros(), v = m, want = p, want_m = m, want_v = v;
  Array step = Array::number(0), product = Array::number(1);
  double of_all = 1;
  for (unsigned t = 1; t <= 20; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    const auto results = oracle::run(
        program.view(), joined({p, g, m, v, {step, product}, numbers({rate, b1, b2, epsilon, decay, rise})}));
    p = model_at(results, 0), m = model_at(results, 1), v = model_at(results, 2);
    step = results[9], product = results[10];
    const double now = b1 * (1 - 0.5 * std::pow(0.96, t * rise)),
                 next = b1 * (1 - 0.5 * std::pow(0.96, (t + 1) * rise));
    of_all *= now;
    for_each_element(
        [&](double& x, double gradient, double& first, double& second) {
          const double slope = gradient + decay * x;
          first = b1 * first + (1 - b1) * slope;
          second = b2 * second + (1 - b2) * slope * slope;
          const double ahead = next * first / (1 - of_all * next) + (1 - now) * slope / (1 - of_all);
          x -= rate * ahead / (std::sqrt(second / (1 - std::pow(b2, t))) + epsilon);
        },
        want, g, want_m, want_v);
    EXPECT_EQ(step.data[0], t);
    EXPECT_NEAR(product.data[0], of_all, 1e-14);
    expect_models_near(p, want);
    expect_models_near(m, want_m);
    expect_models_near(v, want_v);
  }
}

struct RAdamStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::radam(model, gradients, state, config);
  }
};
// A beta2 of 0.5 has a length of at most 3, which is never rectified; one of 0.9 begins after some steps.
TEST(RAdam, IsThePublishedUpdateForTwentySteps) {
  const oracle::Program program =
      oracle::trace<RAdamStep, Model, Model, ts::optim::AdamWState<Model>, ts::optim::RAdam>();
  for (const double b2 : {0.9, 0.5}) {
    std::vector<Array> p = random_model(1), m = zeros(), v = m, want = p, want_m = m, want_v = v;
    Array step = Array::number(0);
    int rectified = 0;
    for (unsigned t = 1; t <= 20; ++t) {
      const std::vector<Array> g = random_model(t + 1);
      const auto results =
          oracle::run(program.view(), joined({p, g, m, v, {step}, numbers({rate, b1, b2, epsilon, decay})}));
      p = model_at(results, 0), m = model_at(results, 1), v = model_at(results, 2);
      step = results[9];
      const double most = 2 / (1 - b2) - 1, power = std::pow(b2, t), length = most - 2 * t * power / (1 - power);
      rectified += length > 5;
      for_each_element(
          [&](double& x, double gradient, double& first, double& second) {
            const double slope = gradient + decay * x;
            first = b1 * first + (1 - b1) * slope;
            second = b2 * second + (1 - b2) * slope * slope;
            const double mean = first / (1 - std::pow(b1, t));
            if (length > 5)
              x -= rate * mean * std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) *
                   (std::sqrt(1 - power) / (std::sqrt(second) + epsilon));
            else
              x -= rate * mean;
          },
          want, g, want_m, want_v);
      EXPECT_EQ(step.data[0], t);
      expect_models_near(p, want);
      expect_models_near(v, want_v);
    }
    EXPECT_EQ(rectified > 0, b2 == 0.9);
    EXPECT_LT(rectified, 20);
  }
}

}  // namespace
