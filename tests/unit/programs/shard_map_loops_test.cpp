#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "on_each_device.hpp"
#include <gtest/gtest.h>

// Loops and branches in the function of a shard_map.

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

}  // namespace
