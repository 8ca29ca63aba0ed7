// Poisson draws and draws made of others against their distributions; functions of single numbers; triangles.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/creation/triangle_indices.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/key.hpp>

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

template <class T> void expect_common_divisors() {
  constexpr T low = std::numeric_limits<T>::lowest(), high = std::numeric_limits<T>::max();
  const std::vector<T> values{0, 1, 2, 3, 6, 12, 18, 30, 35, 97, 100, high, static_cast<T>(high - 1), low};
  std::vector<T> x, y;
  for (const T a : values)
    for (const T b : values) {
      x.push_back(a), y.push_back(b);
      if (std::is_signed_v<T> && a != low) x.push_back(static_cast<T>(-a)), y.push_back(b);
    }
  const auto n = static_cast<std::int64_t>(x.size());
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto a = ts::shard(x, {n}, mesh, {"x"}), b = ts::shard(y, {n}, mesh, {"x"});
    const auto divisors = ts::to_host(ts::eval(ts::gcd(a, b))), multiples = ts::to_host(ts::eval(ts::lcm(a, b)));
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto size = [](T v) { return v < 0 ? 0 - static_cast<std::uint64_t>(v) : static_cast<std::uint64_t>(v); };
      EXPECT_EQ(divisors[i], static_cast<T>(std::gcd(size(x[i]), size(y[i])))) << +x[i] << " and " << +y[i];
      const std::uint64_t u = size(x[i]), v = size(y[i]), multiple = u == 0 || v == 0 ? 0 : u / std::gcd(u, v) * v;
      const bool fits = u == 0 || v == 0 ||
                        (multiple <= static_cast<std::uint64_t>(high) && u <= static_cast<std::uint64_t>(high) &&
                         v <= static_cast<std::uint64_t>(high) && multiple / u == v / std::gcd(u, v));
      if (fits) {
        EXPECT_EQ(multiples[i], static_cast<T>(multiple)) << +x[i] << " and " << +y[i];
      }
    }
  }
}
TEST(CommonDivisors, AreThoseOfTheStandardLibrary) {
  expect_common_divisors<std::int32_t>();
  expect_common_divisors<std::int8_t>();
  expect_common_divisors<std::uint8_t>();
  expect_common_divisors<std::int64_t>();
}

/// Published values: DLMF, and scipy.special.gammainc, gammaincc and zeta.
template <class T> void expect_incomplete_gammas() {
  constexpr T inf = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const std::vector<T> a{1, 0.5, 4, 5, 100, 1000, 0, 0, inf, inf, 2, 3, -1, 1, nan};
  const std::vector<T> x{1, 0.25, 2.5, 20, 90, 1010, 1, 0, 3, inf, inf, 0, 1, -1, 1};
  const std::vector<double> want{1 - std::exp(-1),
                                 std::erf(0.5),
                                 1 - std::exp(-2.5) * (1 + 2.5 + 2.5 * 2.5 / 2 + 2.5 * 2.5 * 2.5 / 6),
                                 0.999983055256069932,
                                 0.158220989186430168,
                                 0.627678944736994728,
                                 1,
                                 NAN,
                                 0,
                                 NAN,
                                 1,
                                 0,
                                 NAN,
                                 NAN,
                                 NAN};
  const std::vector<T> s{2, 4, 3, 2, 3, 2.5, 2, 1, 0.5, 2, 2.5, 40, 300};
  const std::vector<T> q{1, 1, 0.5, -0.5, -1.5, 10, 1e4, 2, 2, -3, -0.5, 1, 1};
  const double zeta3 = 1.2020569031595942, pi = 3.14159265358979323846;
  const std::vector<double> sums{pi * pi / 6,
                                 std::pow(pi, 4) / 90,
                                 7 * zeta3,
                                 pi * pi / 2 + 4,
                                 7 * zeta3 - 8 - 8 / 27.0,
                                 0.0227286991945345405,
                                 1.00005000166666667e-4,
                                 inf,
                                 NAN,
                                 inf,
                                 NAN,
                                 1 + std::pow(2, -40),
                                 1};
  const double unit = std::numeric_limits<T>::epsilon();
  // Of incomplete gamma functions the error is 1e-15 (1 + a), relative to the larger of both; of zeta below 0, where
  // terms have both signs, relative to the largest term.
  const auto expect = [&](const std::vector<T>& got, const std::vector<double>& all, double ulp, bool gamma) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      double slack = 0;
      if (gamma && std::isfinite(a[i])) slack = 1e-15 * (1 + a[i]) * std::fmax(all[i], 1 - all[i]);
      if (!gamma && q[i] < 0) slack = 4 * unit * std::pow(std::fabs(q[i] - std::rint(q[i])), -s[i]);
      EXPECT_TRUE(std::isnan(all[i]) ? std::isnan(got[i])
                                     : got[i] == all[i] || std::fabs(got[i] - all[i]) <= ulp * unit * all[i] + slack)
          << (gamma ? "gamma " : "zeta ") << i << ": " << got[i] << ", not " << all[i];
    }
  };
  std::vector<double> above;
  for (const double own : want) above.push_back(1 - own);
  above[3] = 1.69447439300673839e-5;
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto put = [&](const std::vector<T>& v) {
      return ts::shard(v, {static_cast<std::int64_t>(v.size())}, mesh, {"x"});
    };
    expect(ts::to_host(ts::eval(ts::igamma(put(a), put(x)))), want, 2, true);
    expect(ts::to_host(ts::eval(ts::igammac(put(a), put(x)))), above, 2, true);
    expect(ts::to_host(ts::eval(ts::zeta(put(s), put(q)))), sums, 8, false);
  }
}
TEST(IncompleteGamma, HasPublishedValues) {
  expect_incomplete_gammas<float>();
  expect_incomplete_gammas<double>();
}

template <class T> void expect_mantissas() {
  using Limits = std::numeric_limits<T>;
  const std::vector<T> x{0,
                         -T(0),
                         1,
                         -1,
                         T(0.5),
                         T(0.1),
                         3,
                         1023,
                         1024,
                         -T(1e-30),
                         T(1e30),
                         Limits::min(),
                         Limits::max(),
                         Limits::denorm_min(),
                         -7 * Limits::denorm_min(),
                         Limits::infinity(),
                         -Limits::infinity(),
                         std::nextafter(T(8), T(0)),
                         std::nextafter(T(1), T(2))};
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<T> scaled;
  std::vector<std::int32_t> by;
  for (const T v : x)
    for (const int k : {0, 1, -1, 10, Limits::max_exponent + 20, Limits::min_exponent - 20, -3})
      scaled.push_back(v), by.push_back(k);
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto parts = ts::frexp(ts::shard(x, {n}, mesh, {"x"}));
    const auto mantissa = ts::to_host(ts::eval(parts.mantissa));
    const auto exponent = ts::to_host(ts::eval(parts.exponent));
    for (std::size_t i = 0; i < x.size(); ++i) {
      int power = 0;
      const T want = std::frexp(x[i], &power);
      EXPECT_EQ(mantissa[i], want) << x[i];
      EXPECT_EQ(exponent[i], std::isfinite(x[i]) ? power : 0) << x[i];
    }
    const auto m = static_cast<std::int64_t>(by.size());
    const auto made =
        ts::to_host(ts::eval(ts::ldexp(ts::shard(scaled, {m}, mesh, {"x"}), ts::shard(by, {m}, mesh, {"x"}))));
    for (std::size_t i = 0; i < by.size(); ++i)
      EXPECT_EQ(made[i], std::ldexp(scaled[i], by[i])) << scaled[i] << " " << by[i];
  }
  const T nan = Limits::quiet_NaN();
  EXPECT_TRUE(
      std::isnan(ts::to_host(ts::eval(ts::frexp(ts::shard(std::vector<T>{nan}, {1}, ts::Mesh{}, {})).mantissa))[0]));
}
TEST(Frexp, IsThatOfC) {
  expect_mantissas<float>();
  expect_mantissas<double>();
}

constexpr auto dropped = ts::compile([](auto x, auto key) {
  const auto f = [](const auto& v, const auto& k) { return ts::dropout2d(v, 0.25, k); };
  const auto slope = ts::grad([f](const auto& v, const auto& k) { return ts::sum(f(v, k)); });
  return std::tuple(f(x, key), slope(x, key), ts::alpha_dropout(x, 0.25, key), ts::alpha_dropout(x, 1.0, key),
                    ts::dropout2d(x, 0.0, key));
});
TEST(Dropout, OfFeaturesAndForSelu) {
  const std::int64_t n = 40, h = 3, w = 5, c = 50;
  std::vector<double> x(static_cast<std::size_t>(n * h * w * c));
  std::mt19937 random(3);
  for (double& v : x) v = std::normal_distribution<double>(0, 1)(random);
  std::vector<double> first;
  for (const int devices : {1, 2, 3})
    for (const ts::PartitionSpec& spec :
         {ts::PartitionSpec{"x"}, {ts::none, "x"}, {ts::none, ts::none, ts::none, "x"}}) {
      const ts::Mesh mesh({{"x", devices}});
      const auto in = ts::shard(x, {n, h, w, c}, mesh, spec);
      EXPECT_EQ(dropped.plan(in, ts::Key(7)).wire_bytes(), 0);
      const auto [y, slope, alpha, all, none] = dropped(in, ts::Key(7));
      const auto made = ts::to_host(y), factor = ts::to_host(slope), selu = ts::to_host(alpha);
      if (first.empty()) first = made;
      EXPECT_EQ(made, first);
      EXPECT_EQ(ts::to_host(none), x);
      EXPECT_EQ(ts::to_host(all), std::vector<double>(x.size(), 0));
      int kept = 0;
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t k = 0; k < c; ++k) {
          const auto place = [&](std::int64_t p) { return static_cast<std::size_t>((i * h * w + p) * c + k); };
          const double own = factor[place(0)];
          ASSERT_TRUE(own == 0 || std::fabs(own - 4 / 3.0) < 1e-12) << own;
          kept += own != 0;
          for (std::int64_t p = 0; p < h * w; ++p) {
            ASSERT_EQ(factor[place(p)], own);
            ASSERT_NEAR(made[place(p)], x[place(p)] * own, 1e-12);
          }
        }
      EXPECT_NEAR(kept, 0.75 * n * c, 4.5 * std::sqrt(n * c * 0.1875));
      // Klambauer et al.: mean 0 and variance 1 stay; dropped elements are one value.
      const double low = -1.7580993408473769, a = 1 / std::sqrt(0.75 * (1 + 0.25 * low * low)), b = -a * 0.25 * low;
      double sum = 0, squares = 0, drops = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const bool drop = std::fabs(selu[i] - (a * low + b)) < 1e-12;
        drops += drop;
        if (!drop) {
          ASSERT_NEAR(selu[i], a * x[i] + b, 1e-12);
        }
        sum += selu[i], squares += selu[i] * selu[i];
      }
      const auto total = static_cast<double>(x.size());
      EXPECT_NEAR(drops / total, 0.25, 4.5 * std::sqrt(0.1875 / total));
      EXPECT_NEAR(sum / total, 0, 0.03);
      EXPECT_NEAR(squares / total, 1, 0.04);
    }
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
  for (const std::int64_t offset : {INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(ts::to_host(ts::tril_indices(2, 2, mesh, offset)).size(), offset > 0 ? 8u : 0u);
    EXPECT_EQ(ts::to_host(ts::triu_indices(2, 2, mesh, offset)).size(), offset > 0 ? 0u : 8u);
  }
  EXPECT_THROW(ts::tril_indices(-1, 3, mesh), ts::error);
}

}  // namespace
