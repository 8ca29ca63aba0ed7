// Variants of SGD and RMSprop against the pseudo code of torch.optim, one element after the other, in double.
#include <cmath>
#include <cstddef>
#include <vector>

#include "../../support/traced.hpp"
#include "leaves.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;
using oracle::Array;
using oracle::joined;
using oracle::numbers;
using oracle::random_array;

namespace {

struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
};
const std::vector<ts::Shape> shapes = {{3, 2}, {4}};

std::vector<Array> random_model(unsigned seed) {
  return {random_array(shapes[0], seed * 10), random_array(shapes[1], seed * 10 + 1)};
}
std::vector<Array> zeros() { return {Array(shapes[0]), Array(shapes[1])}; }
std::vector<Array> model_at(const std::vector<Array>& results, std::ptrdiff_t n) {
  return {results.begin() + 2 * n, results.begin() + 2 * n + 2};
}
void expect_models_near(const std::vector<Array>& got, const std::vector<Array>& want) {
  for (std::size_t leaf = 0; leaf < 2; ++leaf) oracle::expect_near(got[leaf], want[leaf], 1e-12);
}
template <class F> void for_each_element(F f) {
  for (std::size_t leaf = 0; leaf < 2; ++leaf)
    for (std::size_t i = 0; i < Array(shapes[leaf]).data.size(); ++i) f(leaf, i);
}

constexpr double rate = 0.1, momentum = 0.8, decay = 0.2;

struct Dampened {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::sgd_dampened(model, gradients, state, config);
  }
};
TEST(DampenedSgd, IsThePublishedUpdate) {
  const double dampening = 0.3;
  const oracle::Program program =
      oracle::trace<Dampened, Layer, Layer, ts::optim::DampenedSgdState<Layer>, ts::optim::DampenedSgd>();
  std::vector<Array> p = random_model(1), v = zeros(), want = p, velocity = v;
  Array step = Array::number(0);
  for (unsigned t = 1; t <= 5; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    const auto results =
        oracle::run(program.view(), joined({p, g, v, {step}, numbers({rate, momentum, dampening, decay})}));
    p = model_at(results, 0), v = model_at(results, 1), step = results[4];
    for_each_element([&](std::size_t leaf, std::size_t i) {
      double &x = want[leaf].data[i], &b = velocity[leaf].data[i];
      const double slope = g[leaf].data[i] + decay * x;
      b = t == 1 ? slope : momentum * b + (1 - dampening) * slope;  // torch clones the first gradient
      x -= rate * b;
    });
    EXPECT_EQ(step.data[0], t);
    expect_models_near(p, want);
    expect_models_near(v, velocity);
  }
}

struct Centered {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::rmsprop_centered(model, gradients, state, config);
  }
};
TEST(CenteredRmsProp, IsThePublishedUpdate) {
  const double alpha = 0.9, epsilon = 1e-3;
  const oracle::Program program =
      oracle::trace<Centered, Layer, Layer, ts::optim::CenteredRmsPropState<Layer>, ts::optim::CenteredRmsProp>();
  std::vector<Array> p = random_model(1), v = zeros(), m = v, b = v, want = p, square = v, mean = v, velocity = v;
  for (unsigned t = 1; t <= 5; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    const auto results =
        oracle::run(program.view(), joined({p, g, v, m, b, numbers({rate, alpha, epsilon, momentum, decay})}));
    p = model_at(results, 0), v = model_at(results, 1), m = model_at(results, 2), b = model_at(results, 3);
    for_each_element([&](std::size_t leaf, std::size_t i) {
      double &x = want[leaf].data[i], &sq = square[leaf].data[i], &mu = mean[leaf].data[i];
      const double slope = g[leaf].data[i] + decay * x;
      sq = alpha * sq + (1 - alpha) * slope * slope;
      mu = alpha * mu + (1 - alpha) * slope;
      double& of = velocity[leaf].data[i];
      of = momentum * of + slope / (std::sqrt(sq - mu * mu) + epsilon);
      x -= rate * of;
    });
    expect_models_near(p, want);
    expect_models_near(v, square);
    expect_models_near(m, mean);
    expect_models_near(b, velocity);
  }
}

struct Floats {
  ts::ShardedTensor<float, 2> weight;
};
/// Three steps that make a loss larger, of a model split over `devices` with uneven shards.
template <class Config> std::vector<float> after_steps(int devices) {
  constexpr auto step = ts::compile([](const auto& model, const auto& state, const auto& config) {
    const auto loss = [](const auto& own) { return ts::sum(ts::sin(own.weight) + ts::square(own.weight) * -0.5); };
    const auto gradient = ts::grad(loss)(model);
    return ts::optim::optimizer_step(model, ts::optim::maximize(gradient), state, config);
  });
  const ts::Mesh mesh({{"x", devices}});
  Floats model{ts::reshard(ts::normal<float>(ts::Key(3), {5, 4}, ts::Mesh(), {}), mesh, {"x"})};
  const Config config;
  auto state = ts::optim::init_state(config, model);
  for (int t = 0; t < 3; ++t) {
    auto [next, next_state] = step(model, state, config);
    model = next, state = next_state;
  }
  return ts::to_host(model.weight);
}
TEST(Maximize, MovesUphillOnEveryMesh) {
  const auto height = [](const std::vector<float>& at) {
    double sum = 0;
    for (const double v : at) sum += std::sin(v) - v * v / 2;
    return sum;
  };
  const std::vector<float> start = ts::to_host(ts::normal<float>(ts::Key(3), {5, 4}, ts::Mesh(), {}));
  const std::vector<float> sgd = after_steps<ts::optim::DampenedSgd>(1),
                           rmsprop = after_steps<ts::optim::CenteredRmsProp>(1);
  EXPECT_GT(height(sgd), height(start));
  EXPECT_GT(height(rmsprop), height(start));
  for (const int devices : {2, 3}) {
    EXPECT_EQ(after_steps<ts::optim::DampenedSgd>(devices), sgd);
    EXPECT_EQ(after_steps<ts::optim::CenteredRmsProp>(devices), rmsprop);
  }
}

}  // namespace
