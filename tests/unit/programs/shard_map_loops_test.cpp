#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
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

}  // namespace
