// Optimizers against the published updates, one element after the other, in double.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/traced.hpp"
#include "every_leaf.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>

namespace ts = tessera;
using namespace every_leaf;

namespace {

struct AdamWStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::adamw(model, gradients, state, config);
  }
};

TEST(AdamW, IsThePublishedUpdateForFiveSteps) {
  const oracle::Program program =
      oracle::trace<AdamWStep, Model, Model, ts::optim::AdamWState<Model>, ts::optim::AdamW>();
  const double rate = 0.1, b1 = 0.8, b2 = 0.9, epsilon = 1e-3, decay = 0.2;
  std::vector<Array> p = random_model(1), m = zeros_for(p), v = m;
  std::vector<Array> want = p, want_m = m, want_v = v;
  Array step = Array::number(0);
  for (unsigned t = 1; t <= 5; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    std::vector<Array> arguments = p;
    append(arguments, g);
    append(arguments, m);
    append(arguments, v);
    append(arguments, {step});
    for (double number : {rate, b1, b2, epsilon, decay}) arguments.push_back(Array::number(number));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    p = model_at(results, 0);
    m = model_at(results, 1);
    v = model_at(results, 2);
    step = results.back();
    EXPECT_EQ(step.data[0], t);

    for_each_parameter(
        [&](const LeafKind& kind, double& x, double gradient, double& first, double& second) {
          first = b1 * first + (1 - b1) * gradient;
          second = b2 * second + (1 - b2) * gradient * gradient;
          const double first_hat = first / (1 - std::pow(b1, t)), second_hat = second / (1 - std::pow(b2, t));
          const double decayed = kind.decays ? x - rate * decay * x : x;
          x = decayed - rate * first_hat / (std::sqrt(second_hat) + epsilon);
        },
        want, g, want_m, want_v);
    expect_models_near(p, want, 1e-12);
    expect_models_near(m, want_m, 1e-12);
    expect_models_near(v, want_v, 1e-12);
  }
}

struct AmsGradStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::amsgrad(model, gradients, state, config);
  }
};

// The pseudo code of torch.optim.AdamW with amsgrad=True. Gradients that shrink make the largest mean matter.
TEST(AmsGrad, IsThePublishedUpdateForTwentySteps) {
  const oracle::Program program =
      oracle::trace<AmsGradStep, Model, Model, ts::optim::AmsGradState<Model>, ts::optim::AmsGrad>();
  const double rate = 0.1, b1 = 0.8, b2 = 0.9, epsilon = 1e-3, decay = 0.2;
  std::vector<Array> p = random_model(1), m = zeros_for(p), v = m, w = m;
  std::vector<Array> want = p, want_m = m, want_v = v, want_w = w;
  Array step = Array::number(0);
  int kept = 0;
  for (unsigned t = 1; t <= 20; ++t) {
    std::vector<Array> g = random_model(t + 1);
    for (Array& leaf : g)
      for (double& x : leaf.data) x /= t;
    std::vector<Array> arguments = p;
    for (const auto* more : std::initializer_list<const std::vector<Array>*>{&g, &m, &v, &w}) append(arguments, *more);
    append(arguments, {step});
    for (double number : {rate, b1, b2, epsilon, decay}) arguments.push_back(Array::number(number));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    p = model_at(results, 0), m = model_at(results, 1), v = model_at(results, 2), w = model_at(results, 3);
    step = results.back();
    for_each_parameter(
        [&](const LeafKind& kind, double& x, double gradient, double& first, double& second, double& largest) {
          first = b1 * first + (1 - b1) * gradient;
          second = b2 * second + (1 - b2) * gradient * gradient;
          kept += largest > second;
          largest = std::max(largest, second);
          const double decayed = kind.decays ? x - rate * decay * x : x;
          x = decayed - rate * (first / (1 - std::pow(b1, t))) / (std::sqrt(largest / (1 - std::pow(b2, t))) + epsilon);
        },
        want, g, want_m, want_v, want_w);
    expect_models_near(p, want, 1e-11);
    expect_models_near(w, want_w, 1e-12);
  }
  EXPECT_GT(kept, 500);
}

struct SgdStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& config) const {
    return ts::sgd(model, gradients, config);
  }
};
struct MomentumStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::sgd(model, gradients, state, config);
  }
};

TEST(Sgd, DescendsWithAndWithoutMomentumForFiveSteps) {
  const double rate = 0.1, momentum = 0.7, decay = 0.3;
  const std::vector<Array> numbers = {Array::number(rate), Array::number(momentum), Array::number(decay)};
  const oracle::Program plain = oracle::trace<SgdStep, Model, Model, ts::optim::Sgd>();
  const oracle::Program heavy = oracle::trace<MomentumStep, Model, Model, ts::optim::SgdState<Model>, ts::optim::Sgd>();
  std::vector<Array> p = random_model(1), q = p, velocity = zeros_for(p);
  std::vector<Array> want_p = p, want_q = q, want_velocity = velocity;
  for (unsigned t = 1; t <= 5; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    std::vector<Array> arguments = p;
    append(arguments, g);
    append(arguments, numbers);
    p = oracle::run(plain.view(), arguments);
    for_each_parameter([&](const LeafKind&, double& x, double gradient) { x -= rate * (gradient + decay * x); }, want_p,
                       g);
    expect_models_near(p, want_p, 1e-12);

    arguments = q;
    append(arguments, g);
    append(arguments, velocity);
    append(arguments, numbers);
    const std::vector<Array> results = oracle::run(heavy.view(), arguments);
    q = model_at(results, 0);
    velocity = model_at(results, 1);
    for_each_parameter(
        [&](const LeafKind&, double& x, double gradient, double& v) {
          v = momentum * v + gradient + decay * x;
          x -= rate * v;
        },
        want_q, g, want_velocity);
    expect_models_near(q, want_q, 1e-12);
    expect_models_near(velocity, want_velocity, 1e-12);
  }
}

struct LionStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::lion(model, gradients, state, config);
  }
};

// Algorithm 2 of 2302.06675, one element after the other.
TEST(Lion, IsThePublishedUpdateForTwentySteps) {
  const oracle::Program program = oracle::trace<LionStep, Model, Model, ts::optim::LionState<Model>, ts::optim::Lion>();
  const double rate = 0.1, b1 = 0.8, b2 = 0.95, decay = 0.2;
  std::vector<Array> p = random_model(1), m = zeros_for(p), want = p, want_m = m;
  for (unsigned t = 1; t <= 20; ++t) {
    std::vector<Array> g = random_model(t + 1);
    if (t == 1) g[0].data[0] = want[0].data[0] = p[0].data[0] = 0;  // of no slope yet: it stays
    std::vector<Array> arguments = p;
    append(arguments, g);
    append(arguments, m);
    for (double number : {rate, b1, b2, decay}) arguments.push_back(Array::number(number));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    p = model_at(results, 0);
    m = model_at(results, 1);
    for_each_parameter(
        [&](const LeafKind& kind, double& x, double gradient, double& momentum) {
          const double c = b1 * momentum + (1 - b1) * gradient;
          x -= rate * ((c > 0 ? 1 : c < 0 ? -1 : 0) + (kind.decays ? decay * x : 0));
          momentum = b2 * momentum + (1 - b2) * gradient;
        },
        want, g, want_m);
    EXPECT_TRUE(t > 1 || p[0].data[0] == 0);
    expect_models_near(p, want, 1e-12);
    expect_models_near(m, want_m, 1e-12);
  }
}

struct AdamStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::adam(model, gradients, state, config);
  }
};
struct RmsPropStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::rmsprop(model, gradients, state, config);
  }
};
struct AdagradStep {
  constexpr auto operator()(const auto& model, const auto& gradients, const auto& state, const auto& config) const {
    return ts::adagrad(model, gradients, state, config);
  }
};

// The pseudo code of the pages of torch.optim, one element after the other.
TEST(Adam, IsThePublishedUpdateForTwentySteps) {
  const oracle::Program program =
      oracle::trace<AdamStep, Model, Model, ts::optim::AdamWState<Model>, ts::optim::Adam>();
  const double rate = 0.1, b1 = 0.8, b2 = 0.9, epsilon = 1e-3, decay = 0.2;
  std::vector<Array> p = random_model(1), m = zeros_for(p), v = m, want = p, want_m = m, want_v = v;
  Array step = Array::number(0);
  for (unsigned t = 1; t <= 20; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    std::vector<Array> arguments = p;
    for (const auto* more : std::initializer_list<const std::vector<Array>*>{&g, &m, &v}) append(arguments, *more);
    append(arguments, {step});
    for (double number : {rate, b1, b2, epsilon, decay}) arguments.push_back(Array::number(number));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    p = model_at(results, 0), m = model_at(results, 1), v = model_at(results, 2), step = results.back();
    for_each_parameter(
        [&](const LeafKind&, double& x, double gradient, double& first, double& second) {
          gradient += decay * x;
          first = b1 * first + (1 - b1) * gradient;
          second = b2 * second + (1 - b2) * gradient * gradient;
          x -= rate * (first / (1 - std::pow(b1, t))) / (std::sqrt(second / (1 - std::pow(b2, t))) + epsilon);
        },
        want, g, want_m, want_v);
    expect_models_near(p, want, 1e-11);
  }
}

TEST(RmsProp, IsThePublishedUpdateForTwentySteps) {
  const oracle::Program program =
      oracle::trace<RmsPropStep, Model, Model, ts::optim::RmsPropState<Model>, ts::optim::RmsProp>();
  const double rate = 0.1, alpha = 0.9, epsilon = 1e-3, momentum = 0.7, decay = 0.2;
  std::vector<Array> p = random_model(1), v = zeros_for(p), b = v, want = p, want_v = v, want_b = v;
  for (unsigned t = 1; t <= 20; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    std::vector<Array> arguments = p;
    for (const auto* more : std::initializer_list<const std::vector<Array>*>{&g, &v, &b}) append(arguments, *more);
    for (double number : {rate, alpha, epsilon, momentum, decay}) arguments.push_back(Array::number(number));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    p = model_at(results, 0), v = model_at(results, 1), b = model_at(results, 2);
    for_each_parameter(
        [&](const LeafKind&, double& x, double gradient, double& square, double& velocity) {
          gradient += decay * x;
          square = alpha * square + (1 - alpha) * gradient * gradient;
          velocity = momentum * velocity + gradient / (std::sqrt(square) + epsilon);
          x -= rate * velocity;
        },
        want, g, want_v, want_b);
    expect_models_near(p, want, 1e-11);
    expect_models_near(b, want_b, 1e-11);
  }
}

TEST(Adagrad, IsThePublishedUpdateForTwentySteps) {
  const oracle::Program program =
      oracle::trace<AdagradStep, Model, Model, ts::optim::AdagradState<Model>, ts::optim::Adagrad>();
  const double rate = 0.1, epsilon = 1e-3, decay = 0.2;
  std::vector<Array> p = random_model(1), s = zeros_for(p), want = p, want_s = s;
  for (unsigned t = 1; t <= 20; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    std::vector<Array> arguments = p;
    for (const auto* more : std::initializer_list<const std::vector<Array>*>{&g, &s}) append(arguments, *more);
    for (double number : {rate, epsilon, decay}) arguments.push_back(Array::number(number));
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    p = model_at(results, 0), s = model_at(results, 1);
    for_each_parameter(
        [&](const LeafKind&, double& x, double gradient, double& sum) {
          gradient += decay * x;
          sum += gradient * gradient;
          x -= rate * gradient / (std::sqrt(sum) + epsilon);
        },
        want, g, want_s);
    expect_models_near(p, want, 1e-11);
  }
}

struct MoreSteps {
  constexpr auto operator()(const auto& models, const auto& g, const auto& velocity, const auto& delta,
                            const auto& largest, const auto& lamb, const auto& rate) const {
    const auto& [nesterov_p, delta_p, largest_p, lamb_p, mean_p] = models;
    return std::tuple(ts::sgd_nesterov(nesterov_p, g, velocity, {rate, 0.7, 0.2}),
                      ts::adadelta(delta_p, g, delta, {rate, 0.8, 1e-3, 0.2}),
                      ts::adamax(largest_p, g, largest, {rate, 0.8, 0.9, 1e-3, 0.2}),
                      ts::lamb(lamb_p, g, lamb, {rate, 0.8, 0.9, 1e-3, 0.2}),
                      ts::optim::moving_average(mean_p, nesterov_p, 0.75),
                      ts::optim::mean_of_models(mean_p, nesterov_p, 3));
  }
};

double norm_of(const std::vector<double>& x, std::size_t begin, std::size_t end) {
  double square = 0;
  for (std::size_t i = begin; i < end; ++i) square += x[i] * x[i];
  return std::sqrt(square);
}

// The pseudo code of the pages of torch.optim, and algorithm 2 of 1904.00962 with a norm for each layer of the Stack.
TEST(Optimizers, ArePublishedUpdatesForTwentySteps) {
  using Models = std::tuple<Model, Model, Model, Model, Model>;
  const oracle::Program program =
      oracle::trace<MoreSteps, Models, Model, ts::optim::SgdState<Model>, ts::optim::AdadeltaState<Model>,
                    ts::optim::AdamaxState<Model>, ts::optim::AdamWState<Model>, ts::Scalar>();
  const double rate = 0.1, b1 = 0.8, b2 = 0.9, epsilon = 1e-3, decay = 0.2;
  const std::vector<Array> first = random_model(1), zero = zeros_for(first);
  // Nesterov, its velocity; Adadelta, its means; Adamax, its states; LAMB, its states; the average.
  std::vector<Array> n = first, nv = zero, d = first, dv = zero, du = zero, a = first, am = zero, au = zero, l = first,
                     lm = zero, lv = zero;
  std::vector<Array> mean = random_model(77), want_n = n, want_nv = nv, want_d = d, want_dv = dv, want_du = du,
                     want_a = a, want_am = am, want_au = au, want_l = l, want_lm = lm, want_lv = lv;
  Array step = Array::number(0);
  for (unsigned t = 1; t <= 20; ++t) {
    const std::vector<Array> g = random_model(t + 1);
    std::vector<Array> arguments;
    for (const auto* part :
         std::initializer_list<const std::vector<Array>*>{&n, &d, &a, &l, &mean, &g, &nv, &dv, &du, &am, &au})
      append(arguments, *part);
    append(arguments, {step});
    for (const auto* part : std::initializer_list<const std::vector<Array>*>{&lm, &lv}) append(arguments, *part);
    append(arguments, {step, Array::number(rate)});
    const std::vector<Array> results = oracle::run(program.view(), arguments);
    std::vector<Array> average = mean, mean_of_four = mean;
    for_each_parameter([](const LeafKind&, double& x, double p) { x = 0.75 * x + 0.25 * p; }, average, n);
    for_each_parameter([](const LeafKind&, double& x, double p) { x = (3 * x + p) / 4; }, mean_of_four, n);
    n = model_at(results, 0), nv = model_at(results, 1), d = model_at(results, 2), dv = model_at(results, 3);
    du = model_at(results, 4), a = model_at(results, 5), am = model_at(results, 6), au = model_at(results, 7);
    l = model_at(results, 8, 1), lm = model_at(results, 9, 1), lv = model_at(results, 10, 1);
    step = results[8 * kinds.size()];
    EXPECT_EQ(step.data[0], t);
    expect_models_near(model_at(results, 11, 2), average, 1e-12);
    expect_models_near(model_at(results, 12, 2), mean_of_four, 1e-12);

    for_each_parameter(
        [&](const LeafKind&, double& x, double slope, double& v) {
          slope += decay * x;
          v = 0.7 * v + slope;
          x -= rate * (slope + 0.7 * v);
        },
        want_n, g, want_nv);
    for_each_parameter(
        [&](const LeafKind&, double& x, double slope, double& v, double& u) {
          slope += decay * x;
          v = 0.8 * v + (1 - 0.8) * slope * slope;
          const double change = std::sqrt(u + epsilon) / std::sqrt(v + epsilon) * slope;
          u = 0.8 * u + (1 - 0.8) * change * change;
          x -= rate * change;
        },
        want_d, g, want_dv, want_du);
    for_each_parameter(
        [&](const LeafKind&, double& x, double slope, double& m, double& u) {
          slope += decay * x;
          m = b1 * m + (1 - b1) * slope;
          u = std::max(b2 * u, std::fabs(slope) + epsilon);
          x -= rate / (1 - std::pow(b1, t)) * m / u;
        },
        want_a, g, want_am, want_au);
    std::vector<Array> change = zero;
    for_each_parameter(
        [&](const LeafKind& kind, double& u, double slope, double& x, double& m, double& v) {
          m = b1 * m + (1 - b1) * slope;
          v = b2 * v + (1 - b2) * slope * slope;
          u = m / (1 - std::pow(b1, t)) / (std::sqrt(v / (1 - std::pow(b2, t))) + epsilon);
          if (kind.decays) u += decay * x;
        },
        change, g, want_l, want_lm, want_lv);
    for (std::size_t leaf = 0; leaf < kinds.size(); ++leaf) {
      if (!kinds[leaf].parameter) continue;
      std::vector<double>&x = want_l[leaf].data, &u = change[leaf].data;
      const bool stacked = leaf == 1 || leaf == 2;
      const std::size_t size = x.size() / (stacked ? 3 : 1);
      for (std::size_t begin = 0; begin < x.size(); begin += size) {
        const double ratio = norm_of(x, begin, begin + size) / norm_of(u, begin, begin + size);
        for (std::size_t i = begin; i < begin + size; ++i) x[i] -= rate * ratio * u[i];
      }
    }
    expect_models_near(n, want_n, 1e-11);
    expect_models_near(d, want_d, 1e-11);
    expect_models_near(a, want_a, 1e-11);
    expect_models_near(au, want_au, 1e-11);
    expect_models_near(l, want_l, 1e-10);
  }
}

// The model is an argument, its gradients are computed by the traced function: a pair of other types. An item of them
// may be an expression of fields.
struct PairStep {
  using Number = ts::ShardedTensor<double, 0>;
  struct Own {
    Number scale;
  };
  constexpr auto operator()(const auto& model, const auto& slope) const {
    const auto gradients = std::pair(slope * 2.0, model.second.scale * 3.0);
    const auto moved = ts::sgd(std::pair(model.first, model.second.scale), gradients, {.learning_rate = 0.5});
    return std::tuple(
        moved.first, moved.second,
        ts::sgd(std::pair(model.first, model.second), std::pair(slope, model.second), {.learning_rate = 0.5}));
  }
};
TEST(Sgd, TakesGradientsOfAPairThatIsMadeInTheTrace) {
  using Vector = ts::ShardedTensor<double, 1>;
  const oracle::Program program = oracle::trace<PairStep, std::pair<Vector, PairStep::Own>, Vector>();
  const std::vector<Array> got =
      oracle::run(program.view(), {Array({2}, {1, 2}), Array::number(4), Array({2}, {10, 20})});
  EXPECT_EQ(got.at(0).data, (std::vector<double>{-9, -18}));
  EXPECT_EQ(got.at(1).data, (std::vector<double>{-2}));
  EXPECT_EQ(got.at(2).data, (std::vector<double>{-4, -8}));
  EXPECT_EQ(got.at(3).data, (std::vector<double>{2}));
}

struct Scaled {
  constexpr auto operator()(const auto& first, const auto& second) const {
    const auto [sum, difference] =
        ts::optim::tree_map([](auto x, auto y) { return std::tuple(x + y, x - y); }, first, second);
    return std::tuple(sum, difference, ts::optim::tree_map([](auto x) { return x * x; }, first));
  }
};

// The function is tried with the first tensor of the model, not with a vector.
struct OnlyMatrices {
  constexpr auto operator()(const auto& model) const {
    return ts::optim::tree_map([](auto x) { return ts::transpose<1, 0>(ts::transpose<1, 0>(x) * 2.0); }, model);
  }
};
TEST(TreeMap, CallsItsFunctionWithTheTensorsOfTheModelOnly) {
  using Matrix = ts::ShardedTensor<double, 2>;
  using Nested = std::tuple<ts::Dim, std::pair<Matrix, ts::Stack<std::tuple<Matrix>>>>;
  const Array x = random_array({3, 2}, 1), layers = random_array({4, 3, 2}, 2);
  const auto got = oracle::run(oracle::trace<OnlyMatrices, Nested>().view(), {Array::number(5), x, layers});
  for (std::size_t i = 0; i < x.data.size(); ++i) EXPECT_EQ(got.at(1).data[i], 2 * x.data[i]);
  for (std::size_t i = 0; i < layers.data.size(); ++i) EXPECT_EQ(got.at(2).data[i], 2 * layers.data[i]);
}

// A function that treats matrices, also those of layers, in another way than vectors, whichever comes first.
struct ByRank {
  constexpr auto operator()(const auto& model) const {
    const auto f = [](auto x) {
      if constexpr (decltype(x)::rank == 2)
        return ts::transpose<1, 0>(ts::transpose<1, 0>(x) * 2.0);
      else if constexpr (decltype(x)::rank == 1)
        return x + 1.0;
      else
        return -x;
    };
    const auto pair = [&](auto x) {
      if constexpr (decltype(x)::rank == 2)
        return std::tuple(x * x, f(x));
      else
        return std::tuple(x, f(x));
    };
    const auto [first, second] = ts::optim::tree_map(pair, model);
    return std::tuple(ts::optim::tree_map(f, model), first, second);
  }
};
template <class First, class Second, class Third> void expect_by_rank(const std::vector<Array>& given) {
  using Model = std::tuple<First, std::pair<Second, ts::Stack<std::tuple<Third>>>>;
  const auto got = oracle::run(oracle::trace<ByRank, Model>().view(), given);
  ASSERT_EQ(got.size(), 9u);
  for (std::size_t k = 0; k < 3; ++k) {
    const std::size_t rank = given[k].shape.size() - (k == 2 ? 1 : 0);
    for (std::size_t i = 0; i < given[k].data.size(); ++i) {
      const double x = given[k].data[i], want = rank == 2 ? 2 * x : rank == 1 ? x + 1 : -x;
      EXPECT_NEAR(got[k].data[i], want, 1e-15);
      EXPECT_NEAR(got[6 + k].data[i], want, 1e-15);
      EXPECT_NEAR(got[3 + k].data[i], rank == 2 ? x * x : x, 1e-15);
    }
  }
}
TEST(TreeMap, TreatsRanksDifferently) {
  using Number = ts::ShardedTensor<double, 0>;
  using Vector = ts::ShardedTensor<double, 1>;
  using Matrix = ts::ShardedTensor<double, 2>;
  expect_by_rank<Vector, Matrix, Matrix>({random_array({4}, 1), random_array({3, 2}, 2), random_array({4, 3, 2}, 3)});
  expect_by_rank<Matrix, Number, Vector>({random_array({2, 3}, 1), random_array({}, 2), random_array({4, 3}, 3)});
  expect_by_rank<Number, Vector, Matrix>({random_array({}, 1), random_array({5}, 2), random_array({2, 3, 2}, 3)});
}

TEST(TreeMap, KeepsWhatIsNoParameter) {
  const oracle::Program program = oracle::trace<Scaled, Model, Model>();
  const std::vector<Array> x = random_model(1), y = random_model(2);
  std::vector<Array> arguments = x, sum = x, difference = x, square = x;
  append(arguments, y);
  for_each_parameter([](const LeafKind&, double& a, double b) { a += b; }, sum, y);
  for_each_parameter([](const LeafKind&, double& a, double b) { a -= b; }, difference, y);
  for_each_parameter([](const LeafKind&, double& a, double) { a *= a; }, square, y);
  const std::vector<Array> results = oracle::run(program.view(), arguments);
  expect_models_near(model_at(results, 0), sum, 1e-12);
  expect_models_near(model_at(results, 1), difference, 1e-12);
  expect_models_near(model_at(results, 2), square, 1e-12);
}

}  // namespace
