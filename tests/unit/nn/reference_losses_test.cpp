// Losses, optimizers and schedules against PyTorch 1.13.1 (tests/reference/generate.py).
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/reference.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>
#include <tessera/optim/optim.hpp>

namespace ts = tessera;

namespace {

using reference::types;
constexpr auto each_one = ts::LossReduction::each;
constexpr auto summed = ts::LossReduction::sum;
template <class T> using Vector = ts::ShardedTensor<T, 1>;
template <class T> using Matrix = ts::ShardedTensor<T, 2>;
template <int Rank> using Int = ts::ShardedTensor<std::int32_t, Rank>;

// The loss of each element, the mean and the sum. `LOSS` is the part of the name before the reduction.
#define THREE(LOSS, ...) std::tuple(LOSS<each_one>(__VA_ARGS__), LOSS(__VA_ARGS__), LOSS<summed>(__VA_ARGS__))
#define OF_TWO(name, ...) \
  cases.check(types<Matrix<T>, Matrix<T>>, name, [](const auto& x, const auto& y) { return __VA_ARGS__; })
#define OF_THREE(name, ...)                                 \
  cases.check(types<Matrix<T>, Matrix<T>, Matrix<T>>, name, \
              [](const auto& x, const auto& y, const auto& z) { return __VA_ARGS__; })
#define OF_TARGETS(name, ...) \
  cases.check(types<Matrix<T>, Int<1>>, name, [](const auto& x, const auto& targets) { return __VA_ARGS__; })

template <class T> void losses_with_weights(reference::Cases<T>& cases);
template <class T> void losses() {
  reference::Cases<T> cases("losses", {.f64 = 16, .f32 = 16});
  OF_TWO("mse_loss", std::tuple(ts::square(x - y), ts::mse(x, y), ts::sum(ts::square(x - y))));
  OF_TWO("huber_loss", THREE(ts::huber, x, y, 0.75));
  OF_TWO("smooth_l1_loss", THREE(ts::smooth_l1_loss, x, y, 0.5));
  OF_TWO("l1_loss", THREE(ts::l1_loss, x, y));
  OF_TWO("bce_with_logits", THREE(ts::bce_with_logits, x, y));
  OF_TWO("kl_div", THREE(ts::kl_div, x, y));
  OF_THREE("gaussian_nll_loss", THREE(ts::gaussian_nll_loss, x, y, z));
  OF_THREE("gaussian_nll_loss_full", THREE(ts::gaussian_nll_loss, x, y, z, ts::GaussianNll{.full = true}));
  OF_TWO("poisson_nll_loss", THREE(ts::poisson_nll_loss, x, y));
  cases.check(types<Matrix<T>, Matrix<T>>, "poisson_nll_loss_rate", [](const auto& x, const auto& y) {
    constexpr ts::PoissonNll options{.log_input = false, .full = true};
    const auto counts = ts::stop_gradient(y);
    return std::tuple(ts::poisson_nll_loss<each_one, options>(x, counts),
                      ts::poisson_nll_loss<ts::LossReduction::mean, options>(x, counts),
                      ts::poisson_nll_loss<summed, options>(x, counts));
  });
  OF_THREE("margin_ranking_loss", THREE(ts::margin_ranking_loss, x, y, z, 0.125));
  OF_TWO("hinge_embedding_loss", THREE(ts::hinge_embedding_loss, x, y, 0.7));
  cases.check(
      types<Matrix<T>, Matrix<T>, Vector<T>>, "cosine_embedding_loss",
      [](const auto& x, const auto& y, const auto& z) { return THREE(ts::cosine_embedding_loss, x, y, z, 0.25); });
  OF_THREE("triplet_margin_loss", THREE(ts::triplet_margin_loss, x, y, z, 0.5));
  cases.check(types<Matrix<T>, Matrix<T>, Matrix<T>>, "triplet_margin_loss_swap",
              [](const auto& x, const auto& y, const auto& z) {
                constexpr ts::TripletMargin options{.p = 3, .swap = true};
                return std::tuple(ts::triplet_margin_loss<each_one, options>(x, y, z),
                                  ts::triplet_margin_loss<ts::LossReduction::mean, options>(x, y, z),
                                  ts::triplet_margin_loss<summed, options>(x, y, z));
              });
  OF_TARGETS("cross_entropy_plain", THREE(ts::cross_entropy, x, targets, ts::CrossEntropy{}));
  OF_TARGETS("cross_entropy_smoothed", THREE(ts::cross_entropy, x, targets, ts::CrossEntropy{.label_smoothing = 0.2}));
  OF_TARGETS("cross_entropy_ignored", THREE(ts::cross_entropy, x, targets, ts::CrossEntropy{.ignore_index = 3}));
  OF_TARGETS("cross_entropy_all_ignored", ts::cross_entropy(x, targets, ts::CrossEntropy{}));
  OF_TARGETS("nll_loss", THREE(ts::nll_loss, x, targets));
#define CTC(name, ...)                                                                               \
  cases.check(types<ts::ShardedTensor<T, 3>, Int<2>, Int<1>, Int<1>>, name,                          \
              [](const auto& x, const auto& labels, const auto& steps, const auto& lengths) {        \
                return THREE(ts::ctc_loss, ts::log_softmax(x), labels, steps, lengths, __VA_ARGS__); \
              })
  CTC("ctc_loss", ts::Ctc{});
  CTC("ctc_loss_blank", ts::Ctc{.blank = 3});
  CTC("ctc_loss_zero_infinity", ts::Ctc{.zero_infinity = true});
#undef CTC
  losses_with_weights(cases);
}

// Their weights have no gradient.
template <class T> void losses_with_weights(reference::Cases<T>& cases) {
#define WEIGHTED(name, TARGETS, ...)                                                                                  \
  cases.check(types<Matrix<T>, TARGETS, Vector<T>>, name, [](const auto& x, const auto& targets, const auto& given) { \
    const auto weight = ts::stop_gradient(given);                                                                     \
    return __VA_ARGS__;                                                                                               \
  })
  WEIGHTED("cross_entropy_weighted", Int<1>, THREE(ts::cross_entropy, x, targets, weight));
  WEIGHTED("cross_entropy_weighted_smoothed", Int<1>,
           THREE(ts::cross_entropy, x, targets, weight, ts::CrossEntropy{.label_smoothing = 0.2}));
  WEIGHTED("nll_loss_weighted", Int<1>, THREE(ts::nll_loss, x, targets, weight));
  WEIGHTED("multi_margin_loss_weighted", Int<1>,
           std::tuple(ts::multi_margin_loss<each_one, 2>(x, targets, weight, 0.75),
                      ts::multi_margin_loss<ts::LossReduction::mean, 2>(x, targets, weight, 0.75),
                      ts::multi_margin_loss<summed, 2>(x, targets, weight, 0.75)));
  WEIGHTED("multilabel_soft_margin_loss_weighted", Int<2>, THREE(ts::multilabel_soft_margin_loss, x, targets, weight));
  WEIGHTED("bce_with_logits_pos_weight", Matrix<T>, THREE(ts::bce_with_logits, x, targets, weight));
  WEIGHTED("cross_entropy_soft_weighted", Matrix<T>, THREE(ts::cross_entropy, x, targets, weight));
  WEIGHTED("cross_entropy_soft_smoothed_weighted", Matrix<T>,
           THREE(ts::cross_entropy, x, targets, weight, ts::CrossEntropy{.label_smoothing = 0.2}));
#undef WEIGHTED
  OF_TWO("cross_entropy_soft", THREE(ts::cross_entropy, x, y));
  OF_TWO("cross_entropy_soft_smoothed", THREE(ts::cross_entropy, x, y, ts::CrossEntropy{.label_smoothing = 0.2}));
  cases.check(types<Matrix<T>, Int<2>>, "multilabel_margin_loss",
              [](const auto& x, const auto& targets) { return THREE(ts::multilabel_margin_loss, x, targets); });
  OF_TWO("binary_cross_entropy", THREE(ts::binary_cross_entropy, x, ts::stop_gradient(y)));
  OF_TWO("pairwise_distance",
         std::tuple(ts::pairwise_distance<1>(x, y), ts::pairwise_distance(x, y), ts::pairwise_distance<3>(x, y)));
}

#undef THREE
#undef OF_TWO
#undef OF_THREE
#undef OF_TARGETS

TEST(ReferenceOfPyTorch, Losses) { losses<double>(); }
TEST(ReferenceOfPyTorch, LossesInF32) { losses<float>(); }

struct Model {
  ts::ShardedTensor<double, 2> matrix;
  ts::ShardedTensor<double, 1> vector;
};

/// sum(c * sin(p)) + |p|^2 / 4 over both parameters.
constexpr auto loss_of(const auto& model, const auto& scale) {
  const auto term = [](const auto& p, const auto& c) { return ts::sum(c * ts::sin(p)) + ts::sum(p * p) / 4.0; };
  return term(model.matrix, scale.matrix) + term(model.vector, scale.vector);
}
constexpr auto loss = [](const auto& model, const auto& scale) { return loss_of(model, scale); };

template <class Update> struct Step {
  constexpr auto operator()(const auto& model, const auto& state, const auto& config, const auto& scale) const {
    return Update{}(model, ts::grad(loss)(model, scale), state, config);
  }
};

/// Twenty steps of an optimizer, with parameters compared after each fifth.
class Optimizers {
 public:
  /// `state`: the shapes of the state, m for a model and s for a Scalar. `numbers`: the fields of the config. The first
  /// `compared` tensors of model and state are those of the file.
  template <class State, class Config, class Update>
  void check(const std::string& name, Update, const std::string& state, const std::vector<double>& numbers,
             std::size_t compared = 2) {
    SCOPED_TRACE(name);
    const reference::Case& c = cases_[name];
    const oracle::Program program = oracle::trace<Step<Update>, Model, State, Config, Model>();
    std::vector<oracle::Array> held{c.in.at(0), c.in.at(1)};  // what a step returns
    for (const char kind : state) {
      if (kind == 's') {
        held.push_back(oracle::Array::number(0));
      } else {
        held.emplace_back(c.in[0].shape);
        held.emplace_back(c.in[1].shape);
      }
    }
    std::vector<oracle::Array> of_config;
    for (const double number : numbers) of_config.push_back(oracle::Array::number(number));
    std::size_t next = 0;
    for (int step = 1; step <= 20; ++step) {
      std::vector<oracle::Array> arguments = held;
      arguments.insert(arguments.end(), of_config.begin(), of_config.end());
      arguments.insert(arguments.end(), c.in.begin() + 2, c.in.end());
      held = oracle::run(program.view(), arguments);
      if (step % 5 != 0) continue;
      for (std::size_t leaf = 0; leaf < compared; ++leaf, ++next) {
        const double scale = oracle::largest(c.out.at(next), 0.1);
        EXPECT_LE(reference::detail::ulps(held[leaf], c.out.at(next), 0x1p-52, scale), 64)
            << "step " << step << ", tensor " << leaf;
      }
    }
    EXPECT_EQ(next, c.out.size());
  }
  void check_schedule(const std::string& name, double (*rate)(std::int64_t)) {
    const reference::Case& c = cases_[name];
    for (std::size_t step = 0; step < c.out.at(0).data.size(); ++step)
      EXPECT_NEAR(rate(static_cast<std::int64_t>(step)), c.out[0].data[step], 1e-14) << name << " at step " << step;
  }
  /// The rate after each metric of the file, beginning with 0.5.
  void check_plateau(const std::string& name, const ts::optim::PlateauOptions& options) {
    const reference::Case& c = cases_[name];
    ts::optim::Plateau plateau{.rate = 0.5};
    for (std::size_t step = 0; step < c.in.at(0).data.size(); ++step) {
      plateau = ts::optim::reduce_on_plateau(plateau, c.in[0].data[step], options);
      EXPECT_EQ(plateau.rate, c.out.at(0).data[step]) << name << " at step " << step;
    }
  }

 private:
  reference::Cases<double> cases_{"optimizers"};
};

TEST(ReferenceOfPyTorch, OptimizersOverTwentySteps) {
  Optimizers all;
  namespace optim = ts::optim;
#define UPDATE(function) [](const auto& m, const auto& g, const auto& s, const auto& c) { return function(m, g, s, c); }
  all.check<optim::SgdState<Model>, optim::Sgd>("sgd", UPDATE(ts::sgd), "m", {0.1, 0, 0.05});
  all.check<optim::SgdState<Model>, optim::Sgd>("sgd_momentum", UPDATE(ts::sgd), "m", {0.05, 0.9, 0.05});
  all.check<optim::SgdState<Model>, optim::Sgd>("sgd_nesterov", UPDATE(ts::sgd_nesterov), "m", {0.05, 0.9, 0.05});
  all.check<optim::AdamWState<Model>, optim::Adam>("adam", UPDATE(ts::adam), "mms", {0.05, 0.8, 0.95, 1e-8, 0.05});
  all.check<optim::AdamWState<Model>, optim::AdamW>("adamw", UPDATE(ts::adamw), "mms", {0.05, 0.8, 0.95, 1e-8, 0.1});
  all.check<optim::AmsGradState<Model>, optim::AmsGrad>("amsgrad", UPDATE(ts::amsgrad), "mmms",
                                                        {0.05, 0.8, 0.9, 1e-8, 0.1});
  all.check<optim::AdagradState<Model>, optim::Adagrad>("adagrad", UPDATE(ts::adagrad), "m", {0.1, 1e-10, 0.05});
  all.check<optim::AdadeltaState<Model>, optim::Adadelta>("adadelta", UPDATE(ts::adadelta), "mm",
                                                          {1.0, 0.8, 1e-6, 0.05});
  all.check<optim::AdamaxState<Model>, optim::Adamax>("adamax", UPDATE(ts::adamax), "mms",
                                                      {0.05, 0.8, 0.95, 1e-8, 0.05});
  all.check<optim::RmsPropState<Model>, optim::RmsProp>("rmsprop", UPDATE(ts::rmsprop), "mm",
                                                        {0.02, 0.9, 1e-8, 0, 0.05});
  all.check<optim::RmsPropState<Model>, optim::RmsProp>("rmsprop_momentum", UPDATE(ts::rmsprop), "mm",
                                                        {0.02, 0.9, 1e-8, 0.5, 0});
  all.check<optim::CenteredRmsPropState<Model>, optim::CenteredRmsProp>(
      "rmsprop_centered", UPDATE(ts::rmsprop_centered), "mmm", {0.02, 0.9, 1e-8, 0.5, 0.05});
  all.check<optim::DampenedSgdState<Model>, optim::DampenedSgd>("sgd_dampened", UPDATE(ts::sgd_dampened), "ms",
                                                                {0.05, 0.9, 0.3, 0.05});
  all.check<optim::SgdState<Model>, optim::Sgd>(
      "sgd_maximize",
      [](const auto& m, const auto& g, const auto& s, const auto& c) { return ts::sgd(m, optim::maximize(g), s, c); },
      "m", {0.05, 0.5, 0});
  all.check<optim::RpropState<Model>, optim::Rprop>("rprop", UPDATE(ts::rprop), "mms", {0.05, 0.5, 1.2, 1e-6, 50});
  all.check<optim::RpropState<Model>, optim::Rprop>("rprop_bounds", UPDATE(ts::rprop), "mms",
                                                    {0.1, 0.4, 1.5, 0.01, 0.2});
  all.check<optim::AsgdState<Model>, optim::Asgd>("asgd", UPDATE(ts::asgd), "ms", {0.1, 0.01, 0.6, 5, 0.05}, 4);
  all.check<optim::LbfgsState<Model, 3>, optim::Lbfgs>("lbfgs", UPDATE(ts::lbfgs), "mmmmmmmms", {0.5, 1e-9});
#undef UPDATE
  all.check_schedule("step_decay", [](std::int64_t s) { return optim::step_decay(s, 7, 0.5, 0.3); });
  all.check_schedule("exponential", [](std::int64_t s) { return optim::exponential(s, 0.5, 0.9); });
  all.check_schedule("polynomial", [](std::int64_t s) { return optim::polynomial(s, 30, 0.5, 2); });
  all.check_schedule("cosine", [](std::int64_t s) { return optim::warmup_cosine(s, 0, 40, 0.5, 0.125); });
  all.check_schedule("cosine_restarts", [](std::int64_t s) { return optim::cosine_restarts(s, 6, 0.5, 2, 0.125); });
  all.check_schedule("cosine_restarts_equal", [](std::int64_t s) { return optim::cosine_restarts(s, 6, 0.5); });
  all.check_schedule("one_cycle", [](std::int64_t s) { return optim::one_cycle(s, 40, 0.5); });
  all.check_plateau("plateau", {.factor = 0.5, .patience = 2});
  all.check_plateau("plateau_max", {.maximize = true,
                                    .factor = 0.25,
                                    .patience = 3,
                                    .threshold = 0.1,
                                    .relative = false,
                                    .cooldown = 2,
                                    .min_rate = 0.01});
  all.check_plateau(
      "plateau_abs",
      {.factor = 0.3, .patience = 1, .threshold = 0.5, .relative = false, .cooldown = 1, .epsilon = 1e-3});
  all.check_schedule("one_cycle_other", [](std::int64_t s) { return optim::one_cycle(s, 40, 0.5, 0.25, 10, 100); });
}

}  // namespace
