#include <cmath>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/graph/transform/value_and_grad.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>
#include <tessera/ops/vmap/vmap.hpp>
#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/host.hpp>
#include <tessera/tensor/oracle.hpp>

namespace ts = tessera;
namespace tc = ts::collective;

// ts::vmap with collectives: over an axis of the mesh in a ts::shard_map, against the same program of one example after
// the other.

namespace {

constexpr int examples = 3, rows = 12, columns = 6;

std::vector<double> some_values(int count, int seed) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(std::sin(1.7 * i + seed) + 0.01 * i);
  return values;
}
void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << what << ", element " << i;
}
std::vector<double> example(const std::vector<double>& all, int e) {
  const auto each = static_cast<std::ptrdiff_t>(all.size()) / examples;
  return {all.begin() + e * each, all.begin() + (e + 1) * each};
}

constexpr auto every_collective = [](auto a, auto b) {
  auto v = a * (ts::cast<double>(ts::axis_index<"x">(a)) + 1.0);
  auto spread = b * ts::sum(a) * ts::cast<double>(ts::axis_index<"x">(b)) * 0.5;  // [12, 6], differs between devices
  return std::tuple(ts::psum<"x">(v * v), ts::pmean<"x">(ts::exp(v)), ts::pmax<"x">(v), ts::pmin<"x">(v),
                    tc::all_gather<"x", 1>(v), ts::psum_scatter<"x", 0>(spread), tc::all_to_all<"x", 1, 0>(v),
                    ts::ppermute<"x">(v, ts::Shift(1)), ts::ppermute<"x">(ts::relu(v), {{0, 0}}),
                    ts::einsum<"ik,jk->ij">(a, b), ts::unsqueeze<0>(ts::psum<"x">(ts::sum(v)) * ts::axis_size<"x">(v)),
                    tc::all_gather<"x", 0>(ts::pvary<"x">(ts::unsqueeze<0>(ts::mean(b)))));
};
constexpr auto mapped = [](auto a, auto b) {
  return ts::shard_map<"{x}, {} -> {}, {}, {}, {}, {}, {x}, {-,x}, {x}, {x}, {x}, {x}, {}">(every_collective)(a, b);
};
/// The vmap inside of the shard_map: the local values have a dim of examples, split by "y" if it exists.
constexpr auto inside = [](auto a, auto b) {
  return ts::shard_map<"{-,x}, {} -> {}, {}, {}, {}, {}, {-,x}, {-,-,x}, {-,x}, {-,x}, {-,x}, {-,x}, {}">(
      [](auto own, auto shared) {
        return ts::vmap([&](const auto& one) { return every_collective(one, shared); })(own);
      })(a, b);
};
constexpr auto energy = [](const auto&... results) { return (ts::sum((results + 0.25) * results) + ...); };
template <class F> constexpr auto with_gradient(const F& f, const auto& a, const auto& b) {
  return ts::value_and_grad([&](const auto& inputs) {
    const auto results = f(std::get<0>(inputs), std::get<1>(inputs));
    return std::tuple(std::apply(energy, results), results);
  })(std::tuple(a, b));
}
constexpr auto of_one = [](auto a, auto b) { return with_gradient(mapped, a, b); };
constexpr auto around = ts::vmap(mapped, ts::in_axes<0, ts::not_mapped>);
template <bool Inside> constexpr auto of_all(const auto& a, const auto& b) {
  if constexpr (Inside)
    return with_gradient(inside, a, b);
  else
    return with_gradient(around, a, b);
}
constexpr auto of_both = [](auto a, auto b) { return std::tuple(of_all<false>(a, b), of_all<true>(a, b)); };

/// Results and the gradient of a: those of example e in what was made for all examples.
void expect_example(const auto& made, const auto& expected, int e, const std::string& what) {
  int next = 0;
  const auto compare = [&](const auto& found, const auto& one) {
    expect_near(example(ts::to_host(found), e), ts::to_host(one), 1e-12, std::to_string(next++) + " of " + what);
  };
  const auto& found = std::get<1>(std::get<0>(made));
  const auto& own = std::get<1>(std::get<0>(expected));
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (compare(std::get<I>(found), std::get<I>(own)), ...);
  }(std::make_index_sequence<12>());
  expect_near(example(ts::to_host(std::get<0>(std::get<1>(made))), e), ts::to_host(std::get<0>(std::get<1>(expected))),
              1e-11, "gradient of a, " + what);
}
/// The loss and the gradient of b, which all examples share.
struct Sums {
  double loss = 0;
  std::vector<double> of_b = std::vector<double>(rows * columns);
  void add(const auto& expected) {
    loss += ts::to_host(std::get<0>(std::get<0>(expected)))[0];
    const auto part = ts::to_host(std::get<1>(std::get<1>(expected)));
    for (std::size_t i = 0; i < of_b.size(); ++i) of_b[i] += part[i];
  }
  void compare(const auto& made, const std::string& what) const {
    EXPECT_NEAR(ts::to_host(std::get<0>(std::get<0>(made)))[0], loss, 1e-9 * loss) << what;
    expect_near(ts::to_host(std::get<1>(std::get<1>(made))), of_b, 1e-11, "gradient of b, " + what);
  }
};

TEST(VmapCollectives, OverAnAxisOfTheMesh) {
  constexpr auto one = ts::compile(of_one);
  constexpr auto all = ts::compile(of_both);
  const std::vector<double> a = some_values(examples * rows * columns, 1), b = some_values(rows * columns, 2);
  for (const ts::Mesh& mesh : {ts::Mesh({{"x", 1}}), ts::Mesh({{"x", 2}}), ts::Mesh({{"x", 3}}),
                               ts::Mesh({{"y", 2}, {"x", 2}}), ts::Mesh({{"x", 3}, {"y", 2}}, {5, 3, 1, 0, 2, 4})})
    for (const bool split : {false, true}) {
      if (split && !mesh.has_axis("y")) continue;  // 3 examples on 2 devices
      const std::string on = " on " + mesh.text();
      const auto y = ts::shard(b, {rows, columns}, mesh);
      const auto x = split ? ts::shard(a, {examples, rows, columns}, mesh, {"y"})
                           : ts::shard(a, {examples, rows, columns}, mesh, {ts::none, ts::none, "x"});
      const auto [made_around, made_inside] = all(x, y);
      const ts::OracleScope same_on_one_device;  // throws where a value differs
      all(x, y);
      EXPECT_GT(same_on_one_device.compared(), 100);
      Sums sums;
      for (int e = 0; e < examples; ++e) {
        const auto expected = one(ts::shard(example(a, e), {rows, columns}, mesh, {ts::none, "x"}), y);
        sums.add(expected);
        expect_example(made_around, expected, e, "vmap of shard_map" + on);
        expect_example(made_inside, expected, e, "vmap in shard_map" + on);
      }
      sums.compare(made_around, "vmap of shard_map" + on);
      sums.compare(made_inside, "vmap in shard_map" + on);
    }
}

// ---- a struct of a shard_map that the function of a vmap captures, and a vmap in a vmap, against plain operations

struct Layer {
  ts::ShardedTensor<double, 2> up, down;
  ts::ShardedTensor<double, 1> bias;
  constexpr auto operator()(const auto& x) const { return ts::matmul(ts::gelu(ts::matmul(x, up)), down); }
};
constexpr auto layer_by_hand = [](auto layer, auto x) {
  return ts::shard_map<"[{-,model}, {model}, {}], {data} -> {data}">([](auto own, auto in) {
    return ts::vmap([&](const auto& sequence) {
      const auto y = ts::psum<"model">(own(sequence));
      return ts::vmap([&](const auto& row) { return ts::softmax<0>(row + own.bias) * ts::sum(y); })(y);
    })(in);
  })(layer, x);
};
constexpr auto plain_layer = [](auto layer, auto x) {
  const auto y = layer(x);
  return ts::softmax<2>(y + layer.bias) * ts::unsqueeze<1>(ts::unsqueeze<1>(ts::sum<1, 2>(y)));
};
template <class F> struct LayerStep {
  constexpr auto operator()(const auto& layer, const auto& x) const {
    return ts::value_and_grad([](const auto& own, const auto& in) {
      const auto y = F{}(own, in);
      return ts::sum(ts::sin(y));
    })(layer, x);
  }
};

TEST(VmapCollectives, CapturesStructsOfAShardMap) {
  constexpr auto both = ts::compile([](auto layer, auto x) {
    return std::tuple(LayerStep<decltype(layer_by_hand)>{}(layer, x), LayerStep<decltype(plain_layer)>{}(layer, x));
  });
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const Layer layer{ts::shard(some_values(5 * 8, 4), {5, 8}, mesh, {ts::none, "model"}),
                    ts::shard(some_values(8 * 5, 5), {8, 5}, mesh), ts::shard(some_values(5, 6), {5}, mesh)};
  const auto [mine, theirs] = both(layer, ts::shard(some_values(4 * 3 * 5, 3), {4, 3, 5}, mesh, {"data"}));
  EXPECT_NEAR(ts::to_host(std::get<0>(mine))[0], ts::to_host(std::get<0>(theirs))[0], 1e-9);
  expect_near(ts::to_host(std::get<1>(mine).up), ts::to_host(std::get<1>(theirs).up), 1e-11, "up");
  expect_near(ts::to_host(std::get<1>(mine).down), ts::to_host(std::get<1>(theirs).down), 1e-11, "down");
  expect_near(ts::to_host(std::get<1>(mine).bias), ts::to_host(std::get<1>(theirs).bias), 1e-11, "bias");
}

// ---- collectives over the axis of a vmap, against formulas of the whole batch

constexpr auto by_name = [](const auto& xs, const auto& w) {
  return ts::vmap(
      [&](const auto& x) {
        const auto own = ts::cast<double>(ts::axis_index<"batch">(x));
        const auto mean = ts::pmean<"batch">(x * 2.0);
        return std::tuple(
            ts::psum<"batch">(x * x), (x - mean) * ts::pmean<"batch">(x * mean), ts::pmax<"batch">(x),
            ts::pmin<"batch">(x * own), x * tc::all_gather<"batch", 0>(ts::sum<0>(x, ts::keepdims)),
            ts::sum<0>(tc::all_gather<"batch", 0>(x) * own, ts::keepdims), ts::psum<"batch">(w) * own,
            x * ts::axis_size<"batch">(x), ts::psum<"batch">(own) + ts::pmax<"batch">(w),
            x * ts::ppermute<"batch">(x * 2.0, ts::Shift(1)), ts::ppermute<"batch">(ts::sin(x), {{0, 2}, {2, 1}}) + own,
            ts::psum_scatter<"batch", 0>(x * w * (own + 1.0)), x * tc::all_to_all<"batch", 0, 0>(ts::sin(x)));
      },
      ts::axis_name<"batch">)(xs);
};
constexpr auto by_hand = [](const auto& xs, const auto& w) {  // xs [3, 3], w [3]
  const auto index = ts::unsqueeze<1>(ts::cast<double>(ts::iota<0, std::int32_t>(ts::sum<1>(xs))));
  const auto everywhere = [&](const auto& row) { return ts::broadcast_like(row, xs); };
  const auto mean = ts::mean<0>(xs * 2.0, ts::keepdims);
  const auto flat = ts::unsqueeze<0>(ts::sum(xs) * 1.0);
  const auto row = [&](int i) { return ts::sin(ts::slice<0>(xs, i, 1)); };
  const auto sent = ts::concat<0>(row(0) * 0.0, row(2), row(0));
  return std::tuple(everywhere(ts::sum<0>(xs * xs)), (xs - mean) * ts::mean<0>(xs * mean, ts::keepdims),
                    everywhere(ts::max<0>(xs)), everywhere(ts::min<0>(xs * index)), xs * ts::sum<1>(xs), index * flat,
                    everywhere(w * 3.0) * index, xs * 3.0, everywhere(w) + 3.0, xs * ts::roll<0>(xs * 2.0, 1),
                    sent + index, ts::unsqueeze<1>(ts::sum<0>(xs * w * (index + 1.0))),
                    xs * ts::transpose<1, 0>(ts::sin(xs)));
};
template <class F> struct Scored {
  constexpr auto operator()(const auto& xs, const auto& w) const {
    return ts::value_and_grad([](const auto& both) {
      const auto results = F{}(std::get<0>(both), std::get<1>(both));
      return std::tuple(std::apply(energy, results), results);
    })(std::tuple(xs, w));
  }
};
constexpr auto named_and_by_hand = [](auto xs, auto w) {
  return std::tuple(Scored<decltype(by_name)>{}(xs, w), Scored<decltype(by_hand)>{}(xs, w));
};

TEST(VmapCollectives, OverExamples) {
  constexpr auto both = ts::compile(named_and_by_hand);
  for (const int devices : {1, 2, 3, 4}) {  // 3 examples: uneven on 2 and 4
    const ts::Mesh mesh({{"data", devices}});
    const auto [named, hand] =
        both(ts::shard(some_values(9, 1), {3, 3}, mesh, {"data"}), ts::shard(some_values(3, 2), {3}, mesh, {"data"}));
    const std::string on = " on " + mesh.text();
    int next = 0;
    const auto compare = [&](const auto& found, const auto& expected) {
      expect_near(ts::to_host(found), ts::to_host(expected), 1e-12, std::to_string(next++) + on);
    };
    const auto& found = std::get<1>(std::get<0>(named));
    const auto& expected = std::get<1>(std::get<0>(hand));
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      (compare(std::get<I>(found), std::get<I>(expected)), ...);
    }(std::make_index_sequence<13>());
    compare(std::get<0>(std::get<1>(named)), std::get<0>(std::get<1>(hand)));
    compare(std::get<1>(std::get<1>(named)), std::get<1>(std::get<1>(hand)));
  }
}

}  // namespace
