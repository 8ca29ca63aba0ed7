#include "../../support/gradients.hpp"

#include <tessera/graph/fuse/group.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/reduction/normalization.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

template <class... Args, class F> Array apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments).at(0);
}

/// Units of a traced function's graph, by kind.
template <class... Args, class F> int units(F, ts::UnitKind kind) {
  const Program program = trace<F, Args...>();
  int n = 0;
  for (const ts::Unit& unit : ts::group_units(program.main()).units) n += unit.kind == kind ? 1 : 0;
  return n;
}

const auto softmax = [](const auto& x) { return ts::softmax(x); };
const auto log_softmax = [](const auto& x) { return ts::log_softmax<1>(x); };
const auto layer_norm = [](const auto& x, const auto& g, const auto& b) { return ts::layer_norm(x, g, b, 1e-3); };
const auto rms_norm = [](const auto& x, const auto& g) { return ts::rms_norm(x, g); };
const auto cross_entropy = [](const auto& x, const auto& t) { return ts::cross_entropy(x, t); };
const auto mse = [](const auto& x, const auto& y) { return ts::mse(x, y); };

TEST(Functional, Softmax) {
  const Array x = random_array({2, 5}, 1, -30, 30);
  const Array y = apply<Float<2>>(softmax, {x});
  const Array logs = apply<Float<2>>(log_softmax, {x});
  for (std::int64_t i = 0; i < 2; ++i) {
    double total = 0;
    for (std::int64_t j = 0; j < 5; ++j) total += std::exp(x.at({i, j}));
    for (std::int64_t j = 0; j < 5; ++j) {
      EXPECT_NEAR(y.at({i, j}), std::exp(x.at({i, j})) / total, 1e-12);
      EXPECT_NEAR(logs.at({i, j}), x.at({i, j}) - std::log(total), 1e-12);
    }
  }
  EXPECT_EQ(apply<Float<1>>(softmax, {Array({2}, {1e6, 1e6})}).data, (std::vector<double>{0.5, 0.5}));
  check_gradient<Float<2>>(softmax, {random_array({2, 4}, 2)});
  check_gradient<Float<2>>(log_softmax, {random_array({2, 4}, 2)});
  check_gradient<Float<3>>([](const auto& v) { return ts::softmax<1>(v); }, {random_array({2, 3, 2}, 2)});
}

TEST(Functional, LogSumExp) {
  const auto rows = [](const auto& v) { return ts::logsumexp<1>(v); };
  const auto kept = [](const auto& v) { return ts::logsumexp<0, 2>(v, ts::keepdims); };
  const Array x = random_array({2, 5}, 1, -30, 30);
  const Array y = apply<Float<2>>(rows, {x});
  for (std::int64_t i = 0; i < 2; ++i) {
    double total = 0;
    for (std::int64_t j = 0; j < 5; ++j) total += std::exp(x.at({i, j}));
    EXPECT_NEAR(y.at({i}), std::log(total), 1e-12);
  }
  constexpr double inf = INFINITY;
  const Array far = apply<Float<2>>(rows, {Array({5, 2}, {1e6, 1e6, -1e6, -1e6, -inf, -inf, inf, 1, NAN, inf})});
  EXPECT_EQ(far.data[0], 1e6 + std::log(2.0));
  EXPECT_EQ(far.data[1], -1e6 + std::log(2.0));
  EXPECT_EQ(far.data[2], -inf);
  EXPECT_EQ(far.data[3], inf);
  EXPECT_TRUE(std::isnan(far.data[4]));
  EXPECT_EQ(apply<Float<3>>(kept, {random_array({2, 3, 4}, 2)}).shape, (Shape{1, 3, 1}));
  check_gradient<Float<2>>(rows, {random_array({3, 4}, 3)});
  check_gradient<Float<3>>(kept, {random_array({2, 3, 2}, 4)});
  EXPECT_EQ((units<Float<3>>([](const auto& v) { return ts::logsumexp<2>(v, ts::keepdims); }, ts::UnitKind::fused)), 1);
}

TEST(Functional, Norms) {
  const Array x = random_array({3, 4}, 1), gain = random_array({4}, 2), bias = random_array({4}, 3);
  const Array y = apply<Float<2>, Float<1>, Float<1>>(layer_norm, {x, gain, bias});
  const Array z = apply<Float<2>, Float<1>>(rms_norm, {x, gain});
  for (std::int64_t i = 0; i < 3; ++i) {
    double mean = 0, variance = 0, square = 0;
    for (std::int64_t j = 0; j < 4; ++j) mean += x.at({i, j}) / 4, square += x.at({i, j}) * x.at({i, j}) / 4;
    for (std::int64_t j = 0; j < 4; ++j) variance += std::pow(x.at({i, j}) - mean, 2) / 4;
    for (std::int64_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(y.at({i, j}), (x.at({i, j}) - mean) / std::sqrt(variance + 1e-3) * gain.at({j}) + bias.at({j}),
                  1e-12);
      EXPECT_NEAR(z.at({i, j}), x.at({i, j}) / std::sqrt(square + 1e-5) * gain.at({j}), 1e-12);
    }
  }
  check_gradient<Float<2>, Float<1>, Float<1>>(layer_norm, {x, gain, bias});
  check_gradient<Float<2>, Float<1>>(rms_norm, {x, gain});
}

TEST(Functional, Losses) {
  const Array logits = random_array({2, 3, 4}, 1, -3, 3), targets({2, 3}, {0, 3, 1, 2, 2, 0});
  double loss = 0;
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 3; ++j) {
      double total = 0;
      for (std::int64_t k = 0; k < 4; ++k) total += std::exp(logits.at({i, j, k}));
      loss += (std::log(total) - logits.at({i, j, static_cast<std::int64_t>(targets.at({i, j}))})) / 6;
    }
  EXPECT_NEAR((apply<Float<3>, Int<2>>(cross_entropy, {logits, targets}).data[0]), loss, 1e-12);
  check_gradient<Float<3>, Int<2>>(cross_entropy, {logits, targets});
  check_gradient<Float<1>, Int<0>>(cross_entropy, {random_array({3}, 2), Array::number(1)});

  const Array x = random_array({2, 3}, 1), y = random_array({2, 3}, 2);
  double square = 0;
  for (std::size_t i = 0; i < 6; ++i) square += std::pow(x.data[i] - y.data[i], 2) / 6;
  EXPECT_NEAR((apply<Float<2>, Float<2>>(mse, {x, y}).data[0]), square, 1e-12);
  check_gradient<Float<2>, Float<2>>(mse, {x, y});
  // The mean of no elements is NaN, as in PyTorch.
  const Array none(ts::Shape{0, 3});
  EXPECT_TRUE(std::isnan(apply<Float<2>, Float<2>>(mse, {none, none}).data[0]));
}

// Each composition is one kernel, which reads a row once.
TEST(Functional, EachIsOneKernel) {
  using ts::UnitKind;
  EXPECT_EQ((units<Float<3>>(softmax, UnitKind::fused)), 1);
  EXPECT_EQ((units<Float<3>>([](const auto& x) { return ts::log_softmax(x); }, UnitKind::fused)), 1);
  EXPECT_EQ((units<Float<3>, Float<1>, Float<1>>(layer_norm, UnitKind::fused)), 1);
  EXPECT_EQ((units<Float<3>, Float<1>>(rms_norm, UnitKind::fused)), 1);
  EXPECT_EQ((units<Float<3>, Int<2>>(cross_entropy, UnitKind::fused)), 1);
  EXPECT_EQ((units<Float<3>, Int<2>>(cross_entropy, UnitKind::indexed)), 0);
  // The sum, which is complete after its kernel, is divided by the number of elements: 0 / 0 is NaN.
  EXPECT_EQ((units<Float<2>, Float<2>>(mse, UnitKind::fused)), 2);
  // The loss and its gradient are one kernel.
  const auto with_gradient = [](const auto& x, const auto& t) { return ts::value_and_grad(cross_entropy)(x, t); };
  EXPECT_EQ((units<Float<3>, Int<2>>(with_gradient, UnitKind::fused)), 1);
  // Expressions and placeholders give the same graph.
  const auto shifted = [](const auto& x) { return ts::softmax(x + 1.0) * 2; };
  EXPECT_EQ((units<Float<3>>(shifted, UnitKind::fused)), 1);
}

void expect_close(const Array& got, const Array& want) {
  ASSERT_EQ(got.shape, want.shape);
  for (std::size_t i = 0; i < got.data.size(); ++i) EXPECT_NEAR(got.data[i], want.data[i], 1e-12) << i;
}

/// The definition: each element less the mean over those for which `of` gives the same, over the root of their
/// variance.
template <class Of> Array normalized(const Array& a, const Array& gain, const Array& bias, double eps, Of&& of) {
  Array y(a.shape);
  for_each_index(a.shape, [&](const Shape& i) {
    double sum = 0, squares = 0, count = 0;
    const auto each = [&](auto&& f) {
      for_each_index(a.shape, [&](const Shape& k) {
        if (of(k) == of(i)) f(a.at(k));
      });
    };
    each([&](double v) { sum += v, ++count; });
    each([&](double v) { squares += (v - sum / count) * (v - sum / count); });
    const auto feature = static_cast<std::size_t>(i.back());
    y.at(i) = (a.at(i) - sum / count) / std::sqrt(squares / count + eps) * gain.data[feature] + bias.data[feature];
  });
  return y;
}

const auto batch_norm = [](const auto& a, const auto& g, const auto& b) { return ts::batch_norm(a, g, b, 1e-3); };
const auto instance_norm = [](const auto& a, const auto& g, const auto& b) { return ts::instance_norm(a, g, b, 1e-3); };
const auto group_norm = [](const auto& a, const auto& g, const auto& b) { return ts::group_norm(a, g, b, 2, 1e-3); };

TEST(Normalization, Definition) {
  const Array a = random_array({3, 2, 3, 4}, 21), gain = random_array({4}, 22), bias = random_array({4}, 23);
  const auto apply_norm = [&](auto f) {
    return run(trace<decltype(f), Float<4>, Float<1>, Float<1>>().view(), {a, gain, bias}).at(0);
  };
  expect_close(apply_norm(batch_norm), normalized(a, gain, bias, 1e-3, [](const Shape& i) { return i[3]; }));
  expect_close(apply_norm(instance_norm),
               normalized(a, gain, bias, 1e-3, [](const Shape& i) { return std::pair(i[0], i[3]); }));
  expect_close(apply_norm(group_norm),
               normalized(a, gain, bias, 1e-3, [](const Shape& i) { return std::pair(i[0], i[3] / 2); }));
}

TEST(Normalization, GivenStatistics) {
  const Array a = random_array({3, 2, 3, 4}, 21), mean = random_array({4}, 22),
              variance = random_array({4}, 23, 0.5, 2), gain = random_array({4}, 24), bias = random_array({4}, 25);
  const auto f = [](const auto& i, const auto& m, const auto& v, const auto& g, const auto& b) {
    return ts::batch_norm_inference(i, m, v, g, b, 1e-3);
  };
  using F1 = Float<1>;
  Array want(a.shape);
  for_each_index(a.shape, [&](const Shape& i) {
    const auto c = static_cast<std::size_t>(i[3]);
    want.at(i) = (a.at(i) - mean.data[c]) / std::sqrt(variance.data[c] + 1e-3) * gain.data[c] + bias.data[c];
  });
  expect_close(run(trace<decltype(f), Float<4>, F1, F1, F1, F1>().view(), {a, mean, variance, gain, bias}).at(0), want);
  check_gradient<Float<4>, F1, F1, F1, F1>(f, {a, mean, variance, gain, bias});
}

TEST(Normalization, Gradients) {
  const Array a = random_array({2, 2, 2, 4}, 21), gain = random_array({4}, 22), bias = random_array({4}, 23);
  check_gradient<Float<4>, Float<1>, Float<1>>(batch_norm, {a, gain, bias});
  check_gradient<Float<4>, Float<1>, Float<1>>(instance_norm, {a, gain, bias});
  check_gradient<Float<4>, Float<1>, Float<1>>(group_norm, {a, gain, bias});
}

// Without gain and bias, as F.layer_norm(x, shape), F.rms_norm(x, shape), F.group_norm(x, groups) and
// F.instance_norm(x).
TEST(Normalization, Plain) {
  const Array a = random_array({2, 3, 2, 4}, 31), ones({4}, {1, 1, 1, 1}), zeros({4}, {0, 0, 0, 0});
  const auto check = [&](auto f, auto&& of) {
    expect_close(run(trace<decltype(f), Float<4>>().view(), {a}).at(0), normalized(a, ones, zeros, 1e-3, of));
    check_gradient<Float<4>>(f, {a});
  };
  check([](const auto& x) { return ts::layer_norm(x, 1e-3); },
        [](const Shape& i) { return std::tuple(i[0], i[1], i[2]); });
  check([](const auto& x) { return ts::batch_norm(x, 1e-3); }, [](const Shape& i) { return i[3]; });
  check([](const auto& x) { return ts::instance_norm(x, 1e-3); }, [](const Shape& i) { return std::pair(i[0], i[3]); });
  check([](const auto& x) { return ts::group_norm(x, 2, 1e-3); },
        [](const Shape& i) { return std::pair(i[0], i[3] / 2); });

  const auto rms = [](const auto& x) { return ts::rms_norm(x); };
  const auto by_ones = [](const auto& x, const auto& g) { return ts::rms_norm(x, g); };
  expect_close(run(trace<decltype(rms), Float<4>>().view(), {a}).at(0),
               run(trace<decltype(by_ones), Float<4>, Float<1>>().view(), {a, ones}).at(0));
  check_gradient<Float<4>>(rms, {a});
}

}  // namespace
