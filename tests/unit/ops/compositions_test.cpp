// Operations composed of others, against published values and formulas, in double.
#include <cmath>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/ops.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

using M = Float<2>;
using Doubles = ts::ShardedTensor<double, 1>;
using Bools = ts::ShardedTensor<bool, 1>;

Array any(unsigned seed = 1) { return random_array({2, 3}, seed, -2, 2); }
Array positive(unsigned seed = 2) { return random_array({2, 3}, seed, 0.5, 2); }

template <class... Args, class F> std::vector<Array> apply(F, const std::vector<Array>& arguments) {
  return run(trace<F, Args...>().view(), arguments);
}
template <class... Args, class F> ts::DType type_of(F) {
  const Program program = trace<F, Args...>();
  return program.main()[program.main().size - 1].dtype;
}
template <class F> std::vector<double> slope(F, Array x) {
  const Array weights({static_cast<std::int64_t>(x.data.size())}, 1);
  return run(trace<FirstGradient<F>, std::tuple<Doubles>, Doubles>().view(), {x, weights})[1].data;
}
/// Equal but for rounding; NaN equals NaN.
void expect_relatively(const std::vector<double>& got, const std::vector<double>& want, double tolerance = 1e-14) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(std::isnan(want[i])
                    ? std::isnan(got[i])
                    : got[i] == want[i] || std::fabs(got[i] - want[i]) <= tolerance * std::fabs(want[i]))
        << i << ": " << got[i] << " instead of " << want[i];
}

// The warpers of Hugging Face's transformers, by their definitions: softmax of 1, 3, 2, 0 is .087, .644, .237, .032.
TEST(Compositions, LogitsThatMayBeDrawn) {
  const Array x({2, 4}, {1, 3, 2, 0, 5, 5, -1, 5});
  const auto kept = [&](auto f) {
    std::vector<int> which;
    const std::vector<double> got = apply<Float<2>>(f, {x})[0].data;
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i] == x.data[i] || got[i] == -INFINITY);
      which.push_back(got[i] == x.data[i]);
    }
    return which;
  };
  using Which = std::vector<int>;
  EXPECT_EQ(kept([](const auto& l) { return ts::top_k_logits(l, 2); }), (Which{0, 1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::top_k_logits(l, 4); }), (Which{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::top_p_logits(l, 0.0); }), (Which{0, 1, 0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::top_p_logits(l, 0.64); }), (Which{0, 1, 0, 0, 1, 1, 0, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::top_p_logits(l, 0.65); }), (Which{0, 1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::top_p_logits(l, 0.9); }), (Which{1, 1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::top_p_logits(l, 1.0); }), (Which{1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::min_p_logits(l, 0.3); }), (Which{0, 1, 1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(kept([](const auto& l) { return ts::min_p_logits(l, 0.1); }), (Which{1, 1, 1, 0, 1, 1, 0, 1}));
}

// sklearn.metrics.accuracy_score, top_k_accuracy_score (the example of its documentation) and confusion_matrix
TEST(Compositions, Metrics) {
  using Labels = ts::ShardedTensor<std::int32_t, 1>;
  const Array scores({4, 3}, {0.5, 0.2, 0.2, 0.3, 0.4, 0.2, 0.2, 0.4, 0.3, 0.7, 0.2, 0.1}), labels({4}, {0, 1, 2, 2});
  const auto f = [](const auto& x, const auto& y) {
    return std::tuple(ts::accuracy(x, y), ts::top_k_accuracy(x, y, 1), ts::top_k_accuracy(x, y, 2),
                      ts::top_k_accuracy(x, y, 3));
  };
  const auto got = apply<Float<2>, Labels>(f, {scores, labels});
  EXPECT_EQ(got[0].data[0], 0.5);
  EXPECT_EQ(got[1].data[0], 0.5);
  EXPECT_EQ(got[2].data[0], 0.75);
  EXPECT_EQ(got[3].data[0], 1);
  const auto without = apply<Float<2>, Labels>(f, {scores, Array({4}, {-1, 3, -100, 2})});
  EXPECT_EQ(without[3].data[0], 0.25);
  // Of a row of NaN no class is among the highest.
  const auto diverged = apply<Float<2>, Labels>(f, {Array({4, 3}, NAN), labels});
  EXPECT_EQ(diverged[1].data[0], 0);
  EXPECT_EQ(diverged[2].data[0], 0);
  // y_true = [2, 0, 2, 2, 0, 1], y_pred = [0, 0, 2, 2, 0, 2]; here also a class that is none
  const auto confusion = [](const auto& p, const auto& t) { return ts::confusion_matrix(p, t, 3); };
  const Array predicted({7}, {0, 0, 2, 2, 0, 2, 1}), targets({7}, {2, 0, 2, 2, 0, 1, 5});
  const Array counts = apply<Labels, Labels>(confusion, {predicted, targets})[0];
  EXPECT_EQ(counts.data, (std::vector<double>{2, 0, 0, 0, 0, 1, 1, 0, 2}));
}

// The examples of the documentation of torchmetrics, and counts made one by one.
TEST(Compositions, MetricsOfClasses) {
  using Labels = ts::ShardedTensor<std::int32_t, 1>;
  constexpr auto f = [](const auto& p, const auto& t) {
    using enum ts::Average;
    return std::tuple(ts::precision<each>(p, t, 3), ts::recall<each>(p, t, 3), ts::f1_score<each>(p, t, 3),
                      ts::precision(p, t, 3), ts::recall(p, t, 3), ts::f1_score(p, t, 3), ts::precision<micro>(p, t, 3),
                      ts::recall<micro>(p, t, 3), ts::f1_score<micro>(p, t, 3), ts::precision<weighted>(p, t, 3),
                      ts::recall<weighted>(p, t, 3), ts::f1_score<weighted>(p, t, 3));
  };
  EXPECT_EQ((type_of<Labels, Labels>([](const auto& p, const auto& t) { return ts::f1_score(p, t, 3); })),
            ts::DType::f32);
  const Program program = trace<decltype(f), Labels, Labels>();
  const auto example = run(program.view(), {Array({4}, {2, 1, 0, 1}), Array({4}, {2, 1, 0, 0})});
  expect_relatively(example[0].data, {1, 0.5, 1});
  expect_relatively(example[1].data, {0.5, 1, 1});
  expect_relatively(example[2].data, {2.0 / 3, 2.0 / 3, 1});
  for (const std::size_t k : {3, 4}) expect_relatively(example[k].data, {2.5 / 3});
  expect_relatively(example[5].data, {7.0 / 9});
  for (const std::size_t k : {6, 7, 8, 10}) expect_relatively(example[k].data, {0.75});
  expect_relatively(example[9].data, {(2 * 1 + 0.5 + 1) / 4});
  expect_relatively(example[11].data, {(2 * 2.0 / 3 + 2.0 / 3 + 1) / 4});
  // Class 2 does not occur, so that macro is the mean of two; the elements with classes -100 and 7 are not counted.
  const auto part = run(program.view(), {Array({6}, {0, 1, 1, 0, 1, 7}), Array({6}, {0, 1, 0, 0, -100, 1})});
  expect_relatively(part[0].data, {1, 0.5, 0});
  expect_relatively(part[1].data, {2.0 / 3, 1, 0});
  expect_relatively(part[3].data, {0.75});
  expect_relatively(part[4].data, {2.5 / 3});
  for (const std::size_t k : {6, 7, 8}) expect_relatively(part[k].data, {0.75});
  // Nothing to count: 0, not NaN.
  for (const Array& none : run(program.view(), {Array({2}, {-1, 5}), Array({2}, {1, 1})}))
    for (const double value : none.data) EXPECT_EQ(value, 0);
}
TEST(Compositions, AreaUnderTheCurve) {
  using Labels = ts::ShardedTensor<std::int32_t, 1>;
  constexpr auto f = [](const auto& s, const auto& t) { return ts::auroc(s, t); };
  const Program program = trace<decltype(f), Float<1>, Labels>();
  const auto of = [&](const std::vector<double>& scores, const std::vector<double>& targets) {
    const Shape shape{static_cast<std::int64_t>(scores.size())};
    return run(program.view(), {Array(shape, scores), Array(shape, targets)})[0].data[0];
  };
  EXPECT_EQ(of({0, 0.5, 0.7, 0.8}, {0, 1, 1, 0}), 0.5);      // of torchmetrics
  EXPECT_EQ(of({0.1, 0.4, 0.35, 0.8}, {0, 0, 1, 1}), 0.75);  // of sklearn
  EXPECT_EQ(of({0.5, 0.5, 0.5}, {1, 0, 0}), 0.5);
  EXPECT_EQ(of({0.5, 0.7}, {1, 1}), 0);
  EXPECT_EQ(of({0.5, 0.7}, {0, 0}), 0);
  EXPECT_EQ(of({0.5}, {1}), 0);
  const ts::Shape shapes[] = {{2}, {3}};
  const ts::HostNumber numbers[] = {0, 0};
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { ts::infer_shapes(program.view(), shapes, numbers); }, "i32[3] x f32[2] in auroc",
      "compositions_test.cpp:");
  // Many equal scores, against all pairs.
  std::vector<double> scores, targets;
  for (int i = 0; i < 60; ++i)
    scores.push_back((i * 7 + i * i) % 11), targets.push_back((i * i + i / 3) % 3 == 0 ? 1 : 0);
  double pairs = 0, higher = 0;
  for (std::size_t i = 0; i < scores.size(); ++i)
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (targets[i] == 1 && targets[j] == 0)
        ++pairs, higher += scores[i] > scores[j] ? 1 : scores[i] == scores[j] ? 0.5 : 0;
  EXPECT_NEAR(of(scores, targets), higher / pairs, 1e-12);
}

// torch.addcmul, addcdiv and float_power
TEST(Compositions, SumsOfProductsAndPowers) {
  const auto f = [](const auto& x, const auto& a, const auto& b) {
    return std::tuple(ts::addcmul(x, a, b), ts::addcmul(x, a, b, 0.5), ts::addcdiv(x, a, b, -2), ts::addcdiv(x, 1, b));
  };
  const auto of = apply<Doubles, Doubles, Doubles>(f, {Array({2}, {1, -3}), Array({2}, {5, 0.5}), Array({2}, {4, -8})});
  expect_relatively(of[0].data, {21, -7});
  expect_relatively(of[1].data, {11, -5});
  expect_relatively(of[2].data, {-1.5, -2.875});
  expect_relatively(of[3].data, {1.25, -3.125});
  const auto whole = [](const auto& i) { return ts::addcmul(i, i, i, 2); };
  EXPECT_EQ(type_of<Int<1>>(whole), ts::DType::i32);
  expect_relatively(apply<Int<1>>(whole, {Array({2}, {3, -1})})[0].data, {21, 1});
  EXPECT_EQ(type_of<Int<1>>([](const auto& i) { return ts::addcdiv(i, i, i); }), ts::DType::f32);
  check_gradient<M, M, M>([](const auto& x, const auto& a, const auto& b) { return ts::addcmul(x, a, b, 1.5) * x; },
                          {any(), any(3), any(4)});
  check_gradient<Float<1>, M, M>([](const auto& x, const auto& a, const auto& b) { return ts::addcdiv(x, a, b, -0.5); },
                                 {random_array({3}, 3), any(), positive()});

  const auto power = [](const auto& i) { return ts::float_power(i, 0.5); };
  EXPECT_EQ(type_of<Int<1>>(power), ts::DType::f64);
  EXPECT_EQ(type_of<Float<1>>([](const auto& x) { return ts::float_power(2, x); }), ts::DType::f64);
  expect_relatively(apply<Int<1>>(power, {Array({3}, {2, 9, -1})})[0].data, {M_SQRT2, 3, NAN});
  check_gradient<M, M>([](const auto& x, const auto& y) { return ts::float_power(x, y); }, {positive(), any()});
}

TEST(Compositions, FractionsKeepTheSign) {
  const auto f = [](const auto& x) { return ts::frac(x); };
  expect_relatively(apply<Doubles>(f, {Array({6}, {3.25, -3.25, 0.5, -0.0, INFINITY, NAN})})[0].data,
                    {0.25, -0.25, 0.5, -0.0, NAN, NAN});
  expect_relatively(apply<Int<1>>(f, {Array({2}, {3, -4})})[0].data, {0, 0});
  EXPECT_EQ(type_of<Int<1>>(f), ts::DType::i32);
  check_gradient<M>([](const auto& x) { return ts::frac(x * 3) * x; }, {any()}, first_order);
}

TEST(Compositions, LogarithmsOfSumsAndEntropies) {
  const auto f = [](const auto& a, const auto& b) { return std::tuple(ts::logaddexp2(a, b), ts::xlog1py(a, b)); };
  const Array a({7}, {0, 3, 900, -INFINITY, INFINITY, 0, 2}), b({7}, {0, 3, 899, -INFINITY, 0, NAN, 1e-20});
  const auto of = apply<Doubles, Doubles>(f, {a, b});
  expect_relatively(of[0].data, {1, 4, 900 + std::log2(1.5), -INFINITY, INFINITY, NAN, std::log2(4 + std::exp2(1e-20))},
                    1e-15);
  expect_relatively(of[1].data, {0, 3 * std::log(4.0), 900 * std::log(900.0), NAN, NAN, NAN, 2e-20}, 1e-15);
  const auto edges = apply<Doubles, Doubles>(f, {Array({4}, {0, 0, 1, 0}), Array({4}, {-1, -2, -1, INFINITY})});
  expect_relatively(edges[1].data, {0, 0, -INFINITY, 0});
  check_gradient<M, M>([](const auto& x, const auto& y) { return ts::logaddexp2(x, y) + ts::xlog1py(x, y); },
                       {any(), positive()});
  check_gradient<M>([](const auto& x) { return ts::logaddexp2(x, x * 1.0); }, {any()});

  // torch.special.entr
  const auto entr = [](const auto& x) { return ts::entr(x); };
  expect_relatively(apply<Doubles>(entr, {Array({6}, {0, 0.5, 1, 2, -0.5, NAN})})[0].data,
                    {0, 0.5 * std::log(2.0), 0, -2 * std::log(2.0), -INFINITY, NAN});
  expect_relatively(slope(entr, Array({3}, {0.5, -1, 1})), {std::log(2.0) - 1, 0, -1});
  check_gradient<M>(entr, {positive()});
}

// torch.special.ndtr and log_ndtr, against C's erfc of long doubles.
TEST(Compositions, NormalDistributionIsExactInItsTails) {
  const auto f = [](const auto& x) { return std::tuple(ts::ndtr(x), ts::log_ndtr(x)); };
  std::vector<double> x, below, logs, slopes;
  for (double at = -25; at <= 8; at += 0.625) {
    // Long doubles reach down to 1e-4932.
    const long double half = erfcl(-static_cast<long double>(at) / sqrtl(2)) / 2;
    x.push_back(at);
    below.push_back(static_cast<double>(half));
    logs.push_back(static_cast<double>(at < 0 ? logl(half) : log1pl(-erfcl(at / sqrtl(2)) / 2)));
    slopes.push_back(static_cast<double>(expl(-static_cast<long double>(at) * at / 2) / sqrtl(2 * M_PIl) / half));
  }
  const Array points({static_cast<std::int64_t>(x.size())}, x);
  const auto of = apply<Doubles>(f, {points});
  expect_relatively(of[0].data, below, 3e-13);
  expect_relatively(of[1].data, logs, 1e-14);
  expect_relatively(slope([](const auto& v) { return ts::log_ndtr(v); }, points), slopes, 3e-13);
  // The formulas of f32 meet at -10 instead of -20.
  expect_relatively(apply<Float<1>>(f, {points})[1].data, logs, 1e-12);

  const auto ends = apply<Doubles>(f, {Array({5}, {-INFINITY, INFINITY, NAN, 0, -1e5})});
  expect_relatively(ends[0].data, {0, 1, NAN, 0.5, 0});
  expect_relatively(ends[1].data, {-INFINITY, 0, NAN, -M_LN2, -5e9 - std::log(1e5) - std::log(2 * M_PI) / 2});
  expect_relatively(slope([](const auto& v) { return ts::log_ndtr(v); }, Array({3}, {-1e5, INFINITY, 50})), {1e5, 0, 0},
                    1e-9);
  check_gradient<M>([](const auto& v) { return ts::ndtr(v) + ts::log_ndtr(v * 2) + ts::log_ndtr(v - 13); }, {any()});
  EXPECT_EQ(type_of<Int<1>>([](const auto& i) { return ts::log_ndtr(i); }), ts::DType::f32);
}

// torch.nn.functional.glu and prelu
TEST(Compositions, GatesAndTrainedSlopes) {
  const auto f = [](const auto& x) { return std::tuple(ts::glu(x), ts::glu<0>(x)); };
  const Array x({2, 4}, {1, -2, 0, 3, 5, 0.5, -1, 2});
  const auto of = apply<M>(f, {x});
  const auto gate = [](double a, double b) { return a / (1 + std::exp(-b)); };
  EXPECT_EQ(of[0].shape, (Shape{2, 2}));
  expect_relatively(of[0].data, {gate(1, 0), gate(-2, 3), gate(5, -1), gate(0.5, 2)});
  EXPECT_EQ(of[1].shape, (Shape{1, 4}));
  expect_relatively(of[1].data, {gate(1, 5), gate(-2, 0.5), gate(0, -1), gate(3, 2)});
  check_gradient<M>([](const auto& v) { return ts::glu(v); }, {x});

  const auto g = [](const auto& v, const auto& w) { return std::tuple(ts::prelu(v, w), ts::prelu(v, 0.5)); };
  const Array v({2, 3}, {1, -2, 0, -4, INFINITY, NAN}), w({3}, {0.25, 3, -1});
  const auto leaks = apply<M, Float<1>>(g, {v, w});
  expect_relatively(leaks[0].data, {1, -6, 0, -1, INFINITY, NAN});
  expect_relatively(leaks[1].data, {1, -1, 0, -2, INFINITY, NAN});
  check_gradient<M, Float<1>>([](const auto& a, const auto& b) { return ts::prelu(a, b); }, {any(), w}, first_order);
  check_gradient<M, Float<0>>([](const auto& a, const auto& b) { return ts::prelu(a, b); }, {any(), Array::number(0.3)},
                              first_order);
  // An infinity above 0 gives the weight no NaN.
  const auto sum = [](const auto& a, const auto& b) { return ts::prelu(a, b); };
  using Pair = std::tuple<Doubles, Doubles>;
  const auto slopes = run(trace<FirstGradient<decltype(sum)>, Pair, Doubles>().view(),
                          {Array({3}, {INFINITY, 0, -2}), Array({3}, {0.5, 0.25, 2}), Array({3}, 1)});
  expect_relatively(slopes[1].data, {1, 0.25, 2});
  expect_relatively(slopes[2].data, {0, 0, -2});
}

// torch.addmm, baddbmm and tensordot, against sums of products.
TEST(Compositions, Products) {
  const Array a = random_array({2, 3}, 1), b = random_array({3, 4}, 2), x = random_array({4}, 3);
  Array product({2, 4}), sum({2, 4});
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 4; ++j) {
      double of = 0;
      for (std::int64_t k = 0; k < 3; ++k) of += a.at({i, k}) * b.at({k, j});
      product.at({i, j}) = of;
      sum.at({i, j}) = 0.5 * x.at({j}) + 3 * of;
    }
  using V = Float<1>;
  constexpr auto scaled = [](const auto& v, const auto& c, const auto& d) { return ts::addmm(v, c, d, 0.5, 3); };
  expect_near(apply<V, M, M>(scaled, {x, a, b})[0], sum, 1e-12);
  const auto none = [](const auto& v, const auto& c, const auto& d) { return ts::addmm(v, c, d, 0); };
  expect_near(apply<V, M, M>(none, {Array({4}, NAN), a, b})[0], product, 1e-12);
  check_gradient<V, M, M>(scaled, {x, a, b});
  const auto whole = [](const auto& c) { return ts::addmm(c, c, c, 2); };
  expect_relatively(apply<Int<2>>(whole, {Array({2, 2}, {1, 2, 3, 4})})[0].data, {9, 14, 21, 30});
  EXPECT_EQ(type_of<Int<2>>(whole), ts::DType::i32);

  using T = Float<3>;
  const Array p = random_array({2, 3, 4}, 4), q = random_array({2, 4, 2}, 5), r = random_array({3, 2}, 6),
              s = random_array({3, 4, 5}, 7);
  Array batches({2, 3, 2}), dots({2, 5});
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t i = 0; i < 3; ++i)
      for (std::int64_t j = 0; j < 2; ++j) {
        double of = 0;
        for (std::int64_t k = 0; k < 4; ++k) of += p.at({n, i, k}) * q.at({n, k, j});
        batches.at({n, i, j}) = r.at({i, j}) - 2 * of;
      }
    for (std::int64_t l = 0; l < 5; ++l)
      for (std::int64_t i = 0; i < 3; ++i)
        for (std::int64_t j = 0; j < 4; ++j) dots.at({n, l}) += p.at({n, i, j}) * s.at({i, j, l});
  }
  constexpr auto batched = [](const auto& v, const auto& c, const auto& d) { return ts::baddbmm(v, c, d, 1, -2); };
  expect_near(apply<M, T, T>(batched, {r, p, q})[0], batches, 1e-12);
  check_gradient<M, T, T>(batched, {r, p, q});
  check_gradient<M, T, T>([](const auto& v, const auto& c, const auto& d) { return ts::addbmm(v, c, d, 0.5, 3); },
                          {r, p, q});
  const auto two = [](const auto& c, const auto& d) { return ts::tensordot(c, d); };
  expect_near(apply<T, T>(two, {p, s})[0], dots, 1e-12);
  check_gradient<T, T>(two, {p, s});
  expect_near(apply<M, M>([](const auto& c, const auto& d) { return ts::tensordot<1>(c, d); }, {a, b})[0], product,
              1e-12);
  const auto ends = apply<V, V>(
      [](const auto& c, const auto& d) { return std::tuple(ts::tensordot<1>(c, d), ts::tensordot<0>(c, d)); },
      {Array({2}, {1, 2}), Array({2}, {3, 4})});
  expect_relatively(ends[0].data, {11});
  EXPECT_EQ(ends[1].shape, (Shape{2, 2}));
  expect_relatively(ends[1].data, {3, 4, 6, 8});
}

// The derivative of zeta is of its second argument alone; that of igamma by its first is in gamma_gradients_test.cpp.
TEST(Compositions, DerivativesOfGammaFunctionsAndMantissas) {
  check_gradient<M>([](const auto& x) { return ts::igamma(1.7, x) * x + ts::igammac(0.6, x); }, {positive()});
  check_gradient<M>([](const auto& q) { return ts::zeta(2.5, q) * q; }, {positive()});
  check_gradient<M>([](const auto& x) { return ts::multigammaln<3>(x + 1.5); }, {positive()});
  constexpr auto squared = [](const auto& x) {
    const auto [mantissa, exponent] = ts::frexp(x);
    return ts::ldexp(mantissa * mantissa, exponent);
  };
  check_gradient<M>(squared, {any()});
}

constexpr auto each = ts::LossReduction::each;

// The formulas of the pages of torch.nn.functional.
TEST(Compositions, MarginLosses) {
  const Array x({2, 3}, {0.1, 0.2, -0.4, 2, 0.5, 1.75}), targets({2}, {1, 0});
  const auto margin = [](const auto& a, const auto& t) {
    return std::tuple(ts::multi_margin_loss<each>(a, t), ts::multi_margin_loss<each, 2>(a, t, 0.5),
                      ts::multi_margin_loss(a, t), ts::multi_margin_loss<ts::LossReduction::sum>(a, t));
  };
  const auto of = apply<M, Int<1>>(margin, {x, targets});
  const double first = (0.9 + 0.4) / 3, second = 0.75 / 3;
  expect_relatively(of[0].data, {first, second});
  expect_relatively(of[1].data, {0.4 * 0.4 / 3, 0.25 * 0.25 / 3});
  expect_relatively(of[2].data, {(first + second) / 2});
  expect_relatively(of[3].data, {first + second});
  check_gradient<M, Int<1>>([](const auto& a, const auto& t) { return ts::multi_margin_loss<each, 2>(a, t); },
                            {x, targets}, first_order);

  const Array signs({2, 3}, {1, -1, 1, -1, -1, 1}), labels({2, 3}, {1, 0, 1, 0, 0, 1});
  std::vector<double> soft, rows(2);
  for (std::size_t i = 0; i < 6; ++i) {
    soft.push_back(std::log(1 + std::exp(-signs.data[i] * x.data[i])));
    const double p = 1 / (1 + std::exp(-x.data[i])), y = labels.data[i];
    rows[i / 3] -= (y * std::log(p) + (1 - y) * std::log(1 - p)) / 3;
  }
  const auto softly = [](const auto& a, const auto& s) { return ts::soft_margin_loss<each>(a, s); };
  expect_relatively(apply<M, Int<2>>(softly, {x, signs})[0].data, soft);
  expect_relatively(apply<M, M>(softly, {Array({1, 2}, {1000, -1000}), Array({1, 2}, {1, 1})})[0].data, {0, 1000});
  check_gradient<M, Int<2>>(softly, {x, signs});
  const auto several = [](const auto& a, const auto& s) { return ts::multilabel_soft_margin_loss<each>(a, s); };
  expect_relatively(apply<M, Int<2>>(several, {x, labels})[0].data, rows);
  expect_relatively(
      apply<M, M>([](const auto& a, const auto& s) { return ts::multilabel_soft_margin_loss(a, s); }, {x, labels})[0]
          .data,
      {(rows[0] + rows[1]) / 2});
  check_gradient<M, M>(several, {x, random_array({2, 3}, 8, 0.1, 0.9)});

  std::vector<double> divergence;
  const Array logs = random_array({2, 3}, 9, -3, 0);
  for (std::size_t i = 0; i < 6; ++i) divergence.push_back(std::exp(logs.data[i]) * (logs.data[i] - x.data[i]));
  const auto kl = [](const auto& a, const auto& b) { return ts::kl_div<each, ts::KlDiv{.log_target = true}>(a, b); };
  expect_relatively(apply<M, M>(kl, {x, logs})[0].data, divergence);
  check_gradient<M, M>(kl, {x, logs});
}

// The formulas of torch.nn.CrossEntropyLoss and NLLLoss with `weight`.
TEST(Compositions, WeightsOfClasses) {
  const Array x = random_array({4, 3}, 1, -3, 3), targets({4}, {2, 0, -100, 1}), weight({3}, {0.5, 2, 0.25});
  const double s = 0.3;
  std::vector<double> smooth(4), nll(4);
  double total = 0, total_nll = 0, counts = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    if (targets.data[i] < 0) continue;
    const auto target = static_cast<std::size_t>(targets.data[i]);
    double sum = 0;
    for (std::size_t c = 0; c < 3; ++c) sum += std::exp(x.data[i * 3 + c]);
    for (std::size_t c = 0; c < 3; ++c) {
      const double loss = std::log(sum) - x.data[i * 3 + c];
      smooth[i] += weight.data[c] * loss * (s / 3 + (c == target ? 1 - s : 0));
    }
    nll[i] = -weight.data[target] * x.data[i * 3 + target];
    total += smooth[i], total_nll += nll[i], counts += weight.data[target];
  }
  const auto f = [](const auto& a, const auto& t, const auto& w) {
    constexpr ts::CrossEntropy options{.label_smoothing = 0.3};
    return std::tuple(ts::cross_entropy<each>(a, t, w, options), ts::cross_entropy(a, t, w, options),
                      ts::cross_entropy<ts::LossReduction::sum>(a, t, w, options), ts::nll_loss<each>(a, t, w),
                      ts::nll_loss(a, t, w), ts::nll_loss(a, t, w, 2));
  };
  const auto of = apply<M, Int<1>, Float<1>>(f, {x, targets, weight});
  expect_relatively(of[0].data, smooth, 1e-13);
  expect_relatively(of[1].data, {total / counts}, 1e-13);
  expect_relatively(of[2].data, {total}, 1e-13);
  expect_relatively(of[3].data, nll, 1e-13);
  expect_relatively(of[4].data, {total_nll / counts}, 1e-13);
  expect_relatively(of[5].data, {(nll[1] + nll[3]) / (0.5 + 2)}, 1e-13);
  check_gradient<M, Int<1>, Float<1>>(
      [](const auto& a, const auto& t, const auto& w) { return ts::cross_entropy(a, t, w); }, {x, targets, weight});
  check_gradient<M, Int<1>, Float<1>>(
      [](const auto& a, const auto& t, const auto& w) { return ts::nll_loss(a, t, w) * ts::sum(w); },
      {x, targets, weight});
}

/// Of each operation that a function of a matrix, a vector and indices is composed of, the line is in the caller's
/// file.
template <class F> void expect_lines_of_caller(const char* name, F) {
  const Program program = trace<F, M, Float<1>, Int<1>>();
  for (const GraphView& graph : program.graphs)
    for (int id = 0; id < graph.size; ++id)
      EXPECT_FALSE(graph[id].source.in_library()) << name << ": " << graph[id].source.text();
}

TEST(Compositions, HaveTheLineOfTheCall) {
  expect_lines_of_caller("ctc_loss", [](const auto& x, const auto&, const auto& i) {
    return ts::ctc_loss(ts::unsqueeze<1>(x), ts::unsqueeze<0>(i), ts::slice<0>(i, 0, 1), ts::slice<0>(i, 1, 1));
  });
  expect_lines_of_caller("info_nce", [](const auto& x, const auto&, const auto&) { return ts::info_nce(x, x, 0.5); });
  expect_lines_of_caller("info_nce of negatives",
                         [](const auto& x, const auto&, const auto&) { return ts::info_nce(x, x, x, 0.5); });
  expect_lines_of_caller("auroc", [](const auto&, const auto& v, const auto& i) { return ts::auroc(v, i); });
  expect_lines_of_caller("mode", [](const auto& x, const auto&, const auto&) { return ts::mode<0>(x).values; });
  expect_lines_of_caller("renorm", [](const auto& x, const auto&, const auto&) { return ts::renorm<0>(x, 2.0, 1.0); });
  expect_lines_of_caller("cross", [](const auto& x, const auto&, const auto&) { return ts::cross<1>(x, x); });
  expect_lines_of_caller("softmin", [](const auto& x, const auto&, const auto&) { return ts::softmin<0>(x); });
  expect_lines_of_caller("multigammaln",
                         [](const auto& x, const auto&, const auto&) { return ts::multigammaln<3>(x); });
  expect_lines_of_caller("rotary_embedding", [](const auto& x, const auto&, const auto&) {
    const auto q = ts::reshape(x, {1, 2, 1, -1});
    return std::tuple(ts::rotary_embedding(q, 0), ts::rotary_embedding<ts::RotaryForm::interleaved>(q, 0));
  });
  expect_lines_of_caller("alibi_bias", [](const auto& x, const auto& v, const auto&) {
    return ts::alibi_bias(v, ts::reshape(x, {1, 2, 1, -1}));
  });
  expect_lines_of_caller("poisson", [](const auto& x, const auto&, const auto&) { return ts::poisson(x, 1); });
  expect_lines_of_caller("binomial", [](const auto& x, const auto&, const auto&) { return ts::binomial(5, x, 1); });
  expect_lines_of_caller("draws", [](const auto& x, const auto&, const auto&) {
    return std::tuple(ts::beta(x, x, 1), ts::dirichlet(x, 1), ts::chisquare(x, 1), ts::student_t(x, 1),
                      ts::geometric(x, 1), ts::pareto(x, 1), ts::weibull(x, 1), ts::rayleigh(x, 1), ts::lognormal(x, 1),
                      ts::gumbel_softmax<true>(x, 1, 0.5), ts::gumbel_softmax(x, 1));
  });
}

}  // namespace
