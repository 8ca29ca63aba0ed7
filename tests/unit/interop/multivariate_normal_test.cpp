// The multivariate normal distribution against PyTorch 1.13.1 (tests/reference/generate.py), and its samples.
#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/reference.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/interop/multivariate_normal.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>
#include <tessera/tensor/reshard.hpp>

namespace ts = tessera;

namespace {

namespace dist = ts::distributions;
constexpr int count = 4000;
using reference::types;
using Matrix = ts::ShardedTensor<double, 2>;
using Vector = ts::ShardedTensor<double, 1>;

/// `Given` is dist::ScaleTril, dist::CovarianceMatrix or dist::PrecisionMatrix.
template <template <class> class Given>
void check(reference::Cases<double>& cases, const std::string& name, auto make_whole) {
  cases.check(types<Matrix, Matrix, Matrix, Vector, Matrix>, name,
              [](const auto& x, const auto& loc, const auto& m, const auto& other, const auto& other_m) {
                constexpr auto whole = decltype(make_whole){};
                const auto p = dist::MultivariateNormal(loc, Given(whole(m)));
                const auto q = dist::MultivariateNormal(other, Given(whole(other_m)));
                return std::tuple(p.log_prob(x), p.entropy(), p.mean(), p.variance(), kl_divergence(p, q));
              });
}

TEST(MultivariateNormal, EqualsPyTorch) {
  reference::Cases<double> cases("multivariate_normal", {.f64 = 2048, .f32 = 64});
  constexpr auto symmetric = [](const auto& m) { return (m + ts::swapaxes<-2, -1>(m)) * 0.5; };
  check<dist::ScaleTril>(cases, "scale_tril", [](const auto& m) { return m; });
  check<dist::CovarianceMatrix>(cases, "covariance_matrix", symmetric);
  check<dist::PrecisionMatrix>(cases, "precision_matrix", symmetric);
}

/// Means and covariances of samples are within five of their deviations.
TEST(MultivariateNormal, SamplesHaveItsMomentsOnEveryMesh) {
  constexpr auto f = ts::compile([](const auto& loc, const auto& l, const auto& key) {
    const auto drawn = dist::MultivariateNormal(loc, dist::ScaleTril(l)).sample(key);
    const auto batched = dist::MultivariateNormal(loc, dist::ScaleTril(l + ts::zeros_like(ts::unsqueeze<-1>(loc))));
    const auto off = drawn - loc;
    return std::tuple(ts::mean<0>(off), ts::einsum<"ni,nj->ij">(off, off) / count, drawn, batched.sample(key));
  });
  const std::vector<double> factor = {2, 7, -1, 0.5};  // 7 is above the diagonal
  const double covariance[] = {4, -2, -2, 1.25};
  std::vector<double> want;
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto loc = ts::full<double>({count, 2}, 3.0, mesh, {"x"});
    const auto [mean, moments, drawn, batched] = f(loc, ts::shard(factor, {2, 2}, mesh, {}), ts::Key(3));
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(ts::to_host(mean)[i], 0, 5 * std::sqrt(covariance[3 * i] / count));
    for (std::size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(ts::to_host(moments)[i], covariance[i], 5 * 4 * std::sqrt(2.0 / count));
    const auto own = ts::to_host(drawn), other = ts::to_host(batched);
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], other[i], 1e-12);
    if (want.empty()) want = own;
    EXPECT_EQ(own, want) << devices;
  }
}

TEST(MultivariateNormal, GradientsOfSamples) {
  constexpr auto f = ts::compile([](const auto& loc, const auto& l, const auto& key) {
    const auto with = ts::grad(
        [&](const auto& m) { return ts::sum(dist::MultivariateNormal(loc, dist::ScaleTril(m)).rsample(key)); })(l);
    const auto without = ts::grad(
        [&](const auto& m) { return ts::sum(dist::MultivariateNormal(loc, dist::ScaleTril(m)).sample(key)); })(l);
    const auto noise = dist::MultivariateNormal(loc * 0.0, dist::ScaleTril(l)).sample(key);
    return std::tuple(with, without, noise);
  });
  const auto loc = ts::shard(std::vector<double>{1, 2}, {2}, ts::Mesh(), {});
  const auto [with, without, noise] =
      f(loc, ts::shard(std::vector<double>{2, 0, 0, 2}, {2, 2}, ts::Mesh(), {}), ts::Key(5));
  const auto e = ts::to_host(noise);
  EXPECT_EQ(ts::to_host(with), (std::vector<double>{e[0] / 2, 0, e[0] / 2, e[1] / 2}));
  EXPECT_EQ(ts::to_host(without), (std::vector<double>{0, 0, 0, 0}));
}

TEST(MultivariateNormal, CovarianceMatrices) {
  const auto loc = ts::zeros<double>({2}, ts::Mesh(), {});
  const auto m = ts::shard(std::vector<double>{4, -2, -2, 1.25}, {2, 2}, ts::Mesh(), {});
  const auto expect_near = [](const auto& got, const std::vector<double>& want) {
    const std::vector<double> all = ts::to_host(ts::eval(got));
    ASSERT_EQ(all.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(all[i], want[i], 1e-14);
  };
  const auto& c = m;
  const auto p = dist::MultivariateNormal(loc, dist::CovarianceMatrix(c));  // as in docs/distributions.md
  expect_near(p.covariance_matrix(), {4, -2, -2, 1.25});
  expect_near(dist::MultivariateNormal(loc + 3.0, dist::CovarianceMatrix(m)).mode(), {3, 3});
  expect_near(dist::MultivariateNormal(loc, dist::PrecisionMatrix(m)).covariance_matrix(), {1.25, 2, 2, 4});
  expect_near(dist::MultivariateNormal(loc, dist::PrecisionMatrix(m)).scale_tril,
              {std::sqrt(1.25), 0, 2 / std::sqrt(1.25), std::sqrt(0.8)});
  expect_near(dist::MultivariateNormal(loc, dist::CovarianceMatrix(m)).stddev(), {2, std::sqrt(1.25)});
}

TEST(MultivariateNormal, NotPositiveDefiniteIsNaN) {
  const auto loc = ts::zeros<double>({2}, ts::Mesh(), {});
  const auto m = ts::shard(std::vector<double>{1, 2, 2, 1}, {2, 2}, ts::Mesh(), {});
  EXPECT_TRUE(
      std::isnan(ts::to_host(ts::eval(dist::MultivariateNormal(loc, dist::CovarianceMatrix(m)).log_prob(loc)))[0]));
}

}  // namespace
