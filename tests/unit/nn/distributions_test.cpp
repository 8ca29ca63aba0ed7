// Samples of distributions, edges of their supports, gradients. Their formulas: reference_distributions_test.cpp.
#include <cmath>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../base/expect_error.hpp"
#include "uniform_under_cdf.hpp"
#include <gtest/gtest.h>

#include <tessera/distributions/distributions.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

namespace dist = ts::distributions;
constexpr ts::Key own_key(29);
constexpr int count = 5'000;
using tessera_test::expect_uniform, tessera_test::number, tessera_test::of_cdf;

ts::ShardedTensor<double, 1> line(int n) { return ts::zeros<double>({n}, ts::Mesh(), {}); }

TEST(Distributions, SamplesAreUniformUnderTheirDistributionFunction) {
  constexpr auto f = ts::compile([](const auto& x, const auto& own) {
    return std::tuple(of_cdf(dist::Normal(1.0, 2.0), x, own), of_cdf(dist::LogNormal(0.5, 0.75), x, own),
                      of_cdf(dist::HalfNormal(3.0), x, own), of_cdf(dist::Cauchy(-1.0, 2.0), x, own),
                      of_cdf(dist::HalfCauchy(0.5), x, own), of_cdf(dist::Laplace(1.0, 0.5), x, own),
                      of_cdf(dist::Gumbel(2.0, 3.0), x, own), of_cdf(dist::Logistic(1.0, 0.25), x, own),
                      of_cdf(dist::Uniform(-2.0, 5.0), x, own), of_cdf(dist::Exponential(0.3), x, own),
                      of_cdf(dist::Gamma(2.5, 0.5), x, own), of_cdf(dist::Gamma(0.4, 3.0), x, own),
                      of_cdf(dist::Chi2(3.0), x, own), of_cdf(dist::Weibull(2.0, 1.5), x, own),
                      of_cdf(dist::Pareto(2.0, 3.0), x, own));
  });
  const auto results = f(line(count), own_key);
  int which = 0;
  std::apply([&](const auto&... each) { (expect_uniform(each, count, which++), ...); }, results);
}

/// Mean and variance of samples, and of the distribution.
constexpr auto of_moments = [](const auto& p, const auto& own) {
  const auto drawn = p.sample(own);
  const auto mean = ts::mean(drawn);
  return std::tuple(mean, ts::mean(ts::square(drawn - mean)), ts::mean(p.mean()), ts::mean(p.variance()));
};

/// Compares means and variances of samples with those of the distributions.
void expect_moments(const auto& results) {
  int which = 0;
  std::apply(
      [&](const auto&... each) {
        const auto check = [&](const auto& all) {
          const double variance = number(std::get<3>(all));
          EXPECT_NEAR(number(std::get<0>(all)), number(std::get<2>(all)), 5 * std::sqrt(variance / count)) << which;
          EXPECT_NEAR(number(std::get<1>(all)) / variance, 1, 0.15) << which;
          ++which;
        };
        (check(each), ...);
      },
      results);
}

TEST(Distributions, SamplesHaveTheMomentsOfTheirDistribution) {
  constexpr auto f = ts::compile([](const auto& x, const auto& own) {
    const auto of = [&](double p) { return x + p; };
    return std::tuple(
        of_moments(dist::StudentT(of(7), 1.0, 2.0), own), of_moments(dist::Beta(of(2), 3.0), own),
        of_moments(dist::Beta(of(0.5), 0.75), own), of_moments(dist::Bernoulli(dist::Probs(of(0.3))), own),
        of_moments(dist::Bernoulli(dist::Logits(of(-1))), own), of_moments(dist::Geometric(dist::Probs(of(0.3))), own),
        of_moments(dist::Geometric(dist::Logits(of(0.5))), own));
  });
  expect_moments(f(line(count), own_key));
}

// A program for each, since each has loops.
TEST(Distributions, CountsHaveTheMomentsOfTheirDistribution) {
  const auto expect = [](const auto& f) { expect_moments(std::make_tuple(f(line(count), own_key))); };
  expect(ts::compile([](const auto& x, const auto& own) { return of_moments(dist::Poisson(x + 3.5), own); }));
  expect(ts::compile([](const auto& x, const auto& own) {
    return of_moments(dist::NegativeBinomial(4.5, dist::Probs(x + 0.4)), own);
  }));
  expect(ts::compile([](const auto& x, const auto& own) {
    return of_moments(dist::NegativeBinomial(6, dist::Logits(x + 0.25)), own);
  }));
  // By inversion, and of failures; by rejection, of failures, and of a tensor of counts.
  expect(ts::compile(
      [](const auto& x, const auto& own) { return of_moments(dist::Binomial(10, dist::Probs(x + 0.3)), own); }));
  expect(ts::compile(
      [](const auto& x, const auto& own) { return of_moments(dist::Binomial(12, dist::Logits(x + 1.5)), own); }));
  expect(ts::compile(
      [](const auto& x, const auto& own) { return of_moments(dist::Binomial(100, dist::Probs(x + 0.4)), own); }));
  expect(ts::compile(
      [](const auto& x, const auto& own) { return of_moments(dist::Binomial(2000, dist::Probs(x + 0.9)), own); }));
  expect(ts::compile(
      [](const auto& x, const auto& own) { return of_moments(dist::Binomial(x + 50.0, dist::Probs(x + 0.5)), own); }));
}

TEST(Distributions, FrequenciesAreTheProbabilities) {
  static constexpr auto of_counts = [](const auto& p, const auto& own) {
    const auto drawn = p.sample(own);
    const auto of = [&](int k) {
      return std::tuple(ts::mean(ts::cast<double>(ts::equal(drawn, k))), ts::mean(ts::exp(p.log_prob(drawn * 0 + k))));
    };
    return std::tuple(of(0), of(1), of(2), of(3));
  };
  constexpr auto f = ts::compile([](const auto& x, const auto& scores, const auto& own) {
    const auto rows = x + scores;
    return std::tuple(of_counts(dist::Poisson(ts::sum<1>(x) + 1.5), own),
                      of_counts(dist::Binomial(5, dist::Probs(ts::sum<1>(x) + 0.35)), own),
                      of_counts(dist::Geometric(dist::Probs(ts::sum<1>(x) + 0.35)), own),
                      of_counts(dist::Categorical(dist::Logits(rows)), own),
                      of_counts(dist::Categorical(dist::Probs(ts::exp(rows))), own));
  });
  const auto scores = ts::shard(std::vector<double>{0.5, -1, 1, 0.25}, {4}, ts::Mesh(), {});
  const auto results = f(ts::zeros<double>({count, 4}, ts::Mesh(), {}), scores, own_key);
  int which = 0;
  const auto check = [&](const auto& k) {
    const double p = number(std::get<1>(k));
    EXPECT_GT(p, 0.01);
    EXPECT_NEAR(number(std::get<0>(k)), p, 5 * std::sqrt(p * (1 - p) / count)) << which;
  };
  std::apply([&](const auto&... each) { (std::apply([&](const auto&... k) { (check(k), ...), ++which; }, each), ...); },
             results);
}

TEST(Distributions, DirichletOfIntegersIsF32) {
  const auto rows = ts::eval(dist::Dirichlet(ts::full<std::int32_t>({2, 3}, 2, ts::Mesh(), {})).sample(5));
  static_assert(std::is_same_v<decltype(rows), const ts::ShardedTensor<float, 2>>);
  for (const float each : ts::to_host(rows)) EXPECT_TRUE(each > 0 && each < 1) << each;
}

TEST(Distributions, OneHotAndDirichletSamplesAreRows) {
  constexpr auto f = ts::compile([](const auto& x, const auto& scores, const auto& own) {
    const auto hot = dist::OneHotCategorical(dist::Logits(x + scores));
    const auto simplex = dist::Dirichlet(ts::exp(x + scores));
    const auto drawn = hot.sample(own), rows = simplex.sample(own);
    return std::tuple(ts::mean<0>(drawn), ts::mean<0>(hot.mean()), ts::mean<0>(rows), ts::mean<0>(simplex.mean()),
                      ts::max(ts::abs(ts::sum<1>(drawn) - 1.0)), ts::max(ts::abs(ts::sum<1>(rows) - 1.0)),
                      ts::mean<0>(ts::square(rows - simplex.mean())), ts::mean<0>(simplex.variance()));
  });
  const auto scores = ts::shard(std::vector<double>{0.5, -1, 1, 0.25}, {4}, ts::Mesh(), {});
  const auto [hot, p, rows, mean, off, off_rows, square, variance] =
      f(ts::zeros<double>({count, 4}, ts::Mesh(), {}), scores, own_key);
  EXPECT_EQ(number(off), 0);
  EXPECT_LT(number(off_rows), 1e-14);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(ts::to_host(hot)[i], ts::to_host(p)[i], 0.035);
    EXPECT_NEAR(ts::to_host(rows)[i], ts::to_host(mean)[i], 0.015);
    EXPECT_NEAR(ts::to_host(square)[i], ts::to_host(variance)[i], 0.15 * ts::to_host(variance)[i]);
  }
}

// Numbers beside a tensor, or the tensor only in sample_like.
TEST(Distributions, CountsOfParametersThatAreNumbers) {
  constexpr auto f = ts::compile([](const auto& x, const auto& own) {
    return std::tuple(dist::Binomial(x + 3.0, dist::Probs(1.0)).sample(own),
                      dist::Binomial(3, dist::Probs(1.0)).sample_like(x, own), dist::Poisson(0.0).sample_like(x, own),
                      dist::NegativeBinomial(2, dist::Probs(0.0)).sample_like(x, own));
  });
  const auto [all, of_number, none, none_of_rate] = f(line(2), own_key);
  EXPECT_EQ(ts::to_host(all), (std::vector<double>{3, 3}));
  EXPECT_EQ(ts::to_host(of_number), (std::vector<double>{3, 3}));
  EXPECT_EQ(ts::to_host(none), (std::vector<double>{0, 0}));
  EXPECT_EQ(ts::to_host(none_of_rate), (std::vector<double>{0, 0}));
}

// Samples depend on the key and the index of the element alone, not on the mesh.
TEST(Distributions, SamplesAreEqualOnEveryMesh) {
  constexpr auto f = ts::compile([](const auto& x, const auto& own) {
    const auto positive = ts::exp(x);
    return std::tuple(dist::Normal(x, positive).sample(own), dist::Gamma(2.0, 1.5).sample_like(x, own),
                      dist::Beta(positive, 2.0).sample(own), dist::Binomial(30, dist::Logits(x)).sample(own),
                      dist::NegativeBinomial(3, dist::Logits(x)).sample(own),
                      dist::Poisson(2.0 + ts::zeros_like(x)).sample_like(x, own),
                      ts::cast<float>(ts::unsqueeze<1>(dist::Categorical(dist::Logits(x)).sample(own))),
                      dist::Categorical(dist::Logits(ts::sum<0>(x))).sample_like(ts::sum<1>(x), own));
  });
  const auto whole = ts::normal<float>(ts::Key(5), {7, 4}, ts::Mesh(), {});
  const auto want = f(whole, own_key);
  for (const int devices : {2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    for (const ts::PartitionSpec& spec : {ts::PartitionSpec{"x"}, ts::PartitionSpec{ts::none, "x"}}) {
      const auto got = f(ts::reshard(whole, mesh, spec), own_key);
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        const auto check = [&](const auto& one, const auto& other) {
          EXPECT_EQ(ts::to_host(one), ts::to_host(other)) << spec.text();
        };
        (check(std::get<I>(got), std::get<I>(want)), ...);
      }(std::make_index_sequence<8>{});
    }
  }
}

TEST(Distributions, OnlyRsampleHasGradients) {
  constexpr auto f = ts::compile([](const auto& loc, const auto& scale, const auto& own) {
    const auto of = [&](const auto& drawn) {
      return ts::grad([&](const auto& p) { return ts::sum(drawn(dist::Normal(std::get<0>(p), std::get<1>(p)))); })(
          std::tuple(loc, scale));
    };
    const auto with = of([&](const auto& p) { return p.rsample(own); });
    const auto without = of([&](const auto& p) { return p.sample(own); });
    const auto noise = (dist::Normal(loc, scale).sample(own) - loc) / scale;
    return std::tuple(std::get<0>(with), std::get<1>(with), std::get<0>(without), std::get<1>(without), noise);
  });
  const auto loc = ts::shard(std::vector<double>{1, -2, 0.5}, {3}, ts::Mesh(), {});
  const auto scale = ts::shard(std::vector<double>{0.5, 2, 1}, {3}, ts::Mesh(), {});
  const auto [by_loc, by_scale, none, none_by_scale, noise] = f(loc, scale, own_key);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ts::to_host(by_loc)[i], 1);
    EXPECT_NEAR(ts::to_host(by_scale)[i], ts::to_host(noise)[i], 1e-14);
    EXPECT_EQ(ts::to_host(none)[i], 0);
    EXPECT_EQ(ts::to_host(none_by_scale)[i], 0);
  }
}

// -infinity outside of the support, with a gradient of 0; NaN of NaN. Source: jax.scipy.stats.
TEST(Distributions, OutsideOfTheSupport) {
  constexpr auto f = ts::compile([](const auto& x, const auto& one) {
    const auto of = [&](const auto& p) {
      const auto value = [&](const auto& at) { return p.log_prob(at); };
      const auto slope = ts::grad([&](const auto& at) { return ts::sum(p.log_prob(at)); })(x);
      return ts::stack<0>(value(x), slope);
    };
    return std::tuple(of(dist::LogNormal(one, 1.0)), of(dist::HalfNormal(one)), of(dist::HalfCauchy(one)),
                      of(dist::Uniform(0.0, one)), of(dist::Exponential(one)), of(dist::Gamma(2.0, one)),
                      of(dist::Beta(2.0, one)), of(dist::Weibull(2.0, one)), of(dist::Pareto(one, 2.0)),
                      of(dist::Poisson(one)), of(dist::Binomial(3, dist::Probs(one * 0.5))),
                      of(dist::NegativeBinomial(2, dist::Logits(one))), of(dist::Geometric(dist::Logits(one))));
  });
  const auto x = ts::shard(std::vector<double>{-0.5, -2, std::nan("")}, {3}, ts::Mesh(), {});
  const auto results = f(x, ts::shard(std::vector<double>{1, 1, 1}, {3}, ts::Mesh(), {}));
  int which = 0;
  std::apply(
      [&](const auto&... each) {
        const auto check = [&](const auto& both) {
          const std::vector<double> all = ts::to_host(both);
          for (std::size_t i = 0; i < 2; ++i) {
            EXPECT_EQ(all[i], -INFINITY) << which;
            EXPECT_EQ(all[3 + i], 0) << which;
          }
          EXPECT_TRUE(std::isnan(all[2])) << which;
          ++which;
        };
        (check(each), ...);
      },
      results);
}

TEST(Distributions, ProbabilitiesOfZeroAndOne) {
  constexpr auto f = ts::compile([](const auto& p, const auto& weights) {
    const auto bit = dist::Bernoulli(dist::Probs(p));
    const auto index = dist::Categorical(dist::Probs(weights)),
               even = dist::Categorical(dist::Probs(weights * 0.0 + 1.0));
    return std::tuple(bit.log_prob(p), bit.log_prob(1.0 - p), bit.entropy(), index.entropy(),
                      kl_divergence(index, even), kl_divergence(even, index));
  });
  const auto [sure, impossible, entropy, of_index, to_even, from_even] =
      f(ts::shard(std::vector<double>{0, 1}, {2}, ts::Mesh(), {}),
        ts::shard(std::vector<double>{1, 0, 1, 0, 0, 3}, {2, 3}, ts::Mesh(), {}));
  EXPECT_EQ(ts::to_host(sure), (std::vector<double>{0, 0}));
  EXPECT_EQ(ts::to_host(impossible), (std::vector<double>{-INFINITY, -INFINITY}));
  EXPECT_EQ(ts::to_host(entropy), (std::vector<double>{0, 0}));
  EXPECT_NEAR(ts::to_host(of_index)[0], std::log(2), 1e-15);
  EXPECT_EQ(ts::to_host(of_index)[1], 0);
  EXPECT_NEAR(ts::to_host(to_even)[0], std::log(1.5), 1e-15);
  EXPECT_NEAR(ts::to_host(to_even)[1], std::log(3), 1e-15);
  EXPECT_EQ(ts::to_host(from_even), (std::vector<double>{INFINITY, INFINITY}));
}

/// Divergences of pairs of families, and the sum of their gradients by all parameters, which are finite.
constexpr auto divergence_and_gradient = [](const auto& make, const auto&... parameters) {
  const auto of = [&](const auto& all) {
    const auto kl = std::apply([&](const auto&... p) { return make(p...); }, all);
    return std::tuple(ts::sum(kl), kl);
  };
  const auto [result, gradient] = ts::value_and_grad(of)(std::tuple(parameters...));
  return std::tuple(std::get<1>(result),
                    std::apply([](const auto&... g) { return (ts::sum(ts::abs(g)) + ...); }, gradient));
};

// Source: torch/distributions/kl.py. Each tensor has an element for a finite divergence and one for an infinite one.
TEST(Distributions, DivergencesAreInfiniteWhereSamplesLeaveTheSupport) {
  constexpr auto f = ts::compile([](const auto& a, const auto& low, const auto& alpha) {
    const auto one = ts::sum(a);  // of rank 0, so that its gradient has a part of each element
    const auto of = [&](const auto& x, const auto& make) { return divergence_and_gradient(make, x, one); };
    return std::tuple(
        of(low, [](auto l, auto c) { return kl_divergence(dist::Uniform(l, 0.75), dist::Exponential(c)); }),
        of(low, [](auto l, auto c) { return kl_divergence(dist::Uniform(l, 0.75), dist::Gamma(c, 2.0)); }),
        of(low, [](auto l, auto c) { return kl_divergence(dist::Uniform(l, 0.75), dist::Beta(c, 2.0)); }),
        of(low, [](auto l, auto c) { return kl_divergence(dist::Uniform(l, 0.75), dist::Pareto(0.125 * c, 2.0)); }),
        of(-low, [](auto h, auto c) { return kl_divergence(dist::Beta(c, 2.0), dist::Uniform(-0.5, 1.0 + h)); }),
        of(alpha, [](auto b, auto c) { return kl_divergence(dist::Pareto(c, b - 0.75), dist::Exponential(c)); }),
        of(alpha, [](auto b, auto c) { return kl_divergence(dist::Pareto(c, b - 0.75), dist::Gamma(c, 2.0)); }),
        of(alpha, [](auto b, auto c) { return kl_divergence(dist::Pareto(c, b), dist::Normal(c, 2.0)); }));
  });
  const auto vector = [](double x, double y) { return ts::shard(std::vector<double>{x, y}, {2}, ts::Mesh(), {}); };
  const auto results = f(vector(0.25, 0.75), vector(0.25, -0.25), vector(2.5, 1.5));
  int which = 0;
  const auto check = [&](const auto& each) {
    const std::vector<double> all = ts::to_host(std::get<0>(each));
    if (which != 4) {
      EXPECT_TRUE(std::isfinite(all[0])) << which;
      EXPECT_EQ(all[1], INFINITY) << which;
    } else {  // up to 0.75 and up to 1.25
      EXPECT_EQ(all[0], INFINITY);
      EXPECT_TRUE(std::isfinite(all[1]));
    }
    EXPECT_TRUE(std::isfinite(number(std::get<1>(each)))) << which;
    EXPECT_GT(number(std::get<1>(each)), 0) << which;
    ++which;
  };
  std::apply([&](const auto&... each) { (check(each), ...); }, results);
}

TEST(Distributions, DivergencesOfFamiliesWithOtherSupportsAreInfinite) {
  constexpr auto f = ts::compile([](const auto& a) {
    const auto from = [](const auto& p, const auto&... q) { return std::tuple(kl_divergence(p, q)...); };
    const auto beta = dist::Beta(a, 2.0);
    const auto exponential = dist::Exponential(a);
    const auto gamma = dist::Gamma(a, 2.0);
    const auto chi2 = dist::Chi2(a);
    const auto pareto = dist::Pareto(a, 2.0);
    const auto uniform = dist::Uniform(0.0, a);
    const auto on_line = [&](const auto& p) { return from(p, beta, exponential, gamma, chi2, pareto, uniform); };
    return std::tuple_cat(
        on_line(dist::Normal(0.0, a)), on_line(dist::Laplace(0.0, a)), on_line(dist::Gumbel(0.0, a)),
        from(exponential, beta, pareto, uniform), from(gamma, beta, pareto, uniform), from(chi2, beta, pareto, uniform),
        from(pareto, beta, uniform), from(beta, pareto),
        from(dist::Poisson(1.0), dist::Bernoulli(dist::Probs(a * 0.25)), dist::Bernoulli(dist::Logits(a)),
             dist::Binomial(3, dist::Probs(a * 0.25)), dist::Binomial(3, dist::Logits(a))),
        from(dist::Binomial(3, dist::Logits(a)), dist::Binomial(2, dist::Logits(a))));
  });
  const auto results = f(ts::shard(std::vector<double>{1, 2}, {2}, ts::Mesh(), {}));
  const auto check = [](const auto& each) { EXPECT_EQ(ts::to_host(each), (std::vector<double>{INFINITY, INFINITY})); };
  std::apply([&](const auto&... each) { (check(each), ...); }, results);
}

// Where there is no single largest density. Source: torch.distributions.
TEST(Distributions, ModesAtTheEdgesOfParameters) {
  constexpr auto f = ts::compile([](const auto& a, const auto& p) {
    return std::tuple(dist::Beta(a, a).mode(), dist::Gamma(a, a).mode(), dist::Uniform(a, a + 1.0).mode(),
                      dist::Bernoulli(dist::Probs(p)).mode(), dist::Bernoulli(dist::Logits(p - 0.5)).mode(),
                      dist::Binomial(3.0, dist::Probs(p)).mode(), dist::NegativeBinomial(a, dist::Probs(p)).mode(),
                      dist::Dirichlet(ts::stack<1>(a, a)).mode(), dist::Categorical(dist::Probs(p)).mode(),
                      dist::OneHotCategorical(dist::Probs(p)).mode());
  });
  const auto of = [](std::vector<double> x) { return ts::shard(x, {3}, ts::Mesh(), {}); };
  const auto [beta, gamma, uniform, bit, bit_of_logit, successes, failures, rows, index, row] =
      f(of({0.5, 1, 3}), of({0.25, 0.5, 1}));
  const auto expect = [](const auto& got, const std::vector<double>& want) {
    const auto all = ts::to_host(got);
    ASSERT_EQ(all.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(all[i] == want[i] || (std::isnan(all[i]) && std::isnan(want[i]))) << i << ": " << all[i];
  };
  const double nan = std::nan("");
  expect(beta, {1, nan, 0.5});
  expect(gamma, {0, 0, 2.0 / 3});
  expect(uniform, {nan, nan, nan});
  expect(bit, {0, nan, 1});
  expect(bit_of_logit, {0, nan, 1});
  expect(successes, {1, 2, 3});
  expect(failures, {0, 0, INFINITY});
  expect(rows, {1, 0, nan, nan, 0.5, 0.5});
  EXPECT_EQ(ts::to_host(index)[0], 2);
  expect(row, {0, 0, 1});
}

/// Log-probabilities of x, row by row, by the functions that run a function many times.
constexpr auto row_by_row = [](const auto& x, const auto& loc) {
  const auto of = [&](const auto& row) {
    return ts::sum(dist::Normal(loc, 2.0).log_prob(row)) +
           dist::independent<1>(dist::Gamma(row, 1.5)).log_prob(ts::exp(row)) +
           dist::Categorical(dist::Logits(row)).entropy();
  };
  const auto scanned = ts::scan(
      [&](const auto& total, const auto& row) { return std::tuple(total + of(row), of(row)); }, ts::sum(x) * 0.0, x);
  return std::tuple(ts::vmap(of)(x), ts::map(of, x), std::get<1>(scanned));
};

// In a vmap, in loops and in a shard_map as outside of them, split or not.
TEST(Distributions, InVmapsLoopsAndShardMaps) {
  constexpr auto f = ts::compile([](const auto& x, const auto& loc) {
    const auto whole = ts::sum<1>(dist::Normal(loc, 2.0).log_prob(x) + dist::Gamma(x, 1.5).log_prob(ts::exp(x))) +
                       dist::Categorical(dist::Logits(x)).entropy();
    const auto of_shards = ts::shard_map<"{x}, {} -> {x}">([](const auto& own, const auto& l) {
      return ts::sum<1>(dist::Normal(l, 2.0).log_prob(own) + dist::Gamma(own, 1.5).log_prob(ts::exp(own))) +
             dist::Categorical(dist::Logits(own)).entropy();
    })(x, loc);
    return std::tuple_cat(std::tuple(whole, of_shards), row_by_row(x, loc));
  });
  const auto x = ts::exp(ts::normal<double>(ts::Key(7), {6, 4}, ts::Mesh(), {}));
  const auto loc = ts::normal<double>(ts::Key(8), {4}, ts::Mesh(), {});
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto results = f(ts::reshard(ts::eval(x), mesh, {"x"}), ts::reshard(loc, mesh, {}));
    const std::vector<double> want = ts::to_host(std::get<0>(results));
    const auto check = [&](const auto& got) {
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(ts::to_host(got)[i], want[i], 1e-12 * std::fabs(want[i]));
    };
    std::apply([&](const auto&... got) { (check(got), ...); }, results);
  }
}

// Densities of bf16 are computed in f32, samples are bf16.
TEST(Distributions, HalfPrecision) {
  constexpr auto f = ts::compile([](const auto& x, const auto& own) {
    const auto p = dist::Normal(x, 1.0);
    return std::tuple(p.log_prob(x), p.sample(own), dist::Gamma(2.0, 1.0).sample_like(x, own));
  });
  const auto results = f(ts::full<ts::bf16>({3}, ts::bf16(1.0f), ts::Mesh(), {}), own_key);
  static_assert(std::is_same_v<std::decay_t<decltype(std::get<0>(results))>::element, float>);
  static_assert(std::is_same_v<std::decay_t<decltype(std::get<1>(results))>::element, ts::bf16>);
  static_assert(std::is_same_v<std::decay_t<decltype(std::get<2>(results))>::element, ts::bf16>);
  EXPECT_NEAR(number(std::get<0>(results)), -0.918938533, 1e-6);
}

// A parameter that is a tensor may be wrong when the program runs; a constant is refused before.
TEST(Distributions, ConstantParametersAreChecked) {
  const auto x = line(2);
  tessera_test::expect_error(
      ts::errc::option, [&] { ts::eval(dist::Normal(x, 0.0).log_prob(x)); },
      "[distributions] parameter: 0.000000 is not above 0 at distributions_test.cpp");
  tessera_test::expect_error(
      ts::errc::option, [&] { ts::eval(dist::Gamma(1.0, -1.0).sample_like(x, 3)); },
      "[distributions] parameter: -1.000000 is not above 0 at distributions_test.cpp");
  tessera_test::expect_error(
      ts::errc::option, [&] { ts::eval(kl_divergence(dist::Normal(x, 1.0), dist::Normal(0.0, 0.0))); },
      "[distributions] parameter: 0.000000 is not above 0 at distributions_test.cpp");
  tessera_test::expect_error(
      ts::errc::option, [&] { ts::eval(kl_divergence(dist::Beta(x, 1.0), dist::Gamma(1.0, -2.0))); },
      "[distributions] parameter: -2.000000 is not above 0 at distributions_test.cpp");
  EXPECT_TRUE(std::isnan(number(ts::eval(dist::Normal(x, x - 1.0).log_prob(x)))));
}

TEST(Distributions, ErrorsNameTheMemberAndBothShapes) {
  const auto three = line(3), four = line(4);
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { ts::eval(dist::Normal(three, 1.0).log_prob(four)); },
      "f64[4] x f64[3] in log_prob at distributions_test.cpp");
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { ts::eval(dist::Gamma(three, four + 1.0).sample(3)); },
      "f64[3] x f64[4] in sample at distributions_test.cpp");
}

}  // namespace
