#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "check.hpp"

#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using namespace programs;

TEST(Programs, RandomNumbers) {
  constexpr auto f = [](auto x, auto d, auto key, auto rate) {
    const auto normal = ts::normal_like(x, key);
    const auto uniform = ts::uniform_like<3>(d, key);
    return std::tuple(normal, uniform, ts::uniform_like(ts::sum<0>(x), 7), ts::dropout(x, rate, key),
                      ts::dropout<2>(ts::transpose<1, 0>(x), 0.5, key), ts::sum<0>(ts::normal_like<1>(x, key)),
                      x * ts::normal_like<1>(x, key));
  };
  expect_equal_on_all_meshes<Tensor<2>, Tensor<3, double>, ts::Scalar, ts::Scalar>(
      f, {.arguments = {values("mn"), values<double>("mnk"), scalar(0, 1e9), scalar(0, 0.9)}, .may_be_empty = true}, 5);
}

TEST(Programs, RandomDraws) {
  constexpr auto f = [](const auto& floats, const auto& p, const auto& d, auto key) {
    const auto& [x, y] = floats;  // [m, n], [n, k]
    const auto mixed = ts::permutation<1>(x, key), rows = ts::permutation<0, 3>(y * y, key);
    return std::tuple(energy(mixed, rows), mixed, rows, ts::bernoulli(p, key),
                      ts::randint_like<std::int32_t>(x, -3, 9, key), ts::randint_like<std::int8_t, 1>(d, 0, 5, key),
                      ts::exponential_like(d, key), ts::categorical<0>(x * 4.0, key), ts::categorical<-1, 2>(d, key),
                      ts::gumbel_like(d, key), ts::laplace_like<4>(x, key), ts::cauchy_like<5>(d, key),
                      ts::truncated_normal_like<6>(x, -1.5, 2.0, key), ts::multinomial(p + 0.25, 1, key),
                      ts::multinomial<ts::Replacement::yes, 7>(p + 0.25, 3, key));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>>, Tensor<2>, Tensor<3, double>, ts::Scalar>(
      with_gradient(f),
      {.arguments = {values("mn"), values("nk"), values("mn", 0, 1), values<double>("mnk"), scalar(0, 1e9)}}, 6);
}

// Frequencies and moments of 20,000 draws, each within 4.5 deviations of what it is on average; and the ends of ranges.
TEST(RandomDraws, Distributions) {
  constexpr ts::Mesh mesh({{"x", 4}});
  constexpr std::int64_t n = 20000;
  const auto close = [](double count, double chance) {
    EXPECT_NEAR(count, n * chance, 4.5 * std::sqrt(n * chance * (1 - chance))) << chance;
  };
  const auto chances = ts::full<float>({n}, 0.3f, mesh, {"x"});
  const ts::ShardedTensor<bool, 1> flips = ts::bernoulli(chances, 7), never = ts::bernoulli(chances * 0.0, 7),
                                   always = ts::bernoulli(chances * 0.0 + 1.0, 7);
  const auto count = [](const auto& x, auto value) {
    const auto host = ts::to_host(x);
    return static_cast<double>(std::count(host.begin(), host.end(), value));
  };
  close(count(flips, true), 0.3);
  EXPECT_EQ(count(never, true), 0);
  EXPECT_EQ(count(always, true), n);

  const ts::ShardedTensor<std::int16_t, 1> die = ts::randint_like<std::int16_t>(chances, -2, 3, 11);
  for (std::int16_t face = -2; face < 3; ++face) close(count(die, face), 0.2);
  const ts::ShardedTensor<std::int64_t, 1> empty = ts::randint_like<std::int64_t>(chances, 5, 5, 11);
  EXPECT_EQ(count(empty, std::int64_t{5}), n);

  const std::vector<float> waits = ts::to_host(ts::ShardedTensor<float, 1>(ts::exponential_like(chances, 13)));
  double sum = 0, squares = 0;
  for (const double wait : waits) {
    EXPECT_GE(wait, 0);
    sum += wait;
    squares += wait * wait;
  }
  EXPECT_NEAR(sum / n, 1, 4.5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 2, 4.5 * std::sqrt(20.0 / n));  // the fourth moment is 24

  const auto moments = [](const auto& draws) {
    double mean = 0, square = 0;
    for (const double v : ts::to_host(draws)) mean += v / n, square += v * v / n;
    return std::pair(mean, square);
  };
  using Floats = ts::ShardedTensor<float, 1>;
  const auto [gumbel, gumbel_square] = moments(Floats(ts::gumbel_like(chances, 23)));
  const double variance = std::numbers::pi * std::numbers::pi / 6;
  EXPECT_NEAR(gumbel, std::numbers::egamma, 4.5 * std::sqrt(variance / n));
  EXPECT_NEAR(gumbel_square - gumbel * gumbel, variance, 4.5 * variance * std::sqrt(4.4 / n));  // kurtosis 5.4
  const auto [laplace, laplace_square] = moments(Floats(ts::laplace_like(chances, 29)));
  EXPECT_NEAR(laplace, 0, 4.5 * std::sqrt(2.0 / n));
  EXPECT_NEAR(laplace_square, 2, 4.5 * std::sqrt(20.0 / n));
  // A Cauchy variable has no moments: a quarter of the draws are below -1, half of them in [-1, 1].
  const Floats cauchy = ts::cauchy_like(chances, 31);
  close(count(ts::ShardedTensor<bool, 1>(cauchy < -1.0), true), 0.25);
  close(count(ts::ShardedTensor<bool, 1>(ts::abs(cauchy) < 1.0), true), 0.5);
  // scipy.stats.truncnorm(-1, 2): mean 0.22963717, variance 0.52000
  const Floats truncated = ts::truncated_normal_like(chances, -1, 2, 37);
  const auto [normal, normal_square] = moments(truncated);
  const double phi_low = std::exp(-0.5) / std::sqrt(2 * std::numbers::pi),
               phi_high = std::exp(-2.0) / std::sqrt(2 * std::numbers::pi),
               mass = (std::erf(2 / std::sqrt(2)) + std::erf(1 / std::sqrt(2))) / 2,
               centre = (phi_low - phi_high) / mass;
  EXPECT_NEAR(normal, centre, 4.5 / std::sqrt(n));
  EXPECT_NEAR(normal_square, 1 + (-phi_low - 2 * phi_high) / mass, 4.5 / std::sqrt(n));
  close(count(ts::ShardedTensor<bool, 1>(ts::abs(truncated - 0.5) < 1.5000001), true), 1 - 1e-9);

  const float none = -std::numeric_limits<float>::infinity();
  const auto logits = ts::shard<float>({{0, std::log(2.f), none, std::log(5.f)}}, mesh, {});
  const ts::ShardedTensor<float, 2> many = ts::embedding(logits, ts::cast<std::int32_t>(chances * 0.0));
  const ts::ShardedTensor<std::int32_t, 1> drawn = ts::categorical(many, 17);
  for (const auto& [index, chance] : {std::pair(0, 1.0), std::pair(1, 2.0), std::pair(3, 5.0)})
    close(count(drawn, index), chance / 8);
  EXPECT_EQ(count(drawn, 2), 0);

  const auto weights = ts::shard<float>({{0, 2, 0, 5, 1}}, mesh, {});
  const ts::ShardedTensor<std::int32_t, 2> again = ts::multinomial<ts::Replacement::yes>(weights, n, 41);
  for (const auto& [index, chance] : {std::pair(1, 2.0), std::pair(3, 5.0), std::pair(4, 1.0)})
    close(count(again, index), chance / 8);
  const ts::ShardedTensor<float, 2> rows = ts::embedding(weights, ts::cast<std::int32_t>(chances * 0.0));
  const std::vector<std::int32_t> pairs = ts::to_host(ts::ShardedTensor<std::int32_t, 2>(ts::multinomial(rows, 2, 43)));
  double first = 0, second = 0;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    ASSERT_NE(pairs[i], pairs[i + 1]);
    first += pairs[i] == 3;
    second += pairs[i] == 3 && pairs[i + 1] == 1;
  }
  close(first, 5. / 8);
  close(second, 5. / 8 * 2 / 3);

  const auto places = ts::arange<std::int32_t>(1000, mesh);
  const ts::ShardedTensor<std::int32_t, 1> shuffled = ts::permutation<0>(places, 19);
  EXPECT_FALSE(ts::all_equal(shuffled, places));
  EXPECT_TRUE(ts::all_equal(ts::ShardedTensor<std::int32_t, 1>(ts::sort<0>(shuffled)), places));
}
