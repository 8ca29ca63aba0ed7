// Variants of SGD and RMSprop against the pseudo code of torch.optim, one element after the other, in double. Models
// that are a tensor, or a tuple of tensors, against structs.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
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

TEST(Maximize, RecordsTheLineOfTheCall) {
  static constexpr std::uint32_t line = __LINE__ + 1;
  const auto f = [](const auto& gradients) { return ts::optim::maximize(gradients); };
  const auto program = oracle::trace<decltype(f), Floats>();
  const ts::Node& negative = program.main()[program.main().outputs[0]];
  EXPECT_EQ(negative.op, ts::Op::neg);
  EXPECT_EQ(negative.source.line, line);
  EXPECT_EQ(negative.source.text(), "variants_test.cpp:" + std::to_string(line));
}

struct AnyStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::optim::optimizer_step(model, gradients, state, config);
  }
};
using Weight = ts::ShardedTensor<double, 2>;
struct OneWeight {
  Weight weight;
};
/// An array for each leaf: numbers above 0, and tensors [3, 2]; of Adafactor and Muon the states of a matrix.
struct MakeArrays {
  std::vector<Array> made;
  std::vector<ts::Shape> shapes_of_state;

  void leaf(const Weight&) {
    ts::Shape shape{3, 2};
    if (!shapes_of_state.empty() && made.size() >= 2) shape = shapes_of_state[made.size() - 2];
    made.push_back(random_array(shape, static_cast<unsigned>(made.size()), 0.25, 1));
  }
  void leaf(const ts::Scalar&) { made.push_back(Array::number(1.0 / static_cast<double>(made.size()))); }
};
/// One update of a tensor and of a struct with this tensor alone, in the oracle.
template <class Config> void expect_the_update_of_a_struct(std::vector<ts::Shape> shapes_of_state = {}) {
  using StateOf = decltype(ts::optim::init_state(Config(), std::declval<const Weight&>()));
  using StateOfStruct = decltype(ts::optim::init_state(Config(), std::declval<const OneWeight&>()));
  std::tuple<Weight, Weight, StateOf, Config> arguments;
  MakeArrays arrays{{}, std::move(shapes_of_state)};
  ts::for_each_leaf(arguments, arrays);
  const auto bare = oracle::trace<AnyStep, Weight, Weight, StateOf, Config>();
  const auto in_struct = oracle::trace<AnyStep, OneWeight, OneWeight, StateOfStruct, Config>();
  const std::vector<Array> got = oracle::run(bare.view(), arrays.made),
                           want = oracle::run(in_struct.view(), arrays.made);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].data, want[i].data) << i;
  EXPECT_NE(got[0].data, arrays.made[0].data);
}
TEST(TensorsAsModels, AllOptimizersUpdateThemAsFieldsOfAStruct) {
  expect_the_update_of_a_struct<ts::optim::Sgd>();
  expect_the_update_of_a_struct<ts::optim::DampenedSgd>();
  expect_the_update_of_a_struct<ts::optim::AdamW>();
  expect_the_update_of_a_struct<ts::optim::Adam>();
  expect_the_update_of_a_struct<ts::optim::AmsGrad>();
  expect_the_update_of_a_struct<ts::optim::Adamax>();
  expect_the_update_of_a_struct<ts::optim::NAdam>();
  expect_the_update_of_a_struct<ts::optim::RAdam>();
  expect_the_update_of_a_struct<ts::optim::Lamb>();
  expect_the_update_of_a_struct<ts::optim::Lion>();
  expect_the_update_of_a_struct<ts::optim::RmsProp>();
  expect_the_update_of_a_struct<ts::optim::CenteredRmsProp>();
  expect_the_update_of_a_struct<ts::optim::Adagrad>();
  expect_the_update_of_a_struct<ts::optim::Adadelta>();
  expect_the_update_of_a_struct<ts::optim::Adafactor>({{3, 1}, {1, 2}});
  expect_the_update_of_a_struct<ts::optim::Muon>({{3, 2}, {1, 1}});
}

/// Three steps of Adam, of tensors that are split over `devices` with uneven shards: as arguments on their own, the
/// first alone or both as a tuple, and in a struct.
struct TwoFloats {
  ts::ShardedTensor<float, 2> weight;
  ts::ShardedTensor<float, 1> bias;
};
constexpr auto loss_of_two = [](const auto& weight, const auto& bias) {
  return ts::sum(ts::square(ts::sin(weight) + bias));
};
std::vector<std::vector<float>> three_steps(int devices) {
  constexpr auto bare = ts::compile([](const auto& w, const auto& b, const auto& state, const auto& config) {
    return ts::adam(w, ts::grad([&](const auto& own) { return loss_of_two(own, b); })(w), state, config);
  });
  constexpr auto tuple = ts::compile([](const auto& w, const auto& b, const auto& state, const auto& config) {
    const auto both = std::tuple(w, b);
    const auto loss = [](const auto& own) { return loss_of_two(std::get<0>(own), std::get<1>(own)); };
    return ts::adam(both, ts::grad(loss)(both), state, config);
  });
  constexpr auto of_struct = ts::compile([](const auto& model, const auto& state, const auto& config) {
    const auto loss = [](const auto& own) { return loss_of_two(own.weight, own.bias); };
    return ts::adam(model, ts::grad(loss)(model), state, config);
  });
  const ts::Mesh mesh({{"x", devices}});
  const auto w = ts::reshard(ts::normal<float>(ts::Key(3), {5, 4}, ts::Mesh(), {}), mesh, {"x"});
  const auto b = ts::reshard(ts::normal<float>(ts::Key(4), {4}, ts::Mesh(), {}), mesh, {});
  const ts::optim::Adam config{.learning_rate = 0.1};
  auto alone = std::tuple(w, ts::optim::init_state(config, w));
  auto both = std::tuple(std::tuple(w, b), ts::optim::init_state(config, std::tuple(w, b)));
  auto model = std::tuple(TwoFloats{w, b}, ts::optim::init_state(config, TwoFloats{w, b}));
  for (int t = 0; t < 3; ++t) {
    alone = bare(std::get<0>(alone), b, std::get<1>(alone), config);
    const auto& [next_w, next_b] = std::get<0>(both);
    both = tuple(next_w, next_b, std::get<1>(both), config);
    model = of_struct(std::get<0>(model), std::get<1>(model), config);
  }
  const auto host = [](const auto&... each) { return std::vector<std::vector<float>>{ts::to_host(each)...}; };
  const auto& [weight, bias] = std::get<0>(both);
  return host(std::get<0>(alone), weight, bias, std::get<0>(model).weight, std::get<0>(model).bias);
}
TEST(TensorsAsModels, AreUpdatedOnEveryMesh) {
  const std::vector<std::vector<float>> want = three_steps(1);
  EXPECT_EQ(want[1], want[3]);
  EXPECT_EQ(want[2], want[4]);
  EXPECT_NE(want[0], want[1]);  // of a bias that stays
  for (const int devices : {2, 3, 4}) {
    const std::vector<std::vector<float>> got = three_steps(devices);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      for (std::size_t k = 0; k < want[i].size(); ++k) EXPECT_NEAR(got[i][k], want[i][k], 1e-5) << i << ", " << k;
  }
}

/// Three steps of a parameter in bf16 or f16, each against a step in f32 of the same parameter and gradient, rounded:
/// numbers of the parameter's type would be 1 for a beta of 0.999, and in f16 0 for an epsilon of 1e-8, so that an
/// element without a gradient would be 0 / 0.
template <class T, class Config> void expect_steps_in_f32(Config config, const char* name) {
  constexpr auto step = ts::compile([](const auto& p, const auto& g, const auto& state, const auto& own) {
    return ts::optim::optimizer_step(p, g, state, own);
  });
  config.learning_rate = 0.125;
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    ts::ShardedTensor<T, 2> p = ts::cast<T>(ts::shard<float>({{1, -2}, {0.5, 3}, {0, 0.25}, {8, 1}}, mesh, {"x"}));
    const ts::ShardedTensor<T, 2> g =
        ts::cast<T>(ts::shard<float>({{0, 0.5}, {-1, 100}, {0, 0.375}, {-0.25, 2}}, mesh, {"x"}));
    const ts::ShardedTensor<float, 2> wide_g = ts::cast<float>(g);
    auto state = ts::optim::init_state(config, p);
    auto wide_state = ts::optim::init_state(config, wide_g);
    for (int t = 1; t <= 3; ++t) {
      const ts::ShardedTensor<float, 2> wide = ts::cast<float>(p);
      const auto [next, next_state] = step(p, g, state, config);
      const auto [wide_next, wide_next_state] = step(wide, wide_g, wide_state, config);
      const std::vector<float> before = ts::to_host(wide), want = ts::to_host(wide_next);
      const std::vector<T> got = ts::to_host(next);
      const double digits = std::is_same_v<T, ts::bf16> ? 0x1p-7 : 0x1p-10;
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(static_cast<float>(got[i]), want[i], digits * (std::abs(want[i]) + std::abs(before[i])))
            << name << ", step " << t << ", element " << i;
      p = next, state = next_state, wide_state = wide_next_state;
    }
  }
}
template <class T> void expect_all_steps_in_f32() {
  expect_steps_in_f32<T>(ts::optim::Sgd{.weight_decay = 0.1}, "sgd");
  expect_steps_in_f32<T>(ts::optim::AdamW{}, "adamw");
  expect_steps_in_f32<T>(ts::optim::Adam{}, "adam");
  expect_steps_in_f32<T>(ts::optim::AmsGrad{}, "amsgrad");
  expect_steps_in_f32<T>(ts::optim::Adamax{}, "adamax");
  expect_steps_in_f32<T>(ts::optim::NAdam{}, "nadam");
  expect_steps_in_f32<T>(ts::optim::RAdam{}, "radam");
  expect_steps_in_f32<T>(ts::optim::Lamb{}, "lamb");
  expect_steps_in_f32<T>(ts::optim::Lion{}, "lion");
  expect_steps_in_f32<T>(ts::optim::RmsProp{}, "rmsprop");
  expect_steps_in_f32<T>(ts::optim::CenteredRmsProp{}, "rmsprop_centered");
  expect_steps_in_f32<T>(ts::optim::Adagrad{}, "adagrad");
  expect_steps_in_f32<T>(ts::optim::Adadelta{}, "adadelta");
  expect_steps_in_f32<T>(ts::optim::Adafactor{}, "adafactor");
  expect_steps_in_f32<T>(ts::optim::Muon{}, "muon");
}
TEST(Halves, AreUpdatedInF32) {
  expect_all_steps_in_f32<ts::bf16>();
  expect_all_steps_in_f32<ts::f16>();
}

}  // namespace
