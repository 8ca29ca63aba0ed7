#include <array>
#include <cmath>
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

// Loops, branches and Stacks in the function of a shard_map.

namespace ts = tessera;
using on_each_device::compare;
using on_each_device::expect_near;
using on_each_device::some_values;

namespace {

// ---- without collectives, compared with the program of one device

struct Scan {  // [T, D], [D, D]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto step = [&](const auto& carry, const auto& row) {
      const auto& [h, count] = carry;
      const auto next = ts::tanh(ts::matmul(h, w) + row);
      return std::tuple(std::tuple(next, count + 1), next * 2.0 + ts::cast<double>(count));
    };
    const auto [last, all] = ts::scan(step, std::tuple(ts::sum<0>(w) * 0.1, 0), x);
    return all * std::get<0>(last);
  }
};
struct ReverseScan {  // [T, D], [T of a device, D]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto step = [](const auto& sum, const auto& both) {
      const auto& [row, other] = both;
      return std::tuple(sum * 0.5 + row * other, sum);
    };
    return std::get<1>(ts::scan(step, ts::sum<0>(w), std::pair(x, w), {.reverse = true}));
  }
};
TEST(ShardMapLoops, Scan) {
  compare<Scan>({8, 3}, {3, 3}, "scan");
  on_each_device::compare_on<ReverseScan, "d", true>(ts::Mesh({{"d", 2}}), 2, {6, 2}, {3, 2}, "scan in reverse");
}

struct Others {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto mapped = ts::map([&](const auto& row) { return ts::sum(ts::sin(row * w)); }, x);
    const auto counted = ts::fori_loop(
        1, 4, [&](const auto& i, const auto& carry) { return carry * 0.5 + ts::matmul(x, w) * ts::cast<double>(i); },
        ts::matmul(x, w));
    return mapped + counted;
  }
};
struct NestedScan {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto outer = [&](const auto& carry, const auto& row) {
      const auto inner = [&](const auto& own, const auto& column) {
        return std::tuple(own + ts::sin(column) * row, std::tuple());
      };
      const auto next = std::get<0>(ts::scan(inner, carry, w));
      return std::tuple(next, next);
    };
    return std::get<1>(ts::scan(outer, ts::sum<0>(w), x));
  }
};
struct PartialProducts {
  constexpr auto operator()(const auto& x, const auto& w) const {
    return ts::associative_scan<1>([](const auto& a, const auto& b) { return a * b; }, x * 0.5 + ts::sum(w));
  }
};
TEST(ShardMapLoops, OtherLoops) {
  compare<Others>({8, 3}, {3}, "map and fori_loop");
  compare<NestedScan>({4, 2}, {3, 2}, "nested scan");
  compare<PartialProducts>({4, 5}, {2}, "associative_scan");
}

// Conditions that differ between devices, and conditions that do not.
struct While {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto of_each = ts::while_loop([](const auto& v) { return ts::sum(v * v) < 9.0; },
                                        [&](const auto& v) { return v * 1.5 + w; }, x, 6);
    const auto of_all = ts::while_loop([](const auto& v) { return ts::sum(v * v) < 9.0; },
                                       [&](const auto& v) { return v * 1.5 + 0.25; }, w, 6);
    return of_each * of_all;
  }
};
struct Branches {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto of_each = ts::cond(
        ts::sum(x) > 0.0, [&](const auto& v) { return ts::sin(v) * w; }, [&](const auto& v) { return v * ts::sum(v); },
        x);
    const auto of_all = ts::cond(
        ts::sum(w) > 10.0, [&](const auto& v) { return v + ts::sum<0>(x); }, [](const auto& v) { return v * 2.0; }, w);
    return of_each * of_all;
  }
};
struct Switches {
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto kinds = std::tuple([](const auto& v) { return ts::sin(v); }, [&](const auto& v) { return v * w; },
                                  [&](const auto& v) { return v * ts::sum(v * w); });
    const auto index_of = [](const auto& v) { return ts::cast<std::int32_t>(ts::floor(ts::sum(v) + 1.0)); };
    return ts::switch_case(index_of(x), kinds, x) + ts::switch_case(index_of(w), kinds, x);
  }
};
TEST(ShardMapLoops, Conditions) {
  compare<While>({4, 2}, {2}, "while_loop");
  compare<Branches>({4, 2}, {2}, "cond");
  compare<Switches>({4, 2}, {2}, "switch_case");
}

// ---- unrolled loops

template <bool Reverse> struct UnrolledScan {  // [T, D], [D, D]
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto step = [&](const auto& carry, const auto& both) {
      const auto& [h, count] = carry;
      const auto& [row, numbers] = both;
      const auto next = ts::tanh(ts::matmul(h, w) + row * numbers[0]);
      return std::tuple(std::tuple(next, count + 1), std::pair(next * 2.0 + ts::cast<double>(count), ts::sum(h)));
    };
    const auto [last, all] =
        ts::scan(step, std::tuple(ts::sum<0>(w) * 0.1, 0), std::pair(x, std::array{ts::sum<1>(x), ts::sum<1>(x * x)}),
                 ts::unroll<3>, {.reverse = Reverse});
    return all.first * std::get<0>(last) + ts::unsqueeze<1>(all.second);
  }
};
struct OtherUnrolledLoops {  // a carry that begins equal on all devices, and results that stay so
  constexpr auto operator()(const auto& x, const auto& w) const {
    const auto [sum, all] = ts::scan(
        [&](const auto& carry) {
          const auto& [own, same] = carry;
          return std::tuple(std::tuple(own * 0.5 + ts::sum(x * w), ts::sin(same)), std::tuple(own, same));
        },
        std::tuple(ts::sum(w), w), 5, ts::unroll<2>);
    const auto mapped = ts::map([&](const auto& row) { return ts::sum(ts::sin(row * w)); }, x, ts::unroll<3>);
    const auto counted = ts::fori_loop(
        1, 4, [&](const auto& i, const auto& carry) { return carry * 0.5 + ts::matmul(x, w) * ts::cast<double>(i); },
        ts::matmul(x, w), ts::unroll<2>);
    return mapped + counted + ts::sum(std::get<0>(all)) + ts::sum(std::get<1>(all)) + std::get<0>(sum);
  }
};
TEST(ShardMapLoops, Unrolled) {
  compare<UnrolledScan<false>>({16, 3}, {3, 3}, "unrolled scan");
  compare<UnrolledScan<true>>({16, 3}, {3, 3}, "unrolled scan in reverse");
  compare<OtherUnrolledLoops>({16, 3}, {3}, "unrolled map and fori_loop");
}

// ---- with collectives

// A ring as a loop, compared with a loop on the host: in each step a device adds what it has times its own rows, and
// sends it on.
constexpr auto ring = [](auto x) {
  return ts::shard_map<"{d} -> {d}">([](const auto& own) {
    const auto hop = [&](const auto& carry) {
      const auto& [sum, other] = carry;
      return std::tuple(std::tuple(sum + own * other, ts::ppermute<"d">(other, ts::Shift(1))), std::tuple());
    };
    return std::get<0>(std::get<0>(ts::scan(hop, std::tuple(ts::zeros_like(own), own), ts::axis_size<"d">(own))));
  })(x);
};
TEST(ShardMapLoops, Ring) {
  constexpr auto program = ts::compile([](auto x) {
    return ts::value_and_grad([](const auto& v) {
      const auto y = ring(v);
      return std::tuple(ts::sum(y), y);
    })(x);
  });
  const int rows = 12;
  const std::vector<double> x = some_values(rows, 1);
  for (const int devices : {1, 2, 3}) {
    const ts::Mesh mesh({{"d", devices}});
    const int own = rows / devices;
    std::vector<double> expected(rows), slope(rows);
    for (int i = 0; i < rows; ++i)
      for (int d = 0; d < devices; ++d) {
        const auto other = static_cast<std::size_t>(d * own + i % own), at = static_cast<std::size_t>(i);
        expected[at] += x[at] * x[other];
        slope[at] += 2 * x[other];
      }
    const auto [value, gradient] = program(ts::shard(x, {rows}, mesh, {"d"}));
    expect_near(ts::to_host(std::get<1>(value)), expected, "ring on " + mesh.text());
    expect_near(ts::to_host(gradient), slope, "gradient of the ring on " + mesh.text());
  }
}

// Steps of gradient descent in a shard_map, whose parameters are a struct that the loop carries; compared with the loop
// without shard_map.
struct Affine {
  ts::ShardedTensor<double, 2> weight;
  ts::ShardedTensor<double, 1> bias;
};
constexpr auto error_of = [](const auto& model, const auto& x) {
  return ts::sum(ts::sin(ts::matmul(x, model.weight) + model.bias));
};
constexpr auto descend = [](const auto& model, const auto& x) {
  const auto step = [&](const Affine& own) {
    const Affine slope = ts::grad(error_of)(own, x);
    Affine next = own;
    next.weight = own.weight - 0.01 * slope.weight;
    next.bias = own.bias - 0.01 * slope.bias;
    return std::tuple(next, std::tuple());
  };
  return std::get<0>(ts::scan(step, model, 3));
};
TEST(ShardMapLoops, StructAsCarry) {
  constexpr auto mapped = ts::compile([](auto model, auto x) {
    return ts::shard_map<"[{}, {}], {d} -> [{}, {}]">([](const auto& own, const auto& in) {
      const auto step = [&](const Affine& now) {
        const Affine slope = ts::grad(error_of)(now, in);
        Affine next = now;
        next.weight = ts::local_of(now.weight, in) - 0.01 * ts::local_of(slope.weight, in);
        next.bias = ts::local_of(now.bias, in) - 0.01 * ts::local_of(slope.bias, in);
        return std::tuple(next, std::tuple());
      };
      return std::get<0>(ts::scan(step, own, 3));
    })(model, x);
  });
  constexpr auto plain = ts::compile([](auto model, auto x) { return descend(model, x); });
  for (const ts::Mesh& mesh : {ts::Mesh({{"d", 2}}), ts::Mesh({{"m", 2}, {"d", 3}})}) {
    const Affine model{ts::shard(some_values(6, 1), {3, 2}, mesh), ts::shard(some_values(2, 2), {2}, mesh)};
    const auto x = ts::shard(some_values(18, 3), {6, 3}, mesh, {"d"});
    const Affine found = mapped(model, x), expected = plain(model, x);
    expect_near(ts::to_host(found.weight), ts::to_host(expected.weight), "weight on " + mesh.text());
    expect_near(ts::to_host(found.bias), ts::to_host(expected.bias), "bias on " + mesh.text());
  }
}

// A struct as xs, a struct of any ranks, and both in an unrolled loop; compared with the loops without shard_map.
struct Series {
  ts::ShardedTensor<double, 2> rows;
  ts::ShardedTensor<double, 1> factors;
};
template <int Rank> struct Both {
  ts::ShardedTensor<double, Rank> a, b;
};
constexpr auto over_structs = [](const auto& series, const auto& both, const auto& x, const auto&... unroll) {
  const auto of_fields = [](const auto& sum, const auto& fields) {
    const auto& [row, factor] = fields;
    return std::tuple(sum * 0.5 + row * factor, row * sum);
  };
  const auto of_struct = [](const auto& sum, const auto& of_both) {
    const auto& [own, row] = of_both;
    return std::tuple(ts::sin(sum) + own.a * own.b + row, own.a * sum);
  };
  const auto [first, of_each] = ts::scan(of_fields, ts::sum<0>(x), series, unroll...);
  const auto [last, all] = ts::scan(of_struct, ts::sum<0>(x), std::pair(both, x), unroll...);
  return of_each * first + all * last;
};
constexpr auto mapped_over_structs = [](const auto& series, const auto& both, const auto& x, const auto&... unroll) {
  return ts::shard_map<"[{-,d}, {}], {-,d}, {-,d} -> {-,d}">([](const auto& a, const auto& b, const auto& in) {
    return over_structs(a, b, in, std::remove_cvref_t<decltype(unroll)>{}...);
  })(series, both, x);
};
template <class F> struct OverStructs {
  constexpr auto operator()(auto series, auto both, auto x) const {
    const auto loss = [](const auto&... own) {
      const auto y = F{}(own...), unrolled = F{}(own..., ts::unroll<2>);
      return std::tuple(ts::sum(ts::sin(y)) + ts::sum(ts::cos(unrolled)), y, unrolled);
    };
    return ts::value_and_grad<0, 1, 2>(loss)(series, both, x);
  }
};
TEST(ShardMapLoops, StructsAsXs) {
  constexpr auto mapped = ts::compile(OverStructs<decltype(mapped_over_structs)>{});
  constexpr auto plain = ts::compile(OverStructs<decltype(over_structs)>{});
  for (const ts::Mesh& mesh : {ts::Mesh({{"d", 1}}), ts::Mesh({{"d", 2}}), ts::Mesh({{"m", 2}, {"d", 2}})}) {
    const auto of = [&](int seed) { return ts::shard(some_values(20, seed), {5, 4}, mesh); };
    const Series series{of(1), ts::shard(some_values(5, 2), {5}, mesh)};
    const Both<2> both{of(3), of(4)};
    const auto [found, gradient] = mapped(series, both, of(5));
    const auto [expected, slope] = plain(series, both, of(5));
    const auto expect = [&](const auto& got, const auto& want, const char* what) {
      expect_near(ts::to_host(got), ts::to_host(want), std::string(what) + " on " + mesh.text());
    };
    expect(std::get<1>(found), std::get<1>(expected), "results");
    expect(std::get<2>(found), std::get<2>(expected), "results of unrolled loops");
    expect(std::get<1>(found), std::get<2>(found), "results of both loops");
    expect(std::get<0>(gradient).rows, std::get<0>(slope).rows, "gradient of rows");
    expect(std::get<0>(gradient).factors, std::get<0>(slope).factors, "gradient of factors");
    expect(std::get<1>(gradient).a, std::get<1>(slope).a, "gradient of a");
    expect(std::get<1>(gradient).b, std::get<1>(slope).b, "gradient of b");
    expect(std::get<2>(gradient), std::get<2>(slope), "gradient of x");
  }
}

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
TEST(ShardMapLoops, Stack) {
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
TEST(ShardMapLoops, ScanOverAStack) {
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
TEST(ShardMapLoops, ChosenStacks) {
  compare_layers<ChosenByCond>("a Stack of a cond");
  compare_layers<ChosenBySwitch>("a Stack of a switch_case");
  compare_layers<ChosenByLoop>("a Stack in a while_loop");
}
TEST(ShardMapLoops, SumsOfLayers) { compare_layers<Sums>("sums of a Stack"); }

}  // namespace
