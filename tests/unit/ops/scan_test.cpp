#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "../../support/written_out.hpp"
#include "../base/expect_error.hpp"

#include <tessera/ops/cumulative/logcumsumexp.hpp>
#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;
using namespace oracle::loops;

namespace {

constexpr auto at = [](const auto& xs, int t) { return ts::squeeze<0>(ts::slice<0>(xs, t, 1)); };

constexpr auto rnn = [](const auto& h0, const auto& xs, const auto& w, const auto& u) {
  const auto [last, all] = ts::scan(
      [&](const auto& h, const auto& x) {
        const auto next = ts::tanh(ts::matmul(x, w) + ts::matmul(h, u));
        return std::tuple(next, next * 0.5);
      },
      h0, xs);
  return ts::sum<0>(all) + last * 2.0;
};
constexpr auto rnn_by_hand = [](const auto& h0, const auto& xs, const auto& w, const auto& u) {
  const auto step = [&](const auto& h, int t) { return ts::tanh(ts::matmul(at(xs, t), w) + ts::matmul(h, u)); };
  const auto a = step(h0, 0), b = step(a, 1), c = step(b, 2);
  return (a + b + c) * 0.5 + c * 2.0;
};
const std::vector<Array> rnn_arguments{random_array({2, 4}, 1), random_array({3, 2, 5}, 2), random_array({5, 4}, 3),
                                       random_array({4, 4}, 4)};

TEST(Scan, IsItsStepsWrittenOut) {
  expect_equal<Float<2>, Float<3>, Float<2>, Float<2>>(rnn, rnn_by_hand, rnn_arguments);
}
// torch.logcumsumexp: in each element's own range, and of infinities.
TEST(Scan, Logcumsumexp) {
  const auto f = [](const auto& x) { return ts::logcumsumexp<1>(x); };
  const Array x({3, 4}, {-700, 0, 1, 700, 1, 2, 3, 4, -INFINITY, -INFINITY, 2, INFINITY});
  const Array got = run(trace<decltype(f), Float<2>>().view(), {x}).at(0);
  double sum = 0;
  for (std::int64_t j = 0; j < 4; ++j) {
    sum += std::exp(x.at({1, j}));
    EXPECT_NEAR(got.at({1, j}), std::log(sum), 1e-14);
  }
  EXPECT_NEAR(got.at({0, 0}), -700, 1e-12);
  EXPECT_EQ(got.at({0, 1}), 0);
  EXPECT_NEAR(got.at({0, 2}), std::log(1 + std::exp(1.0)), 1e-14);
  EXPECT_NEAR(got.at({0, 3}), 700, 1e-12);
  EXPECT_EQ(got.at({2, 1}), -INFINITY);
  EXPECT_EQ(got.at({2, 2}), 2);
  EXPECT_EQ(got.at({2, 3}), INFINITY);
  check_gradient<Float<2>>(f, {random_array({2, 4}, 3)});
  check_gradient<Float<2>>([](const auto& v) { return ts::logcumsumexp<0>(v); }, {random_array({3, 2}, 3)});
}
TEST(Scan, HasFirstAndSecondDerivatives) { check_gradient<Float<2>, Float<3>, Float<2>, Float<2>>(rnn, rnn_arguments); }

// An LSTM: a carry of two tensors, and a third of another rank and element type. What is not carried on has no y.
constexpr auto lstm = [](const auto& start, const auto& xs, const auto& w, const auto& u, const auto& counts) {
  const auto [last, outputs] = ts::scan(
      [&](const auto& state, const auto& x) {
        const auto& [h, c, n] = state;
        const auto gates = ts::matmul(x, w) + ts::matmul(h, u);
        const auto [in, forget, cell, out] = ts::chunk<4, 1>(gates);
        const auto next = ts::sigmoid(forget) * c + ts::sigmoid(in) * ts::tanh(cell);
        const auto y = ts::sigmoid(out) * ts::tanh(next);
        return std::tuple(std::tuple(y, next, n + 1), std::pair(y, ts::sum<1>(next)));
      },
      std::tuple(start, start * 0.5, counts), xs, {.reverse = true});
  const auto& [h, c, n] = last;
  return h + c * ts::cast<float>(n) + ts::sum<0>(outputs.first) * 0.25 +
         ts::sum<0>(ts::unsqueeze<2>(outputs.second) * outputs.first);
};
TEST(Scan, CarriesOfSeveralRanksAndElementTypes) {
  check_gradient<Float<2>, Float<3>, Float<2>, Float<2>, Int<0>>(
      lstm,
      {random_array({2, 3}, 1), random_array({4, 2, 5}, 2), random_array({5, 12}, 3), random_array({3, 12}, 4),
       Array::number(2)},
      first_order);
}

TEST(Scan, EqualsCumulativeSumsInBothDirections) {
  expect_equal<Float<2>>(
      [](const auto& x) {
        const auto add = [](const auto& sum, const auto& v) { return std::pair(sum + v, sum + v); };
        const auto zero = ts::zeros_like(ts::sum<0>(x));
        const auto [down, all] = ts::scan(add, zero, x);
        const auto [up, reversed] = ts::scan(add, zero, x, {.reverse = true});
        return std::tuple(down, all, up, reversed);
      },
      [](const auto& x) {
        return std::tuple(ts::sum<0>(x), ts::cumsum<0>(x), ts::sum<0>(x),
                          ts::cumsum<0, ts::CumulativeOptions{.reverse = true}>(x));
      },
      {random_array({5, 3}, 1)}, 2);
}

// A tuple, an array and a number in the carry; values that a step takes from outside, some of them unchanged.
TEST(Scan, TakesStructuresAndCaptures) {
  expect_equal<Float<2>, Float<1>, Int<1>, ts::Scalar, ts::Dim>(
      [](const auto& x, const auto& bias, const auto& ids, const ts::Scalar& rate, const ts::Dim& parts) {
        const auto wide = x * 2.0;
        const auto size = ts::extent<1>(wide) + parts;
        const auto [last, all] = ts::scan(
            [&](const auto& carry, const auto& both) {
              const auto& [sums, count] = carry;
              const auto& [v, id] = both;
              const auto sum = sums[0] + v * rate / size + ts::sum<0>(wide);
              return std::tuple(std::tuple(std::array{sum, bias}, count + 1.5),
                                std::array{v + ts::cast<float>(id), sum});
            },
            std::tuple(std::array{bias, bias * 2.0}, 1.0), std::tuple(x, ids));
        return std::tuple(last, all);
      },
      [](const auto& x, const auto& bias, const auto& ids, const ts::Scalar& rate, const ts::Dim& parts) {
        const auto wide = x * 2.0;
        const auto each = x * rate / (ts::extent<1>(wide) + parts) + ts::sum<0>(wide);
        const auto sums = ts::cumsum<0>(each) + bias;
        return std::tuple(at(sums, 2), bias, ts::sum<0>(ts::ones_like(bias)) * 0.0 + 5.5,
                          x + ts::cast<float>(ts::unsqueeze<1>(ids)), sums);
      },
      {random_array({3, 4}, 1), random_array({4}, 2), Array({3}, {2, 0, 1}), Array::number(0.7), Array::number(5)});
}

TEST(Scan, OfNoSteps) {
  const auto f = [](const auto& x, const auto& xs) {
    const auto [last, all] =
        ts::scan([](const auto& h, const auto& v) { return std::tuple(h * v, std::tuple(v, h)); }, x, xs);
    return std::tuple(last, std::get<0>(all), std::get<1>(all), ts::sum(std::get<1>(all)));
  };
  const Program program = trace<decltype(f), Float<1>, Float<2>>();
  const std::vector<ts::Shape> arguments{{4}, {0, 4}};
  const auto found = ts::infer_shapes(program.view(), arguments.data(), nullptr);
  EXPECT_EQ(found[0].shapes[static_cast<std::size_t>(program.main().outputs[2])], (Shape{0, 4}));
}

// ---- bodies with repeats inside, and repeats of Stacks

// The gradient of an inner scan stores what it needs for each step of the outer one.
constexpr auto nested = [](const auto& h0, const auto& xs, const auto& w) {
  const auto [last, all] = ts::scan(
      [&](const auto& h, const auto& rows) {
        const auto inner = ts::scan(
            [&](const auto& carry, const auto& row) {
              const auto next = ts::tanh(ts::matmul(carry, w) + row * h);
              return std::tuple(next, next * row);
            },
            h, rows, {.reverse = true});
        return std::tuple(std::get<0>(inner) * 0.5 + h, std::get<1>(inner));
      },
      h0, xs);
  return last + ts::sum<0, 1>(all);
};
constexpr auto nested_by_hand = [](const auto& h0, const auto& xs, const auto& w) {
  const auto outer = [&](const auto& h, int t) {
    const auto a = ts::tanh(ts::matmul(h, w) + at(at(xs, t), 1) * h);
    const auto b = ts::tanh(ts::matmul(a, w) + at(at(xs, t), 0) * h);
    return std::pair(b * 0.5 + h, a * at(at(xs, t), 1) + b * at(at(xs, t), 0));
  };
  const auto a = outer(h0, 0), b = outer(a.first, 1), c = outer(b.first, 2);
  return c.first + a.second + b.second + c.second;
};
const std::vector<Array> nested_arguments{random_array({2, 3}, 1), random_array({3, 2, 2, 3}, 2),
                                          random_array({3, 3}, 3)};
TEST(Scan, InsideAnother) {
  expect_equal<Float<2>, Float<4>, Float<2>>(nested, nested_by_hand, nested_arguments, 2);
  check_gradient<Float<2>, Float<4>, Float<2>>(nested, nested_arguments);
}

struct Recurrent {
  Float<2> in, back;
  constexpr auto operator()(const auto& xs) const {
    const auto step = [&](const auto& h, const auto& x) {
      const auto next = ts::tanh(ts::matmul(x, in) + ts::matmul(h, back));
      return std::tuple(next, next);
    };
    return std::get<1>(ts::scan(step, ts::zeros_like(ts::sum<0>(xs)), xs)) + xs;
  }
};
struct OfRecurrent {
  constexpr auto operator()(const auto& weights, const auto& net, const auto& xs) const {
    return ts::value_and_grad([](const auto& both, const auto& w) {
      return ts::sum(std::get<0>(both)(std::get<1>(both)) * w);
    })(std::tuple(net, xs), weights);
  }
};
TEST(Scan, InTheLayersOfAStack) {
  const Program program = trace<OfRecurrent, Float<3>, ts::Stack<Recurrent>, Float<3>>();
  EXPECT_EQ(program.count(Op::repeat), 4);
  const std::vector<Array> arguments{random_array({4, 2, 3}, 1), random_array({2, 3, 3}, 2), random_array({2, 3, 3}, 3),
                                     random_array({4, 2, 3}, 4)};
  const auto got = run(program.view(), arguments);
  const auto value = [&](const std::vector<Array>& x) { return run(program.view(), x).at(0).data[0]; };
  for (std::size_t k = 1; k < 4; ++k) expect_near(got.at(k), finite_difference(value, arguments, k), 1e-6);
}

// Layers with a cache each, as of a decoder: scanned over together, the new caches are returned layer by layer.
struct Layer {
  Float<2> weight;
  constexpr auto operator()(const auto& x) const { return ts::tanh(ts::matmul(x, weight)); }
};
struct Cache {
  Float<2> sum;
  Float<1> scale;
};
struct Decode {
  constexpr auto operator()(const ts::Stack<Layer>& layers, const ts::Stack<Cache>& caches, const auto& x) const {
    const auto step = [](const auto& v, const auto& both) {
      const auto& [layer, cache] = both;
      const auto next = layer(v) * cache.scale;
      return std::tuple(next + v, Cache{cache.sum + next, cache.scale * 0.5});
    };
    return ts::scan(step, x, std::tuple(layers, caches));
  }
};
struct DecodeGradient {
  constexpr auto operator()(const auto& weights, const ts::Stack<Layer>& layers, const ts::Stack<Cache>& caches,
                            const auto& x) const {
    return ts::value_and_grad([](const auto& all, const auto& w) {
      const auto [y, next] = std::apply(Decode(), all);
      const auto again = Decode()(std::get<0>(all), next, y);
      return ts::sum(std::get<0>(again) * w);
    })(std::tuple(layers, caches, x), weights);
  }
};
TEST(Scan, OverALayerAndACacheAtOnce) {
  const Program program = compiled<Decode, ts::Stack<Layer>, ts::Stack<Cache>, Float<2>>();
  EXPECT_EQ(program.count(Op::repeat), 1);
  const Array weight = random_array({3, 2, 2}, 1), sum = random_array({3, 4, 2}, 2), scale = random_array({3, 2}, 3),
              x = random_array({4, 2}, 4);
  const auto got = run(program.view(), {weight, sum, scale, x});
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[1].shape, sum.shape);
  for (std::size_t i = 0; i < scale.data.size(); ++i) EXPECT_EQ(got[2].data[i], 0.5 * scale.data[i]);
  std::vector<double> v = x.data;
  for (std::size_t l = 0; l < 3; ++l) {
    std::vector<double> next(8);
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t row = i / 2, column = i % 2;
      double product = 0;
      for (std::size_t k = 0; k < 2; ++k) product += v[row * 2 + k] * weight.data[l * 4 + k * 2 + column];
      next[i] = std::tanh(product) * scale.data[l * 2 + column];
      EXPECT_NEAR(got[1].data[l * 8 + i], sum.data[l * 8 + i] + next[i], 1e-12);
    }
    for (std::size_t i = 0; i < 8; ++i) v[i] += next[i];
  }
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(got[0].data[i], v[i], 1e-12);

  const Program gradient = compiled<DecodeGradient, Float<2>, ts::Stack<Layer>, ts::Stack<Cache>, Float<2>>();
  const std::vector<Array> arguments{random_array({4, 2}, 5), weight, sum, scale, x};
  const auto slopes = run(gradient.view(), arguments);
  const auto value = [&](const std::vector<Array>& all) { return run(gradient.view(), all).at(0).data[0]; };
  for (std::size_t k = 1; k < 5; ++k) expect_near(slopes.at(k), finite_difference(value, arguments, k), 1e-6);
}

// A model with a Stack as the carry: several steps of descent in one loop.
TEST(Scan, CarriesAModel) {
  const auto train = [](const ts::Stack<Layer>& net, const auto& batches, const ts::Scalar& rate) {
    return ts::scan(
        [&](const auto& model, const auto& x) {
          const auto [loss, gradient] = ts::value_and_grad([](const auto& f, const auto& v) {
            const auto y = f(v);
            return ts::sum(y * y);
          })(model, x);
          auto next = model;
          next[0].weight = model[0].weight - gradient[0].weight * rate;
          return std::tuple(next, loss);
        },
        net, batches);
  };
  const auto one = [](const ts::Stack<Layer>& net, const auto& x, const ts::Scalar& rate) {
    const auto [loss, gradient] = ts::value_and_grad([](const auto& f, const auto& v) {
      const auto y = f(v);
      return ts::sum(y * y);
    })(net, x);
    auto next = net;
    next[0].weight = net[0].weight - gradient[0].weight * rate;
    return std::tuple(next, loss);
  };
  const Program scanned = compiled<decltype(train), ts::Stack<Layer>, Float<3>, ts::Scalar>();
  const Program step = compiled<decltype(one), ts::Stack<Layer>, Float<2>, ts::Scalar>();
  Array weight = random_array({2, 3, 3}, 1);
  const Array batches = random_array({4, 2, 3}, 2), rate = Array::number(0.1);
  const auto got = run(scanned.view(), {weight, batches, rate});
  for (std::size_t t = 0; t < 4; ++t) {
    Array batch({2, 3});
    std::copy_n(batches.data.begin() + static_cast<std::ptrdiff_t>(6 * t), 6, batch.data.begin());
    const auto made = run(step.view(), {weight, batch, rate});
    weight = made[0];
    EXPECT_NEAR(got[1].data[t], made[1].data[0], 1e-12);
  }
  expect_near(got[0], weight, 1e-12);
}

// ---- errors

template <class F, class... Args> std::string trace_error() {
  try {
    trace<F, Args...>();
  } catch (const ts::error& e) {
    return e.what();
  }
  return "no error";
}
TEST(Scan, RejectsACarryOfAnotherShape) {
  const auto kept = [](const auto& x, const auto& xs) {
    return std::get<0>(ts::scan(
        [](const auto& h, const auto& v) { return std::tuple(ts::sum<0>(h * v, ts::keepdims), std::tuple()); }, x, xs));
  };
  EXPECT_NE((trace_error<decltype(kept), Float<2>, Float<3>>().find(
                "[scan] carry: a step must return the shape of its carry, but here only one")),
            std::string::npos);
  const auto doubled = [](const auto& x, const auto& xs) {
    return std::get<0>(
        ts::scan([](const auto& h, const auto& v) { return std::tuple(ts::concat<0>(h, v), std::tuple()); }, x, xs));
  };
  const Program program = trace<decltype(doubled), Float<1>, Float<2>>();
  const std::vector<ts::Shape> arguments{{4}, {3, 4}};
  try {
    ts::infer_shapes(program.view(), arguments.data(), nullptr);
    FAIL() << "no error";
  } catch (const ts::error& e) {
    EXPECT_EQ(e.id(), ts::errc::shape_mismatch);
    EXPECT_NE(std::string(e.what()).find(
                  "[scan] carry: a step must return the shape of its carry f32[4], but returns f32[8]"),
              std::string::npos)
        << e.what();
  }
  const auto second = [](const auto& x, const auto& xs) {
    return std::get<0>(ts::scan(
        [](const auto& h, const auto&) {
          return std::tuple(std::pair(h.first, ts::concat<0>(h.second, h.second)), std::tuple());
        },
        std::pair(x, x), xs));
  };
  const Program of_two = trace<decltype(second), Float<1>, Float<2>>();
  tessera_test::expect_error(
      ts::errc::shape_mismatch, [&] { ts::infer_shapes(of_two.view(), arguments.data(), nullptr); },
      "shape of its carry f32[4], but returns f32[8] as tensor 1 of it at ", "scan_test.cpp:");
}
TEST(Scan, RejectsStepsOfUnequalNumber) {
  const auto f = [](const auto& x, const auto& a, const auto& b, const ts::Dim& n) {
    const auto both =
        ts::scan([](const auto& h, const auto& v) { return std::tuple(h + v.first * v.second, std::tuple()); }, x,
                 std::pair(a, b));
    return ts::fori_loop(
        0, n, [](const auto&, const auto& v) { return v * 2.0; }, std::get<0>(both));
  };
  const Program program = trace<decltype(f), Float<1>, Float<2>, Float<2>, ts::Dim>();
  const auto message = [&](std::int64_t other, std::int64_t steps) -> std::string {
    const std::vector<ts::Shape> arguments{{4}, {3, 4}, {other, 4}, {}};
    const std::vector<ts::HostNumber> numbers(4, steps);
    try {
      ts::infer_shapes(program.view(), arguments.data(), numbers.data());
    } catch (const ts::error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(3, 2), "no error");
  EXPECT_EQ(message(3, 0), "no error");
  EXPECT_NE(message(2, 2).find(
                "[scan] steps: the leading dims of xs must have one extent, but xs have f32[3,4] and f32[2,4]"),
            std::string::npos);
}
TEST(Scan, RejectsValuesThatLeaveTheirBody) {
  const auto leaks = [](const auto& x, const auto& xs) {
    auto leaked = x;
    const auto last = ts::scan(
        [&](const auto& h, const auto& v) {
          leaked = h * v;
          return std::tuple(leaked, std::tuple());
        },
        x, xs);
    return std::get<0>(last) + leaked;
  };
  EXPECT_NE(
      (trace_error<decltype(leaks), Float<1>, Float<2>>().find("[scan] result: a value that was computed in a body")),
      std::string::npos);
  EXPECT_THROW(ts::scan([](const auto& h, const auto& v) { return std::tuple(h + v, h); }, ts::Sym<float, 0>(),
                        ts::Sym<float, 1>()),
               ts::error);
}

// As jax.lax.associative_scan: the function sees whole tensors, in reverse the later element comes first. The functions
// do not commute. A scan computes the same, one element after the other.
constexpr auto affine = [](const auto& x, const auto& y) {
  return std::pair(y.first * x.first, y.first * x.second + y.second);
};
constexpr auto product = [](const auto& x, const auto& y) { return ts::matmul(x, y); };
constexpr auto recurrences = [](const auto& a, const auto& b, const auto& matrices) {
  const auto by_columns = [](const auto& x, const auto& y) { return std::tuple(std::get<0>(x) * std::get<0>(y)); };
  const auto turned = [](const auto& x) { return ts::transpose<1, 0>(x); };
  const auto forward = ts::associative_scan(affine, std::pair(a, b));
  const auto columns = ts::associative_scan<-1>(affine, std::pair(turned(a), turned(b)), {.reverse = true});
  return std::tuple(forward.first, forward.second, turned(columns.second), ts::associative_scan(product, matrices),
                    ts::associative_scan(product, matrices, {.reverse = true}),
                    std::get<0>(ts::associative_scan(by_columns, std::tuple(ts::sum<1>(a)))));
};
constexpr auto recurrences_by_steps = [](const auto& a, const auto& b, const auto& matrices) {
  const auto linear = [](const auto& h, const auto& x) {
    const auto next = std::get<0>(x) * h + std::get<1>(x);
    return std::tuple(next, next);
  };
  const auto powers = [](const auto& h, const auto& x) { return std::tuple(h * x, h * x); };
  const auto zero = ts::zeros_like(ts::sum<0>(a)), one = ts::ones_like(ts::sum<0>(a));
  const auto identity = ts::cast<float>(
      ts::equal(ts::iota<0, std::int32_t>(ts::sum<0>(matrices)), ts::iota<1, std::int32_t>(ts::sum<0>(matrices))));
  const auto later = [](const auto& h, const auto& x) { return std::tuple(ts::matmul(h, x), ts::matmul(h, x)); };
  return std::tuple(std::get<1>(ts::scan(powers, one, a)), std::get<1>(ts::scan(linear, zero, std::tuple(a, b))),
                    std::get<1>(ts::scan(linear, zero, std::tuple(a, b), {.reverse = true})),
                    std::get<1>(ts::scan(later, identity, matrices)),
                    std::get<1>(ts::scan(later, identity, matrices, {.reverse = true})), ts::cumprod<0>(ts::sum<1>(a)));
};
TEST(AssociativeScan, IsAScanOfEachLength) {
  const Program program = trace<decltype(recurrences), Float<2>, Float<2>, Float<3>>();
  const Program steps = trace<decltype(recurrences_by_steps), Float<2>, Float<2>, Float<3>>();
  for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 17}) {
    const std::vector<Array> arguments{random_array({n, 3}, 1, 0.5, 1.5), random_array({n, 3}, 2),
                                       random_array({n, 2, 2}, 3)};
    const auto got = run(program.view(), arguments), want = run(steps.view(), arguments);
    for (std::size_t k = 0; k < want.size(); ++k)
      expect_near(got[k], want[k], 1e-12, std::to_string(n) + " " + std::to_string(k));
  }
  const Array a({3}, {2, 3, 5});
  const auto quotients = [](const auto& x) {  // not associative in this order, but of two elements defined
    return ts::associative_scan([](const auto& first, const auto& second) { return first - second * 10.0; },
                                ts::slice<0>(x, 0, 2), {.reverse = true});
  };
  expect_near(results_of<Float<1>>(quotients, {a})[0], Array({2}, {3 - 20, 3}), 1e-12);
}
TEST(AssociativeScan, HasGradients) {
  constexpr auto f = [](const auto& a, const auto& b, const auto& matrices) {
    const auto all = recurrences(a, b, matrices);
    return ts::sum(std::get<1>(all) * std::get<2>(all)) + ts::sum(std::get<3>(all) * std::get<4>(all)) +
           ts::sum(std::get<5>(all));
  };
  check_gradient<Float<2>, Float<2>, Float<3>>(
      f, {random_array({5, 2}, 1, 0.5, 1.5), random_array({5, 2}, 2), random_array({5, 2, 2}, 3)}, first_order);
}
// The function is also computed for elements without another one to combine with. Its slopes there, of hypot(0, 0) NaN,
// are not those of the scan.
constexpr auto hypotenuses = [](const auto& x) {
  const auto slopes = [&](ts::ScanOptions options) {
    return ts::grad([&](const auto& v) {
      return ts::sum(
          ts::associative_scan([](const auto& a, const auto& b) { return ts::sqrt(a * a + b * b); }, v, options));
    })(x);
  };
  return std::tuple(slopes({}), slopes({.reverse = true}));
};
TEST(AssociativeScan, GradientsOfItsElementsOnly) {
  const double root = std::sqrt(26.0);  // of y = (0, 3, 5, sqrt(26)) and, in reverse, (sqrt(26), sqrt(26), sqrt(17), 1)
  const std::vector<Array> got = results_of<Float<1>>(hypotenuses, {Array({4}, {0, 3, 4, 1})});
  expect_near(got[0], Array({4}, {1, 1 + 3 / 5. + 3 / root, 4 / 5. + 4 / root, 1 / root}), 1e-12);
  const std::vector<Array> turned = results_of<Float<1>>(hypotenuses, {Array({4}, {1, 4, 3, 0})});
  expect_near(turned[1], Array({4}, {1 / root, 4 / 5. + 4 / root, 1 + 3 / 5. + 3 / root, 1}), 1e-12);
}
TEST(AssociativeScan, TracesItsFunctionOnce) {
  constexpr auto f = [](const auto& x) {
    return ts::associative_scan([](const auto& a, const auto& b) { return ts::tanh(a) + b; }, x);
  };
  const Program program = trace<decltype(f), Float<2>>();
  EXPECT_EQ(program.count(Op::tanh), 1);
  EXPECT_EQ(program.count(Op::repeat), 1);
  const auto outside = [] {
    return ts::associative_scan([](const auto& a, const auto& b) { return a + b; }, ts::Sym<float, 1>());
  };
  EXPECT_THROW(outside(), ts::error);
}

}  // namespace
