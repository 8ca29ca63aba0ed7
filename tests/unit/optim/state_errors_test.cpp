// The state, or the gradients, of a model with other shapes.
#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/mesh/mesh.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>

namespace {

namespace ts = tessera;
using tessera_test::expect_error;
template <int Rank> using Tensor = ts::ShardedTensor<float, Rank>;

struct Layer {
  Tensor<2> weight;
  Tensor<1> bias;
  static constexpr std::array field_names{"weight", "bias"};
};
struct Model {
  Layer first;
  ts::Stack<Layer> blocks;
  Layer last;
  static constexpr std::array field_names{"first", "blocks", "last"};
};

const ts::Mesh& mesh() {
  static const ts::Mesh made({{"x", 2}});
  return made;
}
Layer layer(std::int64_t rows, std::int64_t columns) {
  return {ts::ones<float>({rows, columns}, mesh(), {"x"}), ts::ones<float>({columns}, mesh())};
}
/// [4, 6], three layers [6, block], and [6, 2].
Model model_of(std::int64_t block, std::int64_t out = 2) {
  return {layer(4, 6), ts::Stack<Layer>(3, [&](int) { return layer(6, block); }), layer(6, out)};
}

/// A step with gradients of the model's shapes.
template <auto Update>
constexpr auto step = ts::compile([](const auto& model, const auto& state, const auto& config) {
  return Update(model, ts::optim::tree_map([](auto p) { return p * 0.5; }, model), state, config);
});

template <auto Update, class Config> void expect_named(const Config& config, const std::string& optimizer) {
  const auto run = [&](const Model& of_state) {
    return [&, state = ts::optim::init_state(config, of_state)] { (void)step<Update>(model_of(6), state, config); };
  };
  EXPECT_NO_THROW(run(model_of(6))()) << optimizer;
  const std::string begin = "[" + optimizer + "] shapes: ", line = " at state_errors_test.cpp:";
  expect_error(ts::errc::structure, run(model_of(5)), begin, "blocks.*.weight is f32[3,6,6]", "f32[3,6,5]", line);
  expect_error(ts::errc::structure, run(model_of(6, 1)), begin, "last.weight is f32[6,2]", "f32[6,1]", line);
}

#define UPDATE(call) [](const auto& m, const auto& g, const auto& s, const auto& c) { return call(m, g, s, c); }

TEST(StateOfAnotherModel, IsNamedByEveryOptimizer) {
  expect_named<UPDATE(ts::adamw)>(ts::optim::AdamW{}, "adamw");
  expect_named<UPDATE(ts::adam)>(ts::optim::Adam{}, "adam");
  expect_named<UPDATE(ts::adam)>(ts::optim::Adam{.weight_decay = 0.1}, "adam");
  expect_named<UPDATE(ts::amsgrad)>(ts::optim::AmsGrad{}, "amsgrad");
  expect_named<UPDATE(ts::adamax)>(ts::optim::Adamax{}, "adamax");
  expect_named<UPDATE(ts::nadam)>(ts::optim::NAdam{}, "nadam");
  expect_named<UPDATE(ts::radam)>(ts::optim::RAdam{}, "radam");
  expect_named<UPDATE(ts::sgd)>(ts::optim::Sgd{.momentum = 0.9}, "sgd");
  expect_named<UPDATE(ts::sgd_nesterov)>(ts::optim::Sgd{.momentum = 0.9}, "sgd_nesterov");
  expect_named<UPDATE(ts::sgd_dampened)>(ts::optim::DampenedSgd{}, "sgd_dampened");
}
TEST(StateOfAnotherModel, IsNamedByEveryOtherOptimizer) {
  expect_named<UPDATE(ts::rmsprop)>(ts::optim::RmsProp{}, "rmsprop");
  expect_named<UPDATE(ts::rmsprop_centered)>(ts::optim::CenteredRmsProp{}, "rmsprop_centered");
  expect_named<UPDATE(ts::adagrad)>(ts::optim::Adagrad{}, "adagrad");
  expect_named<UPDATE(ts::adadelta)>(ts::optim::Adadelta{}, "adadelta");
  expect_named<UPDATE(ts::lion)>(ts::optim::Lion{}, "lion");
  expect_named<UPDATE(ts::lamb)>(ts::optim::Lamb{}, "lamb");
  expect_named<UPDATE(ts::rprop)>(ts::optim::Rprop{}, "rprop");
  expect_named<UPDATE(ts::asgd)>(ts::optim::Asgd{}, "asgd");
  expect_named<UPDATE(ts::muon)>(ts::optim::Muon{}, "muon");
  expect_named<UPDATE(ts::lbfgs)>(ts::optim::Lbfgs{}, "lbfgs");
}

// The sums of L-BFGS join all parameters and the whole history.
TEST(StateOfAnotherModel, OfTheHistoryOfLbfgsIsNamed) {
  constexpr auto run = ts::compile([](const auto& m, const auto& g, const auto& s) { return ts::lbfgs(m, g, s); });
  const Layer model = layer(3, 4), other = layer(3, 5);
  const auto state = ts::optim::init_state<2>(ts::optim::Lbfgs{}, model);
  const auto expect = [&](const Layer& gradient, const auto& of, const std::string& shape) {
    expect_error(
        ts::errc::structure, [&] { (void)run(model, gradient, of); }, "[lbfgs] shapes: ", "weight is f32[3,4]", shape,
        " at state_errors_test.cpp:");
  };
  expect(other, state, "f32[3,5] x f32[3,4]");  // gradients that are arguments of the program
  auto moved = state, changed = state;
  std::get<1>(moved.moves).weight = other.weight;
  expect(model, moved, "f32[3,4] x f32[3,5]");
  std::get<1>(changed.changes).weight = other.weight;
  expect(model, changed, "f32[3,4] x f32[3,5]");
}

TEST(StateOfAnotherModel, OfFactoredMeansIsNamed) {
  const ts::optim::Adafactor config;
  const auto state = ts::optim::init_state(config, model_of(5));
  expect_error(
      ts::errc::structure, [&] { (void)step<UPDATE(ts::adafactor)>(model_of(6), state, config); },
      "[adafactor] shapes: ", "blocks.*.weight is f32[3,6,6]", "f32[3,1,5]");
}

// The line, and a parameter that is not an argument of the program.
TEST(StateOfAnotherModel, IsNamedInTheLoopOfAScan) {
  constexpr int line = __LINE__ + 4;
  constexpr auto steps = ts::compile([](const auto& model, const auto& state, const auto& xs) {
    return ts::scan(
        [](const auto& carry, const auto& x) {
          return std::pair(ts::adamw(std::get<0>(carry), std::get<0>(carry), std::get<1>(carry)), x);
        },
        std::tuple(model, state), xs);
  });
  const Layer model = layer(4, 6);
  const auto state = ts::optim::init_state(ts::optim::AdamW{}, layer(4, 8));
  expect_error(
      ts::errc::structure, [&] { (void)steps(model, state, ts::ones<float>({5}, mesh())); },
      "[adamw] shapes: ", "weight is f32[4,6]", "f32[4,8]", " at state_errors_test.cpp:" + std::to_string(line));
}

TEST(StateOfAnotherModel, OfATensorNamesTheShapes) {
  constexpr auto f = ts::compile([](auto x, auto state) { return ts::adamw(x, x * 2.0, state); });
  const auto x = ts::ones<float>({3}, mesh());
  const auto state = ts::optim::init_state(ts::optim::AdamW{}, ts::ones<float>({5}, mesh()));
  expect_error(
      ts::errc::structure, [&] { (void)f(x, state); }, "[adamw] shapes: ", "the tensor is f32[3]", "f32[5]");
}

// A mistake before the update is none of the update.
TEST(StateOfAnotherModel, LeavesErrorsOfTheGradientAlone) {
  constexpr auto f = ts::compile([](auto w, auto x, auto y, auto state) {
    return ts::adamw(w, ts::grad([&](auto m) { return ts::mse(x * m, y); })(w), state);
  });
  const auto w = ts::ones<float>({3}, mesh());
  const auto state = ts::optim::init_state(ts::optim::AdamW{}, w);
  expect_error(
      ts::errc::shape_mismatch, [&] { (void)f(w, ts::ones<float>({4}, mesh()), w, state); }, "[mul] ",
      "f32[4] x f32[3]");
  expect_error(
      ts::errc::shape_mismatch, [&] { (void)f(w, w, ts::ones<float>({4}, mesh()), state); }, "in mse");
}

TEST(StateOfAnotherModel, OfFrozenTensorsIsNotUsed) {
  constexpr ts::nn::Names frozen("blocks.*");
  constexpr auto tuned = ts::compile([](const auto& model, const auto& state) {
    constexpr ts::nn::Names names("blocks.*");
    const auto [moved, moved_state] = ts::adamw(model, model, state);
    return ts::nn::keep_frozen(names, model, moved, state, moved_state);
  });
  const ts::optim::AdamW config;
  const Model model = model_of(6);
  const auto state = ts::optim::init_state(config, model, frozen);
  EXPECT_NO_THROW((void)tuned(model, state));
  expect_error(  // without keep_frozen
      ts::errc::structure, [&] { (void)step<UPDATE(ts::adamw)>(model, state, config); },
      "[adamw] shapes: ", "blocks.*.weight is f32[3,6,6]", "f32[3,0,0]");
}

}  // namespace
