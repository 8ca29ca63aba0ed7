#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "on_each_device.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>

// Stacks in the function of a shard_map.

namespace ts = tessera;
using on_each_device::expect_near;
using on_each_device::some_values;

namespace {

// ---- Stacks, compared with the Stack without shard_map

struct Block {
  ts::ShardedTensor<double, 2> up, down;
  ts::ShardedTensor<double, 1> bias;
  constexpr auto operator()(const auto& x) const {
    const auto y = ts::matmul(ts::tanh(ts::matmul(x, up)), down);
    if constexpr (ts::LocalOperand<std::remove_cvref_t<decltype(x)>>)
      return x + ts::psum<"m">(y) + bias;
    else
      return x + y + bias;
  }
};
using Blocks = ts::Stack<Block>;
constexpr auto by_hand = [](const auto& x, const auto& blocks) {
  return ts::shard_map<"{d}, [{-,m}, {m}, {}] -> {d}">([](const auto& in, const auto& own) { return own(in); })(x,
                                                                                                                blocks);
};
constexpr auto plainly = [](const auto& x, const auto& blocks) { return blocks(x); };
template <class F> struct StackStep {
  constexpr auto operator()(auto x, auto blocks) const {
    return ts::value_and_grad<0, 1>([](const auto& in, const auto& own) {
      const auto y = F{}(in, own);
      return std::tuple(ts::sum(ts::sin(y)), y);
    })(x, blocks);
  }
};
constexpr auto inside_of_stack = [](auto x, auto blocks) {
  return ts::shard_map<"{d}, [{-,m}, {m}, {}] -> {}, {d}, [{-,m}, {m}, {}]">([](const auto& in, const auto& own) {
    const auto [value, gradient] = ts::value_and_grad<0, 1>(
        [](const auto& a, const auto& layers) { return ts::psum<"d">(ts::sum(ts::sin(layers(a)))); })(in, own);
    return std::tuple(value, std::get<0>(gradient), std::get<1>(gradient));
  })(x, blocks);
};
Blocks some_blocks(const ts::Mesh& mesh) {
  return Blocks(3, [&](int i) {
    return Block{ts::shard(some_values(3 * 4, i), {3, 4}, mesh, {ts::none, "m"}),
                 ts::shard(some_values(4 * 3, i + 5), {4, 3}, mesh), ts::shard(some_values(3, i + 9), {3}, mesh)};
  });
}
void expect_equal(const Blocks& found, const Blocks& expected, const std::string& what) {
  for (int i = 0; i < 3; ++i) {
    expect_near(ts::to_host(found[i].up), ts::to_host(expected[i].up), what + ", up");
    expect_near(ts::to_host(found[i].down), ts::to_host(expected[i].down), what + ", down");
    expect_near(ts::to_host(found[i].bias), ts::to_host(expected[i].bias), what + ", bias");
  }
}
TEST(ShardMapStacks, Call) {
  constexpr auto mine = ts::compile(StackStep<decltype(by_hand)>{});
  constexpr auto theirs = ts::compile(StackStep<decltype(plainly)>{});
  constexpr auto inside = ts::compile(inside_of_stack);
  for (const ts::Mesh& mesh : {ts::Mesh({{"d", 1}, {"m", 2}}), ts::Mesh({{"m", 2}, {"d", 2}}, {3, 1, 2, 0})}) {
    const Blocks blocks = some_blocks(mesh);
    const auto x = ts::shard(some_values(12, 1), {4, 3}, mesh, {"d"});
    const auto [value, gradient] = mine(x, blocks);
    const auto [right, slope] = theirs(x, blocks);
    const auto [same_loss, same_of_x, same] = inside(x, blocks);
    expect_near(ts::to_host(std::get<1>(value)), ts::to_host(std::get<1>(right)), "result on " + mesh.text());
    expect_near(ts::to_host(std::get<0>(gradient)), ts::to_host(std::get<0>(slope)), "gradient of x on " + mesh.text());
    expect_equal(std::get<1>(gradient), std::get<1>(slope), "gradient on " + mesh.text());
    expect_near(ts::to_host(same_loss), ts::to_host(std::get<0>(right)), "loss inside on " + mesh.text());
    expect_near(ts::to_host(same_of_x), ts::to_host(std::get<0>(slope)), "gradient of x inside on " + mesh.text());
    expect_equal(same, std::get<1>(slope), "gradient inside on " + mesh.text());
    const ts::Plan& plan = mine.plan(x, blocks);
    EXPECT_EQ(plan.count(ts::Collective::all_gather), 0) << mesh.text();
  }
}

// A scan over a Stack that returns a value of each layer, and a struct, which becomes a Stack.
constexpr auto scanned = [](auto x, auto blocks) {
  return ts::shard_map<"{d}, [{-,m}, {m}, {}] -> {d}, {-,d}, [{-,m}, {m}, {}]">([](const auto& in, const auto& own) {
    const auto step = [](const auto& carry, const auto& block) {
      const auto y = block(carry);
      Block changed = block;
      changed.up = 2.0 * ts::local_of(block.up, carry);
      return std::tuple(y, std::tuple(ts::sum<1>(y), changed));
    };
    const auto [last, ys] = ts::scan(step, in, own);
    return std::tuple(last, std::get<0>(ys), std::get<1>(ys));
  })(x, blocks);
};
TEST(ShardMapStacks, Scan) {
  constexpr auto mine = ts::compile(scanned);
  constexpr auto theirs = ts::compile([](auto x, auto blocks) {
    return ts::scan(
        [](const auto& carry, const auto& block) {
          const auto y = block(carry);
          return std::tuple(y, ts::sum<1>(y));
        },
        x, blocks);
  });
  const ts::Mesh mesh({{"d", 2}, {"m", 2}});
  const auto x = ts::shard(some_values(12, 1), {4, 3}, mesh, {"d"});
  const auto [last, sums, doubled] = mine(x, some_blocks(mesh));
  const auto [right, all] = theirs(x, some_blocks(mesh));
  Blocks twice = some_blocks(mesh);
  for (Block& block : twice.layers()) block.up = 2.0 * block.up;
  expect_equal(doubled, twice, "a Stack of results");
  expect_near(ts::to_host(last), ts::to_host(right), "last");
  expect_near(ts::to_host(sums), ts::to_host(all), "of each layer");
}

// ---- Stacks that a branch or a loop chooses on each device, and their sums, compared with the program of one device

struct Layer {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, weight)) + bias; }
};
using Layers = ts::Stack<Layer>;
constexpr auto scaled = [](const auto& layers, const auto& factor) {
  const auto step = [](const auto& by, const auto& layer) {
    Layer next = layer;
    next.weight = layer.weight * by;
    return std::tuple(by, next);
  };
  return std::get<1>(ts::scan(step, factor, layers));
};
struct ChosenByCond {
  constexpr auto operator()(const auto& x, const auto& layers) const {
    const auto chosen = ts::cond(
        ts::sum(x) > 0.0, [&] { return scaled(layers, ts::sum(x)); }, [&] { return layers; });
    const auto same = ts::cond(
        ts::sum(ts::zeros_like(x)) > 0.0, [&] { return scaled(layers, ts::sum(x)); }, [&] { return layers; });
    return chosen(x) * same(x);
  }
};
struct ChosenBySwitch {
  constexpr auto operator()(const auto& x, const auto& layers) const {
    const auto kinds = std::tuple([&] { return scaled(layers, ts::sum(x)); }, [&] { return layers; },
                                  [&] { return scaled(layers, ts::sum(x) * 0.0 + 0.5); });
    return ts::switch_case(ts::cast<std::int32_t>(ts::floor(ts::sum(x) + 1.0)), kinds)(x);
  }
};
struct ChosenByLoop {
  constexpr auto operator()(const auto& x, const auto& layers) const {
    const auto last =
        ts::while_loop([](const auto& carry) { return ts::sum(ts::square(carry.first)) < 9.0; },
                       [](const auto& carry) {
                         return std::pair(carry.first * 1.5, scaled(carry.second, ts::sum(carry.first) * 0.0 + 0.5));
                       },
                       std::pair(x, layers), 6);
    return last.second(last.first);
  }
};
struct Sums {
  constexpr auto operator()(const auto& x, const auto& layers) const {
    const auto own = scaled(layers, ts::sum(x));
    const Layer sum = ts::sum<0>(own), mean = ts::mean<0>(layers);
    const auto weights = [&] {
      if constexpr (ts::LocalOperand<std::remove_cvref_t<decltype(x)>>)
        return ts::all_layers(own, &Layer::weight, x);
      else
        return ts::all_layers(own, &Layer::weight);
    }();
    return sum(x) * mean(x) + ts::sum<0, 2>(weights * weights);
  }
};
template <class F> struct LayersLoss {
  constexpr auto operator()(const auto& x, const auto& layers) const {
    const auto y = F{}(x, layers);
    return std::tuple(ts::sum(ts::sin(y) + 0.25 * y), y);
  }
};
template <class F> struct LayersAlone {
  constexpr auto operator()(auto x, auto layers) const { return ts::value_and_grad<0, 1>(LayersLoss<F>{})(x, layers); }
};
template <class F> struct LayersMapped {
  constexpr auto operator()(auto x, auto layers) const {
    const auto call = [](const auto& in, const auto& own) {
      return ts::shard_map<"{d}, [{}, {}] -> {d}">(F{})(in, own);
    };
    return ts::value_and_grad<0, 1>(LayersLoss<decltype(call)>{})(x, layers);
  }
};
template <class F> void compare_layers(const std::string& name) {
  constexpr auto alone = ts::compile(LayersAlone<F>{});
  constexpr auto mapped = ts::compile(LayersMapped<F>{});
  const std::vector<double> x = some_values(24, 1);
  const auto some_layers = [](const ts::Mesh& mesh) {
    return Layers(2, [&](int i) {
      return Layer{ts::shard(some_values(9, i + 2), {3, 3}, mesh), ts::shard(some_values(3, i + 5), {3}, mesh)};
    });
  };
  for (const int devices : {1, 2, 4}) {
    const ts::Mesh mesh({{"d", devices}}), one({{"one", 1}});
    const std::string on = name + " on " + mesh.text();
    const auto [value, gradient] = mapped(ts::shard(x, {8, 3}, mesh, {"d"}), some_layers(mesh));
    std::vector<double> y, of_x, of_weights(18), of_biases(6);
    for (int device = 0; device < devices; ++device) {
      const auto first = x.begin() + 24 / devices * device;
      const std::vector<double> shard(first, first + 24 / devices);
      const auto [own, slope] = alone(ts::shard(shard, {8 / devices, 3}, one), some_layers(one));
      const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      append(y, ts::to_host(std::get<1>(own)));
      append(of_x, ts::to_host(std::get<0>(slope)));
      for (int i = 0; i < 2; ++i) {
        const Layer& layer = std::get<1>(slope)[i];
        const std::vector<double> weight = ts::to_host(layer.weight), bias = ts::to_host(layer.bias);
        for (std::size_t k = 0; k < 9; ++k) of_weights[static_cast<std::size_t>(i) * 9 + k] += weight[k];
        for (std::size_t k = 0; k < 3; ++k) of_biases[static_cast<std::size_t>(i) * 3 + k] += bias[k];
      }
    }
    expect_near(ts::to_host(std::get<1>(value)), y, "result of " + on);
    expect_near(ts::to_host(std::get<0>(gradient)), of_x, "gradient of x of " + on);
    for (int i = 0; i < 2; ++i) {
      const Layer& layer = std::get<1>(gradient)[i];
      const auto weight = of_weights.begin() + i * 9, bias = of_biases.begin() + i * 3;
      expect_near(ts::to_host(layer.weight), std::vector<double>(weight, weight + 9), "gradient of weights of " + on);
      expect_near(ts::to_host(layer.bias), std::vector<double>(bias, bias + 3), "gradient of biases of " + on);
    }
  }
}
TEST(ShardMapStacks, ChosenStacks) {
  compare_layers<ChosenByCond>("a Stack of a cond");
  compare_layers<ChosenBySwitch>("a Stack of a switch_case");
  compare_layers<ChosenByLoop>("a Stack in a while_loop");
}
TEST(ShardMapStacks, SumsOfLayers) { compare_layers<Sums>("sums of a Stack"); }

}  // namespace
