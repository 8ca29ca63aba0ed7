// An optimizer of a user's own: one specialisation of optim::Optimizer makes it known to init_state, optimizer_step,
// train_step and to plans without data.
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <tuple>
#include <vector>

#include "../../support/page.hpp"
#include <gtest/gtest.h>

#include <tessera/tessera.hpp>
#include <tessera/train/train.hpp>

namespace ts = tessera;

namespace own {

/// Descent along the signs of a momentum. Each step halves the rate.
struct SignSgd {
  ts::Scalar learning_rate = 0.25;
  ts::Scalar momentum = 0.5;
};
template <class Model> struct SignSgdState {
  Model momentum, norm;  // norm: of each tensor's momentum, with extents of 1
  ts::Scalar scale = 1;

  static constexpr std::array field_names{"momentum", "norm", "scale"};
};
template <class Model>
constexpr auto sign_sgd(const Model& model, const auto& gradients, const auto& state, const SignSgd& config, ts::Here) {
  const auto momentum =
      ts::optim::tree_map([&](auto m, auto g) { return config.momentum * m + g; }, state.momentum, gradients);
  const auto norm = ts::optim::tree_map([](auto m) { return ts::sqrt(ts::sum(m * m, ts::keepdims)); }, momentum);
  const auto next = ts::optim::tree_map(
      [&](auto p, auto m) { return p - config.learning_rate * state.scale * ts::sign(m); }, model, momentum);
  return std::tuple(next, SignSgdState<ts::optim::stored_t<Model>>{momentum, norm, ts::Scalar(state.scale * 0.5)});
}

}  // namespace own

template <> struct tessera::optim::Optimizer<own::SignSgd> {
  template <class Model> using State = own::SignSgdState<Model>;
  static constexpr auto step(const auto&... call) { return own::sign_sgd(call...); }
  static constexpr void lay_out(int index, int, Shape& shape, PartitionSpec& spec) {
    if (index == 0) return;
    for (std::int64_t& extent : shape) extent = 1;
    spec = {};
  }
};

namespace {

constexpr ts::Mesh mesh({{"data", 2}});
constexpr int rows = 5, columns = 3;

struct Line {
  ts::ShardedTensor<float, 2> w;
};
struct Loss {
  constexpr auto operator()(const auto& line, const auto& x) const {
    const auto y = ts::matmul(x, line.w);
    return ts::sum(y * y);
  }
};
constexpr auto train_step = ts::train::train_step(Loss{});

struct Step {
  constexpr auto operator()(const auto& line, const auto& state, const auto& config, const auto& x) const {
    return ts::optim::optimizer_step(line, ts::grad(Loss{})(line, x), state, config);
  }
};
constexpr auto plan_of_step() {
  const auto line = ts::abstract<Line>({{{columns, 2}}});
  const own::SignSgd config;
  return ts::plan(Step{}, mesh, line, ts::optim::init_state(config, line), ts::abstract(config),
                  ts::abstract<float>({rows, columns}, {"data"}));
}
static_assert(plan_of_step().count(ts::Collective::all_reduce) == 1);

TEST(OwnOptimizer, TrainsAsALoopInDouble) {
  std::vector<float> x(rows * columns), w(columns * 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 0.5f * static_cast<float>(i % 7) - 1.25f;
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 0.75f - 0.25f * static_cast<float>(i);
  const auto batch = ts::shard(x, {rows, columns}, mesh, {"data"});
  auto state = ts::train::train_state(Line{ts::shard(w, {columns, 2}, mesh)}, own::SignSgd{});
  EXPECT_EQ(ts::shape(state.state.momentum.w), (ts::Shape{columns, 2}));
  EXPECT_EQ(ts::shape(state.state.norm.w), (ts::Shape{1, 1}));
  EXPECT_EQ(state.state.scale.value(), 1);

  std::vector<double> p(w.begin(), w.end()), m(p.size());
  double scale = 1;
  for (int step = 0; step < 4; ++step, scale /= 2) {
    double loss = 0, squares = 0;
    std::vector<double> g(p.size());
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t k = 0; k < 2; ++k) {
        double y = 0;
        for (std::size_t j = 0; j < columns; ++j) y += static_cast<double>(x[i * columns + j]) * p[j * 2 + k];
        loss += y * y;
        for (std::size_t j = 0; j < columns; ++j) g[j * 2 + k] += 2 * y * static_cast<double>(x[i * columns + j]);
      }
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = 0.5 * m[i] + g[i];
      p[i] -= 0.25 * scale * (m[i] > 0 ? 1 : m[i] < 0 ? -1 : 0);
      squares += m[i] * m[i];
    }
    EXPECT_NEAR(train_step(state, batch).loss, loss, 1e-5 * loss);
    EXPECT_NEAR(ts::to_host(state.state.norm.w).at(0), std::sqrt(squares), 1e-5 * std::sqrt(squares));
  }
  const std::vector<float> got = ts::to_host(state.model.w);
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(got[i], p[i], 1e-6);
  EXPECT_EQ(state.state.scale.value(), scale);
}

TEST(OwnOptimizer, HasASplitState) {
  const Line line{ts::zeros<float>({6, 2}, mesh)};
  const auto state = ts::optim::init_state(own::SignSgd{}, line, ts::optim::ZeroRedundancy{"data"});
  EXPECT_EQ(ts::sharding(state.momentum.w).without_priority(), ts::sharding(ts::zeros<float>({6, 2}, mesh, {"data"})));
}

/// A state of arrays, tuples and structs of models: model `index` has `index` rows, also in a plan.
struct Counted {};
template <class Model> struct CountedState {
  std::array<Model, 2> pair;
  std::tuple<ts::Scalar, Model> named{ts::Scalar(3), {}};
  Model last;
};

}  // namespace

template <> struct tessera::optim::Optimizer<Counted> {
  template <class Model> using State = CountedState<Model>;
  static constexpr void lay_out(int index, int, Shape& shape, PartitionSpec&) { shape[0] = index; }
};

namespace {

TEST(OwnOptimizer, HasArraysAndTuplesOfModels) {
  const auto state = ts::optim::init_state(Counted{}, Line{ts::zeros<float>({6, 2}, mesh)});
  const auto rows_of = [](const Line& line) { return ts::shape(line.w)[0]; };
  EXPECT_EQ(rows_of(state.pair[0]), 0);
  EXPECT_EQ(rows_of(state.pair[1]), 1);
  EXPECT_EQ(std::get<0>(state.named).value(), 3);
  EXPECT_EQ(rows_of(std::get<1>(state.named)), 2);
  EXPECT_EQ(rows_of(state.last), 3);
  const auto planned = ts::optim::init_state(Counted{}, ts::abstract<Line>({{{6, 2}}}));
  ASSERT_EQ(std::size(planned.leaves), 5u);
  const int leaf_of_model[] = {0, 1, 3, 4};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(planned.leaves[leaf_of_model[i]].shape[0], i);
}

TEST(OwnOptimizer, IsTheCodeOfThePage) {
  tessera_test::expect_lines({.name = "training_step.md", .section = "An optimizer of your own", .lines = 26},
                             __FILE__);
}

}  // namespace
