// ts::train::minimize against torch.optim.LBFGS(line_search_fn="strong_wolfe") of PyTorch 1.13.1, whose numbers
// tests/reference/generate.py writes, on one, two and three devices.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/reference.hpp"
#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/train/minimize.hpp>

namespace ts = tessera;
namespace train = tessera::train;
using tessera_test::expect_error;

namespace {

using Vector = ts::ShardedTensor<double, 1>;
using Matrix = ts::ShardedTensor<double, 2>;

struct Layer {
  Matrix weight;
  Vector bias;
  static constexpr std::array field_names{"weight", "bias"};
};

constexpr auto rosenbrock = ts::compile([](auto p) {
  return ts::value_and_grad([](const auto& at) {
    const auto x = ts::slice<0>(at, 0, 1), y = ts::slice<0>(at, 1, 1);
    return ts::sum(ts::square(1.0 - x) + 100.0 * ts::square(y - x * x));
  })(p);
});
constexpr auto regression = ts::compile([](auto layer, auto x, auto y) {
  return ts::value_and_grad([](const auto& m, const auto& in, const auto& out) {
    return ts::mean(ts::square(ts::tanh(ts::matmul(in, m.weight) + m.bias) - out));
  })(layer, x, y);
});

template <int Rank>
ts::ShardedTensor<double, Rank> tensor(const oracle::Array& from, const ts::Mesh& mesh, const ts::PartitionSpec& spec) {
  ts::Shape shape;
  for (const std::int64_t extent : from.shape) shape.push_back(extent);
  return ts::shard<Rank>(std::span<const double>(from.data), shape, mesh, spec);
}
/// The largest difference from what PyTorch has, over the size of its largest number.
template <class X> double difference(const X& x, const oracle::Array& expected) {
  const auto values = ts::to_host(x);
  EXPECT_EQ(values.size(), expected.data.size());
  double most = 0, size = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    most = std::max(most, std::fabs(values[i] - expected.data[i]));
    size = std::max(size, std::fabs(expected.data[i]));
  }
  return most / size;
}

void expect_loss(const auto& found, const oracle::Array& expected, double bound) {
  EXPECT_NEAR(found.loss, expected.data[0], bound * std::max(1.0, expected.data[0]));
  EXPECT_EQ(found.evaluations, static_cast<int>(expected.data[1]));
}

// Rounding grows from one iteration to the next along the curved valley: 2e-16 at the start.
template <int History> void expect_rosenbrock(const char* name, const train::MinimizeOptions& given, double bound) {
  const auto cases = reference::read_cases("minimize");
  const reference::Case& torch = cases.at(name);
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    for (std::size_t k = 0; k < 20; ++k) {
      SCOPED_TRACE(std::string(name) + " on " + std::to_string(devices) + ", iterations " + std::to_string(k + 1));
      train::MinimizeOptions options = given;
      options.max_iterations = static_cast<int>(k) + 1;
      options.max_evaluations = 1000;
      const auto found = train::minimize<History>(tensor<1>(torch.in[0], mesh, {"x"}), rosenbrock, options);
      EXPECT_LE(difference(found.model, torch.out[2 * k]), bound);
      expect_loss(found, torch.out[2 * k + 1], bound);
      EXPECT_EQ(found.iterations, static_cast<int>(k) + 1);
    }
  }
}
TEST(Minimize, IsPyTorchOnRosenbrocksFunction) {
  expect_rosenbrock<5>("rosenbrock", {}, 1e-9);
  expect_rosenbrock<3>("rosenbrock_far", {.learning_rate = 4}, 1e-9);
}

TEST(Minimize, IsPyTorchOnARegression) {
  const auto cases = reference::read_cases("minimize");
  const reference::Case& torch = cases.at("regression");
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto x = tensor<2>(torch.in[2], mesh, {"x"}), y = tensor<2>(torch.in[3], mesh, {"x"});
    const Layer start{tensor<2>(torch.in[0], mesh, {ts::none, "x"}), tensor<1>(torch.in[1], mesh, {"x"})};
    for (std::size_t k = 0; k < 20; ++k) {
      SCOPED_TRACE(std::to_string(devices) + " devices, iterations " + std::to_string(k + 1));
      const auto found = train::minimize(start, [&](const Layer& m) { return regression(m, x, y); },
                                         {.max_iterations = static_cast<int>(k) + 1, .max_evaluations = 1000});
      EXPECT_LE(difference(found.model.weight, torch.out[3 * k]), 1e-9);
      EXPECT_LE(difference(found.model.bias, torch.out[3 * k + 1]), 1e-9);
      expect_loss(found, torch.out[3 * k + 2], 1e-9);
      if (devices > 1) EXPECT_EQ(ts::sharding(found.model.weight), ts::sharding(start.weight));
    }
  }
}

// Each rate meets the strong Wolfe conditions, by losses and slopes that are computed here, in double.
TEST(Minimize, MeetsTheWolfeConditions) {
  const auto value = [](double x, double y) { return (1 - x) * (1 - x) + 100 * (y - x * x) * (y - x * x); };
  const auto slope = [](double x, double y, double dx, double dy) {
    return (-2 * (1 - x) - 400 * x * (y - x * x)) * dx + 200 * (y - x * x) * dy;
  };
  const ts::Mesh mesh({{"x", 1}});
  std::vector<std::vector<double>> points{{-1.2, 1}};
  std::vector<double> rates;
  auto at = ts::shard(points[0], {2}, mesh, {});
  for (int k = 1; k <= 25; ++k) {
    const auto found = train::minimize(
        at, rosenbrock,
        {.max_iterations = k, .max_evaluations = 1000, .after_iteration = [&](const train::MinimizeReport& report) {
           if (report.iteration == k) rates.push_back(report.rate);
         }});
    points.push_back(ts::to_host(found.model));
    const auto &from = points[points.size() - 2], &to = points.back();
    const double dx = (to[0] - from[0]) / rates.back(), dy = (to[1] - from[1]) / rates.back();
    const double before = slope(from[0], from[1], dx, dy), after = slope(to[0], to[1], dx, dy);
    EXPECT_LT(before, 0) << k;
    EXPECT_LE(value(to[0], to[1]), value(from[0], from[1]) + 1e-4 * rates.back() * before) << k;
    EXPECT_LE(std::fabs(after), 0.9 * std::fabs(before)) << k;
    EXPECT_NEAR(found.loss, value(to[0], to[1]), 1e-12) << k;
  }
}

TEST(Minimize, EndsWhereTheGradientIsSmall) {
  const ts::Mesh mesh({{"x", 2}});
  const auto found = train::minimize(ts::shard(std::vector<double>{-1.2, 1}, {2}, mesh, {"x"}), rosenbrock);
  EXPECT_TRUE(found.converged);
  EXPECT_LT(found.iterations, 60);
  for (const double v : ts::to_host(found.model)) EXPECT_NEAR(v, 1, 1e-5);
  EXPECT_LT(found.loss, 1e-11);
  const auto again = train::minimize(ts::ones<double>({2}, mesh), rosenbrock);
  EXPECT_TRUE(again.converged);
  EXPECT_EQ(again.iterations, 0);
  EXPECT_EQ(again.evaluations, 1);
}

TEST(Minimize, EndsAtLimitsAndByTheHook) {
  const ts::Mesh mesh({{"x", 1}});
  const auto start = ts::shard(std::vector<double>{-1.2, 1}, {2}, mesh, {});
  const auto none = train::minimize(start, rosenbrock, {.max_iterations = 0});
  EXPECT_EQ(ts::to_host(none.model), ts::to_host(start));
  EXPECT_NEAR(none.loss, 24.2, 1e-12);
  const auto few = train::minimize(start, rosenbrock, {.max_evaluations = 10});
  EXPECT_GE(few.evaluations, 10);
  EXPECT_LT(few.evaluations, 36);
  EXPECT_FALSE(few.converged);
  int calls = 0;
  const auto stopped = train::minimize(start, rosenbrock, {.after_iteration = [&](train::MinimizeReport& report) {
                                         EXPECT_EQ(report.iteration, ++calls);
                                         report.stop = report.loss < 3;
                                       }});
  EXPECT_EQ(stopped.iterations, calls);
  EXPECT_LT(stopped.loss, 3);
}

// log of a negative number: the loss is NaN there, so the line search takes a shorter step.
TEST(Minimize, StepsBackFromLossesThatAreNaN) {
  constexpr auto barrier = ts::compile(
      [](auto p) { return ts::value_and_grad([](const auto& x) { return ts::sum(x * 3.0 - ts::log(x)); })(p); });
  const ts::Mesh mesh({{"x", 1}});
  const auto start = ts::shard(std::vector<double>{4, 9}, {2}, mesh, {});
  const auto found = train::minimize(start, barrier, {.learning_rate = 50});
  EXPECT_TRUE(found.converged);
  for (const double v : ts::to_host(found.model)) EXPECT_NEAR(v, 1.0 / 3, 1e-6);
}

TEST(Minimize, RefusesOptionsThatMakeNoSense) {
  const ts::Mesh mesh({{"x", 1}});
  const auto start = ts::ones<double>({2}, mesh);
  const auto refused = [&](const train::MinimizeOptions& options, const char* why) {
    expect_error(
        ts::errc::option, [&] { train::minimize(start, rosenbrock, options); }, "[minimize] ", why,
        "minimize_test.cpp");
  };
  refused({.max_iterations = -1}, "max_iterations: -1 is negative");
  refused({.max_evaluations = -1}, "max_evaluations: -1 is negative");
  refused({.learning_rate = 0}, "learning_rate: 0.0");
  refused({.learning_rate = std::nan("")}, "is not above 0");
  refused({.gradient_tolerance = -1}, "gradient_tolerance: -1.0");
  refused({.change_tolerance = std::nan("")}, "change_tolerance: ");
  refused({.line_search = {.c1 = 0.9, .c2 = 0.1}}, "not 0 < c1 < c2 < 1");
  refused({.line_search = {.max_trials = 0}}, "max_trials of 0 is below 1");
}

}  // namespace
