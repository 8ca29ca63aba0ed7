#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>
#include <vector>

#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/betainc.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>

namespace ts = tessera;

namespace {

template <int Rank> using Double = ts::ShardedTensor<double, Rank>;

/// The probability of at least k successes in n trials, which is the incomplete beta function of k and n - k + 1.
double of_trials(int k, int n, double p) {
  double sum = 0;
  for (int j = k; j <= n; ++j)
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(j + 1) - std::lgamma(n - j + 1)) * std::pow(p, j) *
           std::pow(1 - p, n - j);
  return sum;
}

template <class T> void expect_published_values() {
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  struct Case {
    T a, b, x;
    double want;
  };
  const T x = T(0.3);
  const double at = static_cast<double>(x);
  const std::vector<Case> cases{{2.5, 1, x, std::pow(at, 2.5)},
                                {1, 4, x, 1 - std::pow(1 - at, 4)},
                                {0.5, 0.5, x, 2 / std::numbers::pi * std::asin(std::sqrt(at))},
                                {7.25, 7.25, 0.5, 0.5},
                                {3, 6, x, of_trials(3, 8, at)},
                                {20, 31, x, of_trials(20, 50, at)},
                                {200, 201, 0.5, of_trials(200, 400, 0.5)},
                                {2, 3, T(1e-6), 6 * 1e-12 - 8 * 1e-18 + 3 * 1e-24},  // 6 x^2 - 8 x^3 + 3 x^4
                                // Student's t: P(|T| < 2.228138852) with 10 degrees of freedom is 0.95.
                                {0.5, 5, T(2.228138852 * 2.228138852 / (10 + 2.228138852 * 2.228138852)), 0.95},
                                {2, 3, 0, 0},
                                {2, 3, 1, 1},
                                {0, 3, 0.5, NAN},
                                {2, -1, 0.5, NAN},
                                {2, 3, T(1.5), NAN},
                                {2, 3, T(-0.5), NAN},
                                {inf, 3, 0.5, NAN},
                                {2, nan, 0.5, NAN}};
  std::vector<T> as, bs, xs;
  for (const Case& c : cases) as.push_back(c.a), bs.push_back(c.b), xs.push_back(c.x);
  for (const int devices : {1, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const ts::OracleScope same_on_one_device;
    const auto put = [&](const std::vector<T>& v) { return ts::shard(v, mesh, {"x"}); };
    const std::vector<T> got = ts::to_host(ts::eval(ts::betainc(put(as), put(bs), put(xs))));
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double want = cases[i].want, unit = std::numeric_limits<T>::epsilon();
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(got[i])) << i;
      else
        EXPECT_NEAR(got[i], want, (unit + (i == 8 ? 1e-9 : 1e-15 * (1 + as[i] + bs[i]))) * (want + 1e-12)) << i;
    }
  }
}

TEST(Betainc, HasPublishedValues) {
  expect_published_values<double>();
  expect_published_values<float>();
}

/// Within the documented error, for operands of up to 2.
void expect_near(const auto& got, const std::vector<double>& want, double rounding = 0) {
  const auto values = ts::to_host(got);
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], rounding + 5e-15) << i;
}

TEST(Betainc, TakesNumbersBroadcastsAndScalars) {
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::shard<double>({0.25, 0.5, 1}, mesh, {"x"}), a = ts::shard<double>({1, 2}, mesh);
  expect_near(ts::eval(ts::betainc(a, 1, ts::unsqueeze<1>(x))), {0.25, 0.0625, 0.5, 0.25, 1, 1});
  expect_near(ts::eval(ts::betainc(2.0, ts::full<float, 0>({}, 1, mesh), 0.5)), {0.25}, 1e-7);
  expect_near(ts::eval(ts::betainc(ts::shard<std::int32_t>({1, 2}, mesh), 1, 0.5)), {0.5, 0.25}, 1e-7);
  const auto of_bf16 = ts::eval(ts::betainc(ts::cast<ts::bf16>(a), 1, 0.5));
  static_assert(std::is_same_v<decltype(of_bf16)::element, ts::bf16>);
  expect_near(ts::eval(ts::cast<float>(of_bf16)), {0.5, 0.25}, 1e-7);
  tessera_test::expect_error(
      ts::errc::shape_mismatch,
      [&] {
        ts::eval(ts::betainc(ts::shard<double>({1, 2}, mesh), 1, ts::shard<double>({1, 2, 3}, mesh)));
      },
      "in betainc", "betainc_test.cpp");
  EXPECT_NEAR(ts::to_host(ts::eval(ts::betaln(ts::shard<double>({2.5}, mesh), 3)))[0],
              std::lgamma(2.5) + std::lgamma(3) - std::lgamma(5.5), 1e-14);
}

/// As f32, which check_gradient weighs; the oracle does not round.
template <class F> struct Single {
  constexpr auto operator()(const auto&... x) const { return ts::cast<float>(F{}(x...)); }
};

TEST(Betainc, Gradients) {
  const oracle::Array a = oracle::random_array({2, 4}, 1, 0.4, 4), b = oracle::random_array({2, 4}, 2, 0.4, 4),
                      x = oracle::random_array({2, 4}, 3, 0.1, 0.9);
  const auto all = [](const auto& p, const auto& q, const auto& v) { return ts::betainc(p, q, v) * ts::betaln(p, q); };
  oracle::check_gradient<Double<2>, Double<2>, Double<2>>(Single<decltype(all)>{}, {a, b, x}, oracle::first_order);
  const auto of_x = [](const auto& v) { return ts::betainc(2.5, 1.25, v); };
  oracle::check_gradient<Double<2>>(Single<decltype(of_x)>{}, {x}, oracle::second_order);
  const auto of_a = [](const auto& p) { return ts::betainc(p, 1.25, 0.3); };
  tessera_test::expect_error(
      ts::errc::unsupported,
      [&] { oracle::check_gradient<Double<2>>(Single<decltype(of_a)>{}, {a}, oracle::second_order); },
      "[betainc] gradient");
}

// Third derivatives, as second derivatives of a first derivative against differences: by x alone, by a and b of that by
// x, and by x of that by a or b.
TEST(Betainc, ThirdDerivatives) {
  const oracle::Array a = oracle::random_array({2, 4}, 1, 0.4, 4), b = oracle::random_array({2, 4}, 2, 0.4, 4),
                      x = oracle::random_array({2, 4}, 3, 0.1, 0.9);
  const auto by_x = [](const auto& p, const auto& q, const auto& v) {
    return ts::grad([&](const auto& w) { return ts::sum(ts::betainc(p, q, w)); })(v);
  };
  oracle::check_gradient<Double<2>, Double<2>, Double<2>>(Single<decltype(by_x)>{}, {a, b, x}, oracle::second_order);
  const auto by_a = [](const auto& v) {
    const auto p = ts::zeros_like(v) + 1.75, q = ts::zeros_like(v) + 2.5;
    return ts::grad([&](const auto& w) { return ts::sum(ts::betainc(w, q, v)); })(p);
  };
  oracle::check_gradient<Double<2>>(Single<decltype(by_a)>{}, {x}, oracle::second_order);
  const auto by_b = [](const auto& v) {
    const auto p = ts::zeros_like(v) + 1.75, q = ts::zeros_like(v) + 2.5;
    return ts::grad([&](const auto& w) { return ts::sum(ts::betainc(p, w, v)); })(q);
  };
  oracle::check_gradient<Double<2>>(Single<decltype(by_b)>{}, {x}, oracle::second_order);
}

}  // namespace
