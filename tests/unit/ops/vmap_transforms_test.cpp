#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "vmap_compared.hpp"

namespace ts = tessera;
using namespace oracle;
using namespace vmap_compared;

// Loops, branches, Stacks, custom gradients and pullbacks under ts::vmap.

namespace {

TEST(Vmap, CustomGradients) {
  expect_same<Float<3>, Float<2>>("custom_vjp",
                                  [](const auto& x, const auto& w) {
                                    const auto scaled =
                                        ts::custom_vjp([](const auto& own) { return std::tuple(ts::sin(own), own); },
                                                       [](const auto& own, const auto& g) { return g * own * 3.0; });
                                    return std::tuple(scaled(ts::matmul(x, w)), scaled(w), ts::stop_gradient(x) * x);
                                  },
                                  ts::in_axes<0, same>, {x3, w2});
  expect_same<Float<3>, Float<2>>(
      "inside a gradient",
      [](const auto& x, const auto& w) {
        const auto scaled = ts::custom_vjp([](const auto& own) { return std::tuple(ts::sin(own), own); },
                                           [](const auto& own, const auto& g) { return g * own * 3.0; });
        return ts::grad([&](const auto& own) { return ts::sum(scaled(ts::matmul(x, own))) + ts::sum(scaled(own)); })(w);
      },
      ts::in_axes<0, same>, {x3, w2});
  expect_same<Float<3>, Float<2>>(
      "checkpoint",
      [](const auto& x, const auto& w) {
        const auto f = ts::checkpoint([&](const auto& own) { return ts::tanh(ts::matmul(ts::sin(own), w)); });
        return f(x);
      },
      ts::in_axes<0, same>, {x3, w2});
}

TEST(Vmap, Loops) {
  expect_same<Float<3>, Float<2>>(
      "scan over a sequence",
      [](const auto& x, const auto& u) {
        return ts::scan(
            [&](const auto& h, const auto& in) {
              const auto next = ts::tanh(in + ts::matmul(h, u));
              return std::tuple(next, next * 2.0);
            },
            ts::zeros_like(ts::sum<0>(x)), x);
      },
      ts::in_axes<0, same>, {x3, random_array({5, 5}, 31)}, 1);
  expect_same<Float<2>, Float<1>>(
      "a loop with a shared count",
      [](const auto& x, const auto& s) {
        return ts::fori_loop(
            0, 3, [&](const auto& i, const auto& h) { return ts::sin(h * s) + ts::cast<float>(i); }, x);
      },
      ts::in_axes<0, 0>, {x2, t1}, 1);
  expect_same<Float<2>, Float<1>>(
      "a carry that is shared at first",
      [](const auto& x, const auto& w) {
        return ts::fori_loop(
            0, 3,
            [&](const auto&, const auto& carry) {
              const auto& [a, b, c] = carry;
              return std::tuple(b, ts::sin(b * ts::sum(x)), c * 0.5);
            },
            std::tuple(w, w, w));
      },
      ts::in_axes<0, same>, {x2, v1}, 1);
  expect_same<Float<2>>(
      "a branch",
      [](const auto& x) {
        return ts::cond(
            ts::sum(x) > 0.0, [](const auto& v) { return v * v; }, [](const auto& v) { return v * 3.0; }, x);
      },
      ts::in_axes<0>, {x2}, 2);
  expect_same<Float<2>>(
      "a while loop",
      [](const auto& x) {
        return ts::while_loop([](const auto& v) { return ts::sum(v * v) < 9.0; }, [](const auto& v) { return v * 1.5; },
                              x, 8);
      },
      ts::in_axes<0>, {x2}, 1);
  expect_same<Float<2>, Float<1>>(
      "branches of what is shared, with several results",
      [](const auto& x, const auto& w) {
        const auto chosen = ts::cond(
            ts::sum(x) > 0.0, [&] { return std::tuple(w * 2.0, ts::cast<std::int32_t>(w * 0.0) + 1); },
            [&] { return std::tuple(ts::sum(x) * w, ts::cast<std::int32_t>(w * 0.0)); });
        return std::tuple(std::get<0>(chosen), std::get<1>(chosen),
                          ts::cond(
                              ts::sum(x) < 0.0, [&] { return w; }, [&] { return w * 3.0; }));
      },
      ts::in_axes<0, same>, {x2, v1}, 4);
  expect_same<Float<2>, Ints>(
      "a switch",
      [](const auto& x, const auto& i) {
        return ts::switch_case(
            i,
            std::tuple([](const auto& v) { return ts::exp(v); }, [](const auto& v) { return v * ts::sum(v); },
                       [](const auto& v) { return ts::sqrt(v * v + 1.0); }),
            x);
      },
      ts::in_axes<0, 0>, {x2, i1}, 3);
  expect_same<Float<2>, Float<1>>(
      "a while loop in a scan, with a branch in it",
      [](const auto& x, const auto& t) {
        const auto step = [&](const auto& h, const auto& in) {
          const auto last = ts::while_loop([](const auto& c) { return std::get<0>(c) < 2.0; },
                                           [&](const auto& c) {
                                             const auto& [sum, power] = c;
                                             const auto next = ts::cond(
                                                 power > t, [&] { return power * 1.5; }, [&] { return power + 0.5; });
                                             return std::tuple(sum + ts::abs(next * in) + 0.3, next);
                                           },
                                           std::tuple(h * 0.1, t * 0.5), 7);
          return std::tuple(ts::tanh(std::get<0>(last)) + h, std::get<1>(last));
        };
        return ts::scan(step, ts::sum(x) * 0.0, x);
      },
      ts::in_axes<0, 0>, {x2, t1}, 1);
  expect_same<Float<2>>(
      "the gradient of a while loop",
      [](const auto& x) {
        return ts::grad([](const auto& own) {
          return ts::sum(ts::while_loop([](const auto& v) { return ts::sum(v * v) < 9.0; },
                                        [](const auto& v) { return v * v * 0.5 + 1.0; }, own, 8));
        })(x);
      },
      ts::in_axes<0>, {x2}, 2);
  expect_same<Float<3>>(
      "a vmap in a vmap, with a branch",
      [](const auto& a) {
        return ts::vmap([&](const auto& x) {
          return ts::cond(
              ts::sum(x) > ts::sum(a) * 0.1, [&] { return x * ts::sum(a); }, [&] { return ts::sin(x); });
        })(a);
      },
      ts::in_axes<0>, {x3}, 2);
  expect_same<Float<3>, Float<2>>(
      "the gradient of a scan",
      [](const auto& x, const auto& u) {
        return ts::grad([&](const auto& own) {
          return ts::sum(ts::sin(std::get<0>(
              ts::scan([&](const auto& h,
                           const auto& in) { return std::tuple(ts::tanh(in + ts::matmul(h, own)), std::tuple()); },
                       ts::zeros_like(ts::sum<0>(x)), x))));
        })(u);
      },
      ts::in_axes<0, same>, {x3, random_array({5, 5}, 31)}, 2);
}

// A branch that an example does not take may have no derivative there: a gradient inside of the vmap is that of the own
// branch.
TEST(Vmap, GradientsOfBranchesThatAreNotTaken) {
  constexpr auto f = [](const auto& xs, const auto& w) {
    const auto root = [&](const auto& x) {
      return ts::cond(
          x > 0.0, [&] { return ts::sum(ts::sqrt(x * w)); }, [&] { return x * 2.0; });
    };
    const auto inside = ts::vmap([&](const auto& x) { return ts::grad(root)(x); })(xs);
    const auto one_by_one = ts::grad([&](const auto& all) { return ts::sum(ts::map(root, all)); })(xs);
    const auto outside = ts::grad([&](const auto& all) { return ts::sum(ts::vmap(root)(all)); })(xs);
    return std::tuple(inside, one_by_one, outside);
  };
  const auto out = results_of<Float<1>, Float<1>>(f, {Array({3}, {-1, 4, -2}), Array({2}, {1, 4})});
  expect_near(out[0], Array({3}, {2, 0.75, 2}), 1e-12);
  expect_near(out[1], Array({3}, {2, 0.75, 2}), 1e-12);
  EXPECT_TRUE(std::isnan(out[2].data[0]));  // as in JAX
  EXPECT_NEAR(out[2].data[1], 0.75, 1e-12);
}

struct Block {
  Float<2> weight;
  constexpr auto operator()(const auto& x) const { return x + ts::tanh(ts::matmul(x, weight)); }
};

// The gradient of each example by a model with a Stack, clipped, and their mean: it has the structure of the model.
struct Net {
  Float<2> first;
  ts::Stack<Block> layers;
  constexpr auto operator()(const auto& x) const { return layers(ts::matmul(x, first)); }
};

TEST(Vmap, OfAStack) {
  expect_same<Float<3>, ts::Stack<Block>>(
      "layers", [](const auto& x, const auto& layers) { return layers(x); }, ts::in_axes<0, same>,
      {x3, random_array({2, 5, 5}, 51)}, 1, false);
  expect_same<Float<3>, ts::Stack<Block>>(
      "its gradient",
      [](const auto& x, const auto& layers) {
        return ts::grad([&](const auto& own) { return ts::sum(ts::sin(layers(own))); })(x);
      },
      ts::in_axes<0, same>, {x3, random_array({2, 5, 5}, 51)}, 2, false);
}

TEST(Vmap, ReducesGradientsOfAModelWithAStack) {
  constexpr auto f = [](const auto& net, const auto& xs) {
    const auto loss = [](const auto& m, const auto& x) { return ts::sum(ts::sin(m(x))); };
    const auto each = ts::vmap([&](const auto& m, const auto& x) { return ts::grad(loss)(m, x); },
                               ts::in_axes<ts::not_mapped, 0>)(net, xs);
    const auto mean =
        ts::grad([&](const auto& m) { return ts::mean(ts::vmap([&](const auto& x) { return loss(m, x); })(xs)); })(net);
    const auto in_loop =
        ts::grad([&](const auto& m) { return ts::mean(ts::map([&](const auto& x) { return loss(m, x); }, xs)); })(net);
    return std::tuple(ts::mean<0>(each), mean, in_loop, ts::all_layers(each, &Net::first));
  };
  const Program program = compiled<decltype(f), Net, Float<3>>();
  const auto out = run(program.view(), {random_array({5, 5}, 61), random_array({2, 5, 5}, 62), x3});
  expect_near(out[0], out[4], 1e-12);
  expect_near(out[1], out[5], 1e-12);
  expect_near(out[2], out[4], 1e-12);
  expect_near(out[3], out[5], 1e-12);
  EXPECT_EQ(out[6].shape, (ts::Shape{3, 5, 5}));
}

// A pullback and a linearized function of outside: forward values are computed once, for all examples.
TEST(Vmap, CallsPullbacksOfOutside) {
  constexpr auto f = [](const auto& x, const auto& w, const auto& cotangents, const auto& tangents) {
    const auto layer = [&](const auto& a) { return ts::tanh(ts::matmul(a, w)); };
    const auto recorded = ts::vjp(layer, x);
    const auto linear = ts::linearize(layer, x);
    const auto& pullback = std::get<1>(recorded);
    const auto& push = std::get<1>(linear);
    return std::tuple(ts::vmap([&](const auto& g) { return pullback(g); })(cotangents),
                      ts::map([&](const auto& g) { return std::get<1>(ts::vjp(layer, x))(g); }, cotangents),
                      ts::vmap([&](const auto& v) { return push(v); })(tangents),
                      ts::map([&](const auto& v) { return std::get<1>(ts::jvp(layer, x, v)); }, tangents),
                      ts::map([&](const auto& g) { return pullback(g); }, cotangents),
                      ts::map([&](const auto& g) { return pullback(g) * 1.0; }, cotangents));
  };
  const Array x = random_array({4, 5}, 52), c = random_array({3, 4, 2}, 53);
  const auto out = results_of<Float<2>, Float<2>, Float<3>, Float<3>>(f, {x, w2, c, x3});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-12, std::to_string(k));
  expect_near(out[4], out[0], 1e-12);

  constexpr auto jacobian = [](const auto& a, const auto& w) {
    return ts::jacrev([&](const auto& v) { return ts::tanh(ts::matmul(v, w)); })(a);
  };
  const Program once = trace<decltype(jacobian), Float<2>, Float<2>>();
  EXPECT_EQ(once.count(Op::tanh), 1);
  EXPECT_EQ(once.count(Op::einsum), 2);
  EXPECT_EQ(once.count(Op::repeat), 0);
}

// A custom gradient is copied with what was traced on its cotangents; results of several.
TEST(Vmap, CallsPullbacksOfCustomGradients) {
  constexpr auto f = [](const auto& x, const auto& cotangents) {
    const auto both =
        ts::custom_vjp([](const auto& a) { return std::tuple(std::tuple(ts::sin(a), ts::exp(a)), a); },
                       [](const auto& a, const auto& g) { return std::get<0>(g) * a * 3.0 + std::get<1>(g) * 0.5; });
    const auto layer = [&](const auto& a) {
      const auto& [p, q] = both(a * 2.0);
      return p * q;
    };
    const auto recorded = ts::vjp(layer, x);
    const auto& pullback = std::get<1>(recorded);
    return std::tuple(ts::vmap([&](const auto& g) { return pullback(g); })(cotangents),
                      ts::map([&](const auto& g) { return pullback(g); }, cotangents),
                      ts::map([&](const auto& g) { return std::get<1>(ts::vjp(layer, x))(g); }, cotangents));
  };
  const auto out = results_of<Float<1>, Float<2>>(f, {random_array({4}, 54), x2});
  expect_near(out[0], out[2], 1e-12);
  expect_near(out[1], out[2], 1e-12);
}

}  // namespace
