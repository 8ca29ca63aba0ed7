// The training loop against loops by hand: the same values, bit for bit.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/data/data.hpp>
#include <tessera/parallel/fsdp.hpp>
#include <tessera/tensor/compare_models.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/train.hpp>

namespace ts = tessera;
namespace nn = tessera::nn;
namespace train = tessera::train;

namespace {

constexpr std::int64_t rows = 22, batch = 6, features = 5, hidden = 7;

struct Net {
  nn::Linear<> up, down;
  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x) const { return down(ts::tanh(up(x))); }
};
Net make_net(const ts::Mesh& mesh) {
  const nn::ShardingStrategy strategy = nn::data_parallel(mesh);
  const auto [first, second] = ts::split<2>(ts::Key(5));
  return {nn::linear(first, features, hidden, strategy, nn::Role::column, 0.5),
          nn::linear(second, hidden, 1, strategy, nn::Role::row, 0.5)};
}
const ts::Mesh two({{"data", 2}});

/// Batches of 6 rows: three, and if `keep` one of 4.
auto make_loader(const ts::Mesh& mesh, bool keep = false) {
  std::vector<float> x, y;
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t i = 0; i < features; ++i) {
      x.push_back(static_cast<float>(std::sin(static_cast<double>(row * features + i))));
      sum += static_cast<double>(x.back());
    }
    y.push_back(static_cast<float>(std::cos(sum)));
  }
  return ts::data::data_loader(mesh,
                               {.batch_size = batch,
                                .shuffle = ts::Key(2),
                                .ragged = keep ? ts::Ragged::keep : ts::Ragged::drop,
                                .spec = {"data"}},
                               ts::data::array(x, {rows, features}), ts::data::array(y, {rows, 1}));
}

struct Loss {
  constexpr auto operator()(const auto& net, const auto& x, const auto& y) const { return ts::mse(net(x), y); }
};
constexpr auto step = train::train_step<train::TrainStepOptions{.clip = true}>(Loss{});
constexpr auto mean_error = ts::compile(Loss{});

/// The step by hand.
constexpr auto step_by_hand = ts::compile([](auto net, auto state, auto config, auto x, auto y) {
  const auto [loss, gradient] = ts::value_and_grad(Loss{})(net, x, y);
  const auto [clipped, norm] = ts::clip_by_global_norm(gradient, 0.25);
  const auto [next, next_state] = ts::adamw(net, clipped, state, config);
  return std::tuple(next, next_state, loss, norm);
});

double rate_of(std::int64_t at) { return ts::optim::warmup_cosine(at, 2, 9, 1e-2); }
auto make_state(const ts::Mesh& mesh = two) {
  auto state = train::train_state(make_net(mesh), ts::optim::AdamW{.learning_rate = 0.5});
  state.max_norm = 0.25;
  return state;
}

TEST(Fit, IsTheLoopByHand) {
  Net net = make_net(two);
  ts::optim::AdamW config;
  auto own = ts::optim::init_state(config, net);
  std::vector<double> losses, norms;
  auto loader = make_loader(two);
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const auto& [x, y] : loader) {
      config.learning_rate = rate_of(std::ssize(losses));
      auto [next, next_own, loss, norm] = step_by_hand(std::move(net), std::move(own), config, x, y);
      net = std::move(next);
      own = std::move(next_own);
      losses.push_back(static_cast<double>(ts::item(loss)));
      norms.push_back(static_cast<double>(ts::item(norm)));
    }
  ASSERT_EQ(losses.size(), 9u);

  auto state = make_state();
  auto again = make_loader(two);
  std::vector<train::StepReport> reports;
  std::vector<train::EpochReport> epochs;
  train::fit(state, step, again,
             {.epochs = 3,
              .learning_rate = rate_of,
              .after_step = [&](const train::StepReport& report) { reports.push_back(report); },
              .after_epoch = [&](const train::EpochReport& report) { epochs.push_back(report); }});
  EXPECT_TRUE(ts::all_equal(state.model, net));
  EXPECT_TRUE(ts::all_equal(state.state, own));
  EXPECT_EQ(state.step, 9);
  ASSERT_EQ(reports.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(reports[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(reports[i].epoch, static_cast<std::int64_t>(i) / 3 + 1);
    EXPECT_EQ(reports[i].rows, batch);
    EXPECT_EQ(reports[i].metrics.loss, losses[i]);
    EXPECT_EQ(reports[i].metrics.gradient_norm, norms[i]);
    EXPECT_EQ(reports[i].learning_rate, rate_of(static_cast<std::int64_t>(i)));
    EXPECT_GT(reports[i].seconds, 0);
  }
  ASSERT_EQ(epochs.size(), 3u);
  for (std::size_t e = 0; e < 3; ++e) {
    EXPECT_EQ(epochs[e].epoch, static_cast<std::int64_t>(e) + 1);
    EXPECT_EQ(epochs[e].steps, 3);
    EXPECT_EQ(epochs[e].rows, 18);
    EXPECT_NEAR(epochs[e].loss, (losses[3 * e] + losses[3 * e + 1] + losses[3 * e + 2]) / 3, 1e-12);
  }
}

TEST(Fit, GoesOnWhereACallEnded) {
  auto whole = make_state();
  auto loader = make_loader(two);
  train::fit(whole, step, loader, {.steps = 9, .learning_rate = rate_of});
  EXPECT_EQ(whole.step, 9);

  // In the middle of an epoch, at the end of an epoch, by a hook, and by an error of a hook.
  auto parts = make_state();
  auto again = make_loader(two);
  train::fit(parts, step, again, {.steps = 2, .learning_rate = rate_of});
  EXPECT_EQ(parts.step, 2);
  train::fit(parts, step, again, {.steps = 3, .learning_rate = rate_of});
  EXPECT_EQ(again.state(), (ts::data::DataLoaderState{0, 3}));
  train::fit(parts, step, again,
             {.epochs = 2, .learning_rate = rate_of, .after_step = [](train::StepReport& r) { r.stop = r.step == 5; }});
  EXPECT_EQ(parts.step, 5);
  const auto throwing = [](train::StepReport& r) {
    if (r.step == 7) throw std::runtime_error("the disk is full");
  };
  EXPECT_THROW(train::fit(parts, step, again, {.steps = 9, .learning_rate = rate_of, .after_step = throwing}),
               std::runtime_error);
  EXPECT_EQ(parts.step, 7);
  train::fit(parts, step, again, {.steps = 9, .learning_rate = rate_of});
  EXPECT_TRUE(ts::all_equal(parts.model, whole.model));
  EXPECT_TRUE(ts::all_equal(parts.state, whole.state));

  // Nothing is left to do.
  train::fit(parts, step, again, {.steps = 9});
  EXPECT_EQ(parts.step, 9);
  int epochs = 0;
  train::fit(parts, step, again, {.epochs = 4, .after_epoch = [&](train::EpochReport& r) {
                                    r.stop = r.epoch == 2;
                                    ++epochs;
                                  }});
  EXPECT_EQ(epochs, 2);
  EXPECT_EQ(parts.step, 15);
}

TEST(Fit, MeshesAndWrappersChangeNothing) {
  auto one = make_state(ts::Mesh({{"data", 1}}));
  auto loader = make_loader(ts::Mesh({{"data", 1}}), true);
  train::fit(one, step, loader, {.epochs = 3});
  const auto expect_same = [&](const Net& net) {
    const auto near = [](const auto& a, const auto& b) {
      const std::vector<float> got = ts::to_host(a), want = ts::to_host(b);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-4) << i;
    };
    near(net.up.weight, one.model.up.weight);
    near(net.down.weight, one.model.down.weight);
    near(net.up.bias, one.model.up.bias);
  };
  for (const int devices : {2, 3, 4}) {
    const ts::Mesh mesh({{"data", devices}});
    auto state = make_state(mesh);
    auto own = make_loader(mesh, true);
    train::fit(state, step, own, {.epochs = 3});
    expect_same(state.model);

    auto zero =
        train::train_state(make_net(mesh), ts::optim::AdamW{.learning_rate = 0.5}, ts::optim::ZeroRedundancy{"data"});
    zero.max_norm = 0.25;
    EXPECT_LT(nn::parameter_bytes_per_device(zero.state), nn::parameter_bytes_per_device(state.state));
    auto zeros = make_loader(mesh, true);
    train::fit(zero, step, zeros, {.epochs = 3});
    expect_same(zero.model);

    constexpr ts::FsdpPolicy policy{.axis = "data"};
    auto wrapped = train::train_state(ts::fsdp<policy>(make_net(mesh), mesh), ts::optim::AdamW{.learning_rate = 0.5});
    wrapped.max_norm = 0.25;
    auto parts = make_loader(mesh, true);
    train::fit(wrapped, step, parts, {.epochs = 3});
    expect_same(ts::unwrap(wrapped.model));
  }
}

TEST(TrainStep, OfMicrobatchesIsTheStepOfTheBatch) {
  constexpr auto in_parts = train::train_step<train::TrainStepOptions{.microbatches = 3, .clip = true}>(Loss{});
  auto whole = make_state(), parts = make_state();
  auto loader = make_loader(two);
  for (const auto& [x, y] : loader) {
    const train::StepMetrics a = step(whole, x, y), b = in_parts(parts, x, y);
    EXPECT_NEAR(a.loss, b.loss, 1e-5 * a.loss);
    EXPECT_NEAR(a.gradient_norm, b.gradient_norm, 1e-4 * a.gradient_norm);
    // Reduced once a step, not once a part.
    const auto reductions = [](const ts::Plan& plan) {
      std::int64_t count = 0;
      plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t times) {
        count += c.kind == ts::Collective::all_reduce ? times : 0;
      });
      return count;
    };
    EXPECT_EQ(reductions(in_parts.plan(parts, x, y)), reductions(step.plan(whole, x, y)));
    EXPECT_NE(in_parts.explain(parts, x, y).find("all_reduce"), std::string::npos);
  }
  const std::vector<float> got = ts::to_host(parts.model.up.weight), want = ts::to_host(whole.model.up.weight);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-3) << i;
}

TEST(Evaluate, CountsRowsOfASmallLastBatch) {
  const Net net = make_net(two);
  auto loader = make_loader(two, true);
  double sum = 0;
  for (const auto& [x, y] : loader)
    sum += static_cast<double>(ts::item(mean_error(net, x, y))) * static_cast<double>(ts::shape(x)[0]);
  auto again = make_loader(two, true);
  EXPECT_NEAR(train::evaluate(mean_error, net, again), sum / static_cast<double>(rows), 1e-12);
}

/// Statistics of the user's own beside the model.
struct Counting {
  std::int64_t step = 0;
  double sum = 0;
};
struct Pair {
  ts::ShardedTensor<float, 2> x;
  ts::ShardedTensor<float, 2> y;
};

TEST(Fit, TakesAnyStateAndAnyBatches) {
  const auto add = [](Counting& state, const Pair& pair) {
    ++state.step;
    state.sum += static_cast<double>(ts::item(ts::sum(pair.x)));
    return train::StepMetrics{state.sum};
  };
  const std::vector<Pair> pairs{{ts::ones<float>({2, 3}, two), ts::zeros<float>({2, 1}, two)},
                                {ts::ones<float>({4, 3}, two), ts::zeros<float>({4, 1}, two)}};
  Counting state;
  std::int64_t seen = 0;
  train::fit(state, add, pairs, {.epochs = 2, .after_step = [&](train::StepReport& r) { seen += r.rows; }});
  EXPECT_EQ(state.step, 4);
  EXPECT_EQ(state.sum, 36);
  EXPECT_EQ(seen, 12);
}

TEST(Fit, RefusesWhatMakesNoSense) {
  const auto none = [](Counting& state, const Pair&) {
    ++state.step;
    return train::StepMetrics{};
  };
  Counting state;
  const std::vector<Pair> empty, some{{ts::ones<float>({2, 3}, two), ts::zeros<float>({2, 1}, two)}};
  tessera_test::expect_error(
      ts::errc::option, [&] { train::fit(state, none, empty); }, "[fit] batches");
  tessera_test::expect_error(
      ts::errc::option, [&] { train::fit(state, none, some, {.epochs = -1}); }, "-1 and 0");
  tessera_test::expect_error(
      ts::errc::option, [&] { train::fit(state, none, some, {.learning_rate = [](std::int64_t) { return 0.5; }}); },
      "learning_rate: 0.5");
  EXPECT_EQ(state.step, 0);
  const std::vector<std::tuple<ts::ShardedTensor<float, 2>, ts::ShardedTensor<float, 2>>> nothing;
  tessera_test::expect_error(
      ts::errc::option, [&] { train::evaluate(mean_error, make_net(two), nothing); }, "[evaluate] batches");
}

TEST(PrintProgress, RefusesNoSteps) {
  tessera_test::expect_error(
      ts::errc::option, [] { train::PrintProgress(0); }, "[PrintProgress] every: 0 is below 1", "fit_test.cpp");
  tessera_test::expect_error(
      ts::errc::option, [] { train::PrintProgress(1, nullptr); }, "the file is null");
}

TEST(PrintProgress, PrintsALineForSoManySteps) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  train::PrintProgress print(2, file);
  for (int i = 1; i <= 5; ++i)
    print({.step = i,
           .epoch = 1,
           .rows = 10,
           .metrics = {0.5 / i, i == 4   ? 0.25
                                : i == 2 ? std::nan("")
                                         : 0},
           .learning_rate = i == 4 ? 1e-3 : 0,
           .loading_seconds = 0.25,
           .seconds = 0.25});
  std::rewind(file);
  std::string text(1000, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  EXPECT_EQ(text, "step 1  epoch 1  loss 0.5  20 rows/s\n"
                  "step 2  epoch 1  loss 0.25  norm nan  20 rows/s\n"
                  "step 4  epoch 1  loss 0.125  norm 0.25  rate 0.001  20 rows/s\n");
}

/// A step of an optimizer, by name and by its hyper-parameters.
template <class Named> struct BothSteps {
  constexpr auto operator()(const auto& model, const auto& gradient, const auto& state, const auto& config) const {
    return std::tuple(Named{}(model, gradient, state, config),
                      ts::optim::optimizer_step(model, gradient, state, config));
  }
};
struct Matrix {
  ts::ShardedTensor<float, 2> weight;
};
template <class Named, class Config> void expect_equal_steps(const Config& config, Named) {
  const Matrix model{ts::normal<float>(ts::Key(1), {3, 4}, two, {"data"})}, gradient{model.weight * 0.5f + 0.1f};
  const auto [named, stepped] =
      ts::compile(BothSteps<Named>{})(model, gradient, ts::optim::init_state(config, model), config);
  EXPECT_TRUE(ts::all_equal(std::get<0>(named), std::get<0>(stepped)));
  EXPECT_FALSE(ts::all_equal(std::get<0>(named), model));
  EXPECT_TRUE(ts::all_equal(std::get<1>(named), std::get<1>(stepped)));
}
#define TESSERA_STEP_OF(name) [](const auto&... x) { return ts::name(x...); }

TEST(OptimizerStep, IsThatOfTheHyperParameters) {
  expect_equal_steps(ts::optim::AdamW{}, TESSERA_STEP_OF(adamw));
  expect_equal_steps(ts::optim::AmsGrad{}, TESSERA_STEP_OF(amsgrad));
  expect_equal_steps(ts::optim::Adam{}, TESSERA_STEP_OF(adam));
  expect_equal_steps(ts::optim::Adamax{}, TESSERA_STEP_OF(adamax));
  expect_equal_steps(ts::optim::NAdam{}, TESSERA_STEP_OF(nadam));
  expect_equal_steps(ts::optim::RAdam{}, TESSERA_STEP_OF(radam));
  expect_equal_steps(ts::optim::Adadelta{}, TESSERA_STEP_OF(adadelta));
  expect_equal_steps(ts::optim::Adafactor{}, TESSERA_STEP_OF(adafactor));
  expect_equal_steps(ts::optim::Adagrad{}, TESSERA_STEP_OF(adagrad));
  expect_equal_steps(ts::optim::Lamb{}, TESSERA_STEP_OF(lamb));
  expect_equal_steps(ts::optim::Lion{}, TESSERA_STEP_OF(lion));
  expect_equal_steps(ts::optim::Muon{}, TESSERA_STEP_OF(muon));
  expect_equal_steps(ts::optim::RmsProp{}, TESSERA_STEP_OF(rmsprop));
  expect_equal_steps(ts::optim::Sgd{}, TESSERA_STEP_OF(sgd));
}
#undef TESSERA_STEP_OF

}  // namespace
