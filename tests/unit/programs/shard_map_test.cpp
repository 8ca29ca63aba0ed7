#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>

namespace ts = tessera;
namespace tc = ts::collective;

namespace {

using Tensor = ts::ShardedTensor<double, 2>;
constexpr int rows = 12, columns = 6;

std::vector<double> some_values(int count, int seed) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::sin(1.7 * i + seed) + 0.01 * i);
  return values;
}

// ---- every collective, compared with loops over devices

constexpr auto every_collective = [](auto a, auto b) {
  auto v = a * (ts::cast<double>(ts::axis_index<"x">(a)) + 1.0);
  auto spread = b * ts::cast<double>(ts::axis_index<"x">(b)) * 0.5;  // [12, 6], differs between devices
  return std::tuple(ts::psum<"x">(v * v), ts::pmean<"x">(ts::exp(v)), ts::pmax<"x">(v), ts::pmin<"x">(v),
                    tc::all_gather<"x", 1>(v), ts::psum_scatter<"x", 0>(spread), tc::all_to_all<"x", 1, 0>(v),
                    ts::ppermute<"x">(v, ts::Shift(1)), ts::ppermute<"x">(ts::relu(v), {{0, 0}}),
                    ts::einsum<"ik,jk->ij">(a, b), ts::unsqueeze<0>(ts::psum<"x">(ts::sum(v)) * ts::axis_size<"x">(v)),
                    tc::all_gather<"x", 0>(ts::pvary<"x">(ts::unsqueeze<0>(ts::mean(b)))));
};
constexpr auto mapped = [](auto a, auto b) {
  return ts::shard_map<"{x}, {} -> {}, {}, {}, {}, {}, {x}, {-,x}, {x}, {x}, {x}, {x}, {}">(every_collective)(a, b);
};
constexpr auto energy = [](const auto&... results) { return (ts::sum((results + 0.25) * results) + ...); };
constexpr auto loss_of_all = [](const auto& inputs) {
  const auto results = mapped(std::get<0>(inputs), std::get<1>(inputs));
  return std::tuple(std::apply(energy, results), results);
};
constexpr auto all_with_gradient = [](auto a, auto b) { return ts::value_and_grad(loss_of_all)(std::tuple(a, b)); };

/// A matrix, by rows.
struct Matrix {
  int m = 0, n = 0;
  std::vector<double> data;
  Matrix(int height, int width) : m(height), n(width), data(static_cast<std::size_t>(height * width)) {}
  double& at(int i, int j) { return data[static_cast<std::size_t>(i * n + j)]; }
  double at(int i, int j) const { return data[static_cast<std::size_t>(i * n + j)]; }
};

std::vector<Matrix> played(int devices, const Matrix& a, const Matrix& b) {
  const int own = rows / devices;
  const auto v = [&](int device, int i, int j) { return a.at(device * own + i, j) * (device + 1); };
  Matrix sum(own, columns), mean = sum, high = sum, low = sum, gathered(own, columns * devices),
                            scattered(rows, columns), turned = scattered, shifted = scattered, routed = scattered,
                            product(rows, rows), total(1, devices), means(1, devices);
  for (int i = 0; i < own; ++i)
    for (int j = 0; j < columns; ++j) {
      high.at(i, j) = low.at(i, j) = v(0, i, j);
      for (int d = 0; d < devices; ++d) {
        sum.at(i, j) += v(d, i, j) * v(d, i, j);
        mean.at(i, j) += std::exp(v(d, i, j)) / devices;
        high.at(i, j) = std::max(high.at(i, j), v(d, i, j));
        low.at(i, j) = std::min(low.at(i, j), v(d, i, j));
        gathered.at(i, d * columns + j) = v(d, i, j);
        turned.at(d * own + i, j) = v(d, i, j);
        shifted.at((d + 1) % devices * own + i, j) = v(d, i, j);
        if (d == 0) routed.at(i, j) = std::max(0.0, v(d, i, j));
        total.at(0, 0) += v(d, i, j) * devices;
      }
    }
  for (int d = 0; d < devices; ++d) total.at(0, d) = total.at(0, 0);
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < columns; ++j) {
      for (int d = 0; d < devices; ++d) scattered.at(i, j) += b.at(i, j) * d * 0.5;
      for (int k = 0; k < rows; ++k) product.at(i, k) += a.at(i, j) * b.at(k, j);
      for (int d = 0; d < devices; ++d) means.at(0, d) += b.at(i, j) / (rows * columns);
    }
  return {sum, mean, high, low, gathered, scattered, turned, shifted, routed, product, total, means};
}
double energy_of(const std::vector<Matrix>& results) {
  double total = 0;
  for (const Matrix& result : results)
    for (double x : result.data) total += (x + 0.25) * x;
  return total;
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << ", element " << i;
}

TEST(ShardMap, EveryCollectiveAndItsGradient) {
  constexpr auto program = ts::compile(all_with_gradient);
  Matrix a(rows, columns), b(rows, columns);
  a.data = some_values(rows * columns, 1);
  b.data = some_values(rows * columns, 2);
  for (const ts::Mesh& mesh : {ts::Mesh({{"x", 1}}), ts::Mesh({{"x", 2}}), ts::Mesh({{"x", 3}}),
                               ts::Mesh({{"y", 2}, {"x", 2}}), ts::Mesh({{"x", 3}, {"y", 2}}, {5, 3, 1, 0, 2, 4})}) {
    const int devices = mesh.axis_size(mesh.axis_index("x"));
    const auto x = ts::shard(a.data, {rows, columns}, mesh, {ts::none, "x"});
    const auto y = ts::shard(b.data, {rows, columns}, mesh);
    const auto [value, gradient] = program(x, y);
    const ts::OracleScope same_on_one_device;  // throws where a value differs
    program(x, y);
    EXPECT_GT(same_on_one_device.compared(), 50);
    const std::vector<Matrix> expected = played(devices, a, b);
    const std::string on = " on " + mesh.text();
    EXPECT_NEAR(ts::to_host(std::get<0>(value))[0], energy_of(expected), 1e-9 * energy_of(expected)) << on;
    std::size_t next = 0;
    std::apply(
        [&](const auto&... results) {
          ((expect_near(ts::to_host(results), expected[next].data, 1e-12, "result " + std::to_string(next) + on),
            ++next),
           ...);
        },
        std::get<1>(value));
    for (int k = 0; k < 2; ++k) {
      std::vector<double> slope;
      for (int i = 0; i < rows * columns; ++i) {
        Matrix up_a = a, up_b = b, down_a = a, down_b = b;
        const double step = 1e-5;
        (k == 0 ? up_a : up_b).data[static_cast<std::size_t>(i)] += step;
        (k == 0 ? down_a : down_b).data[static_cast<std::size_t>(i)] -= step;
        slope.push_back((energy_of(played(devices, up_a, up_b)) - energy_of(played(devices, down_a, down_b))) /
                        (2 * step));
      }
      expect_near(ts::to_host(k == 0 ? std::get<0>(gradient) : std::get<1>(gradient)), slope, 1e-6,
                  "gradient " + std::to_string(k) + on);
    }
  }
}

// A tangent against differences, and a Hessian-vector product against differences of gradients.
constexpr auto tangents_of_all = [](auto a, auto b, auto da, auto db) {
  const auto f = [](const auto& x, const auto& y) { return std::get<0>(loss_of_all(std::tuple(x, y))); };
  const auto linearized = ts::linearize(f, a, b);
  return std::tuple(std::get<1>(ts::jvp(f, std::tuple(a, b), std::tuple(da, db))), std::get<1>(linearized)(da, db),
                    ts::hvp(f, std::tuple(a, b), std::tuple(da, db)));
};
TEST(ShardMap, TangentsOfEveryCollective) {
  constexpr auto program = ts::compile(tangents_of_all);
  constexpr auto gradients = ts::compile(all_with_gradient);
  const std::vector<double> a = some_values(rows * columns, 1), b = some_values(rows * columns, 2),
                            da = some_values(rows * columns, 3), db = some_values(rows * columns, 4);
  for (const ts::Mesh& mesh : {ts::Mesh({{"x", 1}}), ts::Mesh({{"x", 2}}), ts::Mesh({{"y", 2}, {"x", 3}})}) {
    const std::string on = " on " + mesh.text();
    const auto split = [&](const std::vector<double>& v) {
      return ts::shard(v, {rows, columns}, mesh, {ts::none, "x"});
    };
    const auto whole = [&](const std::vector<double>& v) { return ts::shard(v, {rows, columns}, mesh); };
    const auto moved = [&](double step) {
      std::vector<double> x = a, y = b;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += step * da[i], y[i] += step * db[i];
      return gradients(split(x), whole(y));
    };
    const double step = 1e-5;
    const auto [up, up_gradient] = moved(step);
    const auto [down, down_gradient] = moved(-step);
    const auto slope = [&](const auto& above, const auto& below) {
      std::vector<double> made = ts::to_host(above);
      const std::vector<double> other = ts::to_host(below);
      for (std::size_t i = 0; i < made.size(); ++i) made[i] = (made[i] - other[i]) / (2 * step);
      return made;
    };
    const auto [tangent, pushed, products] = program(split(a), whole(b), split(da), whole(db));
    expect_near(ts::to_host(tangent), slope(std::get<0>(up), std::get<0>(down)), 1e-6, "tangent" + on);
    expect_near(ts::to_host(pushed), ts::to_host(tangent), 1e-12, "linearized" + on);
    expect_near(ts::to_host(std::get<0>(products)), slope(std::get<0>(up_gradient), std::get<0>(down_gradient)), 1e-6,
                "first product" + on);
    expect_near(ts::to_host(std::get<1>(products)), slope(std::get<1>(up_gradient), std::get<1>(down_gradient)), 1e-6,
                "second product" + on);
  }
}

// A tangent reads the shapes of the cotangents on which it is built, and computes none of them.
TEST(ShardMap, TangentsComputeNoCotangents) {
  constexpr auto pushed = ts::compile([](auto x, auto w, auto dx) {
    return std::get<1>(ts::linearize(
        [&](const auto& own) {
          return ts::shard_map<"{x}, {} -> {}">([](const auto& in, const auto& v) {
            const auto y = ts::tanh(ts::matmul(in, v));
            return ts::psum<"x">(ts::sum(ts::ppermute<"x">(y, ts::Shift(1)) * y));
          })(own, w);
        },
        x))(dx);
  });
  const ts::Mesh mesh({{"x", 2}});
  const auto x = ts::ones<double>({4, 3}, mesh, {"x"});
  const ts::Plan& plan = pushed.plan(x, ts::ones<double>({3, 3}, mesh), x);
  EXPECT_EQ(plan.count(ts::Collective::permute), 2) << "of y, and of its tangent";
}

// ---- derivatives taken in the function, compared with those of the sum of the losses of all devices

constexpr auto local_loss = [](const auto& x, const auto& w) {
  return ts::sum(ts::tanh(ts::matmul(x, w)) * ts::cast<double>(ts::axis_index<"x">(x) + 1));
};
constexpr auto sum_of_losses = [](const auto& x, const auto& w) {
  return ts::shard_map<"{x}, {} -> {}">(
      [](const auto& own, const auto& v) { return ts::psum<"x">(local_loss(own, v)); })(x, w);
};
TEST(ShardMap, DerivativesInside) {
  constexpr auto inside = ts::compile([](auto x, auto w) {
    return ts::shard_map<"{x}, {} -> {x}, {}, {}, {}, {}, {x}, {}">([](const auto& own, const auto& v) {
      const auto [of_x, of_w] = ts::grad<0, 1>(local_loss)(own, v);
      const auto of_each = ts::grad([&](const auto& u) { return local_loss(own, u); })(ts::pvary<"x">(v));
      const auto reduced = ts::grad([&](const auto& u) { return ts::psum<"x">(local_loss(own, u)); })(v);
      const auto repeated = ts::grad([](const auto& u) { return ts::pvary<"x">(ts::sum(ts::sin(u))); })(v);
      const auto [y, pullback] = ts::vjp([](const auto& in, const auto& u) { return ts::matmul(in, u); }, own, v);
      const auto [pulled_x, pulled_w] = pullback(y);
      return std::tuple(of_x, of_w, ts::psum<"x">(of_each), reduced, repeated, pulled_x, pulled_w);
    })(x, w);
  });
  constexpr auto outside = ts::compile([](auto x, auto w) {
    const auto [of_x, of_w] = ts::grad<0, 1>(sum_of_losses)(x, w);
    const auto y = ts::matmul(x, w);
    return std::tuple(of_x, of_w, of_w, of_w, ts::cos(w), ts::matmul(y, ts::transpose(w)),
                      ts::matmul(ts::transpose(x), y));
  });
  const std::vector<double> x = some_values(rows * columns, 1), w = some_values(columns * columns, 2);
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const auto a = ts::shard(x, {rows, columns}, mesh, {"x"}), b = ts::shard(w, {columns, columns}, mesh);
    const auto found = inside(a, b);
    const auto expected = outside(a, b);
    const auto expect_equal = [&]<std::size_t... I>(std::index_sequence<I...>) {
      (expect_near(ts::to_host(std::get<I>(found)), ts::to_host(std::get<I>(expected)), 1e-12,
                   "derivative " + std::to_string(I) + " on " + mesh.text()),
       ...);
    };
    expect_equal(std::index_sequence<0, 1, 2, 3, 5, 6>());
    std::vector<double> cosines = ts::to_host(std::get<4>(expected));
    for (double& each : cosines) each *= devices;  // the loss of each device depends on the shared value
    expect_near(ts::to_host(std::get<4>(found)), cosines, 1e-12, "equal losses on " + mesh.text());
  }
}

// By a struct: what is split has a gradient on each device, what is shared one that is summed over the devices.
struct Affine {
  Tensor weight;
  ts::ShardedTensor<double, 1> bias;
};
TEST(ShardMap, GradientsOfAStructInside) {
  constexpr auto inside = ts::compile([](auto model, auto x) {
    return ts::shard_map<"[{-,x}, {}], {} -> [{-,x}, {}]">([](const auto& own, const auto& in) {
      Affine gradient = ts::grad([](const auto& m, const auto& v) {
        return ts::sum(ts::sin(ts::tanh(ts::matmul(v, m.weight) + ts::sum(m.bias))));
      })(own, in);
      return gradient;
    })(model, x);
  });
  constexpr auto outside = ts::compile([](auto model, auto x) {
    return ts::grad([](const auto& m, const auto& v) {
      return ts::sum(ts::sin(ts::tanh(ts::matmul(v, m.weight) + ts::sum(m.bias))));
    })(model, x);
  });
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"x", devices}});
    const Affine model{ts::shard(some_values(columns * columns, 2), {columns, columns}, mesh, {ts::none, "x"}),
                       ts::shard(some_values(columns, 3), {columns}, mesh)};
    const auto x = ts::shard(some_values(rows * columns, 1), {rows, columns}, mesh);
    const Affine found = inside(model, x), expected = outside(model, x);
    expect_near(ts::to_host(found.weight), ts::to_host(expected.weight), 1e-12, "weight on " + mesh.text());
    expect_near(ts::to_host(found.bias), ts::to_host(expected.bias), 1e-12, "bias on " + mesh.text());
  }
}

// ---- structs as arguments and results, compared with the program without shard_map

struct Layer {
  Tensor up, down;
  ts::ShardedTensor<double, 1> bias;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};
constexpr auto layer_by_hand = [](auto layer, auto x) {
  return ts::shard_map<"[{-,model}, {model}, {}], {data} -> {data}, [{-,model}, {model}, {}]">([](auto own, auto in) {
    Layer changed = own;
    changed.up = ts::ppermute<"model">(ts::local_of(own.up, in), ts::Shift(0)) * 3.0;
    changed.bias = ts::pmean<"data">(ts::mean<0>(in)) + own.bias;
    return std::tuple(ts::psum<"model">(own(in)) + own.bias, changed);
  })(layer, x);
};
constexpr auto plain_layer = [](auto layer, auto x) {
  Layer changed = layer;
  changed.up = layer.up * 3.0;
  changed.bias = ts::mean<0>(x) + layer.bias;
  return std::tuple(layer(x) + layer.bias, changed);
};
template <class F> struct LayerStep {
  constexpr auto operator()(auto layer, auto x) const {
    return ts::value_and_grad([](const auto& own, const auto& in) {
      const auto [y, changed] = F{}(own, in);
      return ts::sum(y * y) + ts::sum(changed.up * changed.up) + ts::sum(changed.down) + ts::sum(changed.bias * 2.0);
    })(layer, x);
  }
};

TEST(ShardMap, StructsComeInAndGoOut) {
  constexpr auto both = ts::compile([](auto layer, auto x) {
    return std::tuple(LayerStep<decltype(layer_by_hand)>{}(layer, x), LayerStep<decltype(plain_layer)>{}(layer, x));
  });
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const Layer layer{ts::shard(some_values(5 * 8, 4), {5, 8}, mesh, {ts::none, "model"}),
                    ts::shard(some_values(8 * 5, 5), {8, 5}, mesh), ts::shard(some_values(5, 6), {5}, mesh)};
  const auto [mine, theirs] = both(layer, ts::shard(some_values(10 * 5, 3), {10, 5}, mesh, {"data"}));
  EXPECT_NEAR(ts::to_host(std::get<0>(mine))[0], ts::to_host(std::get<0>(theirs))[0], 1e-9);
  expect_near(ts::to_host(std::get<1>(mine).up), ts::to_host(std::get<1>(theirs).up), 1e-11, "up");
  expect_near(ts::to_host(std::get<1>(mine).down), ts::to_host(std::get<1>(theirs).down), 1e-11, "down");
  expect_near(ts::to_host(std::get<1>(mine).bias), ts::to_host(std::get<1>(theirs).bias), 1e-11, "bias");
}

// ---- a layer that is manual along one axis and automatic along the other, compared with the layer without shard_map

constexpr auto by_hand = [](auto x, auto up, auto down) {
  return ts::shard_map<"{}, {-,model}, {model} -> {}">([](auto in, auto u, auto d) {
    return ts::psum<"model">(ts::matmul(ts::gelu(ts::matmul(in, u)), d));
  })(x, up, down);
};
constexpr auto plain = [](auto x, auto up, auto down) { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); };

template <class Layer> struct Step {
  constexpr auto operator()(auto weights, auto x) const {
    return ts::value_and_grad([](const auto& w, const auto& in) {
      const auto y = Layer{}(in, std::get<0>(w), std::get<1>(w));
      return ts::mean(y * y);
    })(weights, x);
  }
};
using ByHand = Step<decltype(by_hand)>;
using Plain = Step<decltype(plain)>;

TEST(ShardMap, OtherAxesStayAutomatic) {
  constexpr auto both = ts::compile([](auto x, auto up, auto down) {
    return std::tuple(ByHand{}(std::tuple(up, down), x), Plain{}(std::tuple(up, down), x));
  });
  const auto x = some_values(10 * 5, 3), up = some_values(5 * 8, 4), down = some_values(8 * 5, 5);
  for (const ts::Mesh& mesh :
       {ts::Mesh({{"model", 1}}), ts::Mesh({{"data", 2}, {"model", 2}}), ts::Mesh({{"model", 4}, {"data", 3}})}) {
    const ts::PartitionSpec batch = mesh.has_axis("data") ? ts::PartitionSpec{"data"} : ts::PartitionSpec{};
    const auto [mine, theirs] =
        both(ts::shard(x, {10, 5}, mesh, batch), ts::shard(up, {5, 8}, mesh, {ts::none, "model"}),
             ts::shard(down, {8, 5}, mesh, {"model"}));
    EXPECT_NEAR(ts::to_host(std::get<0>(mine))[0], ts::to_host(std::get<0>(theirs))[0], 1e-12) << mesh.text();
    expect_near(ts::to_host(std::get<0>(std::get<1>(mine))), ts::to_host(std::get<0>(std::get<1>(theirs))), 1e-11,
                "up on " + mesh.text());
    expect_near(ts::to_host(std::get<1>(std::get<1>(mine))), ts::to_host(std::get<1>(std::get<1>(theirs))), 1e-11,
                "down on " + mesh.text());
  }
}

// ---- nested shard_maps, compared with a plain product

constexpr auto nested = [](auto x, auto w) {
  return ts::shard_map<"{-,model}, {model} -> {}">([](auto a, auto b) {
    return ts::shard_map<"{data}, {} -> {data}">([](auto u, auto v) {
             return ts::psum<"model">(ts::matmul(ts::ppermute<"data">(u, ts::Shift(1)), v));
           })(a, b) *
           2.0;
  })(x, w);
};
template <class F> struct ProductStep {
  constexpr auto operator()(auto x, auto w) const {
    return ts::value_and_grad([](const auto& both) {
      const auto y = F{}(std::get<0>(both), std::get<1>(both));
      return std::tuple(ts::sum(y * y * y), y);
    })(std::tuple(x, w));
  }
};

TEST(ShardMap, OneInsideAnother) {
  constexpr auto program = ts::compile(ProductStep<decltype(nested)>{});
  constexpr auto plain_program =
      ts::compile(ProductStep<decltype([](auto x, auto w) { return ts::matmul(x, w) * 2.0; })>{});
  const auto x = some_values(10 * 8, 3), w = some_values(8 * 5, 4);
  std::vector<double> turned(x.begin() + 5 * 8, x.end());  // what each half of the rows gets from the other
  turned.insert(turned.end(), x.begin(), x.begin() + 5 * 8);
  const ts::Mesh mesh({{"model", 2}, {"data", 2}}, {2, 0, 3, 1});
  const auto [mine, slope] = program(ts::shard(x, {10, 8}, mesh, {"data"}), ts::shard(w, {8, 5}, mesh));
  const auto [theirs, right] = plain_program(ts::shard(turned, {10, 8}, mesh), ts::shard(w, {8, 5}, mesh));
  expect_near(ts::to_host(std::get<1>(mine)), ts::to_host(std::get<1>(theirs)), 1e-12, "product");
  expect_near(ts::to_host(std::get<1>(slope)), ts::to_host(std::get<1>(right)), 1e-11, "gradient of w");
  auto back = ts::to_host(std::get<0>(slope));
  std::rotate(back.begin(), back.begin() + 5 * 8, back.end());
  expect_near(back, ts::to_host(std::get<0>(right)), 1e-11, "gradient of x");
}

// ---- deterministic mode: a function of local shards sums in its own order; nothing else adds partial values

TEST(ShardMap, DeterministicModeKeepsTheBits) {
  constexpr auto exact = ts::compile(by_hand, {.deterministic = true});
  const auto x = some_values(10 * 5, 3), up = some_values(5 * 8, 4), down = some_values(8 * 5, 5);
  std::vector<double> first;
  for (const ts::Mesh& mesh : {ts::Mesh({{"model", 2}}), ts::Mesh({{"data", 3}, {"model", 2}}),
                               ts::Mesh({{"model", 2}, {"data", 2}, {"more", 2}})})
    for (const bool split : {false, true}) {
      if (split && !mesh.has_axis("data")) continue;
      const ts::PartitionSpec batch = split ? ts::PartitionSpec{"data"} : ts::PartitionSpec{};
      const auto y = ts::to_host(exact(ts::shard(x, {10, 5}, mesh, batch), ts::shard(up, {5, 8}, mesh, batch),
                                       ts::shard(down, {8, 5}, mesh, {ts::none, "model"})));
      if (first.empty()) first.assign(y.begin(), y.end());
      for (std::size_t i = 0; i < first.size(); ++i) ASSERT_EQ(y[i], first[i]) << mesh.text() << " element " << i;
    }
}

// ---- errors: a route names the index that is wrong, not the shape of all devices together

TEST(ShardMap, RoutesThatDoNotExist) {
  constexpr auto outside = ts::compile([](auto x) {
    return ts::shard_map<"{x} -> {x}">([](auto a) { return ts::ppermute<"x">(a, {{0, 1}, {1, 7}}); })(x);
  });
  constexpr auto negative = ts::compile([](auto x) {
    return ts::shard_map<"{x} -> {x}">([](auto a) { return ts::ppermute<"x">(a, {{-1, 0}}); })(x);
  });
  constexpr auto one_source = ts::compile([](auto x) {
    return ts::shard_map<"{x} -> {x}">([](auto a) { return ts::ppermute<"x">(a, {{0, 1}, {0, 2}}); })(x);
  });
  constexpr auto one_destination = ts::compile([](auto x) {
    return ts::shard_map<"{x} -> {x}">([](auto a) { return ts::ppermute<"x">(a, {{0, 1}, {2, 1}}); })(x);
  });
  const ts::Mesh mesh({{"x", 3}, {"y", 2}});
  const auto x = ts::shard(some_values(6 * 4, 1), {6, 4}, mesh, {"x", "y"});
  const auto refuses = [&](const auto& program, const char* what) {
    tessera_test::expect_error(
        ts::errc::shape_mismatch, [&] { (void)program(x); }, what, "at shard_map_test.cpp:");
  };
  refuses(outside, "[ppermute] route: index 7 is outside the axis, which has the indices 0 to 2");
  refuses(negative, "[ppermute] route: index -1 is outside the axis, which has the indices 0 to 2");
  refuses(one_source, "[ppermute] routes: index 0 sends twice");
  refuses(one_destination, "[ppermute] routes: index 1 receives twice");
}

}  // namespace
