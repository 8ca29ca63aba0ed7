// L-BFGS on functions whose least value is known, and the states of Rprop, ASGD and L-BFGS on meshes;
// nn/reference_losses_test.cpp compares their steps with PyTorch's.
#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/optim/optim.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

struct Layer {
  ts::ShardedTensor<double, 1> bias;
  static constexpr std::array field_names{"bias"};
  constexpr auto operator()(const auto& x) const { return x + bias; }
};
struct Model {
  ts::ShardedTensor<double, 2> matrix;
  ts::ShardedTensor<double, 1> vector;
  ts::Stack<Layer> layers;
  static constexpr std::array field_names{"matrix", "vector", "layers"};
};

/// Half the sum of c (x - 1)^2, with factors c from 1 to 33, of a matrix and of a sum of vectors.
constexpr auto quadratic = [](const auto& model) {
  const auto off = model.matrix - 1.0;
  const auto factor = ts::iota<0, double>(model.matrix) * 5.0 + ts::iota<1, double>(model.matrix) + 1.0;
  const auto rest = model.layers(model.vector) - 1.0;
  return ts::sum(factor * off * off) * 0.5 + ts::sum(rest * rest) * 1.5;
};
struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config) const {
    const auto [loss, gradient] = ts::value_and_grad(quadratic)(model);
    const auto [next, next_state] = ts::optim::optimizer_step(model, gradient, state, config);
    return std::tuple(loss, next, next_state);
  }
};
constexpr auto step = ts::compile(Step());

/// The losses of some steps on a mesh, whose devices have uneven shards of the 7 rows.
template <class Config> std::vector<double> losses_of(const Config& config, int devices, int steps) {
  const ts::Mesh mesh({{"x", devices}});
  Model model{ts::zeros<double>({7, 3}, mesh, {"x"}), ts::zeros<double>({5}, mesh, {"x"}),
              ts::Stack<Layer>(2, [&](int) { return Layer{ts::zeros<double>({5}, mesh, {"x"})}; })};
  auto state = ts::optim::init_state(config, model);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    auto [loss, next, next_state] = step(model, state, config);
    losses.push_back(static_cast<double>(ts::to_host(loss)[0]));
    model = next, state = next_state;
  }
  return losses;
}
template <class Config> void expect_equal_on_meshes(const Config& config, int steps, double last) {
  const std::vector<double> one = losses_of(config, 1, steps), three = losses_of(config, 3, steps);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(three[i], one[i], 1e-9 * one[0]) << "step " << i;
  EXPECT_LT(one.back(), last * one.front());
}

TEST(Lbfgs, FindsTheLeastValueOfAQuadraticFunction) { expect_equal_on_meshes(ts::optim::Lbfgs{}, 40, 1e-10); }
TEST(Rprop, FindsTheLeastValueOfAQuadraticFunction) { expect_equal_on_meshes(ts::optim::Rprop{}, 60, 1e-4); }
TEST(Asgd, LessensAQuadraticFunction) {
  expect_equal_on_meshes(ts::optim::Asgd{.learning_rate = 0.02, .t0 = 10}, 60, 1e-1);
}

/// Two groups of parameters in one program, whose compilation stays within the default limits of both compilers.
struct GroupedStep {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& of_vectors) const {
    constexpr ts::nn::Names vectors("vector", "layers.*");
    const auto gradient = ts::grad(quadratic)(model);
    return ts::optim::by_group([&](const auto& own) { return ts::lbfgs(model, gradient, state, own); }, config,
                               ts::optim::Group(vectors, of_vectors));
  }
};
TEST(Lbfgs, TakesTwoGroupsOfParameters) {
  constexpr auto grouped = ts::compile(GroupedStep());
  const ts::optim::Lbfgs fast{.learning_rate = 0.75}, slow{.learning_rate = 0.25};
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    Model model{ts::zeros<double>({7, 3}, mesh, {"x"}), ts::zeros<double>({5}, mesh, {"x"}),
                ts::Stack<Layer>(2, [&](int) { return Layer{ts::zeros<double>({5}, mesh, {"x"})}; })};
    auto state = ts::optim::init_state(fast, model);
    for (int i = 0; i < 4; ++i) {  // parameters and their state are those of a step with their own rate
      const auto [of_fast, next, next_state] = step(model, state, fast);
      const auto [of_slow, slow_next, slow_state] = step(model, state, slow);
      auto [made, made_state] = grouped(model, state, fast, slow);
      EXPECT_EQ(ts::to_host(made.matrix), ts::to_host(next.matrix)) << devices;
      EXPECT_EQ(ts::to_host(made.vector), ts::to_host(slow_next.vector)) << devices;
      EXPECT_EQ(ts::to_host(made.layers[1].bias), ts::to_host(slow_next.layers[1].bias)) << devices;
      EXPECT_EQ(ts::to_host(made_state.moved.matrix), ts::to_host(next_state.moved.matrix)) << devices;
      EXPECT_EQ(ts::to_host(made_state.moved.vector), ts::to_host(slow_state.moved.vector)) << devices;
      EXPECT_NE(ts::to_host(made.matrix), ts::to_host(slow_next.matrix)) << devices;
      model = made, state = made_state;
    }
  }
}

// A model of more than 8 tensors, whose history is handled by loops, takes the steps of its numbers in one tensor.
template <int Tensors> struct Many {
  std::array<ts::ShardedTensor<double, 1>, Tensors> parts;  // [5]
};
template <int Tensors> struct ManySteps {
  constexpr auto operator()(const auto& model, const auto& state, const auto& whole, const auto& whole_state,
                            const auto& config) const {
    const auto loss_of_part = [](const auto& x, double factor) {
      return ts::sum(ts::square(ts::square(x - 1.0)) + factor * ts::square(x - 0.5)) + ts::sum(x) * ts::sum(x) * 0.01;
    };
    const auto loss = [=](const auto& m) {
      ts::ShardedTensor<double, 0> sum = loss_of_part(m.parts[0], 1.0);
      for (int i = 1; i < Tensors; ++i) sum = sum + loss_of_part(m.parts[static_cast<std::size_t>(i)], 1.0 + i);
      return sum;
    };
    const auto loss_of_whole = [](const auto& rows) {  // [Tensors, 5]
      const auto factor = ts::iota<0, double>(rows) + 1.0;
      return ts::sum(ts::square(ts::square(rows - 1.0)) + factor * ts::square(rows - 0.5)) +
             ts::sum(ts::square(ts::sum<1>(rows))) * 0.01;
    };
    return std::tuple(ts::lbfgs(model, ts::grad(loss)(model), state, config),
                      ts::lbfgs(whole, ts::grad(loss_of_whole)(whole), whole_state, config));
  }
};
template <int Tensors> void expect_steps_of_one_tensor(const std::vector<int>& meshes) {
  constexpr auto steps = ts::compile(ManySteps<Tensors>());
  const ts::optim::Lbfgs config{.learning_rate = 0.5};
  for (const int devices : meshes) {
    const ts::Mesh mesh({{"x", devices}});
    std::vector<double> first;
    for (int i = 0; i < 5 * Tensors; ++i) first.push_back(std::sin(i));
    Many<Tensors> model;
    for (int i = 0; i < Tensors; ++i)
      model.parts[static_cast<std::size_t>(i)] =
          ts::shard(std::vector<double>(first.begin() + 5 * i, first.begin() + 5 * i + 5), {5}, mesh, {"x"});
    ts::ShardedTensor<double, 2> whole = ts::shard(first, {Tensors, 5}, mesh, {ts::none, "x"});
    auto state = ts::optim::init_state(config, model);
    auto whole_state = ts::optim::init_state(config, whole);
    for (int i = 0; i < 14; ++i) {  // more than the history has
      const auto made = steps(model, state, whole, whole_state, config);
      model = std::get<0>(std::get<0>(made)), state = std::get<1>(std::get<0>(made));
      whole = std::get<0>(std::get<1>(made)), whole_state = std::get<1>(std::get<1>(made));
      const std::vector<double> want = ts::to_host(whole);
      for (int t = 0; t < Tensors; ++t) {
        const std::vector<double> got = ts::to_host(model.parts[static_cast<std::size_t>(t)]);
        for (std::size_t k = 0; k < 5; ++k)
          ASSERT_NEAR(got[k], want[static_cast<std::size_t>(t) * 5 + k], 1e-9) << devices << ", step " << i;
      }
    }
  }
}
TEST(Lbfgs, HandlesTheHistoryOfManyTensorsByLoops) {
  expect_steps_of_one_tensor<3>({2});
  expect_steps_of_one_tensor<9>({1, 2, 3, 4});
}

/// Rosenbrock's function of two numbers, with a valley along x^2 = y to its least value at (1, 1).
struct Valley {
  constexpr auto operator()(const auto& p, const auto& state, const auto& config) const {
    const auto f = [](const auto& at) {
      const auto x = ts::slice<0>(at, 0, 1), y = ts::slice<0>(at, 1, 1);
      return ts::sum(ts::square(1.0 - x) + 100.0 * ts::square(y - x * x));
    };
    const auto [next, next_state] = ts::lbfgs(p, ts::grad(f)(p), state, config);
    return std::tuple(next, next_state);
  }
};
TEST(Lbfgs, WalksAlongRosenbrocksValley) {
  const ts::Mesh mesh({{"x", 1}});
  const ts::optim::Lbfgs config{.learning_rate = 0.5, .tolerance = 0.0};
  auto p = ts::shard(std::vector<double>{-1.2, 1}, {2}, mesh, {});
  auto state = ts::optim::init_state<5>(config, p);
  constexpr auto walk = ts::compile(Valley());
  for (int i = 0; i < 200; ++i) {
    auto [next, next_state] = walk(p, state, config);
    p = next, state = next_state;
  }
  for (const double v : ts::to_host(p)) EXPECT_NEAR(v, 1, 1e-6);
}

TEST(ReduceOnPlateau, RefusesAFactorThatIsNotBelowOne) {
  EXPECT_THROW(ts::optim::reduce_on_plateau({.rate = 1}, 1, {.factor = 1}), ts::error);
  EXPECT_EQ(ts::optim::reduce_on_plateau({.rate = 1, .bad = 10}, NAN).rate, 0.1);
}

}  // namespace
