// Losses of elements and of classes; losses_test.cpp has those of margins, likelihoods and sequences.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>

namespace ts = tessera;
using oracle::Array;
using oracle::random_array;

namespace {

// torch.nn.functional.huber_loss(x, 0, reduction, delta), element by element as its documentation has it.
TEST(Huber, IsASquareNearAndALineFarAway) {
  const Array x({7}, {-3, -0.5, 0, 0.25, 0.5, 2, -40}), y({7}, {0, 0, 0, 0, 0, 0, 2});
  const auto huber = [](double d) { return d < 0.5 ? d * d / 2 : 0.5 * (d - 0.25); };
  Array each({7});
  double total = 0;
  for (std::size_t i = 0; i < 7; ++i) total += each.data[i] = huber(std::fabs(x.data[i] - y.data[i]));
  const auto run = []<class F>(F, const std::vector<Array>& arguments) {
    return oracle::run(oracle::trace<F, oracle::Float<1>, oracle::Float<1>>().view(), arguments).at(0);
  };
  constexpr auto mean = [](const auto& a, const auto& b) { return ts::huber(a, b, 0.5); };
  constexpr auto sum = [](const auto& a, const auto& b) { return ts::huber<ts::LossReduction::sum>(a, b, 0.5); };
  constexpr auto each_one = [](const auto& a, const auto& b) { return ts::huber<ts::LossReduction::each>(a, b, 0.5); };
  oracle::expect_near(run(mean, {x, y}), Array::number(total / 7), 1e-12);
  oracle::expect_near(run(sum, {x, y}), Array::number(total), 1e-12);
  oracle::expect_near(run(each_one, {x, y}), each, 1e-12);
  EXPECT_TRUE(std::isnan(run(mean, {Array(ts::Shape{0}), Array(ts::Shape{0})}).data[0])) << "as in PyTorch";
  EXPECT_EQ(run(sum, {Array(ts::Shape{0}), Array(ts::Shape{0})}).data[0], 0);
  EXPECT_EQ(run(each_one, {Array({2}, {INFINITY, NAN}), Array({2}, 0.0)}).data[0], INFINITY);

  // The slope is the difference, clipped; at delta both branches have one slope.
  using Inputs = std::tuple<oracle::Float<1>, oracle::Float<1>>;
  using Gradient = oracle::FirstGradient<std::remove_cvref_t<decltype(each_one)>>;
  const auto slopes = oracle::run(oracle::trace<Gradient, Inputs, oracle::Float<1>>().view(), {x, y, Array({7}, 1)});
  oracle::expect_near(slopes[1], Array({7}, {-0.5, -0.5, 0, 0.25, 0.5, 0.5, -0.5}), 1e-12);
  const Array p = random_array({3, 4}, 1, -2, 2), q = random_array({3, 4}, 2, -2, 2);
  oracle::check_gradient<oracle::Float<2>, oracle::Float<2>>(
      [](const auto& a, const auto& b) { return ts::huber<ts::LossReduction::each>(a, b); }, {p, q});
  oracle::check_gradient<oracle::Float<2>, oracle::Float<2>>(
      [](const auto& a, const auto& b) { return ts::huber(a, b, 0.75); }, {p, q});
  const auto flat = [](const auto& a) { return ts::huber(a, a, 0.0); };
  tessera_test::expect_error(ts::errc::option, [&] { oracle::trace<decltype(flat), oracle::Float<1>>(); });
}

template <class F> Array loss_of(F, const Array& x, const Array& y) {
  return oracle::run(oracle::trace<F, oracle::Float<2>, oracle::Float<2>>().view(), {x, y}).at(0);
}
template <class F> Array class_loss_of(F, const Array& x, const Array& targets) {
  using Targets = ts::ShardedTensor<std::int32_t, 1>;
  return oracle::run(oracle::trace<F, oracle::Float<2>, Targets>().view(), {x, targets}).at(0);
}

// The formulas of the pages of torch.nn.functional.
TEST(ElementLosses, AreThePublishedFormulas) {
  const Array x = random_array({3, 4}, 1, -3, 3);
  Array y = random_array({3, 4}, 2, 0.05, 0.95);
  y.data[5] = 0;  // xlogy(0, 0) is 0
  Array l1({3, 4}), bce({3, 4}), kl({3, 4});
  double total = 0;
  for (std::size_t i = 0; i < 12; ++i) {
    const double a = x.data[i], b = y.data[i], p = 1 / (1 + std::exp(-a));
    l1.data[i] = std::fabs(a - b);
    total += bce.data[i] = -b * std::log(p) - (1 - b) * std::log(1 - p);
    kl.data[i] = b == 0 ? 0 : b * (std::log(b) - a);
  }
  constexpr auto l1_each = [](const auto& a, const auto& b) { return ts::l1_loss<ts::LossReduction::each>(a, b); };
  constexpr auto bce_each = [](const auto& a, const auto& b) {
    return ts::bce_with_logits<ts::LossReduction::each>(a, b);
  };
  constexpr auto bce_mean = [](const auto& a, const auto& b) { return ts::bce_with_logits(a, b); };
  constexpr auto bce_sum = [](const auto& a, const auto& b) {
    return ts::bce_with_logits<ts::LossReduction::sum>(a, b);
  };
  constexpr auto kl_each = [](const auto& a, const auto& b) { return ts::kl_div<ts::LossReduction::each>(a, b); };
  oracle::expect_near(loss_of(l1_each, x, y), l1, 1e-12);
  oracle::expect_near(loss_of(bce_each, x, y), bce, 1e-12);
  oracle::expect_near(loss_of(bce_mean, x, y), Array::number(total / 12), 1e-12);
  oracle::expect_near(loss_of(bce_sum, x, y), Array::number(total), 1e-12);
  oracle::expect_near(loss_of(kl_each, x, y), kl, 1e-12);
  const Array none(ts::Shape{0, 4});
  EXPECT_TRUE(std::isnan(loss_of(bce_mean, none, none).data[0]));
  EXPECT_EQ(loss_of(bce_sum, none, none).data[0], 0);
  oracle::expect_near(loss_of(bce_each, Array({1, 2}, {1000, -1000}), Array({1, 2}, {1, 1})), Array({1, 2}, {0, 1000}),
                      0);

  const Array inside = random_array({3, 4}, 3, 0.05, 0.95);
  oracle::check_gradient<oracle::Float<2>, oracle::Float<2>>(l1_each, {x, inside});
  oracle::check_gradient<oracle::Float<2>, oracle::Float<2>>(bce_each, {x, inside});
  oracle::check_gradient<oracle::Float<2>, oracle::Float<2>>(kl_each, {x, inside});
}

constexpr ts::CrossEntropy options{0.2, -100, 0.1};

TEST(ClassLosses, SmoothIgnoreAndPenalize) {
  const Array x = random_array({4, 5}, 1, -3, 3), targets({4}, {0, -100, 4, 2});
  const double s = 0.2, z = 0.1;
  Array nll({4}), smooth({4});
  for (std::size_t i = 0; i < 4; ++i) {
    if (targets.data[i] < 0) continue;
    double sum = 0, uniform = 0;
    for (std::size_t c = 0; c < 5; ++c) sum += std::exp(x.data[i * 5 + c]);
    for (std::size_t c = 0; c < 5; ++c) uniform += (std::log(sum) - x.data[i * 5 + c]) / 5;
    const double picked = x.data[i * 5 + static_cast<std::size_t>(targets.data[i])];
    nll.data[i] = -picked;
    smooth.data[i] = (1 - s) * (std::log(sum) - picked) + s * uniform + z * std::log(sum) * std::log(sum);
  }
  const auto total = [](const Array& of) { return of.data[0] + of.data[1] + of.data[2] + of.data[3]; };
  constexpr auto each = [](const auto& a, const auto& t) {
    return ts::cross_entropy<ts::LossReduction::each>(a, t, options);
  };
  constexpr auto mean = [](const auto& a, const auto& t) { return ts::cross_entropy(a, t, options); };
  constexpr auto sum = [](const auto& a, const auto& t) {
    return ts::cross_entropy<ts::LossReduction::sum>(a, t, options);
  };
  constexpr auto nll_each = [](const auto& a, const auto& t) { return ts::nll_loss<ts::LossReduction::each>(a, t); };
  constexpr auto nll_mean = [](const auto& a, const auto& t) { return ts::nll_loss(a, t); };
  oracle::expect_near(class_loss_of(each, x, targets), smooth, 1e-12);
  oracle::expect_near(class_loss_of(mean, x, targets), Array::number(total(smooth) / 3), 1e-12);
  oracle::expect_near(class_loss_of(sum, x, targets), Array::number(total(smooth)), 1e-12);
  oracle::expect_near(class_loss_of(nll_each, x, targets), nll, 1e-12);
  oracle::expect_near(class_loss_of(nll_mean, x, targets), Array::number(total(nll) / 3), 1e-12);

  // The page of torch.nn.CrossEntropyLoss averages over targets that are not ignored: of none, 0 / 0.
  EXPECT_TRUE(std::isnan(class_loss_of(mean, x, Array({4}, -100)).data[0]));
  EXPECT_TRUE(std::isnan(class_loss_of(nll_mean, x, Array({4}, -100)).data[0]));
  EXPECT_EQ(class_loss_of(sum, x, Array({4}, -100)).data[0], 0);
  constexpr auto plain = [](const auto& a, const auto& t) { return ts::cross_entropy(a, t, ts::CrossEntropy{}); };
  const Array masked({1, 3}, {0, -INFINITY, 0});  // a class that is masked out
  EXPECT_NEAR(class_loss_of(plain, masked, Array(ts::Shape{1}, 2)).data[0], std::log(2.0), 1e-12);

  using Inputs = std::tuple<oracle::Float<2>, ts::ShardedTensor<std::int32_t, 1>>;
  using Gradient = oracle::FirstGradient<std::remove_cvref_t<decltype(each)>>;
  const auto slopes =
      oracle::run(oracle::trace<Gradient, Inputs, oracle::Float<1>>().view(), {x, targets, Array({4}, 1)});
  for (std::size_t i = 0; i < x.data.size(); ++i) {
    Array above = x, below = x;
    above.data[i] += 1e-5;
    below.data[i] -= 1e-5;
    const double up = class_loss_of(sum, above, targets).data[0], down = class_loss_of(sum, below, targets).data[0];
    EXPECT_NEAR(slopes.at(1).data[i], (up - down) / 2e-5, 1e-7) << i;
  }
}

}  // namespace
