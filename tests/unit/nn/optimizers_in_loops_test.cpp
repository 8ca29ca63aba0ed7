// Training steps in the loops of a program: the state of an optimizer, with its number of steps, in a carry.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../base/expect_error.hpp"
#include <gtest/gtest.h>

#include <tessera/tensor/oracle.hpp>
#include <tessera/tessera.hpp>

namespace ts = tessera;

namespace {

using Vector = ts::ShardedTensor<double, 1>;
struct Model {
  Vector w;
  constexpr auto operator()(const auto& x) const { return ts::sum(ts::square(w - x)); }
};
constexpr auto loss = [](const auto& model, const auto& x) { return model(x); };
// optax.adam by hand: after `steps` steps with targets xs [steps, 5].
std::vector<double> adam_by_hand(const std::vector<double>& xs, int steps, double rate) {
  std::vector<double> w(5, 1), mean(5), square(5);
  for (int t = 1; t <= steps; ++t)
    for (std::size_t j = 0; j < 5; ++j) {
      const double g = 2 * (w[j] - xs[static_cast<std::size_t>(t - 1) * 5 + j]);
      mean[j] = 0.9 * mean[j] + 0.1 * g;
      square[j] = 0.999 * square[j] + 0.001 * g * g;
      const double corrected = square[j] / (1 - std::pow(0.999, t));
      w[j] -= rate * mean[j] / (1 - std::pow(0.9, t)) / (std::sqrt(corrected) + 1e-8);
    }
  return w;
}
const std::vector<double> targets = [] {
  std::vector<double> values;
  for (int i = 0; i < 30; ++i) values.push_back(std::sin(3.0 * i));
  return values;
}();
std::vector<ts::Mesh> meshes() { return {ts::Mesh({{"x", 1}}), ts::Mesh({{"x", 2}}), ts::Mesh({{"x", 4}})}; }
void expect_trained(const Model& model, const std::vector<double>& want, const ts::Mesh& mesh) {
  const std::vector<double> got = ts::to_host(model.w);
  for (std::size_t j = 0; j < 5; ++j) EXPECT_NEAR(got[j], want[j], 1e-6) << mesh.text();
}

constexpr auto step = [](const auto& model, const auto& state, const auto& config, const auto& x) {
  return ts::optim::optimizer_step(model, ts::grad(loss)(model, x), state, config);
};
// A scan, a scan in a scan, an unrolled one, a while_loop, and a scan in which each step stays undone on a condition.
constexpr auto scanned = ts::compile([](auto model, auto state, auto config, auto xs) {
  const auto one = [&](const auto& carry, const auto& x) {
    return std::tuple(step(std::get<0>(carry), std::get<1>(carry), config, x),
                      std::get<1>(carry).step * ts::sum(std::get<0>(carry).w) * 0.0);
  };
  return std::get<0>(ts::scan(one, std::tuple(model, state), xs));
});
constexpr auto nested = ts::compile([](auto model, auto state, auto config, auto xs) {
  const auto one = [&](const auto& carry, const auto& x) {
    return std::tuple(step(std::get<0>(carry), std::get<1>(carry), config, x), std::tuple());
  };
  const auto epoch = [&](const auto& carry, const auto& batch) { return ts::scan(one, carry, batch); };
  return std::get<0>(ts::scan(epoch, std::tuple(model, state), ts::split_dim<0>(xs, 3)));
});
constexpr auto unrolled = ts::compile([](auto model, auto state, auto config, auto xs) {
  const auto one = [&](const auto& carry, const auto& x) {
    return std::tuple(step(std::get<0>(carry), std::get<1>(carry), config, x), std::tuple());
  };
  return std::get<0>(ts::scan(one, std::tuple(model, state), xs, ts::unroll<4>));
});
constexpr auto until = ts::compile([](auto model, auto state, auto config, auto xs, auto most) {
  return ts::while_loop([&](const auto& carry) { return carry.second < most; },
                        [&](const auto& carry) {
                          const auto x = ts::dynamic_index<0>(xs, carry.second);
                          return std::pair(step(std::get<0>(carry.first), std::get<1>(carry.first), config, x),
                                           carry.second + 1);
                        },
                        std::pair(std::tuple(model, state), 0), 10)
      .first;
});
constexpr auto each_second = ts::compile([](auto model, auto state, auto config, auto xs) {
  const auto one = [&](const auto& i, const auto& carry) {
    const auto take = [&](const auto& before) {
      return step(std::get<0>(before), std::get<1>(before), config, ts::dynamic_index<0>(xs, ts::floor_divide(i, 2)));
    };
    const auto leave = [](const auto& before) { return before; };
    return ts::cond(ts::equal(ts::remainder(i, 2), 0), take, leave, carry);
  };
  return ts::fori_loop(0, 12, one, std::tuple(model, state));
});
constexpr auto either_way = ts::compile([](auto model, auto state, auto config, auto xs) {
  const auto one = [&](const auto& i, const auto& carry) {
    const auto take = [&](const auto& before) {
      return step(std::get<0>(before), std::get<1>(before), config, ts::dynamic_index<0>(xs, ts::floor_divide(i, 2)));
    };
    const auto leave = [](const auto& before) { return before; };
    return ts::cond(ts::equal(ts::remainder(i, 2), 1), leave, take, carry);
  };
  return ts::fori_loop(0, 12, one, std::tuple(model, state));
});

TEST(OptimizersInLoops, CountTheirSteps) {
  const ts::optim::Adam config{.learning_rate = 0.05};
  const ts::OracleScope same_on_one_device;
  for (const ts::Mesh& mesh : meshes()) {
    const Model model{ts::ones<double>({5}, mesh, {"x"})};
    const auto state = ts::optim::init_state(config, model);
    const auto xs = ts::shard(targets, {6, 5}, mesh, {ts::none, "x"});
    const auto check = [&](const auto& result, int steps) {
      const auto& [trained, last] = result;
      expect_trained(trained, adam_by_hand(targets, steps, 0.05), mesh);
      EXPECT_EQ(last.step.value(), steps);
      return last;
    };
    const auto [trained, last] = scanned(model, state, config, xs);
    check(std::pair(trained, last), 6);
    check(nested(model, state, config, xs), 6);
    check(unrolled(model, state, config, xs), 6);
    check(until(model, state, config, xs, 4.0), 4);
    check(each_second(model, state, config, xs), 6);
    check(either_way(model, state, config, xs), 6);
    // The state that a program returns goes on in the next call.
    const auto [half, half_state] = until(model, state, config, xs, 2.0);
    const auto rest = ts::rows_of(xs, {2, 6});
    check(scanned(half, half_state, config, rest), 6);
  }
}

// The gradient of the loss after training steps by the first parameters, against differences.
constexpr auto unrolled_loss = ts::compile([](auto model, auto state, auto config, auto xs) {
  return ts::value_and_grad([&](const auto& start) {
    const auto one = [&](const auto& carry, const auto& x) {
      return std::tuple(step(std::get<0>(carry), std::get<1>(carry), config, x), std::tuple());
    };
    const auto last = std::get<0>(ts::scan(one, std::tuple(start, state), xs));
    return ts::sum(ts::sin(std::get<0>(last).w));
  })(model);
});
TEST(OptimizersInLoops, HaveGradientsThroughTheirSteps) {
  const ts::optim::Adam config{.learning_rate = 0.05};
  const ts::Mesh mesh({{"x", 2}});
  const auto xs = ts::shard(targets, {6, 5}, mesh, {ts::none, "x"});
  const auto at = [&](std::vector<double> w) {
    const Model model{ts::shard(w, {5}, mesh, {"x"})};
    return unrolled_loss(model, ts::optim::init_state(config, model), config, xs);
  };
  const std::vector<double> w{1, 0.3, -0.7, 2, 0.1};
  const std::vector<double> gradient = ts::to_host(std::get<1>(at(w)).w);
  for (std::size_t j = 0; j < 5; ++j) {
    std::vector<double> up = w, down = w;
    up[j] += 1e-5;
    down[j] -= 1e-5;
    EXPECT_NEAR(gradient[j], (ts::item(std::get<0>(at(up))) - ts::item(std::get<0>(at(down)))) / 2e-5, 1e-7);
  }
}

struct Key {
  ts::Scalar key;
};
struct Size {
  ts::Dim size;
};
struct Count {
  ts::Scalar count;
};
struct Counted {
  Vector x;
  ts::Scalar count;
};
struct CountingLayer {
  Vector w;
  constexpr auto operator()(const auto& in) const {
    return std::tuple(std::get<0>(in) + w, Count{std::get<1>(in).count + 1.0});
  }
};

// Of branches, one has a Scalar of its own. Steps that change no Scalar keep it as a number of the host.
constexpr auto branches = ts::compile([](auto x, auto n) {
  const auto more = [&] { return Counted{x * 2.0, n + 10.0}; };
  const auto same = [&] { return Counted{x, n}; };
  const auto loop = ts::fori_loop(
      0, 3,
      [](const auto&, const auto& c) {
        return Counted{c.x * c.count, c.count};
      },
      Counted{x, n});
  return std::tuple(ts::cond(ts::sum(x) > 0.0, more, same), ts::cond(ts::sum(x) > 0.0, same, more), loop);
});
TEST(ScalarsInLoops, OfBranches) {
  for (const ts::Mesh& mesh : meshes())
    for (const double value : {1.0, -1.0}) {
      const auto [a, b, c] = branches(ts::full<double>({5}, value, mesh, {"x"}), 3.0);
      EXPECT_EQ(a.count.value(), value > 0 ? 13 : 3);
      EXPECT_EQ(b.count.value(), value > 0 ? 3 : 13);
      EXPECT_EQ(c.count.value(), 3);
      EXPECT_EQ(ts::to_host(a.x)[0], value > 0 ? 2 : -1);
      EXPECT_EQ(ts::to_host(b.x)[0], value > 0 ? 1 : -2);
      EXPECT_EQ(ts::to_host(c.x)[0], 27 * value);
    }
}

template <class F, class... Args> auto traced() {
  return [] { ts::Trace<F, Args...>::record(); };
}
TEST(ScalarsInLoops, RefusesWhatAStepCannotChange) {
  const auto keys = [](const auto& x, const ts::Scalar& key) {
    const auto draw = [](const auto&, const auto& carry) {
      const auto& [sum, own] = carry;
      return std::tuple(sum + ts::normal_like(sum, own.key), Key{ts::fold_in(own.key, 1)});
    };
    return std::get<0>(ts::fori_loop(0, 3, draw, std::tuple(x, Key{key})));
  };
  tessera_test::expect_error(
      ts::errc::unsupported, traced<decltype(keys), Vector, ts::Scalar>(),
      "[random] key: the key is a ts::Scalar that changes in a loop; carry a key as a tensor, which "
      "begins as ts::key_data(key) at optimizers_in_loops_test.cpp:");
  const auto sizes = [](const auto& x, const ts::Dim& size) {
    const auto grow = [](const auto&, const auto& carry) {
      return std::tuple(std::get<0>(carry), Size{std::get<1>(carry).size + 1});
    };
    return std::get<0>(ts::fori_loop(0, 3, grow, std::tuple(x, Size{size})));
  };
  tessera_test::expect_error(
      ts::errc::structure, traced<decltype(sizes), Vector, ts::Dim>(),
      "[scan] carry: a step, or a branch, changes a ts::Dim in a struct of the carry; sizes are the "
      "same in each step, so count with a tensor at optimizers_in_loops_test.cpp:");
  const auto layers = [](const ts::Stack<CountingLayer>& stack, const auto& x) {
    return std::get<0>(stack(std::tuple(x, Count{1.0})));
  };
  tessera_test::expect_error(
      ts::errc::structure, traced<decltype(layers), ts::Stack<CountingLayer>, Vector>(),
      "[stack] result of a layer: a layer changes a ts::Scalar in a struct; use a tensor of rank 0 "
      "in its place at optimizers_in_loops_test.cpp:");
}

struct WithStep {
  Vector w;
  ts::Scalar step;
};
constexpr auto changed = ts::compile([](const WithStep& s, const auto& i) {
  const auto up = [](const WithStep& t) { return WithStep{t.w * 2.0, t.step + 1.0}; };
  const auto down = [](const WithStep& t) { return WithStep{t.w * t.step, t.step - 3.0}; };
  const auto same = [](const WithStep& t) { return t; };
  const WithStep a = ts::switch_case(i, std::tuple(up, down, same), s);
  const WithStep b = ts::cond(i > 0, up, down, a);
  return std::tuple(a, b, b.w * b.step);
});
// Branches change a Scalar in a struct; a later branch and an operation use what it became.
TEST(ScalarsInLoops, OfSwitchCase) {
  const ts::Mesh mesh({{"x", 2}});
  for (int i = 0; i < 3; ++i) {
    const WithStep s{ts::shard(std::vector<double>{1, 2, 3}, {3}, mesh, {"x"}), ts::Scalar(5.0)};
    const auto [a, b, product] = changed(s, ts::full<std::int32_t>({}, i, mesh));
    const double firsts[] = {2, 5, 1}, counts[] = {6, 2, 5};
    EXPECT_EQ(ts::to_host(a.w), (std::vector<double>{firsts[i], 2 * firsts[i], 3 * firsts[i]})) << i;
    EXPECT_EQ(a.step.value(), counts[i]) << i;
    const double next_w = i > 0 ? 2 * firsts[i] : firsts[i] * counts[i],
                 next_step = i > 0 ? counts[i] + 1 : counts[i] - 3;
    EXPECT_EQ(ts::to_host(b.w), (std::vector<double>{next_w, 2 * next_w, 3 * next_w})) << i;
    EXPECT_EQ(b.step.value(), next_step) << i;
    EXPECT_EQ(ts::to_host(product),
              (std::vector<double>{next_w * next_step, 2 * next_w * next_step, 3 * next_w * next_step}));
  }
}

}  // namespace
