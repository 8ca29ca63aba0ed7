#include <cmath>
#include <cstdint>
#include <vector>

#include "../base/expect_error.hpp"
#include "check.hpp"

#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/host.hpp>

namespace ts = tessera;
using namespace programs;

TEST(Programs, Rows) {
  constexpr auto f = [](const auto& floats, const auto& targets, const auto& eps) {
    const auto& [x, w, gain, bias] = floats;  // [b, t, d], [d, d], [d], [d]
    const auto normed = ts::layer_norm(x, gain, bias, eps);
    const auto squared = ts::rms_norm(normed * 2.0 + x, gain);
    const auto soft = ts::softmax(squared * 3.0), across = ts::softmax<1>(x * 2.0), logs = ts::log_softmax<0>(squared);
    const auto loss = ts::cross_entropy(ts::matmul(squared, w), targets);
    return std::tuple(loss + energy(soft, across, logs) + ts::mse(normed, x), normed, squared, soft, across, logs,
                      ts::log_softmax(x));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<1>, Tensor<1>>, Tensor<2, std::int32_t>,
                             ts::Scalar>(
      with_gradient(f),
      {.arguments = {values("btd"), values("dd"), values("d"), values("d"), indices("bt", 'd'), scalar(0.05, 0.2)}}, 4);
}

TEST(Programs, ProductsGatesAndLossesOfClasses) {
  constexpr auto f = [](const auto& floats, const auto& targets, const auto& labels) {
    const auto& [x, w, bias, weight, cube] = floats;  // [b, c], [c, c], [c], [c], [b, c, e]
    const auto sum = ts::addmm(bias, x, w, 0.5, 2.0);
    const auto sums = ts::baddbmm(x, ts::unsqueeze<0>(x), ts::unsqueeze<0>(w));  // [1, b, c]
    const auto cross = ts::tensordot(ts::unsqueeze<0>(x), cube);                 // [1, e]
    const auto gated = ts::glu(ts::concat<1>(sum, x)), other = ts::glu<0>(ts::concat<0>(x, sum));
    const auto leaky = ts::prelu(sum, weight);
    constexpr ts::CrossEntropy smooth{.label_smoothing = 0.2};
    const auto loss = ts::cross_entropy(leaky, targets, ts::abs(weight) + 0.5, smooth) +
                      ts::nll_loss(ts::log_softmax(sum), targets, ts::abs(weight) + 0.5) +
                      ts::multi_margin_loss<ts::LossReduction::mean, 2>(gated, targets) +
                      ts::multilabel_soft_margin_loss(other, labels) + ts::soft_margin_loss(sum, labels);
    const auto tails = ts::log_ndtr(x * 20.0), below = ts::ndtr(x);
    return std::tuple(loss + energy(gated, other, leaky, cross, sums, tails * 0.01, below), tails, below,
                      ts::addcmul(bias, x, sum, 0.5), ts::addcdiv(x, sum, ts::exp(x)), ts::entr(below),
                      ts::xlog1py(x, below), ts::logaddexp2(x, sum), ts::frac(x), ts::float_power(x, 2));
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>, Tensor<1>, Tensor<1>, Tensor<3>>, Tensor<1, std::int32_t>,
                             Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("bc"), values("cc"), values("c"), values("c"), values("bce"), indices("b", 'c'),
                     indices("bc", 'c')}},
      4);
}

// The kernels, against C's functions of long doubles, where the formulas of log_ndtr meet and far away from them.
TEST(Compositions, LogarithmsOfTheNormalDistributionOfBothTypes) {
  const auto check = [](auto type, double tolerance) {
    using T = decltype(type);
    std::vector<T> x;
    for (double at = -36; at <= 8; at += 0.0625) x.push_back(static_cast<T>(at));
    const auto count = static_cast<std::int64_t>(x.size());
    constexpr ts::Mesh mesh({{"x", 3}});
    const std::vector<T> got = ts::to_host(ts::eval(ts::log_ndtr(ts::shard(x, {count}, mesh, {"x"}))));
    ASSERT_EQ(got.size(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double v = x[i], root = std::sqrt(2.0L);
      const long double want = v < 0 ? std::log(std::erfc(-v / root) / 2) : std::log1p(-std::erfc(v / root) / 2);
      ASSERT_NEAR(static_cast<double>(got[i] / want), 1, tolerance) << x[i];
    }
  };
  check(float{}, 4e-6);
  check(double{}, 1e-14);
}

TEST(Compositions, RefuseShapesThatDoNotFit) {
  constexpr ts::Mesh mesh({{"x", 1}});
  const auto x = ts::full<float>({2, 3}, 1.0f, mesh, {});
  const auto targets = ts::full<std::int32_t>({2}, 1, mesh, {});
  const auto refused = [](const auto& expression, ts::errc id = ts::errc::shape_mismatch) {
    tessera_test::expect_error(
        id, [&] { ts::eval(expression); }, "rows_test.cpp");
  };
  refused(ts::glu(x), ts::errc::not_divisible);
  refused(ts::cross_entropy(x, targets, ts::full<float>({4}, 1.0f, mesh, {})));
  refused(ts::nll_loss(x, targets, ts::full<float>({4}, 1.0f, mesh, {})));
  refused(ts::prelu(x, ts::full<float>({2}, 1.0f, mesh, {})));
  refused(ts::addmm(x, x, x));
  refused(ts::tensordot<1>(x, x));
}
