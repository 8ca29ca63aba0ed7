#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "check.hpp"

#include <tessera/optim/stochastic_rounding.hpp>
#include <tessera/tensor/compare.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/random.hpp>

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
                      ts::logistic_like<8>(x, key), ts::rademacher_like<9>(d, key),
                      ts::truncated_normal_like<6>(x, -1.5, 2.0, key), ts::multinomial(p + 0.25, 1, key),
                      ts::multinomial<ts::Replacement::yes, 7>(p + 0.25, 3, key));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>>, Tensor<2>, Tensor<3, double>, ts::Scalar>(
      with_gradient(f),
      {.arguments = {values("mn"), values("nk"), values("mn", 0, 1), values<double>("mnk"), scalar(0, 1e9)}}, 6);
}

// As torch.rand_like of a DTensor: nobody draws what other devices need, and no step sends anything.
TEST(RandomDraws, AreSplitAsTheirArgument) {
  constexpr auto drawn = ts::compile([](auto like, auto w, auto key) {
    const auto normal = ts::normal_like(like, key);
    return std::tuple(normal, ts::matmul(ts::uniform_like<1>(like, key), w), ts::normal_like<2>(normal, key));
  });
  const auto on = [&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    const auto like = ts::zeros<ts::bf16>({7, 3}, mesh, spec);  // on 8 devices, one has no row
    const auto w = ts::ones<ts::bf16>({3, 2}, mesh);
    EXPECT_EQ(drawn.plan(like, w, ts::Scalar(5)).wire_bytes(), 0);
    const auto [normal, product, again] = drawn(like, w, ts::Scalar(5));
    EXPECT_EQ(ts::sharding(normal), ts::sharding(like));
    EXPECT_EQ(ts::sharding(product), ts::sharding(like));
    EXPECT_EQ(ts::sharding(again), ts::sharding(like));
    return std::tuple(ts::to_host(normal), ts::to_host(product), ts::to_host(again));
  };
  const auto want = on(ts::Mesh({{"x", 1}}), {});
  for (const int devices : {2, 3, 8}) EXPECT_EQ(on(ts::Mesh({{"x", devices}}), {"x"}), want) << devices;
}

/// Draws in the shape of x, and of probabilities, rates and shapes p, each in its own program: all of a few rows.
template <class Draws> void expect_split_as_argument(const Draws&, bool by_columns) {
  constexpr auto drawn = ts::compile([](auto x, auto p, auto key) {
    const auto read = []<class Draw>(const Draw& each) { return ts::sum<Draw::rank - 1>(ts::cast<float>(each)); };
    return std::apply([&](const auto&... each) { return std::tuple(std::tuple(each...), std::tuple(read(each)...)); },
                      Draws{}(x, p, key));
  });
  const auto on = [&](const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
    const auto x = ts::normal<float>(ts::Key(1), {7, 9}, mesh, spec),  // on 8 devices, one has no row
        p = ts::uniform<float>(ts::Key(2), {7, 9}, mesh, spec, 0.125f, 0.875f);
    const ts::Plan plan = drawn.plan(x, p, ts::Scalar(5));
    plan.for_each_collective([&](const ts::CollectiveInfo& c, std::int64_t) {
      // What reads the draws sums over a split dim.
      EXPECT_EQ(c.kind, ts::all_reduce) << ts::name_of(c.kind) << " of " << c.payload_bytes << " bytes";
    });
    const auto draws = std::get<0>(drawn(x, p, ts::Scalar(5)));
    return std::apply(
        [&](const auto&... each) {
          EXPECT_TRUE(((ts::sharding(each).dims[0] == ts::sharding(x).dims[0]) && ...));
          return std::tuple(ts::to_host(each)...);
        },
        draws);
  };
  const auto want = on(ts::Mesh({{"x", 1}}), {});
  for (const int devices : {2, 3, 8}) {
    const ts::Mesh mesh({{"x", devices}});
    SCOPED_TRACE(mesh.text());
    EXPECT_EQ(on(mesh, {"x"}), want);
    if (!by_columns) continue;
    EXPECT_EQ(on(mesh, {ts::none, "x"}), want);
  }
}
struct InTheShape {
  constexpr auto operator()(const auto& x, const auto&, const auto& key) const {
    return std::tuple(ts::randint_like<std::int32_t>(x, -3, 9, key),
                      ts::randint_like<std::int64_t, 1>(x > 0.0, 0, 5, key), ts::exponential_like<2>(x, key),
                      ts::gumbel_like<3>(x, key), ts::laplace_like<4>(x, key), ts::cauchy_like<5>(x, key),
                      ts::logistic_like<6>(x, key), ts::rademacher_like<7>(x, key),
                      ts::truncated_normal_like<8>(x, -1.5, 2.0, key));
  }
};
struct OfParameters {
  constexpr auto operator()(const auto& x, const auto& p, const auto& key) const {
    return std::tuple(ts::bernoulli(p, key), ts::gamma<1>(p, key), ts::beta<2>(p, p, key), ts::chisquare<6>(p, key),
                      ts::student_t<7>(p, key), ts::geometric<8>(p, key), ts::pareto<9>(p, key),
                      ts::weibull<10>(p, key), ts::rayleigh<11>(p, key), ts::lognormal<12>(p, key),
                      ts::stochastic_round<13>(x, key), ts::dropout<14>(x, 0.25, key));
  }
};
struct OfRows {
  constexpr auto operator()(const auto& x, const auto& p, const auto& key) const {
    return std::tuple(ts::categorical<-1>(x, key), ts::multinomial<ts::Replacement::no, 1>(p, 3, key),
                      ts::multinomial<ts::Replacement::yes, 2>(p, 4, key), ts::dirichlet<3>(p, key),
                      ts::gumbel_softmax<false, 4>(x, key), ts::gumbel_softmax<true, 5>(x, key));
  }
};
struct InLoops {
  constexpr auto operator()(const auto&, const auto& p, const auto& key) const {
    return std::tuple(ts::poisson(p * 20.0, key));
  }
};
TEST(RandomDraws, InTheShapeOfAnArgumentAreSplitAsIt) { expect_split_as_argument(InTheShape{}, true); }
TEST(RandomDraws, OfParametersAreSplitAsThese) { expect_split_as_argument(OfParameters{}, true); }
TEST(RandomDraws, OfRowsAreSplitAsThese) { expect_split_as_argument(OfRows{}, false); }
TEST(RandomDraws, InLoopsAreSplitAsTheirArgument) { expect_split_as_argument(InLoops{}, true); }

// Which proposal of a gamma draw is accepted can depend on the last bit, so that draws are compared, not their oracle.
TEST(RandomDraws, OfTheGammaFamilyAreEqualOnAllMeshes) {
  const auto draws = [](const ts::Mesh& mesh) {
    const auto a = ts::shard(std::vector<float>{.01f, .3f, 1, 2.5f, 7, 100, 1e6f}, {7}, mesh, {"x"});
    const auto d = ts::cast<double>(a);
    const auto rows = ts::embedding(ts::unsqueeze<0>(a), ts::full<std::int32_t>({5}, 0, mesh));  // [5, 7]
    return std::tuple(ts::to_host(ts::eval(ts::gamma(a, 3))), ts::to_host(ts::eval(ts::gamma<1>(d, 3))),
                      ts::to_host(ts::eval(ts::beta(d, d + 1.0, 5))), ts::to_host(ts::eval(ts::dirichlet(rows, 7))),
                      ts::to_host(ts::eval(ts::chisquare(a, 9))), ts::to_host(ts::eval(ts::student_t(d, 15))),
                      ts::to_host(ts::eval(ts::stochastic_round(a * 1.001, 11))));
  };
  const auto expected = draws(ts::Mesh({{"x", 1}}));
  for (const int devices : {2, 3, 9}) {
    const auto [gamma, wide, beta, simplex, squares, student, rounded] = draws(ts::Mesh({{"x", devices}}));
    EXPECT_EQ(gamma, std::get<0>(expected));
    EXPECT_EQ(wide, std::get<1>(expected));
    EXPECT_EQ(beta, std::get<2>(expected));
    for (std::size_t i = 0; i < simplex.size(); ++i) EXPECT_NEAR(simplex[i], std::get<3>(expected)[i], 1e-6);
    EXPECT_EQ(squares, std::get<4>(expected));
    EXPECT_EQ(student, std::get<5>(expected));
    EXPECT_TRUE(std::equal(rounded.begin(), rounded.end(), std::get<6>(expected).begin(),
                           [](ts::bf16 a, ts::bf16 b) { return static_cast<float>(a) == static_cast<float>(b); }));
  }
}

namespace {
/// P(a, x), the share of gamma draws of concentration a below x: the series of Abramowitz and Stegun, 6.5.29.
double gamma_below(double a, double x) {
  double term = 1 / a, sum = term;
  for (int n = 1; n < 2000 && term > sum * 1e-16; ++n) sum += term *= x / (a + n);
  return std::min(1.0, sum * std::exp(a * std::log(x) - x - std::lgamma(a)));
}
/// The largest difference between the share of draws below a value and what it is on average (Kolmogorov, Smirnov).
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
std::vector<double> doubles(const auto& tensor) {
  const auto host = ts::to_host(ts::ShardedTensor<typename std::remove_cvref_t<decltype(tensor)>::element, 1>(tensor));
  return std::vector<double>(host.begin(), host.end());
}
}  // namespace

// 1.95 / sqrt(n) is exceeded with a probability of .001; the keys are fixed.
TEST(RandomDraws, OfTheGammaFamilyHaveTheirDistributions) {
  constexpr ts::Mesh mesh({{"x", 3}});
  constexpr std::int64_t n = 8000;
  const double bound = 1.95 / std::sqrt(n);
  for (const double a : {0.05, 0.5, 1.0, 1.5, 4.0, 60.0}) {
    const auto wide = ts::full<double>({n}, a, mesh, {"x"});
    EXPECT_LT(largest_difference(doubles(ts::gamma(wide, 3)), [&](double x) { return gamma_below(a, x); }), bound) << a;
  }
  const auto narrow = ts::full<float>({n}, 2.5f, mesh, {"x"});
  EXPECT_LT(largest_difference(doubles(ts::gamma(narrow, 5)), [](double x) { return gamma_below(2.5, x); }), bound);
  EXPECT_LT(largest_difference(doubles(ts::chisquare(narrow, 7)), [](double x) { return gamma_below(1.25, x / 2); }),
            bound);
  // beta(2, 1) is below x with probability x^2; beta(1, 3) with 1 - (1 - x)^3.
  const auto one = narrow * 0.0 + 1.0;
  EXPECT_LT(largest_difference(doubles(ts::beta(one + 1.0, one, 9)), [](double x) { return x * x; }), bound);
  EXPECT_LT(largest_difference(doubles(ts::beta(one, one + 2.0, 11)), [](double x) { return 1 - std::pow(1 - x, 3); }),
            bound);
  // Each of three equal Dirichlet coordinates of concentration 1 is beta(1, 2).
  const auto flat = ts::full<float>({n, 3}, 1.0f, mesh, {"x"});
  const ts::ShardedTensor<float, 2> simplex = ts::dirichlet(flat, 13);
  for (const double sum : doubles(ts::sum<1>(simplex))) ASSERT_NEAR(sum, 1, 1e-6);
  EXPECT_LT(largest_difference(doubles(ts::sum<1>(ts::slice<1>(simplex, 1, 1))),
                               [](double x) { return 1 - std::pow(1 - x, 2); }),
            bound);
  // Student's t of one degree is Cauchy's; those of two and four degrees have closed forms.
  const auto student = [&](double degrees) {
    return doubles(ts::student_t(ts::full<double>({n}, degrees, mesh, {"x"}), 21));
  };
  EXPECT_LT(largest_difference(student(1), [](double x) { return 0.5 + std::atan(x) / std::numbers::pi; }), bound);
  EXPECT_LT(largest_difference(student(2), [](double x) { return 0.5 + x / std::sqrt(2 + x * x) / 2; }), bound);
  EXPECT_LT(largest_difference(student(4),
                               [](double x) {
                                 const double s = 1 + x * x / 4;
                                 return 0.5 + x / std::sqrt(s) * (1 - x * x / s / 12) * 3 / 8;
                               }),
            bound);
  EXPECT_LT(largest_difference(doubles(ts::logistic_like(one, 23)), [](double x) { return 1 / (1 + std::exp(-x)); }),
            bound);
  std::int64_t ones = 0;
  for (const double sign : doubles(ts::rademacher_like(one, 25))) {
    ASSERT_EQ(std::abs(sign), 1);
    ones += sign == 1;
  }
  EXPECT_NEAR(static_cast<double>(ones), n / 2.0, 4.5 * std::sqrt(n) / 2);
  for (const double v : doubles(ts::gamma(one * -1.0, 3))) ASSERT_TRUE(std::isnan(v));
}

TEST(StochasticRound, IsTheArgumentOnAverage) {
  constexpr ts::Mesh mesh({{"x", 3}});
  constexpr std::int64_t n = 20000;
  // 1 is where steps double, 1.9999 where the next number has another exponent.
  for (const double x : {1.001, -1.001, 0.9987, 1.9999, 3.14159, -1e-20, 257.0, 1e30, 1.0 - 0x1p-9}) {
    const float value = static_cast<float>(x);
    const auto draws = doubles(ts::stochastic_round(ts::full<float>({n}, value, mesh, {"x"}), 17));
    const auto [low, high] = std::minmax_element(draws.begin(), draws.end());
    const float exact = value, below = static_cast<float>(*low), above = static_cast<float>(*high);
    ASSERT_LT(below, exact);
    ASSERT_GT(above, exact);
    const std::uint32_t apart =
        std::bit_cast<std::uint32_t>(x < 0 ? below : above) - std::bit_cast<std::uint32_t>(x < 0 ? above : below);
    EXPECT_EQ(apart, 0x10000u) << "bf16 numbers that are not next to each other";
    const double chance = (static_cast<double>(exact) - below) / (static_cast<double>(above) - below);
    const auto count = static_cast<double>(std::count(draws.begin(), draws.end(), above));
    EXPECT_NEAR(count, n * chance, 4.5 * std::sqrt(n * chance * (1 - chance)) + 1) << x;
  }
}

TEST(StochasticRound, KeepsWhatBf16Has) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values{0, -0.0f, 1, -1.5f, 256, inf, -inf, 0x1p-126f, 3.3895314e38f};
  const auto x = ts::shard(values, {static_cast<std::int64_t>(values.size())}, ts::Mesh{}, {});
  for (const int key : {1, 2, 3}) {
    const auto rounded = ts::to_host(ts::eval(ts::stochastic_round(x, key)));
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(rounded[i])), std::bit_cast<std::uint32_t>(values[i]));
  }
  const auto nan = ts::full<float>({3}, std::numeric_limits<float>::quiet_NaN(), ts::Mesh{});
  for (const double v : doubles(ts::stochastic_round(nan, 1))) EXPECT_TRUE(std::isnan(v));
  // The gradient is that of a cast.
  constexpr auto slope = ts::compile([](const auto& in, auto key) {
    return ts::grad([&](const auto& y) { return ts::sum(ts::cast<float>(ts::stochastic_round(y, key)) * 3.0); })(in);
  });
  for (const float g : ts::to_host(slope(ts::full<float>({5}, 1.001f, ts::Mesh{}), ts::Scalar(3)))) EXPECT_EQ(g, 3);
}

namespace {
struct Weights {
  ts::ShardedTensor<float, 1> a, b;
};
}  // namespace

// 1,000 steps of 2^-12 are 0.244 in all. To nearest, bf16 stays at 1; stochastically it arrives.
TEST(StochasticRound, KeepsSmallUpdatesOfParameters) {
  constexpr auto step = ts::compile([](Weights model, auto key) {
    return ts::optim::stochastic_round(ts::optim::tree_map([](auto p) { return p + 0x1p-12; }, model), key);
  });
  constexpr ts::Mesh mesh({{"x", 3}});
  Weights moved{ts::full<float>({500}, 1, mesh, {"x"}), ts::full<float>({500}, 1, mesh, {})};
  for (int key = 0; key < 1000; ++key) moved = step(std::move(moved), ts::Scalar(key));
  const std::vector<double> a = doubles(moved.a), b = doubles(moved.b);
  double mean = 0;
  for (const double v : a) mean += v / 500;
  // A step of bf16 is 2^-7, a draw's variance at most 2^-12 2^-7: a deviation of .0437 of an element, .002 of the mean.
  EXPECT_NEAR(mean, 1 + 1000 * 0x1p-12, 4.5 * 0.002);
  EXPECT_NE(a, b) << "each tensor has draws of its own";
  for (const double v : a) EXPECT_EQ(v, static_cast<double>(static_cast<float>(ts::bf16(static_cast<float>(v)))));
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
