// Mixtures of distributions, and distributions of transformed numbers: samples, edges of their supports. Their
// formulas: reference_distributions_test.cpp.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "../../support/page.hpp"
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

namespace ts = tessera;

namespace {

namespace dist = ts::distributions;
constexpr ts::Key own_key(29);
constexpr int count = 5'000;
using tessera_test::expect_uniform, tessera_test::number, tessera_test::of_cdf;

// Values outside of the range of a transform, at its ends, and in it.
TEST(ComposedDistributions, TransformedValues) {
  constexpr auto f = ts::compile([](const auto& x, const auto& one) {
    const auto of = [&](const auto& p) {
      return std::tuple(p.log_prob(x), p.cdf(x), ts::grad([&](const auto& at) { return ts::sum(p.log_prob(at)); })(x));
    };
    return std::tuple(of(dist::TransformedDistribution(dist::Normal(0.0, one), dist::ExpTransform{})),
                      of(dist::LogNormal(0.0, one)),
                      of(dist::TransformedDistribution(dist::Normal(0.0, one), dist::SigmoidTransform{})),
                      of(dist::TransformedDistribution(dist::Normal(0.0, one), dist::TanhTransform{})));
  });
  const std::vector<double> x = {-2, 0.25, 0.75, 1, 1.5, std::nan("")};
  const auto n = static_cast<std::int64_t>(x.size());
  const auto [exp, log_normal, sigmoid, tanh] =
      f(ts::shard(x, {n}, ts::Mesh(), {}), ts::ones<double>({n}, ts::Mesh(), {}));
  const auto outside = [&](const auto& results, std::size_t i, double cdf) {
    EXPECT_EQ(ts::to_host(std::get<0>(results))[i], -INFINITY) << i;
    EXPECT_EQ(ts::to_host(std::get<1>(results))[i], cdf) << i;
    EXPECT_EQ(ts::to_host(std::get<2>(results))[i], 0) << i;
  };
  outside(exp, 0, 0), outside(sigmoid, 0, 0), outside(sigmoid, 4, 1), outside(tanh, 0, 0), outside(tanh, 4, 1);
  for (const auto* results : {&sigmoid, &tanh}) {
    EXPECT_TRUE(std::isfinite(ts::to_host(std::get<0>(*results))[3]));
    EXPECT_NEAR(ts::to_host(std::get<1>(*results))[3], 1, 1e-15);
    EXPECT_TRUE(std::isnan(ts::to_host(std::get<0>(*results))[5]));
  }
  for (std::size_t i = 1; i < 5; ++i) {
    EXPECT_NEAR(ts::to_host(std::get<0>(exp))[i], ts::to_host(std::get<0>(log_normal))[i], 1e-14);
    EXPECT_NEAR(ts::to_host(std::get<1>(exp))[i], ts::to_host(std::get<1>(log_normal))[i], 1e-14);
    EXPECT_NEAR(ts::to_host(std::get<2>(exp))[i], ts::to_host(std::get<2>(log_normal))[i], 1e-13);
  }
}

// The divergence of equal transforms is that of the bases; other numbers in the transforms are an error.
TEST(ComposedDistributions, DivergenceOfTransformed) {
  const auto one = ts::ones<double>({3}, ts::Mesh());
  const auto made = [&](double loc, double offset, const auto& scale) {
    return dist::TransformedDistribution(dist::Normal(loc, one), dist::AffineTransform(offset, scale),
                                         dist::TanhTransform{});
  };
  for (const double kl : ts::to_host(ts::eval(kl_divergence(made(2, 1, 3.0), made(0, 1, 3.0))))) EXPECT_EQ(kl, 2);
  for (const double kl : ts::to_host(ts::eval(kl_divergence(made(2, 1, one), made(0, 1, one))))) EXPECT_EQ(kl, 2);
  tessera_test::expect_error(
      ts::errc::option, [&] { kl_divergence(made(2, 1, 3.0), made(0, 1.5, 3.0)); }, "[kl_divergence] transforms",
      "composed_distributions_test.cpp");
  tessera_test::expect_error(ts::errc::option, [&] { kl_divergence(made(2, 1, 3.0), made(0, 1, 4)); });
}

TEST(ComposedDistributions, SamplesOfTransformedAndMixed) {
  constexpr auto f = ts::compile([](const auto& x, const auto& w, const auto& own) {
    const auto tanh = dist::TransformedDistribution(dist::Normal(0.3, 0.7), dist::TanhTransform{});
    const auto turned = dist::TransformedDistribution(dist::Gumbel(0.3, 0.7), dist::AffineTransform(1.0, -2.0));
    const auto mixed =
        dist::MixtureSameFamily(dist::Categorical(dist::Logits(w)), dist::Normal(ts::iota<-1, double>(w) * 3.0, 0.5));
    const auto rows =
        dist::MixtureSameFamily(dist::Categorical(dist::Logits(w)),
                                dist::independent<1>(dist::Normal(ts::stack<-1>(ts::iota<-1, double>(w), w), 0.5)));
    const auto drawn = mixed.sample(own);
    const auto drawn_rows = rows.sample(own);
    // Components of numbers alone, and ones that have no mean.
    const auto squashed =
        dist::MixtureSameFamily(dist::Categorical(dist::Logits(w)),
                                dist::TransformedDistribution(dist::Normal(0.5, 1.0), dist::ExpTransform{}));
    const auto v = squashed.cdf(squashed.sample(own));
    const auto u = mixed.cdf(drawn);
    return std::tuple(std::tuple(of_cdf(tanh, x, own), of_cdf(turned, x, own), std::tuple(ts::mean(u), ts::mean(u * u)),
                                 std::tuple(ts::mean(v), ts::mean(v * v))),
                      drawn, drawn_rows, ts::mean<0>(drawn_rows), ts::mean<0>(rows.mean()),
                      ts::mean<0>(rows.variance()));
  });
  std::vector<double> first, weights;
  for (int i = 0; i < count; ++i) weights.insert(weights.end(), {0.5, -0.5, 1});
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto w = ts::shard(weights, {count, 3}, mesh, {"x"});
    const auto [all, drawn, drawn_rows, mean, want, variance] = f(ts::zeros<double>({count}, mesh, {"x"}), w, own_key);
    std::apply([](const auto&... both) { (expect_uniform(both, count), ...); }, all);
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_NEAR(ts::to_host(mean)[i], ts::to_host(want)[i], 5 * std::sqrt(ts::to_host(variance)[i] / count));
    if (first.empty()) first = ts::to_host(drawn);
    EXPECT_EQ(ts::to_host(drawn), first);
  }
}

// clang-format off
TEST(DistributionsDoc, CodeOnThePageIsInThisFile) {
  const auto ones = ts::full<float>({6, 3}, 1.0f, ts::Mesh({{"data", 2}}), {"data"});
  const auto zeros = ones - 1.0;
  {
    constexpr auto loss = ts::compile([](const auto& mean, const auto& log_std, const auto& advantage, const auto& key) {
      const auto policy = dist::Normal(mean, ts::exp(log_std));
      const auto action = policy.sample(key);
      return -ts::mean(policy.log_prob(action) * advantage);
    });
    // The mean of -log_prob is near the entropy, 1.42.
    EXPECT_NEAR(number(loss(ones, zeros, ones, own_key)), 1.42, 0.5);
  }
  constexpr auto vae = ts::compile([](const auto& x, const auto& mean, const auto& log_std, const auto& key) {
    const auto decoder = [&](const auto& z) { return z * 0.0; };
    const auto posterior = dist::independent<1>(dist::Normal(mean, ts::exp(log_std)));
    const auto prior = dist::independent<1>(dist::Normal(ts::zeros_like(mean), 1.0));
    const auto z = posterior.rsample(key);
    const auto pixels = dist::independent<1>(dist::Bernoulli(dist::Logits(decoder(z))));
    const auto loss = ts::mean(kl_divergence(posterior, prior) - pixels.log_prob(x));
    return loss;
  });
  // The divergence of each of three features is 1/2, and each of three pixels has a probability of one half.
  EXPECT_NEAR(number(vae(ones, ones, zeros, own_key)), 3 * (0.5 + std::log(2)), 1e-5);
  constexpr auto both = [](const auto& x, const auto& weights) {
    return std::tuple(
    dist::Bernoulli(dist::Logits(x)),        // PyTorch: Bernoulli(logits=x)
    dist::Categorical(dist::Probs(weights))  // PyTorch: Categorical(probs=weights)
    );
  };
  EXPECT_NEAR(number(ts::eval(std::get<1>(both(ones, ones)).entropy())), std::log(3), 1e-6);
  constexpr auto policy = ts::compile([](const auto& mean, const auto& log_std, const auto& key) {
    const auto squashed = dist::independent<1>(
        dist::TransformedDistribution(dist::Normal(mean, ts::exp(log_std)), dist::TanhTransform{}));
    const auto action = squashed.rsample(key);
    const auto log_prob = squashed.log_prob(action);
    return std::tuple(action, log_prob);
  });
  const auto [action, log_prob] = policy(zeros, zeros, own_key);
  for (std::size_t i = 0; i < 6; ++i) {
    double want = 0;
    for (std::size_t j = 0; j < 3; ++j) {
      const double y = ts::to_host(action)[3 * i + j], x = std::atanh(y);
      want += -x * x / 2 - std::log(2 * ts::ops::pi) / 2 - std::log(1 - y * y);
    }
    EXPECT_NEAR(ts::to_host(log_prob)[i], want, 1e-4);
  }
  constexpr auto density = ts::compile([](const auto& scores, const auto& mean, const auto& log_std, const auto& y) {
    const auto p = dist::MixtureSameFamily(dist::Categorical(dist::Logits(scores)), dist::Normal(mean, ts::exp(log_std)));
    const auto loss = -ts::mean(p.log_prob(y));   // scores, mean, log_std: [batch, k]; y: [batch]
    return loss;
  });
  EXPECT_NEAR(number(density(ones, zeros, zeros, ts::full<float>({6}, 2.0f, ts::Mesh({{"data", 2}}), {"data"}))), 2 + std::log(2 * ts::ops::pi) / 2, 1e-6);
  tessera_test::expect_lines({.name = "distributions.md", .lines = 17, .left_out = [](std::string_view line) { return line.find("PyTorch:") != line.npos || line.starts_with("namespace") || line.find("ultivariate") != line.npos; }}, __FILE__);
}
// clang-format on

}  // namespace
