#include <algorithm>
#include <cmath>
#include <limits>

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
                      ts::exponential_like(d, key), ts::categorical<0>(x * 4.0, key), ts::categorical<-1, 2>(d, key));
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

  const float none = -std::numeric_limits<float>::infinity();
  const auto logits = ts::shard<float>({{0, std::log(2.f), none, std::log(5.f)}}, mesh, {});
  const ts::ShardedTensor<float, 2> many = ts::embedding(logits, ts::cast<std::int32_t>(chances * 0.0));
  const ts::ShardedTensor<std::int32_t, 1> drawn = ts::categorical(many, 17);
  for (const auto& [index, chance] : {std::pair(0, 1.0), std::pair(1, 2.0), std::pair(3, 5.0)})
    close(count(drawn, index), chance / 8);
  EXPECT_EQ(count(drawn, 2), 0);

  const auto places = ts::arange<std::int32_t>(1000, mesh);
  const ts::ShardedTensor<std::int32_t, 1> shuffled = ts::permutation<0>(places, 19);
  EXPECT_FALSE(ts::all_equal(shuffled, places));
  EXPECT_TRUE(ts::all_equal(ts::ShardedTensor<std::int32_t, 1>(ts::sort<0>(shuffled)), places));
}
