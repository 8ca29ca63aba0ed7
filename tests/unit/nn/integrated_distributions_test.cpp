// Distributions that PyTorch 1.13 lacks, or has less exactly, against integrals of their densities.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include "uniform_under_cdf.hpp"
#include <gtest/gtest.h>

#include <tessera/distributions/distributions.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;

namespace {

namespace dist = ts::distributions;
constexpr ts::Key own_key(29);
constexpr int count = 5'000;
using tessera_test::expect_uniform, tessera_test::number, tessera_test::of_cdf;

/// Points of an integral, which the trapezoidal rule computes of a periodic function, or of one that is 0 at both ends,
/// to many digits.
struct Points {
  double from, to;
  std::int64_t n;
  double step() const { return (to - from) / static_cast<double>(n); }
  auto tensor() const { return ts::arange<double>(n, ts::Mesh(), {}) * step() + from; }
};

constexpr auto of_angles = ts::compile([](const auto& angles, const auto& loc, const auto& concentration) {
  const auto x = ts::unsqueeze<1>(angles);
  const auto p = dist::VonMises(loc, concentration);
  const auto density = ts::exp(p.log_prob(x));
  return std::tuple(ts::sum<0>(density), ts::sum<0>(density * ts::cos(x - loc)), ts::sum<0>(density * p.log_prob(x)),
                    p.variance(), p.entropy(), p.mean(), p.mode(), ts::grad([&](const auto& c) {
                      return ts::sum(dist::VonMises(loc, c).log_prob(x));
                    })(concentration));
});

TEST(IntegratedDistributions, VonMises) {
  const Points angles{-std::numbers::pi, std::numbers::pi, 2000};
  const auto x = ts::eval(angles.tensor());
  const std::vector<double> concentrations{1e-3, 0.5, 4, 60, 1200};
  const auto concentration = ts::shard(concentrations, ts::Mesh(), {});
  const auto loc = ts::shard<double>({0, 1, -2, 3, 0.25}, ts::Mesh(), {});
  const auto [whole, cosines, logs, variance, entropy, mean, mode, slopes] = of_angles(x, loc, concentration);
  for (std::size_t i = 0; i < concentrations.size(); ++i) {
    EXPECT_NEAR(ts::to_host(whole)[i] * angles.step(), 1, 1e-12) << i;
    EXPECT_NEAR(ts::to_host(cosines)[i] * angles.step(), 1 - ts::to_host(variance)[i], 1e-12) << i;
    EXPECT_NEAR(-ts::to_host(logs)[i] * angles.step(), ts::to_host(entropy)[i], 1e-11) << i;
    // Of each point cos(x - loc) less its mean, and the cosines of all points add up to 0.
    EXPECT_NEAR(ts::to_host(slopes)[i] / 2000, ts::to_host(variance)[i] - 1, 1e-11) << i;
  }
  EXPECT_EQ(ts::to_host(mean), ts::to_host(loc));
  EXPECT_EQ(ts::to_host(mode), ts::to_host(loc));
}

constexpr auto angles_drawn =
    ts::compile([](const auto& x, const auto& loc, const auto& concentration, const auto& own) {
      const auto p = dist::VonMises(ts::unsqueeze<1>(loc) + x, ts::unsqueeze<1>(concentration));
      const auto drawn = p.sample(own), cosines = ts::cos(drawn - ts::unsqueeze<1>(loc));
      return std::tuple(drawn, ts::mean<1>(cosines), ts::mean<1>(ts::square(cosines)),
                        ts::mean<1>(ts::sin(drawn - ts::unsqueeze<1>(loc))), 1.0 - ts::mean<1>(p.variance()),
                        dist::VonMises(0.5, 2.0).sample_like(loc, own));
    });

// The means of cos and sin of samples, and of cos^2, which is 1 - r / concentration.
TEST(IntegratedDistributions, SamplesOfVonMises) {
  constexpr int each = 1'500;
  const std::vector<double> concentrations{0.3, 2.5, 40, 1e5};
  std::vector<double> first;
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto [drawn, cosines, squares, sines, lengths, few] =
        angles_drawn(ts::zeros<double>({4, each}, mesh, {ts::none, "x"}), ts::shard<double>({0.5, 3, -1, 0}, mesh),
                     ts::shard(concentrations, mesh), own_key);
    const std::vector<double> all = ts::to_host(drawn);
    for (const double angle : all) ASSERT_LE(std::fabs(angle), std::numbers::pi);
    for (std::size_t i = 0; i < 4; ++i) {
      const double r = ts::to_host(lengths)[i], square = 1 - r / concentrations[i], root = std::sqrt(each);
      EXPECT_NEAR(ts::to_host(cosines)[i], r, 5 * std::sqrt(square - r * r) / root) << i;
      EXPECT_NEAR(ts::to_host(squares)[i], square, 5 * std::fmin(0.5, 1.5 * (1 - square)) / root) << i;
      EXPECT_NEAR(ts::to_host(sines)[i], 0, 5 * std::sqrt(1 - square) / root) << i;
    }
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << "equal on every mesh";
    EXPECT_EQ(ts::shape(few), (ts::Shape{4}));
  }
  const auto outside = ts::zeros<double>({2}, ts::Mesh(), {});
  tessera_test::expect_error(
      ts::errc::unsupported, [&] { ts::eval(dist::VonMises(outside, 1.0).sample(3)); }, "ts::compile");
}

constexpr auto of_student = ts::compile([](const auto& t, const auto& df, const auto& own) {
  const auto cdf = [](const auto& x, const auto& degrees) { return dist::StudentT(degrees, 0.5, 2.0).cdf(x); };
  const auto x = ts::eval(t * 2.0 + 0.5);
  const auto [of_x, of_df] = ts::grad<0, 1>([&](const auto& a, const auto& b) { return ts::sum(cdf(a, b)); })(x, df);
  const auto between = (cdf(x, df * (1 + 1e-5)) - cdf(x, df * (1 - 1e-5))) / (df * 2e-5);
  return std::tuple(cdf(x, df), of_x, ts::exp(dist::StudentT(df, 0.5, 2.0).log_prob(x)), of_df, between,
                    of_cdf(dist::StudentT(3.5, 1.0, 0.5), ts::zeros_like(df), own));
});

// Of 1 to 4 degrees the distribution function is elementary.
TEST(IntegratedDistributions, DistributionFunctionOfStudentT) {
  const double inf = std::numeric_limits<double>::infinity(), pi = std::numbers::pi;
  std::vector<double> t, df, want;
  for (const double x : {-1e6, -30.0, -3.0, -1.5, -0.25, -1e-5, 0.0, 1e-9, 1e-3, 0.5, 1.0, 2.0, 10.0, 1e4})
    for (const double degrees : {1.0, 2.0, 3.0, 4.0}) {
      const double u = x / std::sqrt(degrees), v = 1 + u * u;
      // The lower tail of one degree, without cancellation.
      const double of_one = x < -1 ? std::atan(-1 / x) / pi : 0.5 + std::atan(x) / pi;
      t.push_back(x), df.push_back(degrees);
      want.push_back(degrees == 1   ? of_one
                     : degrees == 2 ? 0.5 * (1 + u / std::sqrt(v))
                     : degrees == 3 ? 0.5 + (u / v + std::atan(u)) / pi
                                    : 0.5 + 0.75 * u / std::sqrt(v) * (1 - u * u / (3 * v)));
    }
  const auto [made, of_x, density, of_df, between, drawn] =
      of_student(ts::shard(t, ts::Mesh(), {}), ts::shard(df, ts::Mesh(), {}), own_key);
  for (std::size_t i = 0; i < t.size(); ++i) {
    EXPECT_NEAR(ts::to_host(made)[i], want[i], 2e-15) << t[i] << ' ' << df[i];
    if (df[i] == 1) EXPECT_NEAR(ts::to_host(made)[i] / want[i], 1, 1e-13) << t[i];
    EXPECT_NEAR(ts::to_host(of_x)[i] / ts::to_host(density)[i], 1, 1e-11) << t[i] << ' ' << df[i];
    EXPECT_NEAR(ts::to_host(of_df)[i], ts::to_host(between)[i], 1e-9) << t[i] << ' ' << df[i];
  }
  const auto far = ts::eval(dist::StudentT(3.0, 0.0, 1.0).cdf(ts::shard<double>({-inf, inf}, ts::Mesh(), {})));
  EXPECT_EQ(ts::to_host(far), (std::vector<double>{0, 1}));
  expect_uniform(drawn, static_cast<int>(t.size()));
}

constexpr auto of_inverse = ts::compile([](const auto& logarithms, const auto& a, const auto& b, const auto& own) {
  const auto u = ts::unsqueeze<1>(logarithms);
  const auto p = dist::InverseGamma(a, b);
  const auto x = ts::exp(u);
  const auto density = ts::exp(p.log_prob(x) + u);  // of u
  const auto all = std::tuple(ts::sum<0>(density), ts::sum<0>(density * x), ts::sum<0>(density * x * x),
                              ts::sum<0>(density * p.log_prob(x)), p.mean(), p.variance(), p.entropy(), p.mode(),
                              p.cdf(ts::zeros_like(a)), p.log_prob(ts::zeros_like(a)));
  return std::tuple(all, of_cdf(dist::InverseGamma(2.5, 0.5), logarithms, own),
                    kl_divergence(p, dist::InverseGamma(b, a)), kl_divergence(dist::Gamma(a, b), dist::Gamma(b, a)));
});

TEST(IntegratedDistributions, InverseGamma) {
  const Points logarithms{-8, 40, count};
  const auto u = ts::eval(logarithms.tensor());
  const auto a = ts::shard<double>({2.5, 4, 1.5, 0.75}, ts::Mesh(), {}),
             b = ts::shard<double>({0.5, 3, 1, 2}, ts::Mesh(), {});
  const auto [all, drawn, divergence, of_gammas] = of_inverse(u, a, b, own_key);
  const auto [whole, first, second, logs, mean, variance, entropy, mode, below, outside] = all;
  for (std::size_t i = 0; i < 4; ++i) {
    const double width = logarithms.step(), inf = std::numeric_limits<double>::infinity();
    const double want_mean = ts::to_host(first)[i] * width, want_square = ts::to_host(second)[i] * width;
    EXPECT_NEAR(ts::to_host(whole)[i] * width, 1, 1e-10) << i;
    if (i < 3) EXPECT_NEAR(ts::to_host(mean)[i], want_mean, 1e-6) << i;
    if (i < 2) EXPECT_NEAR(ts::to_host(variance)[i], want_square - want_mean * want_mean, 1e-6) << i;
    if (i >= 2) EXPECT_EQ(ts::to_host(variance)[i], inf);
    EXPECT_NEAR(ts::to_host(entropy)[i], -ts::to_host(logs)[i] * width, 1e-9) << i;
    EXPECT_NEAR(ts::to_host(mode)[i], ts::to_host(b)[i] / (ts::to_host(a)[i] + 1), 1e-14);
    EXPECT_EQ(ts::to_host(below)[i], 0);
    EXPECT_EQ(ts::to_host(outside)[i], -inf);
  }
  EXPECT_EQ(ts::to_host(mean)[3], std::numeric_limits<double>::infinity());
  EXPECT_EQ(ts::to_host(divergence), ts::to_host(of_gammas));
  expect_uniform(drawn, count);
  // Levy's distribution: of concentration 1/2 and rate c / 2 the distribution function is erfc(sqrt(c / (2 x))).
  const auto x = ts::shard<double>({0.25, 1, 7}, ts::Mesh(), {});
  const std::vector<double> levy = ts::to_host(ts::eval(dist::InverseGamma(0.5, 1.5).cdf(x)));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(levy[i], std::erfc(std::sqrt(1.5 / ts::to_host(x)[i])), 1e-14);
}

constexpr auto of_beta = ts::compile([](const auto& x, const auto& a, const auto& own) {
  const auto p = dist::Beta(a, 2.5);
  const auto [values, slopes] = ts::value_and_grad([&](const auto& at) { return ts::sum(p.cdf(at)); })(x);
  return std::tuple(values, slopes, ts::exp(p.log_prob(x)), p.cdf(x * 3.0 - 1.0), of_cdf(dist::Beta(0.7, 3.0), x, own));
});

// The slope of the distribution function is the density, and samples are uniform under it.
TEST(IntegratedDistributions, DistributionFunctionOfBeta) {
  const auto x = ts::eval((ts::arange<double>(count, ts::Mesh(), {}) + 0.5) / static_cast<double>(count));
  const auto [sum, slopes, density, stretched, drawn] =
      of_beta(x, ts::full<double>({count}, 1.75, ts::Mesh(), {}), own_key);
  const std::vector<double> at = ts::to_host(x), slope = ts::to_host(slopes), want = ts::to_host(density);
  double total = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    ASSERT_NEAR(slope[i], want[i], 1e-12);
    total += want[i] * (1 - at[i]);
  }
  EXPECT_EQ(ts::to_host(stretched).front(), 0);
  EXPECT_EQ(ts::to_host(stretched).back(), 1);
  EXPECT_NEAR(number(sum), total, 1e-2) << "the mean of 1 - x, count times";
  expect_uniform(drawn, count);
}

constexpr auto of_factors =
    ts::compile([](const auto& factor, const auto& concentration, const auto& like, const auto& own) {
      const auto [value, slopes] = ts::value_and_grad(
          [&](const auto& c) { return ts::sum(dist::LKJCholesky(c).log_prob(factor)); })(concentration);
      const auto p = dist::LKJCholesky(2.5);
      const auto drawn = p.sample_like(like, own);
      const auto correlations = ts::einsum<"nij,nkj->nik">(drawn, drawn);
      return std::tuple(dist::LKJCholesky(concentration).log_prob(factor), slopes, p.log_prob(factor), drawn,
                        ts::mean<0>(correlations), ts::mean<0>(ts::square(correlations)), ts::min(ts::diagonal(drawn)),
                        value);
    });

// torch.distributions.LKJCholesky of three rows; each correlation has the variance 1 / (2 concentration + rows - 1).
TEST(IntegratedDistributions, FactorsOfCorrelations) {
  constexpr int each = 2'000;
  std::vector<double> first;
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto factor = ts::shard<double>(
        {{1, 0, 0}, {0.5, 0.8660254037844386, 0}, {-0.3, 0.40414518843273806, 0.8640987597877147}}, mesh, {"x"});
    const auto [values, slopes, of_number, drawn, mean, squares, least, sum] = of_factors(
        factor, ts::shard<double>({0.5, 1, 2.5}, mesh), ts::zeros<double>({each, 3, 3}, mesh, {"x"}), own_key);
    const std::vector<double> want{-2.38495603556871, -1.7401536273647455, -1.30654645421812},
        by_concentration{2.0338871436271653, 0.8064758658669482, 0.000553810293833612};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(ts::to_host(values)[i], want[i], 1e-12);
      EXPECT_NEAR(ts::to_host(slopes)[i], by_concentration[i], 1e-12);
    }
    EXPECT_NEAR(number(of_number), want[2], 1e-12);
    EXPECT_NEAR(number(sum), want[0] + want[1] + want[2], 1e-12);
    EXPECT_GE(number(least), 0);
    for (std::size_t i = 0; i < 9; ++i) {
      const bool on_diagonal = i % 4 == 0;
      EXPECT_NEAR(ts::to_host(mean)[i], on_diagonal ? 1 : 0, on_diagonal ? 1e-12 : 5 * std::sqrt(1.0 / 7 / each)) << i;
      EXPECT_NEAR(ts::to_host(squares)[i], on_diagonal ? 1 : 1.0 / 7, on_diagonal ? 1e-12 : 5 * 0.2 / std::sqrt(each))
          << i;
    }
    const std::vector<double> all = ts::to_host(drawn);
    for (std::size_t i = 0; i < all.size(); ++i)
      if (i % 9 == 1 || i % 9 == 2 || i % 9 == 5) ASSERT_EQ(all[i], 0) << "above the diagonal";
    if (first.empty()) first = all;
    EXPECT_EQ(all, first) << "equal on every mesh";
  }
}

constexpr auto factors_for_each = ts::compile([](const auto& concentration, const auto& own) {
  const auto drawn = dist::LKJCholesky(concentration).sample(3, own);
  const auto correlations = ts::einsum<"nij,nkj->nik">(drawn, drawn);
  return std::tuple(drawn, ts::square(correlations), dist::LKJCholesky(concentration).sample_like(drawn, own),
                    dist::LKJCholesky(concentration).template sample<1>(1, own));
});

// Each concentration has its own matrix: the squares of its correlations have the mean 1 / (2 concentration + 2).
TEST(IntegratedDistributions, FactorsOfGivenSize) {
  constexpr std::int64_t each = 2'000;
  std::vector<double> concentrations(2 * each, 0.5), first;
  for (std::size_t i = each; i < 2 * each; ++i) concentrations[i] = 4;
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto [drawn, squares, like, single] = factors_for_each(ts::shard(concentrations, mesh, {"x"}), own_key);
    ASSERT_EQ(ts::shape(drawn), (ts::Shape{2 * each, 3, 3}));
    EXPECT_EQ(ts::to_host(drawn), ts::to_host(like));
    EXPECT_EQ(ts::to_host(single), std::vector<double>(2 * each, 1.0));
    const std::vector<double> all = ts::to_host(squares);
    for (const std::size_t half : {0, 1})
      for (std::size_t i = 0; i < 9; ++i) {
        const double want = i % 4 == 0 ? 1 : half == 0 ? 1.0 / 3 : 0.1;
        double mean = 0;
        for (std::size_t n = 0; n < each; ++n) mean += all[(half * each + n) * 9 + i] / each;
        EXPECT_NEAR(mean, want, i % 4 == 0 ? 1e-12 : 5 * 0.35 / std::sqrt(each)) << half << " " << i;
      }
    if (first.empty()) first = ts::to_host(drawn);
    EXPECT_EQ(ts::to_host(drawn), first) << "equal on every mesh";
  }
}

/// Samples of a concentration in a type: of Gamma, InverseGamma, StudentT, Beta, Dirichlet.
template <class T> void expect_finite_samples(double concentration) {
  constexpr auto f = ts::compile([](const auto& a, const auto& own) {
    const auto rows = ts::unsqueeze<-1>(a) + ts::zeros_like(ts::unsqueeze<-1>(a));
    const auto gamma = dist::Gamma(a, 1.0).sample(own);
    return std::tuple(gamma, dist::Gamma(a, 1.0).log_prob(gamma), dist::InverseGamma(a, 1.0).sample(own),
                      dist::StudentT(a, 0.0, 1.0).sample(own), dist::Beta(a, a).sample(own),
                      dist::Dirichlet(ts::concat<1>(rows, rows)).sample(own), ts::beta(a, a, own),
                      ts::dirichlet(ts::concat<1>(rows, rows), own));
  });
  const auto results = f(ts::full<T>({count}, T(static_cast<float>(concentration)), ts::Mesh(), {}), own_key);
  int which = 0;
  const auto check = [&](const auto& drawn) {
    int wrong = 0;
    for (const auto x : ts::to_host(drawn)) wrong += !std::isfinite(static_cast<double>(static_cast<float>(x)));
    EXPECT_EQ(wrong, 0) << which << " of " << concentration;
    ++which;
  };
  std::apply([&](const auto&... drawn) { (check(drawn), ...); }, results);
}

// Most gamma draws of a small concentration are below the smallest number: they become that number, as in PyTorch, and
// beta draws are computed of logarithms. Beta samples were 0 / 0, and densities of gamma samples infinite.
TEST(IntegratedDistributions, SamplesOfSmallConcentrationsAreFinite) {
  for (const double concentration : {0.01, 0.1, 1.0}) {
    expect_finite_samples<float>(concentration);
    expect_finite_samples<ts::bf16>(concentration);
    expect_finite_samples<ts::f16>(concentration);
  }
}

// The mean of Beta(a, a) is a / (a + a), so the gradients of samples by the first have the mean 1 / (4 a).
TEST(IntegratedDistributions, GradientsOfSamplesOfSmallConcentrations) {
  constexpr auto f = ts::compile([](const auto& a, const auto& b, const auto& own) {
    const auto of_beta = [&](const auto& one) { return ts::sum(dist::Beta(one, b).rsample(own)); };
    const auto of_rows = [&](const auto& one) {
      const auto rows = ts::concat<1>(ts::unsqueeze<-1>(one), ts::unsqueeze<-1>(b));
      return ts::sum(ts::slice<1>(dist::Dirichlet(rows).rsample(own), 0, 1));
    };
    return std::tuple(ts::grad(of_beta)(a), ts::grad(of_rows)(a));
  });
  for (const float a : {0.03f, 0.2f, 2.0f}) {
    const auto line = ts::full<float>({20'000}, a, ts::Mesh(), {});
    const auto check = [&](const auto& gradients) {
      double sum = 0, squares = 0;
      const auto host = ts::to_host(gradients);
      for (const float x : host) sum += x, squares += static_cast<double>(x) * x;
      const double n = static_cast<double>(host.size()), mean = sum / n;
      EXPECT_NEAR(mean, 1 / (4 * a), 4 * std::sqrt((squares / n - mean * mean) / n)) << a;
      EXPECT_LT(std::sqrt(squares / n / n), 0.1 / (4 * a)) << a;
    };
    std::apply([&](const auto&... each) { (check(each), ...); }, f(line, line, own_key));
  }
}

// 1 is no value of Uniform(0, 1): its density is 0, and the logarithm of that -infinity.
TEST(IntegratedDistributions, UniformSamplesOfHalfPrecisionAreBelowTheEnd) {
  const auto check = [](auto zero) {
    const auto low = ts::full<decltype(zero)>({20'000}, zero, ts::Mesh(), {});
    for (const auto x : ts::to_host(ts::eval(dist::Uniform(low, 1.0).sample(3)))) ASSERT_LT(static_cast<float>(x), 1);
  };
  check(ts::bf16(0.0f));
  check(ts::f16(0.0f));
}

/// Checks results of f32 against numbers that are exact to double.
void expect_close(const auto& made, const std::vector<double>& want, double bound) {
  const auto host = ts::to_host(made);
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::isinf(want[i]))
      EXPECT_EQ(host[i], want[i]) << i;
    else
      EXPECT_NEAR(host[i], want[i], bound * std::fabs(want[i])) << i;
}

// The smallest probabilities have quantiles, and the lowest values probabilities, as in jax.scipy.stats. At the median
// the derivative is that of both sides.
TEST(IntegratedDistributions, Tails) {
  const float inf = std::numeric_limits<float>::infinity();
  constexpr auto quantiles = ts::compile([](const auto& p) {
    return std::tuple(dist::Normal(0.0, 1.0).icdf(p), dist::Laplace(1.0, 2.0).icdf(p), dist::Cauchy(1.0, 2.0).icdf(p),
                      dist::HalfCauchy(2.0).icdf(p));
  });
  const std::vector<float> p{0, 1e-30f, 1e-6f, 0.25f, 0.5f, 0.75f, 0.875f, 1};
  const auto [normal, laplace, cauchy, half] = quantiles(ts::shard(p, ts::Mesh(), {}));
  // scipy.stats.norm.ppf
  expect_close(normal, {-inf, -11.464024988, -4.753424309, -0.6744897502, 0, 0.6744897502, 1.150349380, inf}, 2e-6);
  std::vector<double> of_laplace, of_cauchy, of_half;
  for (const double q : p) {
    const double rest = std::min(q, 1 - q), size = 2 * std::log(2 * rest), turn = 2 / std::tan(std::numbers::pi * rest);
    of_laplace.push_back(q < 0.5 ? 1 + size : 1 - size);
    of_cauchy.push_back(q == 0.5 ? 1 : q < 0.5 ? 1 - turn : 1 + turn);
    of_half.push_back(q == 1 ? inf : 2 * std::tan(std::numbers::pi / 2 * q));
  }
  expect_close(laplace, of_laplace, 1e-6);
  expect_close(cauchy, of_cauchy, 1e-6);
  expect_close(half, of_half, 1e-6);

  constexpr auto functions = ts::compile([](const auto& x) {
    const auto slope = [](const auto& y) { return ts::sum(dist::Laplace(0.0, 1.0).cdf(y)); };
    return std::tuple(dist::Laplace(0.0, 1.0).cdf(x), dist::Cauchy(0.0, 1.0).cdf(x), ts::grad(slope)(x));
  });
  const std::vector<float> x{-inf, -80, -20, -1, 0, 0.5f, 30, inf};
  const auto [of_l, of_c, slopes] = functions(ts::shard(x, ts::Mesh(), {}));
  std::vector<double> want_l, want_c, density;
  for (const double t : x) {
    want_l.push_back(t < 0 ? std::exp(t) / 2 : 1 - std::exp(-t) / 2);
    want_c.push_back(t < -1 ? std::atan(-1 / t) / std::numbers::pi : 0.5 + std::atan(t) / std::numbers::pi);
    density.push_back(std::exp(-std::fabs(t)) / 2);
  }
  expect_close(of_l, want_l, 1e-6);
  expect_close(of_c, want_c, 1e-6);
  expect_close(slopes, density, 1e-6);
}

// Student's t distribution of many degrees of freedom is the normal distribution: for 1e8 the logarithms of the gamma
// functions are 8e8, of which f32 knows no digit behind the point.
TEST(IntegratedDistributions, StudentTOfManyDegrees) {
  constexpr auto of = [](const auto& df) {
    const auto by_df = [](const auto& d) { return ts::sum(dist::StudentT(d, 0.0, 1.0).log_prob(0.0)); };
    return std::tuple(dist::StudentT(df, 0.0, 1.0).log_prob(1.0), dist::StudentT(df, 0.0, 1.0).entropy(),
                      dist::StudentT(df, 0.0, 1.0).cdf(1e-9), ts::grad(by_df)(df));
  };
  constexpr auto program = ts::compile(of);
  const std::vector<double> degrees{1, 15, 16.5, 40, 127, 129, 1e4, 1e6, 1e8, 1e10};
  const auto wide = program(ts::shard(degrees, ts::Mesh(), {}));
  const auto narrow = program(ts::shard(std::vector<float>(degrees.begin(), degrees.end()), ts::Mesh(), {}));
  const auto log_prob = ts::to_host(std::get<0>(wide)), entropy = ts::to_host(std::get<1>(wide));
  const auto slope = ts::to_host(std::get<3>(wide));
  for (std::size_t i = 0; i < degrees.size(); ++i) {
    const double df = degrees[i];
    const double constant = std::lgamma((df + 1) / 2) - std::lgamma(df / 2) - std::log(df * std::numbers::pi) / 2;
    const double rounding = 4e-16 * (1 + std::lgamma(df / 2 + 1));
    EXPECT_NEAR(log_prob[i], constant - (df + 1) / 2 * std::log1p(1 / df), rounding + 1e-14) << df;
    // By df: 1 / (4 df^2), and the entropy is that of the normal distribution plus 1 / df, both up to higher powers.
    if (df >= 1e4) EXPECT_NEAR(slope[i] * df * df * 4, 1, 2e-4) << df;
    if (df >= 1e4) EXPECT_NEAR(entropy[i], 0.5 + std::log(2 * std::numbers::pi) / 2 + 1 / df, 2 / (df * df) + 1e-14);
  }
  expect_close(std::get<0>(narrow), {log_prob.begin(), log_prob.end()}, 2e-6);
  expect_close(std::get<1>(narrow), {entropy.begin(), entropy.end()}, 2e-6);
  expect_close(std::get<3>(narrow), {slope.begin(), slope.end()}, 2e-4);
}

// Concentrated distributions in f32 against formulas in double, or against the normal distribution that they become.
TEST(IntegratedDistributions, ConcentratedDistributions) {
  constexpr auto f = ts::compile([](const auto& c, const auto& logits) {
    const auto entropy = [](const auto& x) { return ts::sum(dist::Geometric(dist::Logits(x)).entropy()); };
    return std::tuple(dist::VonMises(0.0, c).log_prob(1e-3), dist::VonMises(0.0, c).variance(),
                      dist::VonMises(0.0, c).entropy(), dist::Bernoulli(dist::Logits(logits)).entropy(),
                      dist::Geometric(dist::Logits(logits)).entropy(), ts::grad(entropy)(logits),
                      kl_divergence(dist::Bernoulli(dist::Logits(logits)), dist::Bernoulli(dist::Logits(logits * 1.5))),
                      kl_divergence(dist::Normal(0.0, ts::exp(-ts::abs(logits))), dist::Normal(0.0, 1.0)));
  });
  const std::vector<double> concentrations{49, 51, 1e4, 1e6, 1e8}, logits{-80, -45, -21, -19, -3, 0, 3, 19, 45};
  const auto all = f(ts::shard(std::vector<float>(concentrations.begin(), concentrations.end()), ts::Mesh(), {}),
                     ts::shard(std::vector<float>(logits.begin(), logits.end()), ts::Mesh(), {}));
  std::vector<double> angle, variance, entropy;
  for (const double c : concentrations) {
    const double first = std::cyl_bessel_i(0, std::min(c, 500.0)), second = std::cyl_bessel_i(1, std::min(c, 500.0));
    // I0(c) exp(-c) sqrt(2 pi c) is 1 + 1 / (8 c) + 9 / (128 c^2) + ...
    const double scaled =
        std::log(2 * std::numbers::pi / c) / 2 + std::log1p(1 / (8 * c) + 9 / (128 * c * c) + 225 / (3072 * c * c * c));
    variance.push_back(c < 500 ? 1 - second / first : 1 / (2 * c) + 1 / (8 * c * c));
    entropy.push_back(scaled + c * variance.back());
    angle.push_back(-2 * c * std::pow(std::sin(0.5e-3), 2) - scaled);
  }
  expect_close(std::get<0>(all), angle, 3e-6);
  expect_close(std::get<1>(all), variance, 1e-5);
  expect_close(std::get<2>(all), entropy, 1e-5);
  std::vector<double> of_bit, of_failures, slope, of_bits, of_normals;
  for (const double x : logits) {
    const auto softplus = [](double y) { return std::max(y, 0.0) + std::log1p(std::exp(-std::fabs(y))); };
    const double p = 1 / (1 + std::exp(-x)), rest = 1 / (1 + std::exp(x));
    of_bit.push_back(p * softplus(-x) + rest * softplus(x));
    of_failures.push_back(softplus(-x) + std::exp(-x) * softplus(x));
    slope.push_back(-std::exp(-x) * softplus(x));
    of_bits.push_back(p * (softplus(-1.5 * x) - softplus(-x)) + rest * (softplus(1.5 * x) - softplus(x)));
    of_normals.push_back((std::exp(-2 * std::fabs(x)) - 1) / 2 + std::fabs(x));
  }
  expect_close(std::get<3>(all), of_bit, 3e-6);
  expect_close(std::get<4>(all), of_failures, 3e-6);
  expect_close(std::get<5>(all), slope, 3e-6);
  expect_close(std::get<6>(all), of_bits, 3e-6);
  expect_close(std::get<7>(all), of_normals, 3e-6);
}

}  // namespace
