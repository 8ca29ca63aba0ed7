#include <tuple>
#include <vector>

#include "check.hpp"

#include <tessera/tensor/compile.hpp>
#include <tessera/tensor/creation.hpp>

namespace ts = tessera;
using namespace programs;

namespace {

struct Block {
  Tensor<2> weight;  // [e, e]
  Tensor<1> gain;    // [e]
  constexpr auto operator()(const auto& x) const { return x + ts::tanh(ts::matmul(x, weight)) * gain; }
  /// A carry of two tensors of different ranks, and an integer.
  template <class X, class S, class N> constexpr auto operator()(const std::tuple<X, S, N>& carry) const {
    const auto& [x, sums, n] = carry;
    const auto next = (*this)(x * 0.5 + ts::unsqueeze<1>(sums));
    return std::tuple(next, sums + ts::sum<1>(next) * 0.125, n * 2 + 1);
  }
};
const std::vector<Argument> block{stacked(values("ee")), stacked(values("e"))};
struct Cache {
  Tensor<2> sum;    // [b, e]
  Tensor<1> scale;  // [e]
};

// Not structured bindings, which clang 16 can't capture in a constant expression.
constexpr auto several_scans = [](const auto& xs, const auto& h0, const auto& w, const auto& u, const auto& bias,
                                  const auto& counts,
                                  const ts::Scalar& rate) {  // [t, b, d], [b, h], [d, h], [h, h], [t, h]
  // A carry of several ranks and element types; xs of two tensors; a y for each step.
  const auto [last, all] = ts::scan(
      [&](const auto& carry, const auto& step) {
        const auto& [h, total, n] = carry;
        const auto& [x, b] = step;
        const auto next = ts::tanh(ts::matmul(x, w) + ts::matmul(h, u) + b);
        return std::tuple(std::tuple(next, total * 0.5 + ts::sum<1>(next) * rate, n + counts),
                          std::pair(next * 0.5, ts::sum<0>(next)));
      },
      std::tuple(h0, ts::sum<1>(h0), counts), std::tuple(xs, bias));
  const auto& [h, total, n] = last;
  const auto [sum, sums] =
      ts::scan([](const auto& so_far, const auto& x) { return std::tuple(so_far + x, so_far * x); },
               ts::zeros_like(total), ts::sum<2>(all.first), {.reverse = true});
  const auto mapped = ts::map([](const auto& x) { return ts::transpose<1, 0>(x * x); }, xs);
  const auto turned =
      std::get<1>(ts::scan([](const auto& v, const auto& column) { return std::tuple(v * 0.5 + column, v); },
                           ts::sum<1>(xs), ts::transpose<1, 0, 2>(xs)));
  return std::tuple(energy(h, total, all.first, all.second, sum, sums, mapped), h, total, n, all.first, all.second, sum,
                    sums, mapped, turned);
};
TEST(Programs, Scans) {
  constexpr auto f = [](const auto& floats, const auto& counts, const ts::Scalar& rate) {
    return std::apply([&](const auto&... x) { return several_scans(x..., counts, rate); }, floats);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<2>, Tensor<2>, Tensor<2>>, Tensor<1, std::int32_t>,
                             ts::Scalar>(with_gradient(f),
                                         {.arguments = {values("tbd"), values("bh"), values("dh"), values("hh"),
                                                        values("th"), values<std::int32_t>("k", -3, 3), scalar(-1, 1)},
                                          .may_be_empty = true,
                                          .extents = {{'t', {0, 1, 2, 3, 4, 7}}, {'h', {1, 2, 3, 4, 5, 8}}}},
                                         91);
}

// Groups of three steps and the rest, in both directions, of any number of steps, none too.
constexpr auto unrolled_scans = [](const auto& xs, const auto& h0, const auto& w) {  // [t, b, h], [b, h], [h, h]
  const auto step = [&](const auto& h, const auto& x) {
    const auto next = ts::tanh(ts::matmul(h, w) + x);
    return std::tuple(next, std::pair(next * 0.5, ts::sum<0>(next)));
  };
  const auto [last, ys] = ts::scan(step, h0, xs, ts::unroll<3>);
  const auto [first, back] = ts::scan(step, last, xs, ts::unroll<3>, {.reverse = true});
  return std::tuple(energy(last, ys.first, ys.second, first, back.first, back.second), last, ys, first, back);
};
TEST(Programs, UnrolledScans) {
  constexpr auto f = [](const auto& floats) { return std::apply(unrolled_scans, floats); };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<2>, Tensor<2>>>(
      with_gradient(f),
      {.arguments = {values("tbh"), values("bh"), values("hh")},
       .cases = 40,
       .may_be_empty = true,
       .extents = {{'t', {0, 1, 2, 3, 4, 7}}, {'h', {1, 2, 3, 4, 5, 8}}}},
      93);
}

// Branches in the steps of a scan, and a loop that ends before its bound.
constexpr auto several_branches = [](const auto& h0, const auto& xs, const auto& w, const auto& choices) {
  const auto step = [&](const auto& h, const auto& both) {
    const auto& x = both.first;
    const auto next = ts::cond(
        both.second > 0, [&](const auto& v) { return std::tuple(ts::tanh(ts::matmul(v, w)) + x, ts::sum<0>(v)); },
        [&](const auto& v) { return std::tuple(v * x, ts::sum<0>(x) * 0.5); }, h);
    return std::tuple(std::get<0>(next), std::get<1>(next));
  };
  const auto [last, sums] = ts::scan(step, h0, std::pair(xs, choices));
  const auto count = ts::sum(ts::cast<std::int32_t>(choices > 0));
  const auto looped = ts::while_loop(
      [&](const auto& carry) { return carry.second < count; },
      [&](const auto& carry) { return std::pair(ts::tanh(ts::matmul(carry.first, w)), carry.second + 1); },
      std::pair(last, 0), 4);
  return std::tuple(energy(last, sums, looped.first), last, sums, looped.first, looped.second);
};
TEST(Programs, Branches) {
  constexpr auto f = [](const auto& floats, const auto& choices) {
    return std::apply([&](const auto&... x) { return several_branches(x..., choices); }, floats);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<3>, Tensor<2>>, Tensor<1, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("be"), values("tbe"), values("ee"), values<std::int32_t>("t", -2, 2)},
       .may_be_empty = true,
       .extents = {{'t', {0, 1, 2, 3, 5}}}},
      96);
}

// Branches that return Stacks, and a loop that ends before its bound, whose carry has a Stack: each step calls its
// layers and changes them.
TEST(Programs, StacksInBranchesAndInTheCarryOfAWhileLoop) {
  constexpr auto f = [](const ts::Stack<Block>& net, const auto& x, const auto& choices) {
    const auto loss = [](const auto& both, const auto& steps) {
      const auto count = ts::sum(ts::cast<std::int32_t>(steps > 0));
      const auto looped =
          ts::while_loop([&](const auto& carry) { return std::get<2>(carry) < count; },
                         [](const auto& carry) {
                           auto changed = std::get<0>(carry);
                           changed[0].weight = ts::tanh(changed[0].weight) * 0.75;
                           return std::tuple(changed, std::get<0>(carry)(std::get<1>(carry)), std::get<2>(carry) + 1);
                         },
                         std::tuple(both.first, both.second, 0), 4);
      const auto& layers = std::get<0>(looped);
      const auto& y = std::get<1>(looped);
      const auto with_gains = [](auto changed_layers, double factor) {
        changed_layers[0].gain = changed_layers[0].gain * factor;
        return changed_layers;
      };
      const auto chosen = ts::cond(
          count > 1, [&] { return std::pair(with_gains(layers, 0.5), y * 2.0); },
          [&] { return std::pair(with_gains(both.first, -1.5), y); });
      const auto last = ts::switch_case(count,
                                        std::tuple([](const auto& pair) { return pair.first; },
                                                   [&](const auto& pair) { return with_gains(pair.first, 0.75); },
                                                   [&](const auto&) { return layers; }),
                                        chosen);
      return std::tuple(energy(last(chosen.second), ts::all_layers(layers, &Block::weight)), looped, chosen, last);
    };
    return ts::value_and_grad(loss)(std::pair(net, x), choices);
  };
  expect_equal_on_all_meshes<ts::Stack<Block>, Tensor<2>, Tensor<1, std::int32_t>>(
      f,
      {.arguments = {block[0], block[1], values("be"), values<std::int32_t>("t", -2, 2)},
       .may_be_empty = true,
       .extents = {{'t', {0, 1, 2, 3, 5}}}},
      97);
}

// A sum scales the carry of a loop: in the loop of the gradient, what is added up for the sum is read by no result.
TEST(Programs, ALoopScaledBySums) {
  constexpr auto f = [](const auto& w, const auto& x) {
    const auto loss = [](const auto& scaled, const auto& by) {
      const auto step = [](const auto&, const auto& carry) {
        return std::tuple(std::get<0>(carry) * ts::sum(std::get<1>(carry)), std::get<1>(carry) * 0.5);
      };
      return ts::sum(std::get<0>(ts::fori_loop(0, 3, step, std::tuple(scaled, by))));
    };
    return ts::value_and_grad(loss)(w, x);
  };
  expect_equal_on_all_meshes<Tensor<2>, Tensor<1>>(f, {.arguments = {values("be"), values("e")}, .may_be_empty = true},
                                                   98);
}

TEST(Programs, StacksThatCarrySeveralValues) {
  constexpr auto f = [](const ts::Stack<Block>& net, const auto& x, const auto& n) {
    const auto loss = [](const auto& both, const auto& counts) {
      const auto& [layers, v] = both;
      const auto [y, sums, doubled] = layers(std::tuple(v, ts::sum<1>(v), counts));
      return std::tuple(energy(y, sums), y, sums, doubled);
    };
    return ts::value_and_grad(loss)(std::tuple(net, x), n);
  };
  expect_equal_on_all_meshes<ts::Stack<Block>, Tensor<2>, Tensor<2, std::int32_t>>(
      f, {.arguments = {block[0], block[1], values("be"), values<std::int32_t>("kb", -3, 3)}, .may_be_empty = true},
      92);
}

// Layers, their caches and a slice of a tensor for each of them; new caches are a Stack, and are scanned over again.
TEST(Programs, ScansOverStacks) {
  constexpr auto f = [](const ts::Stack<Block>& net, const ts::Stack<Cache>& caches, const auto& x, const auto& each) {
    const auto loss = [](const auto& all, const auto& shifts) {
      const auto step = [](const auto& v, const auto& own) {
        const auto& [layer, cache, shift] = own;
        const auto next = layer(v + cache.sum * 0.5) * cache.scale + shift;
        return std::tuple(next, std::pair(Cache{cache.sum + next, cache.scale * 0.75 + shift}, ts::sum<1>(next)));
      };
      const auto& [layers, old, v] = all;
      const auto [y, first] = ts::scan(step, v, std::tuple(layers, old, shifts));
      const auto [z, second] = ts::scan(step, y * 0.25, std::tuple(layers, first.first, shifts), {.reverse = true});
      return std::tuple(energy(z, first.second, second.second), y, first.first, second.first, second.second);
    };
    return ts::value_and_grad(loss)(std::tuple(net, caches, x), each);
  };
  expect_equal_on_all_meshes<ts::Stack<Block>, ts::Stack<Cache>, Tensor<2>, Tensor<2>>(
      f,
      {.arguments = {block[0], block[1], stacked(values("be")), stacked(values("e")), values("be"), values("Le")},
       .may_be_empty = true},
      93);
}

// Steps of descent in one loop: the carry is a model with a Stack, and the body has the repeats of its gradient.
TEST(Programs, ScansThatTrainAModel) {
  constexpr auto f = [](const ts::Stack<Block>& net, const auto& batches, const ts::Scalar& rate) {
    return ts::scan(
        [&](const auto& model, const auto& x) {
          const auto [loss, gradient] =
              ts::value_and_grad([](const auto& layers, const auto& v) { return energy(layers(v)); })(model, x);
          auto next = model;
          next[0].weight = model[0].weight - gradient[0].weight * rate;
          next[0].gain = model[0].gain - gradient[0].gain * rate;
          return std::tuple(next, loss);
        },
        net, batches);
  };
  expect_equal_on_all_meshes<ts::Stack<Block>, Tensor<3>, ts::Scalar>(
      f, {.arguments = {block[0], block[1], values("tbe"), scalar(0, 0.01)}, .extents = {{'t', {0, 1, 2, 3}}}}, 94);
}

struct Recurrent {
  Block block;
  constexpr auto operator()(const auto& xs, const auto& key) const {
    const auto step = [&](const auto& h, const auto& x) {
      const auto next = block(ts::tanh(h) * 0.5 + x) + ts::normal_like<3>(x, key) * 0.125;
      return std::tuple(next, next);
    };
    return std::get<1>(ts::scan(step, ts::sum<0>(xs) * 0.25, xs)) * 0.5 + xs;
  }
};
// A recurrent network of several layers: a scan in each layer of a Stack. Random numbers differ in each step of each
// layer.
TEST(Programs, ScansInTheLayersOfAStack) {
  constexpr auto f = [](const ts::Stack<Recurrent>& net, const auto& xs, const ts::Scalar& key) {
    const auto loss = [](const auto& both, const auto& k) {
      const auto y = std::get<0>(both)(std::get<1>(both), k);
      return std::tuple(energy(y), y);
    };
    return ts::value_and_grad(loss)(std::tuple(net, xs), key);
  };
  expect_equal_on_all_meshes<ts::Stack<Recurrent>, Tensor<3>, ts::Scalar>(
      f,
      {.arguments = {block[0], block[1], values("tbe"), scalar(0, 1000)},
       .may_be_empty = true,
       .extents = {{'t', {1, 2, 3, 5}}}},
      95);
}

// All examples at once, whose dim and others are split in any way: gradients of each example by shared weights, lookups
// in shared and own tables, windows, sorts, a scan, a branch, which runs in a loop, and draws.
constexpr auto vmapped = [](const auto& xs, const auto& ys, const auto& w, const auto& table, const auto& rows,
                            const auto& columns) {  // [n, a, b], [n, a, b], [b, c], [a, b], [n, j] and [n, a] below a
  const auto loss = [](const auto& own, const auto& x) { return ts::sum(ts::tanh(ts::matmul(x, own))); };
  const auto gradients = ts::vmap([&](const auto& x) { return ts::value_and_grad(loss)(w, x); })(xs);
  const auto lookups = ts::vmap([&](const auto& x, const auto& i) {
    return std::tuple(ts::embedding(table, i), ts::embedding(x, i), ts::softmax<1>(x) * table);
  })(xs, rows);
  const auto moved = ts::vmap<1>([](const auto& x, const auto& y, const auto& i) {
    return std::tuple(ts::concat<0>(x, ts::flip<0>(y)), ts::cumsum<0>(x), ts::sort<1>(x) * y,
                      ts::gather<0>(x, ts::broadcast_like(ts::unsqueeze<1>(i), x)),
                      ts::pad<1>(ts::transpose<1, 0>(y), 1, 0));
  })(xs, ys, columns);
  const auto controlled = ts::vmap([&](const auto& x, const auto& y) {
    const auto last = std::get<0>(
        ts::scan([&](const auto& h, const auto& row) { return std::tuple(ts::tanh(h * 0.5 + row), std::tuple()); },
                 ts::sum<0>(y), x));
    const auto branch = ts::cond(
        ts::sum(x) > 0.0, [](const auto& v) { return v * v; }, [](const auto& v) { return v * 3.0; }, y);
    return std::tuple(last, branch);
  })(xs, ys);
  const auto& [losses, slopes] = gradients;
  const auto& [shared, own, scaled] = lookups;
  const auto& [joined, sums, sorted, gathered, turned] = moved;
  const auto& [last, branch] = controlled;
  return std::tuple(energy(losses, slopes, shared, own, scaled, joined, sums, sorted, gathered, turned, last, branch),
                    losses, slopes, shared, own, scaled, joined, sums, sorted, gathered, turned, last, branch);
};
TEST(Programs, Vmap) {
  constexpr auto f = [](const auto& floats, const auto& rows, const auto& columns) {
    return std::apply([&](const auto&... x) { return vmapped(x..., rows, columns); }, floats);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<3>, Tensor<3>, Tensor<2>, Tensor<2>>, Tensor<2, std::int32_t>,
                             Tensor<2, std::int32_t>>(
      with_gradient(f),
      {.arguments = {values("nab"), values("nab"), values("bc"), values("ab"), indices("nj", 'a'), indices("na", 'a')},
       .extents = {{'a', {1, 2, 3, 4, 6}}}},
      71);
}

// Jacobians of two results by a model and a number, whose dims are split in any way.
TEST(Programs, Jacobians) {
  struct Layer {
    Tensor<2> weight;  // [b, c]
    Tensor<1> gain;    // [c]
  };
  constexpr auto f = [](const auto& x, const auto& layer, const auto& factor) {  // [a, b]
    const auto both = [&](const auto& own, const auto& by) {
      const auto y = ts::tanh(ts::matmul(x, own.weight) * by) * own.gain;
      return std::pair(y, ts::sum<0>(y));
    };
    return std::tuple(
        ts::jacrev<0, 1>(both)(layer, factor), ts::jacfwd<0, 1>(both)(layer, factor),
        ts::hessian([&](const auto& own) { return ts::sum(both(layer, factor).first * own * own); })(layer.gain));
  };
  expect_equal_on_all_meshes<Tensor<2>, Layer, Tensor<0>>(
      f,
      {.arguments = {values("ab"), values("bc"), values("c"), values("")},
       .cases = 60,
       .extents = {{'a', {1, 2, 3, 4}}, {'b', {1, 2, 3}}, {'c', {1, 2, 3, 4}}}},
      53);
}

// Along a dim that is split in any way, and along another one.
TEST(Programs, AssociativeScans) {
  constexpr auto f = [](const auto& floats) {  // [t, b] and [t, b]
    const auto& [a, b] = floats;
    const auto affine = [](const auto& x, const auto& y) {
      return std::pair(y.first * x.first, y.first * x.second + y.second);
    };
    const auto forward = ts::associative_scan(affine, std::pair(a, b));
    const auto backward = ts::associative_scan<1>(affine, std::pair(a, b), {.reverse = true});
    return std::tuple(energy(forward.second, backward.first), forward.first, forward.second, backward.first,
                      backward.second);
  };
  expect_equal_on_all_meshes<std::tuple<Tensor<2>, Tensor<2>>>(
      with_gradient(f),
      {.arguments = {values("tb", 0.5, 1.2), values("tb")}, .cases = 60, .extents = {{'t', {1, 2, 3, 5, 8}}}}, 57);
}

// A dim that is not scanned stays split, without communication; one that is scanned is gathered in each step.
TEST(Programs, AssociativeScansCommunicateAlongTheirDimOnly) {
  constexpr auto f = ts::compile([](const auto& x) {
    return ts::associative_scan([](const auto& a, const auto& b) { return ts::maximum(a, b); }, x);
  });
  const ts::Mesh mesh({{"data", 3}});
  const auto x = ts::zeros<float>({8, 7}, mesh, {ts::none, "data"});
  EXPECT_EQ(f.plan(x).wire_bytes(), 0);
  EXPECT_EQ(ts::sharding(f(x)), ts::sharding(x));
  const auto split = ts::zeros<float>({9, 7}, mesh, {"data"});
  EXPECT_EQ(f.plan(split).payload_bytes(ts::all_gather), 4 * 9 * 7 * 4) << "once in each of the four steps";
  EXPECT_EQ(ts::sharding(f(split)), ts::sharding(split));
}

// A constraint inside states the sharding of one example, and the examples stay split.
TEST(Programs, VmapKeepsExamplesSplit) {
  constexpr auto f = ts::compile([](const auto& xs, const auto& w) {
    return ts::vmap([&](const auto& x) {
      const auto hidden = ts::with_sharding(ts::matmul(x, w), {ts::none, "model"});
      return std::tuple(ts::softmax<0>(hidden), ts::with_sharding(ts::sum<0>(x), {}));
    })(xs);
  });
  const ts::Mesh mesh({{"data", 2}, {"model", 2}});
  const auto xs = ts::zeros<float>({8, 4, 6}, mesh, {"data"});
  const auto w = ts::zeros<float>({6, 4}, mesh, {ts::none, "model"});
  EXPECT_EQ(f.plan(xs, w).wire_bytes(), 0);
  const auto split = ts::zeros<float>({8, 4, 4}, mesh, {"data", ts::none, "model"});
  EXPECT_EQ(ts::sharding(std::get<0>(f(xs, w))), ts::sharding(split));
}

}  // namespace
