// Poisson draws and draws made of others against their distributions; functions of single numbers; triangles.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/key.hpp>
#include <tessera/tensor/triangle_indices.hpp>

namespace ts = tessera;

namespace {

constexpr auto poisson = ts::compile([](const auto& rate, const auto& key) { return ts::poisson(rate, key); });

/// Of counts and their chances: chi-square of all cells that have at least eight on average, and the rest.
double chi_square(const std::vector<double>& draws, double rate, int& cells) {
  const double n = static_cast<double>(draws.size());
  double sum = 0, rest = n, rest_drawn = n;
  const int most = static_cast<int>(rate + 12 * std::sqrt(rate) + 12);
  std::vector<double> counts(static_cast<std::size_t>(most) + 1, 0);
  for (const double v : draws)
    if (v <= most) counts[static_cast<std::size_t>(v)] += 1;
  cells = 0;
  for (int k = 0; k <= most; ++k) {
    const double expected = n * std::exp(k * std::log(rate) - rate - std::lgamma(k + 1.0));
    if (expected < 8) continue;
    const double drawn = counts[static_cast<std::size_t>(k)];
    sum += (drawn - expected) * (drawn - expected) / expected;
    rest -= expected, rest_drawn -= drawn, ++cells;
  }
  if (rest >= 8) sum += (rest_drawn - rest) * (rest_drawn - rest) / rest, ++cells;
  return sum;
}

// Mean, variance and chi-square are within 4.5 deviations of what they are on average; the key is fixed.
TEST(Poisson, HasItsDistribution) {
  constexpr std::int64_t n = 20000;
  const ts::Mesh mesh({{"x", 3}});
  for (const double rate : {0.02, 0.7, 3.5, 9.9, 10.0, 11.3, 40.0, 1000.5}) {
    const auto draws = ts::to_host(poisson(ts::full<double>({n}, rate, mesh, {"x"}), ts::Key(17)));
    double mean = 0, square = 0;
    for (const double v : draws) {
      ASSERT_EQ(v, std::floor(v));
      ASSERT_GE(v, 0);
      mean += v / n, square += (v - rate) * (v - rate) / n;
    }
    EXPECT_NEAR(mean, rate, 4.5 * std::sqrt(rate / n)) << rate;
    // The fourth moment about the mean is rate + 3 rate^2.
    EXPECT_NEAR(square, rate, 4.5 * std::sqrt((rate + 2 * rate * rate) / n)) << rate;
    int cells = 0;
    const double chi = chi_square(draws, rate, cells);
    EXPECT_LT(chi, cells - 1 + 4.5 * std::sqrt(2.0 * (cells - 1)) + 4.5) << rate << ", cells " << cells;
    EXPECT_GT(chi, cells - 1 - 4.5 * std::sqrt(2.0 * (cells - 1))) << rate << ", cells " << cells;
  }
}

TEST(Poisson, SpecialRatesAndLargeRates) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto x = ts::shard(std::vector<double>{0, -1, nan, 1e9, 1e-300}, {5}, ts::Mesh({{"x", 2}}), {"x"});
  const auto draws = ts::to_host(poisson(x, ts::Key(3)));
  EXPECT_EQ(draws[0], 0);
  EXPECT_TRUE(std::isnan(draws[1]));
  EXPECT_TRUE(std::isnan(draws[2]));
  EXPECT_NEAR(draws[3], 1e9, 6 * std::sqrt(1e9));
  EXPECT_EQ(draws[4], 0);
  EXPECT_LT(draws[3], inf);
  const auto narrow = ts::to_host(poisson(ts::full<ts::bf16>({4}, ts::bf16(3.0f), ts::Mesh{}), ts::Key(3)));
  for (const ts::bf16 v : narrow) EXPECT_EQ(static_cast<float>(v), std::floor(static_cast<float>(v)));
  EXPECT_EQ(ts::to_host(poisson(ts::zeros<float>({0}, ts::Mesh{}), ts::Key(3))).size(), 0u);
}

// One key gives the same draws on every mesh, and a key tensor those of its Scalar outside of loops. Steps differ.
TEST(Poisson, IsEqualOnAllMeshes) {
  constexpr auto steps = ts::compile([](const auto& rate, const auto& key) {
    return ts::map([&](const auto& i) { return ts::poisson(rate, ts::fold_in(key, i)); },
                   ts::iota<0, std::int32_t>(ts::broadcast_to(ts::sum(rate), {ts::Dim(3)})));
  });
  std::vector<float> first, first_steps;
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto rate = ts::shard(std::vector<float>{.1f, 2, 7, 9.99f, 10, 35, 1e4f}, {7}, mesh, {"x"});
    const std::vector<float> draws = ts::to_host(poisson(rate, ts::Key(5))), all = ts::to_host(steps(rate, ts::Key(5)));
    if (first.empty()) first = draws, first_steps = all;
    EXPECT_EQ(draws, first);
    EXPECT_EQ(all, first_steps);
    EXPECT_FALSE(std::equal(all.begin(), all.begin() + 7, all.begin() + 7));
  }
}

// 1.95 / sqrt(n) is exceeded with a probability of .001 (Kolmogorov, Smirnov).
template <class F> double largest_difference(std::vector<double> draws, const F& below) {
  std::sort(draws.begin(), draws.end());
  double most = 0;
  for (std::size_t i = 0; i < draws.size(); ++i) {
    const double share = below(draws[i]), n = static_cast<double>(draws.size());
    most = std::max(
        {most, std::abs(share - static_cast<double>(i) / n), std::abs(share - static_cast<double>(i + 1) / n)});
  }
  return most;
}
TEST(RandomDraws, OfExponentialDrawsHaveTheirDistributions) {
  constexpr std::int64_t n = 8000;
  const double bound = 1.95 / std::sqrt(n);
  const auto two = ts::full<double>({n}, 2.0, ts::Mesh({{"x", 3}}), {"x"});
  const auto draws = [](const auto& x) { return ts::to_host(ts::eval(x)); };
  EXPECT_LT(largest_difference(draws(ts::pareto(two, 3)), [](double x) { return 1 - 1 / (x * x); }), bound);
  EXPECT_LT(largest_difference(draws(ts::weibull(two, 5)), [](double x) { return 1 - std::exp(-x * x); }), bound);
  EXPECT_LT(largest_difference(draws(ts::rayleigh(two, 7)), [](double x) { return 1 - std::exp(-x * x / 8); }), bound);
  EXPECT_LT(largest_difference(draws(ts::lognormal(two, 9)),
                               [](double x) { return 0.5 * std::erfc(-std::log(x) / 2 / std::sqrt(2.0)); }),
            bound);
  const std::vector<double> trials = draws(ts::geometric(two * 0.15, 11));
  for (int k = 1; k < 6; ++k) {
    const double chance = 0.3 * std::pow(0.7, k - 1);
    EXPECT_NEAR(static_cast<double>(std::count(trials.begin(), trials.end(), k)), n * chance,
                4.5 * std::sqrt(n * chance * (1 - chance)));
  }
  for (const double v : draws(ts::geometric(two * 0.5, 11))) ASSERT_EQ(v, 1);
}

TEST(GumbelSoftmax, DrawsCategoriesWithAGradient) {
  constexpr std::int64_t n = 8000;
  constexpr auto f = ts::compile([](const auto& logits, const auto& key) {
    const auto loss = [&](const auto& x) {
      const auto hard = ts::gumbel_softmax<true>(x, key, 0.5);
      return std::tuple(ts::sum(hard * ts::iota<1, double>(hard)), std::tuple(hard, ts::gumbel_softmax(x, key, 0.5)));
    };
    return ts::value_and_grad(loss)(logits);
  });
  std::vector<double> logits;
  for (int i = 0; i < n; ++i)
    for (const double p : {1.0, 2.0, 5.0}) logits.push_back(std::log(p));
  const auto made = f(ts::shard(logits, {n, 3}, ts::Mesh({{"x", 3}}), {"x"}), ts::Key(5));
  const auto& [value, both] = std::get<0>(made);
  const auto hard = ts::to_host(std::get<0>(both)), soft = ts::to_host(std::get<1>(both)),
             gradient = ts::to_host(std::get<1>(made));
  double drawn[3]{};
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0, mean = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      const std::size_t at = 3 * i + c;
      drawn[c] += std::round(hard[at]), sum += soft[at], mean += soft[at] * static_cast<double>(c);
      EXPECT_NEAR(hard[at], std::round(hard[at]), 1e-12);
    }
    ASSERT_NEAR(sum, 1, 1e-12);
    for (std::size_t c = 0; c < 3; ++c)  // the gradient of the softmax at temperature .5
      ASSERT_NEAR(gradient[3 * i + c], soft[3 * i + c] * (static_cast<double>(c) - mean) / 0.5, 1e-9);
  }
  for (const auto& [c, chance] : {std::pair(0, 1 / 8.0), std::pair(1, 2 / 8.0), std::pair(2, 5 / 8.0)})
    EXPECT_NEAR(drawn[c], n * chance, 4.5 * std::sqrt(n * chance * (1 - chance)));
}

template <class T> void expect_next_numbers() {
  const T inf = std::numeric_limits<T>::infinity(), least = std::numeric_limits<T>::denorm_min(),
          small = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
  const std::vector<T> values{0,     -T(0),  1,    -1,    T(1.5), 2,    least,  -least,
                              small, -small, most, -most, inf,    -inf, T(1e-3)};
  std::vector<T> x, y;
  for (const T a : values)
    for (const T b : values) x.push_back(a), y.push_back(b);
  const auto n = static_cast<std::int64_t>(x.size());
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto got =
        ts::to_host(ts::eval(ts::nextafter(ts::shard(x, {n}, mesh, {"x"}), ts::shard(y, {n}, mesh, {"x"}))));
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(got[i], std::nextafter(x[i], y[i])) << x[i] << " towards " << y[i];
  }
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const auto none = ts::to_host(ts::eval(ts::nextafter(ts::shard(std::vector<T>{nan, 1}, {2}, ts::Mesh{}, {}),
                                                       ts::shard(std::vector<T>{1, nan}, {2}, ts::Mesh{}, {}))));
  EXPECT_TRUE(std::isnan(none[0]) && std::isnan(none[1]));
}
TEST(Nextafter, IsThatOfC) {
  expect_next_numbers<float>();
  expect_next_numbers<double>();
}

TEST(FloatTests, OfInfinitiesAndNan) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> a{1, nan, 2, nan, inf, -inf, nan}, b{2, 3, nan, nan, 1, nan, -inf};
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto x = ts::shard(a, {7}, mesh, {"x"}), y = ts::shard(b, {7}, mesh, {"x"});
    const auto larger = ts::to_host(ts::eval(ts::fmax(x, y))), smaller = ts::to_host(ts::eval(ts::fmin(x, y)));
    const auto up = ts::to_host(ts::eval(ts::isposinf(x))), down = ts::to_host(ts::eval(ts::isneginf(x)));
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double high = std::fmax(a[i], b[i]), low = std::fmin(a[i], b[i]);
      EXPECT_TRUE(larger[i] == high || (std::isnan(larger[i]) && std::isnan(high))) << i;
      EXPECT_TRUE(smaller[i] == low || (std::isnan(smaller[i]) && std::isnan(low))) << i;
      EXPECT_EQ(up[i], a[i] == inf);
      EXPECT_EQ(down[i], a[i] == -inf);
    }
    const auto whole = ts::shard(std::vector<std::int32_t>{1, 5, -3}, {3}, mesh, {});
    EXPECT_EQ(ts::to_host(ts::eval(ts::fmax(whole, whole * -1))), (std::vector<std::int32_t>{1, 5, 3}));
    EXPECT_EQ(ts::to_host(ts::eval(ts::isposinf(whole))), (std::vector<bool>{false, false, false}));
    // softmin, and log gamma_3(x) = 3/2 log(pi) + lgamma(x) + lgamma(x - 1/2) + lgamma(x - 1).
    const auto z = ts::shard(std::vector<double>{2.5, 7.25}, {2}, mesh, {});
    const auto gammas = ts::to_host(ts::eval(ts::multigammaln<3>(z))), softmin = ts::to_host(ts::eval(ts::softmin(z)));
    for (std::size_t i = 0; i < 2; ++i) {
      const double v = i == 0 ? 2.5 : 7.25;
      EXPECT_NEAR(gammas[i], 1.5 * std::log(M_PI) + std::lgamma(v) + std::lgamma(v - 0.5) + std::lgamma(v - 1), 1e-12);
      EXPECT_NEAR(softmin[i], std::exp(-v) / (std::exp(-2.5) + std::exp(-7.25)), 1e-12);
    }
  }
}

TEST(TriangleIndices, AreThoseOfTheTriangles) {
  const ts::Mesh mesh({{"x", 3}});
  EXPECT_EQ(ts::to_host(ts::tril_indices(3, 3, mesh)), (std::vector<std::int64_t>{0, 1, 1, 2, 2, 2, 0, 0, 1, 0, 1, 2}));
  // The example of torch.tril_indices(4, 3, -1) and of torch.triu_indices(4, 3, 1).
  EXPECT_EQ(ts::to_host(ts::tril_indices(4, 3, mesh, -1)),
            (std::vector<std::int64_t>{1, 2, 2, 3, 3, 3, 0, 0, 1, 0, 1, 2}));
  EXPECT_EQ(ts::to_host(ts::triu_indices<std::int32_t>(4, 3, mesh, 1, {ts::none, "x"})),
            (std::vector<std::int32_t>{0, 0, 1, 1, 2, 2}));
  for (const std::int64_t offset : {-5, -2, 0, 2, 5}) {
    const auto lower = ts::to_host(ts::tril_indices(4, 3, mesh, offset)),
               upper = ts::to_host(ts::triu_indices(4, 3, mesh, offset + 1));
    EXPECT_EQ(lower.size() + upper.size(), 2u * 12);
    for (std::size_t i = 0; 2 * i < lower.size(); ++i) EXPECT_LE(lower[lower.size() / 2 + i] - lower[i], offset);
    for (std::size_t i = 0; 2 * i < upper.size(); ++i) EXPECT_GT(upper[upper.size() / 2 + i] - upper[i], offset);
  }
  EXPECT_THROW(ts::tril_indices(-1, 3, mesh), ts::error);
}

}  // namespace
