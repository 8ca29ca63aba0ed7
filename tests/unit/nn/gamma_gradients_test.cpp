// Gradients of samples of gamma distributions, and of igamma, by the concentration.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/distributions/distributions.hpp>
#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;

namespace {

namespace dist = ts::distributions;
constexpr ts::Key own_key(29);
constexpr int count = 5'000;

// Derivatives in 60 digits by mpmath 1.2: of gammainc(a, 0, x, regularized=True) by a, over minus the density.
TEST(GammaGradients, HaveTwelveDigits) {
  const double points[][3] = {
      {0.01, 1e-8, 1.7859795472716309e-5}, {0.3, 0.05, 0.49471098700413128},   {1, 2, 1.6316914623497008},
      {2.5, 2.5, 1.0686730199876306},      {5, 14, 1.6545786778097487},        {40, 30, 0.86663982515044868},
      {700, 720, 1.0143930640231027},      {20000, 20300, 1.0074711742472041}, {9e5, 8.99e5, 0.99944442365101879}};
  for (const auto& [a, x, want] : points) EXPECT_NEAR(ts::ops::random_gamma_grad(a, x), want, 1e-12 * want) << a;
  EXPECT_EQ(ts::ops::random_gamma_grad(2, 0), 0);
  for (const auto& [a, x] : {std::pair(0.0, 1.0), {-1.0, 1.0}, {1.0, -1.0}, {NAN, 1.0}, {1.0, NAN}})
    EXPECT_TRUE(std::isnan(ts::ops::random_gamma_grad(a, x))) << a << ' ' << x;
}

// The derivative of a gamma draw by its concentration is that of the cdf over minus the density.
TEST(GammaGradients, OfSamplesFollowTheCdf) {
  constexpr auto f = ts::compile([](const auto& a, const auto& step, const auto& own) {
    const auto x = dist::Gamma(a, 1.0).sample(own);
    const auto slope = ts::grad([&](const auto& p) { return ts::sum(dist::Gamma(p, 1.0).rsample(own)); })(a);
    const auto of_cdf = (ts::igamma(a + step, x) - ts::igamma(a - step, x)) / (2.0 * step);
    const auto by_a = ts::grad([&](const auto& p) { return ts::sum(ts::igamma(p, x)); })(a);
    const auto upper = ts::grad([&](const auto& p) { return ts::sum(ts::igammac(p, x)); })(a);
    return std::tuple(slope * ts::exp(dist::Gamma(a, 1.0).log_prob(x)), of_cdf, by_a, upper);
  });
  std::vector<double> a, step;
  for (const double each : {0.05, 0.3, 0.9, 1.0, 2.5, 9.0, 40.0, 700.0, 2e4, 9e5, 2e6})
    for (int i = 0; i < 20; ++i) a.push_back(each), step.push_back(1e-3 * std::sqrt(each) * std::min(each, 1.0));
  const auto n = static_cast<std::int64_t>(a.size());
  const auto [slope, of_cdf, by_a, upper] =
      f(ts::shard(a, {n}, ts::Mesh(), {}), ts::shard(step, {n}, ts::Mesh(), {}), own_key);
  for (std::size_t i = 0; i < a.size(); ++i) {
    // The error of the finite difference: of its third derivative, and of igamma, 1e-15 (1 + a), over the step.
    const double want = ts::to_host(of_cdf)[i];
    const double bound = 2e-6 * std::abs(want) + 2e-7 / std::sqrt(a[i]) + 1e-15 * (1 + a[i]) / step[i];
    EXPECT_NEAR(ts::to_host(by_a)[i], want, bound) << a[i];
    EXPECT_NEAR(ts::to_host(upper)[i], -want, bound) << a[i];
    EXPECT_NEAR(-ts::to_host(slope)[i], want, bound) << a[i];
  }
}

// Third derivatives of igamma and igammac: by x alone they are known, those by a of two by x too, and they do not
// depend on the order.
TEST(GammaGradients, ThirdDerivatives) {
  constexpr auto f = ts::compile([](const auto& a, const auto& x) {
    const auto by_x = [](const auto& of) {
      return
          [of](const auto& p, const auto& v) { return ts::grad([&](const auto& w) { return ts::sum(of(p, w)); })(v); };
    };
    const auto by_a = [](const auto& of) {
      return
          [of](const auto& p, const auto& v) { return ts::grad([&](const auto& w) { return ts::sum(of(w, v)); })(p); };
    };
    const auto lower = [](const auto& p, const auto& v) { return ts::igamma(p, v); };
    const auto upper = [](const auto& p, const auto& v) { return ts::igammac(p, v); };
    return std::tuple(by_x(by_x(by_x(lower)))(a, x), by_x(by_x(by_x(upper)))(a, x), by_a(by_x(by_x(lower)))(a, x),
                      by_x(by_a(by_x(lower)))(a, x), by_x(by_x(by_a(lower)))(a, x), by_x(by_x(by_a(upper)))(a, x),
                      by_a(by_a(by_x(lower)))(a, x), by_x(by_a(lower))(a, x));
  });
  const std::vector<double> as{0.3, 1.0, 2.5, 5.0, 9.0, 40.0, 0.7}, xs{0.2, 2.0, 1.25, 14.0, 8.5, 44.0, 3.0};
  const ts::Mesh mesh({{"x", 3}});
  const auto made = f(ts::shard(as, {7}, mesh, {"x"}), ts::shard(xs, {7}, mesh, {"x"}));
  const auto values = std::apply([](const auto&... t) { return std::vector{ts::to_host(t)...}; }, made);
  for (std::size_t i = 0; i < as.size(); ++i) {
    const double a = as[i], x = xs[i], density = std::exp((a - 1) * std::log(x) - x - std::lgamma(a));
    const double slope = (a - 1) / x - 1, by_a = std::log(x) - ts::ops::digamma(a);
    const double third = density * (slope * slope - (a - 1) / (x * x)), mixed = density * (slope * by_a + 1 / x);
    const double twice_a = density * (by_a * by_a - ts::ops::polygamma(1, a));
    const double wanted[] = {third, -third, mixed, mixed, mixed, -mixed, twice_a, density * by_a};
    for (std::size_t k = 0; k < values.size(); ++k)
      EXPECT_NEAR(values[k][i], wanted[k], 1e-11 * (density + std::abs(wanted[k])))
          << "derivative " << k << " at " << a;
  }
}

// Means of gradients of samples are gradients of means, of those families that are made of gamma draws.
TEST(GammaGradients, OfMeansOfSamples) {
  constexpr auto f = ts::compile([](const auto& a, const auto& own) {
    const auto of = [&](const auto& value) { return ts::grad([&](const auto& p) { return ts::sum(value(p)); })(a); };
    return std::tuple(of([&](const auto& p) { return dist::Gamma(p, 2.0).rsample(own); }),
                      of([&](const auto& p) { return dist::Beta(p, 3.0).rsample(own); }),
                      of([&](const auto& p) { return dist::Beta(3.0, p).rsample(own); }),
                      of([&](const auto& p) { return dist::Chi2(p).rsample(own); }),
                      of([&](const auto& p) { return ts::square(dist::StudentT(p, 0.0, 1.0).rsample(own)); }),
                      of([&](const auto& p) {
                        const auto rows = ts::stack<-1>(p, ts::full_like(p, 2.0));
                        return ts::select<-1>(dist::Dirichlet(rows).rsample(own), 0);
                      }),
                      of([&](const auto& p) { return dist::Gamma(p, 2.0).sample(own); }));
  });
  constexpr double a = 9;
  const double want[] = {0.5, 3 / ((a + 3) * (a + 3)),  -3 / ((a + 3) * (a + 3)),
                         1,   -2 / ((a - 2) * (a - 2)), 2 / ((a + 2) * (a + 2))};
  const auto [gamma, beta, flipped, chi2, student, dirichlet, none] =
      f(ts::full<double>({count}, a, ts::Mesh(), {}), own_key);
  int which = 0;
  for (const auto& each : {gamma, beta, flipped, chi2, student, dirichlet}) {
    double mean = 0, square = 0;
    for (const double g : ts::to_host(each)) mean += g / count, square += g * g / count;
    EXPECT_NEAR(mean, want[which], 5 * std::sqrt((square - mean * mean) / count)) << which;
    ++which;
  }
  for (const double g : ts::to_host(none)) EXPECT_EQ(g, 0);
}

}  // namespace
