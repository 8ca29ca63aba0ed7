// The Wishart distribution against PyTorch 1.13.1, and its samples.
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/interop/wishart.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

namespace ts = tessera;

namespace {

namespace dist = ts::distributions;

void expect_near(const auto& got, const std::vector<double>& want, double tolerance = 1e-12) {
  const std::vector<double> values = ts::to_host(got);
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::isnan(want[i]))
      EXPECT_TRUE(std::isnan(values[i])) << i;
    else
      EXPECT_NEAR(values[i], want[i], tolerance * (1 + std::fabs(want[i]))) << i;
}

constexpr auto quantities = ts::compile([](const auto& x, const auto& df, const auto& c) {
  const auto of = [&](const auto& p) {
    return std::tuple(p.log_prob(x), p.entropy(), p.mean(), p.variance(), p.mode());
  };
  const auto p = dist::Wishart(df, dist::CovarianceMatrix(c));
  const auto by_factor = dist::Wishart(6.0, dist::ScaleTril(ts::linalg::cholesky(c)));
  const auto slopes = ts::grad([&](const auto& both) {
    const auto& [m, degrees] = both;
    return ts::sum(dist::Wishart(degrees, dist::CovarianceMatrix(m)).log_prob(x));
  })(std::tuple(c, df));
  return std::tuple(of(p), of(by_factor), slopes);
});

TEST(Wishart, EqualsPyTorch) {
  const double nan = std::nan("");
  const std::vector<double> c{2, 0.5, -0.3, 0.5, 1.5, 0.2, -0.3, 0.2, 0.8}, x{3, 1, 0.5, 1, 4, -0.25, 0.5, -0.25, 2};
  const std::vector<double> mean{7,  1.75, -1.05, 1.75, 5.25, 0.7, -1.05, 0.7, 2.8,
                                 12, 3,    -1.8,  3,    9,    1.2, -1.8,  1.2, 4.8},
      variance{28, 11.375, 5.915, 11.375, 15.75, 4.34, 5.915, 4.34, 4.48,
               48, 19.5,   10.14, 19.5,   27,    7.44, 10.14, 7.44, 7.68},
      mode{nan, nan, nan, nan, nan, nan, nan, nan, nan, 4, 1, -0.6, 1, 3, 0.4, -0.6, 0.4, 1.6};
  const auto second = [](const std::vector<double>& both) { return std::vector<double>(both.begin() + 9, both.end()); };
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto matrix = ts::shard(c, {3, 3}, mesh, {ts::none, "x"}), at = ts::shard(x, {3, 3}, mesh, {"x"});
    const auto df = ts::shard<double>({3.5, 6}, mesh, {"x"});
    const auto [batch, one, slopes] = quantities(at, df, matrix);
    expect_near(std::get<0>(batch), {-11.155336598002142, -11.7511817561635});
    expect_near(std::get<1>(batch), {12.189977351698296, 15.114934587803955});
    expect_near(std::get<2>(batch), mean);
    expect_near(std::get<3>(batch), variance);
    expect_near(std::get<4>(batch), mode);
    expect_near(std::get<0>(one), {-11.7511817561635});
    expect_near(std::get<1>(one), {15.114934587803955});
    expect_near(std::get<2>(one), second(mean));
    expect_near(std::get<3>(one), second(variance));
    expect_near(std::get<4>(one), second(mode));
    expect_near(std::get<1>(slopes), {0.677471739360942, -0.879811895868085});
    expect_near(std::get<0>(slopes),
                {-1.4629785798616972, 0.1264968797436334, 0.5853432282003703, 0.1264968797436334, -1.1247259234272227,
                 -0.7801484230055649, 0.5853432282003703, -0.7801484230055649, -1.6836734693877573});
  }
}

// The numbers of the closed form in double, and of its derivatives; the mean of log p(x) - log q(x) over 100,000 of
// PyTorch's samples is 2.571 and 2.998. Its own kl_divergence, of exponential families in general, gives 7.34 and 1.73.
TEST(Wishart, DivergenceOfTwo) {
  constexpr auto divergence = ts::compile([](const auto& df, const auto& c, const auto& of_q, const auto& other) {
    const auto f = [&](const auto& both) {
      const auto& [m, degrees] = both;
      return kl_divergence(dist::Wishart(degrees, dist::CovarianceMatrix(m)),
                           dist::Wishart(of_q, dist::CovarianceMatrix(other)));
    };
    const auto p = dist::Wishart(5.0, dist::CovarianceMatrix(c)), q = dist::Wishart(5.0, dist::ScaleTril(p.scale_tril));
    return std::tuple(f(std::tuple(c, df)),
                      ts::grad([&](const auto& both) { return ts::sum(f(both)); })(std::tuple(c, df)),
                      kl_divergence(p, q));
  });
  const std::vector<double> c{2, 0.5, -0.3, 0.5, 1.5, 0.2, -0.3, 0.2, 0.8},
      other{1, 0.25, 0, 0.25, 2, -0.5, 0, -0.5, 1.5};
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto [all, slopes, same] =
        divergence(ts::shard<double>({3.5, 6}, mesh, {"x"}), ts::shard(c, {3, 3}, mesh, {ts::none, "x"}),
                   ts::shard<double>({5, 4}, mesh, {"x"}), ts::shard(other, {3, 3}, mesh, {"x"}));
    expect_near(all, {2.5588240440259256, 2.9846800293698696});
    expect_near(std::get<0>(slopes),
                {2.2059587471352184, 0.40473644003055775, -1.5092436974789916, 0.40473644003055753, -0.8475171886936592,
                 2.1798319327731095, -1.5092436974789911, 2.179831932773109, -2.963865546218487});
    expect_near(std::get<1>(slopes), {-1.4569767961448519, 0.9968776507806967});
    expect_near(same, {0});
  }
}

constexpr int count = 4000;
constexpr auto drawn = ts::compile([](const auto& df, const auto& c, const auto& key) {
  const auto p = dist::Wishart(df, dist::CovarianceMatrix(c));
  const auto samples = p.sample(key);
  // The mean of df c has the derivative c: so have samples, on the average.
  const auto by_df = ts::grad([&](const auto& degrees) {
    const auto own = dist::Wishart(degrees, dist::CovarianceMatrix(c)).rsample(key);
    return ts::sum(ts::mean<0>(own));
  })(df);
  const auto log_determinants = ts::linalg::slogdet(samples).logabsdet;
  return std::tuple(ts::mean<0>(samples), ts::var<0>(samples), ts::sum(by_df), ts::mean(p.log_prob(samples)), samples,
                    ts::mean(log_determinants), dist::Wishart(4.5, dist::CovarianceMatrix(c)).sample(key));
});

TEST(Wishart, SamplesHaveItsMomentsOnEveryMesh) {
  const double c[] = {2, 0.5, 0.5, 1}, df = 4.5;
  std::vector<double> want;
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto matrix = ts::shard<double>({{2, 0.5}, {0.5, 1}}, mesh);
    const auto [mean, variance, by_df, log_prob, samples, log_determinant, single] =
        drawn(ts::full<double>({count}, df, mesh, {"x"}), matrix, ts::Key(3));
    for (std::size_t i = 0; i < 2; ++i)
      for (std::size_t j = 0; j < 2; ++j) {
        const double own = df * (c[2 * i + j] * c[2 * i + j] + c[3 * i] * c[3 * j]);
        EXPECT_NEAR(ts::to_host(mean)[2 * i + j], df * c[2 * i + j], 5 * std::sqrt(own / count));
        EXPECT_NEAR(ts::to_host(variance)[2 * i + j] / own, 1, 0.2);
      }
    EXPECT_NEAR(ts::to_host(by_df)[0], 4, 0.2);
    const auto p = dist::Wishart(df, dist::CovarianceMatrix(matrix));
    EXPECT_NEAR(-ts::to_host(log_prob)[0], ts::item(ts::eval(p.entropy())), 0.15);
    // E log|x| = digamma(df / 2) + digamma((df - 1) / 2) + 2 log 2 + log|c|
    EXPECT_NEAR(ts::to_host(log_determinant)[0], 0.8200189201705952 + 2 * std::log(2) + std::log(1.75), 0.1);
    EXPECT_EQ(ts::shape(single), (ts::Shape{2, 2}));
    const std::vector<double> all = ts::to_host(samples);
    if (want.empty()) want = all;
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_NEAR(all[i], want[i], 1e-12);
  }
}

}  // namespace
