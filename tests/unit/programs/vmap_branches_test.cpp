#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/ops.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>

namespace ts = tessera;

// Branches and loops that differ between the examples of a ts::vmap, on meshes, against loops on the host.

namespace {

constexpr int examples = 7, width = 4;

constexpr auto function = [](const auto& x, const auto& w) {
  const auto grown = ts::while_loop([](const auto& v) { return ts::sum(v * v) < 9.0; },
                                    [&](const auto& v) { return v * 1.5 + w; }, x, 6);
  const auto kind = ts::cast<std::int32_t>(ts::floor(ts::sum(x)));
  const auto chosen = ts::switch_case(
      kind,
      std::tuple([&](const auto& v) { return ts::sin(v); }, [&](const auto& v) { return v * ts::sum(v * w); },
                 [&](const auto& v) { return v * 0.0 + w; }),
      x);
  return std::tuple(grown, chosen);
};
constexpr auto loss = [](const auto& xs, const auto& w) {
  const auto [grown, chosen] = ts::vmap(function, ts::in_axes<0, ts::not_mapped>)(xs, w);
  return std::tuple(ts::sum(ts::sin(grown)) + ts::sum(chosen * chosen), grown, chosen);
};

struct Result {
  double loss = 0;
  std::vector<double> grown, chosen;
};
Result on_host(const std::vector<double>& xs, const std::vector<double>& w) {
  Result all;
  for (int e = 0; e < examples; ++e) {
    const std::vector<double> x(xs.begin() + e * width, xs.begin() + (e + 1) * width);
    std::vector<double> v = x;
    const auto squares = [&] {
      double sum = 0;
      for (double own : v) sum += own * own;
      return sum;
    };
    for (int step = 0; step < 6 && squares() < 9.0; ++step)
      for (int i = 0; i < width; ++i)
        v[static_cast<std::size_t>(i)] = v[static_cast<std::size_t>(i)] * 1.5 + w[static_cast<std::size_t>(i)];
    double total = 0, product = 0;
    for (int i = 0; i < width; ++i)
      total += x[static_cast<std::size_t>(i)],
          product += x[static_cast<std::size_t>(i)] * w[static_cast<std::size_t>(i)];
    for (int i = 0; i < width; ++i) {
      const double own = x[static_cast<std::size_t>(i)];
      const double chosen = std::floor(total) <= 0   ? std::sin(own)
                            : std::floor(total) == 1 ? own * product
                                                     : w[static_cast<std::size_t>(i)];
      all.grown.push_back(v[static_cast<std::size_t>(i)]);
      all.chosen.push_back(chosen);
      all.loss += std::sin(v[static_cast<std::size_t>(i)]) + chosen * chosen;
    }
  }
  return all;
}
void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << ", element " << i;
}
std::vector<double> slopes(std::vector<double> xs, std::vector<double> w, bool of_w) {
  std::vector<double>& moved = of_w ? w : xs;
  std::vector<double> made;
  for (double& own : moved) {
    const double before = own, step = 1e-5;
    own = before + step;
    const double up = on_host(xs, w).loss;
    own = before - step;
    made.push_back((up - on_host(xs, w).loss) / (2 * step));
    own = before;
  }
  return made;
}

TEST(VmapBranches, OnMeshes) {
  constexpr auto program = ts::compile([](auto xs, auto w) {
    return ts::value_and_grad([](const auto& both) { return loss(std::get<0>(both), std::get<1>(both)); })(
        std::tuple(xs, w));
  });
  std::vector<double> xs, w;
  for (int i = 0; i < examples * width; ++i) xs.push_back(std::sin(1.7 * i) * 0.4 + 0.15 * (i / width));
  for (int i = 0; i < width; ++i) w.push_back(0.1 + 0.05 * std::cos(2.3 * i));
  const Result expected = on_host(xs, w);
  const std::vector<double> of_x = slopes(xs, w, false), of_w = slopes(xs, w, true);
  for (const int devices : {1, 2, 3, 4}) {
    const ts::Mesh mesh({{"data", devices}});
    const auto x = ts::shard(xs, {examples, width}, mesh, {"data"});
    const auto shared = ts::shard(w, {width}, mesh);
    const auto [value, gradient] = program(x, shared);
    const ts::OracleScope same_on_one_device;  // throws where a value differs
    program(x, shared);
    const std::string on = " on " + mesh.text();
    EXPECT_NEAR(ts::to_host(std::get<0>(value))[0], expected.loss, 1e-12 * std::abs(expected.loss)) << on;
    expect_near(ts::to_host(std::get<1>(value)), expected.grown, 1e-12, "loop" + on);
    expect_near(ts::to_host(std::get<2>(value)), expected.chosen, 1e-12, "branch" + on);
    expect_near(ts::to_host(std::get<0>(gradient)), of_x, 1e-7, "gradient of x" + on);
    expect_near(ts::to_host(std::get<1>(gradient)), of_w, 1e-7, "gradient of w" + on);
  }
}

// Stacks that differ between examples: in the carry of a loop, as the result of a branch, and captured by a loop.
struct Layer {
  ts::ShardedTensor<double, 2> w;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, w)); }
};
using Net = ts::Stack<Layer>;
constexpr int layers = 3;
constexpr auto scaled = [](auto net, const auto& factor) {
  net[0].w = net[0].w * factor;
  return net;
};
constexpr auto with_own_layers = [](const auto& x, const Net& net) {
  const auto grown = ts::while_loop([](const auto& carry) { return ts::sum(ts::abs(carry.second)) > 0.9; },
                                    [](const auto& carry) {
                                      const auto next = carry.first(carry.second) * 1.1;
                                      return std::pair(scaled(carry.first, 1.0 + 0.1 * ts::sum(next)), next);
                                    },
                                    std::pair(net, x), 5);
  const auto chosen = ts::cond(
      ts::sum(x) > 0.0, [&] { return scaled(net, 0.5); }, [&] { return scaled(grown.first, ts::sum(x)); });
  const auto last = ts::fori_loop(
      0, 2,
      [&](const auto&, const auto& v) {
        return chosen(v) + 0.1 * ts::sum(ts::all_layers(chosen, &Layer::w)) + 0.2 * grown.first(x);
      },
      grown.second);
  return ts::sum(ts::sin(last));
};
double with_own_layers_on_host(const std::vector<double>& xs, const std::vector<double>& weights,
                               std::vector<double>* each = nullptr) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const auto call = [&](const std::vector<double>& net, std::vector<double> x) {
    for (int layer = 0; layer < layers; ++layer) {
      std::vector<double> y(width, 0.0);
      for (int j = 0; j < width; ++j) {
        for (int i = 0; i < width; ++i) y[at(j)] += x[at(i)] * net[at((layer * width + i) * width + j)];
        y[at(j)] = std::tanh(y[at(j)]);
      }
      x = y;
    }
    return x;
  };
  const auto times = [](std::vector<double> values, double factor) {
    for (double& value : values) value *= factor;
    return values;
  };
  const auto sum = [](const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); };
  double total = 0;
  for (int e = 0; e < examples; ++e) {
    const std::vector<double> x(xs.begin() + e * width, xs.begin() + (e + 1) * width);
    std::vector<double> net = weights, h = x;
    const auto magnitude = [&] {
      double all = 0;
      for (double value : h) all += std::abs(value);
      return all;
    };
    for (int step = 0; step < 5 && magnitude() > 0.9; ++step) {
      h = times(call(net, h), 1.1);
      net = times(net, 1.0 + 0.1 * sum(h));
    }
    const std::vector<double> chosen = sum(x) > 0 ? times(weights, 0.5) : times(net, sum(x));
    const std::vector<double> of_grown = call(net, x);
    for (int step = 0; step < 2; ++step) {
      h = call(chosen, h);
      for (int i = 0; i < width; ++i) h[at(i)] += 0.1 * sum(chosen) + 0.2 * of_grown[at(i)];
    }
    double own = 0;
    for (double value : h) own += std::sin(value);
    if (each != nullptr) each->push_back(own);
    total += own;
  }
  return total;
}
TEST(VmapBranches, StacksThatDifferBetweenExamples) {
  constexpr auto program = ts::compile([](auto xs, auto net) {
    return ts::value_and_grad([](const auto& own, const auto& x) {
      const auto each = ts::vmap(with_own_layers, ts::in_axes<0, ts::not_mapped>)(x, own);
      return std::tuple(ts::sum(each), each);
    })(net, xs);
  });
  std::vector<double> xs, w, expected, of_w;
  for (int i = 0; i < examples * width; ++i) xs.push_back(std::sin(1.7 * i) * (0.2 + 0.15 * (i / width)));
  for (int i = 0; i < layers * width * width; ++i) w.push_back(0.6 * std::cos(2.3 * i));
  const double total = with_own_layers_on_host(xs, w, &expected);
  for (double& own : w) {
    const double before = own, step = 1e-5;
    own = before + step;
    const double up = with_own_layers_on_host(xs, w);
    own = before - step;
    of_w.push_back((up - with_own_layers_on_host(xs, w)) / (2 * step));
    own = before;
  }
  for (const int devices : {1, 2, 3, 4}) {
    const ts::Mesh mesh({{"data", devices}});
    const std::string on = " on " + mesh.text();
    const Net net(layers, [&](int layer) {
      const auto first = w.begin() + layer * width * width;
      return Layer{ts::shard(std::vector<double>(first, first + width * width), {width, width}, mesh, {"data"})};
    });
    const auto [value, gradient] = program(ts::shard(xs, {examples, width}, mesh, {"data"}), net);
    EXPECT_NEAR(ts::to_host(std::get<0>(value))[0], total, 1e-11 * std::abs(total)) << on;
    expect_near(ts::to_host(std::get<1>(value)), expected, 1e-11, "each" + on);
    std::vector<double> found;
    for (const Layer& layer : gradient.layers())
      for (double slope : ts::to_host(layer.w)) found.push_back(slope);
    expect_near(found, of_w, 1e-7, "gradient" + on);
  }
}

}  // namespace
