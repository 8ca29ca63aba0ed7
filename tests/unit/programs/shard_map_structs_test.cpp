#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "on_each_device.hpp"
#include <gtest/gtest.h>

#include <tessera/graph/trace/stack.hpp>
#include <tessera/ops/layers.hpp>
#include <tessera/ops/unroll.hpp>
#include <tessera/ops/vmap/vmap.hpp>

// Plain structs and Stacks in the loops of a shard_map: as the carry, as xs and as y, also where a loop has nothing
// else, and in unrolled loops. Compared with the same loops without shard_map.

namespace ts = tessera;
using on_each_device::expect_near;
using on_each_device::some_values;

namespace {

struct Carry {
  ts::ShardedTensor<double, 1> sum;    // [D / d]
  ts::ShardedTensor<double, 0> total;  // equal on all devices at first, then the sum of the columns of a device
};
struct Series {  // its slices are a tuple
  ts::ShardedTensor<double, 2> rows;
  ts::ShardedTensor<double, 1> factors;
};
template <int Rank> struct Both {  // its slice is a Both
  ts::ShardedTensor<double, Rank> a, b;
};
struct Made {
  ts::ShardedTensor<double, 1> row;
  ts::ShardedTensor<double, 0> number;
};
struct Layer {
  ts::ShardedTensor<double, 1> weight;  // [D / d]
  ts::ShardedTensor<double, 0> bias;
};

/// A field, of which operations with other fields only are made a local value.
constexpr auto own = [](const auto& field, const auto& x) {
  if constexpr (ts::LocalOperand<std::remove_cvref_t<decltype(x)>>)
    return ts::local_of(field, x);
  else
    return field * 1.0;
};
constexpr auto over_devices = [](const auto& x) {
  if constexpr (ts::LocalOperand<std::remove_cvref_t<decltype(x)>>)
    return ts::psum<"d">(x);
  else
    return x;
};
constexpr auto all_of = [](const auto& stack, const auto& field, const auto& x) {
  if constexpr (ts::LocalOperand<std::remove_cvref_t<decltype(x)>>)
    return ts::all_layers(stack, field, x);
  else
    return ts::all_layers(stack, field);
};

// Three scans without a tensor as their carry or xs. Returns [D / d] and, the same on all devices, a number.
template <bool Reverse> struct OnlyStructs {
  constexpr auto operator()(const auto& carry, const auto& series, const auto& both, const auto& layers, const auto& x,
                            const auto&... unroll) const {
    const auto over_series = [&](const Carry& now, const auto& fields) {
      const auto& [row, factor] = fields;
      Carry next = now;
      next.sum = own(now.sum, x) * 0.5 + ts::sin(x * row) * factor;
      next.total = own(now.total, x) * 0.5 + ts::sum(x * row);
      return std::tuple(next, Made{ts::cos(x * now.sum), own(factor, x) * 2.0});
    };
    const auto over_both = [&](const Carry& now, const auto& one) {
      Carry next = now;
      next.sum = ts::sin(own(now.sum, x)) + own(one.a, x) * one.b;
      return std::tuple(next, std::pair(own(one.a, x) * now.sum, Made{x * one.b, ts::sum(x * one.a)}));
    };
    const auto over_layers = [&](const Carry& now, const auto& layer) {
      Carry next = now;
      next.sum = ts::tanh(own(now.sum, x) * layer.weight + layer.bias);
      return std::tuple(next, own(layer.weight, x) * now.sum);
    };
    const ts::ScanOptions options{.reverse = Reverse};
    const auto first = ts::scan(over_series, carry, series, unroll..., options);
    const auto second = ts::scan(over_both, std::get<0>(first), both, unroll..., options);
    const auto third = ts::scan(over_layers, std::get<0>(second), layers, unroll..., options);
    const auto weight = ts::iota<0, double>(all_of(std::get<1>(first), &Made::row, x));
    const auto made = all_of(std::get<1>(first), &Made::row, x) * (weight + 1.0);
    const auto& [products, more] = std::get<1>(second);
    const auto last = std::get<0>(third);
    return std::pair(
        own(last.sum, x) + ts::sum<0>(made) + ts::sum<0>(products * (ts::iota<0, double>(products) + 1.0)) +
            ts::sum<0>(std::get<1>(third) * (ts::iota<0, double>(std::get<1>(third)) + 1.0)) +
            ts::sum<0>(ts::square(all_of(more, &Made::row, x))) + ts::sum(all_of(std::get<1>(first), &Made::number, x)),
        over_devices(own(last.total, x) + ts::sum(all_of(more, &Made::number, x))));
  }
};
template <bool Reverse> struct MappedStructs {
  constexpr auto operator()(const auto& carry, const auto& series, const auto& both, const auto& layers, const auto& x,
                            const auto&... unroll) const {
    const auto made = ts::shard_map<"[{d}, {}], [{-,d}, {}], {-,d}, [{d}, {}], {d} -> {d}, {}">(
        [](const auto& c, const auto& s, const auto& b, const auto& l, const auto& in) {
          const auto result = OnlyStructs<Reverse>{}(c, s, b, l, in, std::remove_cvref_t<decltype(unroll)>{}...);
          return std::tuple(result.first, result.second);
        })(carry, series, both, layers, x);
    return std::pair(std::get<0>(made), std::get<1>(made));
  }
};
template <class F> struct LossOfStructs {
  constexpr auto operator()(auto carry, auto series, auto both, auto layers, auto x) const {
    const auto loss = [](const auto&... all) {
      const auto y = F{}(all...), unrolled = F{}(all..., ts::unroll<2>);
      return std::tuple(
          ts::sum(ts::sin(y.first)) + ts::sin(y.second) + ts::sum(ts::cos(unrolled.first)) + ts::cos(unrolled.second),
          y.first, y.second, unrolled.first, unrolled.second);
    };
    return ts::value_and_grad<0, 1, 2, 3, 4>(loss)(carry, series, both, layers, x);
  }
};
/// The same with gradients that are taken in the function.
template <bool Unrolled> struct GradientsInside {
  constexpr auto operator()(auto carry, auto series, auto both, auto layers, auto x) const {
    return ts::shard_map<"[{d}, {}], [{-,d}, {}], {-,d}, [{d}, {}], {d} -> [{-,d}, {}], {-,d}, [{d}, {}], {d}">(
        [](const auto& c, const auto& s, const auto& b, const auto& l, const auto& in) {
          const auto loss = [&](const auto& s1, const auto& b1, const auto& l1, const auto& in1) {
            const auto y = [&] {
              if constexpr (Unrolled)
                return OnlyStructs<false>{}(c, s1, b1, l1, in1, ts::unroll<2>);
              else
                return OnlyStructs<false>{}(c, s1, b1, l1, in1);
            }();
            return ts::psum<"d">(ts::sum(ts::sin(y.first))) + ts::sin(y.second);
          };
          return ts::grad<0, 1, 2, 3>(loss)(s, b, l, in);
        })(carry, series, both, layers, x);
  }
};
struct GradientsAlone {
  constexpr auto operator()(auto carry, auto series, auto both, auto layers, auto x) const {
    const auto loss = [&](const auto& s, const auto& b, const auto& l, const auto& in) {
      const auto y = OnlyStructs<false>{}(carry, s, b, l, in);
      return ts::sum(ts::sin(y.first)) + ts::sin(y.second);
    };
    return ts::grad<0, 1, 2, 3>(loss)(series, both, layers, x);
  }
};

using Layers = ts::Stack<Layer>;
struct Arguments {
  Carry carry;
  Series series;
  Both<2> both;
  Layers layers;
  ts::ShardedTensor<double, 1> x;
};
/// With dims of 5 steps, whose shards are uneven along an axis that stays automatic.
Arguments arguments(const ts::Mesh& mesh, bool uneven) {
  const ts::SpecEntry steps = uneven ? ts::SpecEntry("m") : ts::SpecEntry(ts::none);
  const auto rows = [&](int seed) { return ts::shard(some_values(30, seed), {5, 6}, mesh, {steps, "d"}); };
  return {{ts::shard(some_values(6, 1), {6}, mesh, {"d"}), ts::shard<0>(std::vector<double>{0.0}, ts::Shape{}, mesh)},
          {rows(2), ts::shard(some_values(5, 3), {5}, mesh, {steps})},
          {rows(4), rows(5)},
          Layers(3,
                 [&](int i) {
                   return Layer{ts::shard(some_values(6, i + 6), {6}, mesh, {"d"}),
                                ts::shard<0>(some_values(1, i + 9), ts::Shape{}, mesh)};
                 }),
          ts::shard(some_values(6, 12), {6}, mesh)};
}
const std::vector<ts::Mesh>& meshes() {
  static const std::vector<ts::Mesh> all{ts::Mesh({{"d", 1}}), ts::Mesh({{"d", 2}}), ts::Mesh({{"d", 3}}),
                                         ts::Mesh({{"m", 2}, {"d", 2}}, {3, 1, 2, 0})};
  return all;
}
void expect_gradients(const auto& found, const auto& expected, const std::string& what) {
  const auto expect = [&](const auto& got, const auto& want, const char* name) {
    expect_near(ts::to_host(got), ts::to_host(want), std::string("gradient of ") + name + what);
  };
  expect(std::get<0>(found).rows, std::get<0>(expected).rows, "rows");
  expect(std::get<0>(found).factors, std::get<0>(expected).factors, "factors");
  expect(std::get<1>(found).a, std::get<1>(expected).a, "a");
  expect(std::get<1>(found).b, std::get<1>(expected).b, "b");
  for (int i = 0; i < 3; ++i) {
    expect(std::get<2>(found)[i].weight, std::get<2>(expected)[i].weight, "weight");
    expect(std::get<2>(found)[i].bias, std::get<2>(expected)[i].bias, "bias");
  }
  expect(std::get<3>(found), std::get<3>(expected), "x");
}
template <bool Reverse> void compare_structs() {
  constexpr auto mapped = ts::compile(LossOfStructs<MappedStructs<Reverse>>{});
  constexpr auto plain = ts::compile(LossOfStructs<OnlyStructs<Reverse>>{});
  for (const ts::Mesh& mesh : meshes()) {
    const std::string on = " on " + mesh.text() + (Reverse ? ", in reverse" : "");
    const Arguments a = arguments(mesh, mesh.rank() > 1);
    std::optional<ts::OracleScope> same_in_double;  // throws where a value differs; reads the values of all devices
    if (!ts::spans_processes(mesh)) same_in_double.emplace();
    const auto [value, gradient] = mapped(a.carry, a.series, a.both, a.layers, a.x);
    const auto [right, slope] = plain(a.carry, a.series, a.both, a.layers, a.x);
    expect_near(ts::to_host(std::get<1>(value)), ts::to_host(std::get<1>(right)), "rows" + on);
    expect_near(ts::to_host(std::get<2>(value)), ts::to_host(std::get<2>(right)), "number" + on);
    expect_near(ts::to_host(std::get<3>(value)), ts::to_host(std::get<1>(right)), "rows of unrolled loops" + on);
    expect_near(ts::to_host(std::get<4>(value)), ts::to_host(std::get<2>(right)), "number of unrolled loops" + on);
    expect_near(ts::to_host(std::get<3>(right)), ts::to_host(std::get<1>(right)), "unrolled, without shard_map" + on);
    expect_near(ts::to_host(std::get<0>(gradient).sum), ts::to_host(std::get<0>(slope).sum), "gradient of sum" + on);
    expect_gradients(
        std::tuple(std::get<1>(gradient), std::get<2>(gradient), std::get<3>(gradient), std::get<4>(gradient)),
        std::tuple(std::get<1>(slope), std::get<2>(slope), std::get<3>(slope), std::get<4>(slope)), on);

    // the derivative along a direction against a difference of the loss
    const std::vector<double> direction = some_values(6, 20), x = ts::to_host(a.x),
                              of_x = ts::to_host(std::get<4>(gradient));
    const auto loss_at = [&](double step) {
      std::vector<double> moved = x;
      for (std::size_t i = 0; i < 6; ++i) moved[i] += step * direction[i];
      const auto made = mapped(a.carry, a.series, a.both, a.layers, ts::shard(moved, {6}, mesh));
      return ts::to_host(std::get<0>(std::get<0>(made)))[0];
    };
    double along = 0;
    for (std::size_t i = 0; i < 6; ++i) along += of_x[i] * direction[i];
    EXPECT_NEAR(along, (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, 1e-7 * (1 + std::abs(along))) << on;
  }
}
TEST(ShardMapStructs, LoopsOverStructsOnly) { compare_structs<false>(); }
TEST(ShardMapStructs, LoopsOverStructsOnlyInReverse) { compare_structs<true>(); }
TEST(ShardMapStructs, GradientsInTheFunction) {
  constexpr auto rolled = ts::compile(GradientsInside<false>{});
  constexpr auto unrolled = ts::compile(GradientsInside<true>{});
  constexpr auto plain = ts::compile(GradientsAlone{});
  for (const ts::Mesh& mesh : meshes()) {
    const Arguments a = arguments(mesh, mesh.rank() > 1);
    const auto expected = plain(a.carry, a.series, a.both, a.layers, a.x);
    expect_gradients(rolled(a.carry, a.series, a.both, a.layers, a.x), expected, " inside on " + mesh.text());
    expect_gradients(unrolled(a.carry, a.series, a.both, a.layers, a.x), expected,
                     " inside, unrolled, on " + mesh.text());
  }
}

// A Stack of results leaves the function; the layers of its unrolled loop are those of the loop.
constexpr auto made_layers = [](auto layers, auto x) {
  return ts::shard_map<"[{d}, {}], {d} -> [{d}, {}], [{d}, {}]">([](const auto& all, const auto& in) {
    const auto step = [&](const auto& carry, const auto& layer) {
      Layer next = layer;
      next.weight = carry * layer.weight + layer.bias;
      next.bias = ts::psum<"d">(ts::sum(carry * layer.weight));
      return std::tuple(carry * 0.5, next);
    };
    return std::tuple(std::get<1>(ts::scan(step, in, all)), std::get<1>(ts::scan(step, in, all, ts::unroll<2>)));
  })(layers, x);
};
TEST(ShardMapStructs, StackOfResults) {
  constexpr auto mapped = ts::compile(made_layers);
  for (const ts::Mesh& mesh : meshes()) {
    const Arguments a = arguments(mesh, false);
    const auto [each, unrolled] = mapped(a.layers, a.x);
    std::vector<double> carry = ts::to_host(a.x);
    for (int i = 0; i < 3; ++i) {
      std::vector<double> weight = ts::to_host(a.layers[i].weight);
      double sum = 0;
      for (std::size_t k = 0; k < 6; ++k) {
        sum += carry[k] * weight[k];
        weight[k] = carry[k] * weight[k] + ts::to_host(a.layers[i].bias)[0];
        carry[k] *= 0.5;
      }
      for (const Layers* made : {&each, &unrolled}) {
        expect_near(ts::to_host((*made)[i].weight), weight, "weight on " + mesh.text());
        expect_near(ts::to_host((*made)[i].bias), {sum}, "bias on " + mesh.text());
      }
    }
  }
}

// vmap over structs and Stacks.
struct Examples {
  constexpr auto operator()(const auto& both, const auto& layers, const auto& x) const {
    const auto of_both =
        ts::vmap([&](const auto& one) { return own(one.a, x) * over_devices(ts::sum(x * one.b)) + x; })(both);
    const auto of_layers = ts::vmap([&](const auto& layer) { return own(layer.weight, x) * x + layer.bias; })(layers);
    return of_both + ts::sum<0>(of_layers);
  }
};
struct MappedExamples {
  constexpr auto operator()(const auto& both, const auto& layers, const auto& x) const {
    return ts::shard_map<"{-,d}, [{d}, {}], {d} -> {-,d}">(Examples{})(both, layers, x);
  }
};
template <class F> struct LossOfExamples {
  constexpr auto operator()(auto both, auto layers, auto x) const {
    return ts::value_and_grad<0, 1, 2>([](const auto&... all) {
      const auto y = F{}(all...);
      return std::tuple(ts::sum(ts::sin(y)), y);
    })(both, layers, x);
  }
};
TEST(ShardMapStructs, Vmap) {
  constexpr auto mapped = ts::compile(LossOfExamples<MappedExamples>{});
  constexpr auto plain = ts::compile(LossOfExamples<Examples>{});
  for (const ts::Mesh& mesh : meshes()) {
    const Arguments a = arguments(mesh, mesh.rank() > 1);
    const auto [value, gradient] = mapped(a.both, a.layers, a.x);
    const auto [right, slope] = plain(a.both, a.layers, a.x);
    const auto expect = [&](const auto& found, const auto& expected, const char* name) {
      expect_near(ts::to_host(found), ts::to_host(expected), name + (" on " + mesh.text()));
    };
    expect(std::get<1>(value), std::get<1>(right), "result");
    expect(std::get<0>(gradient).a, std::get<0>(slope).a, "gradient of a");
    expect(std::get<0>(gradient).b, std::get<0>(slope).b, "gradient of b");
    expect(std::get<1>(gradient)[2].weight, std::get<1>(slope)[2].weight, "gradient of a weight");
    expect(std::get<1>(gradient)[2].bias, std::get<1>(slope)[2].bias, "gradient of a bias");
    expect(std::get<2>(gradient), std::get<2>(slope), "gradient of x");
  }
}

}  // namespace
