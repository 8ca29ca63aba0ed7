#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../../support/gradients.hpp"

#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

constexpr auto layer = [](const auto& x, const auto& w) { return ts::tanh(ts::matmul(x, w)) * 2.0; };
const Array x = random_array({3, 4}, 1), w = random_array({4, 2}, 2), v = random_array({3, 4}, 3),
            u = random_array({4, 2}, 4), c = random_array({3, 2}, 5);

double inner(const Array& a, const Array& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) sum += a.data[i] * b.data[i];
  return sum;
}

TEST(Derivatives, VjpAndJvpOfTwoArgumentsAreTransposes) {
  constexpr auto both = [](const auto& a, const auto& b, const auto& da, const auto& db, const auto& cotangent) {
    const auto [y, pullback] = ts::vjp(layer, a, b);
    const auto [ga, gb] = pullback(cotangent);
    const auto [same, tangent] = ts::jvp(layer, std::tuple(a, b), std::tuple(da, db));
    const auto [again, push] = ts::linearize(layer, a, b);
    const auto [gc, gd] = pullback(cotangent * 2.0);
    return std::tuple(y, ga, gb, same, tangent, push(da, db), gc, again);
  };
  const Program program = trace<decltype(both), Float<2>, Float<2>, Float<2>, Float<2>, Float<2>>();
  const auto out = run(program.view(), {x, w, v, u, c});
  const Program forward = trace<decltype(layer), Float<2>, Float<2>>();
  const auto f = [&](const std::vector<Array>& at) { return run(forward.view(), at).at(0); };
  expect_near(out[0], f({x, w}), 1e-12);
  expect_near(out[3], out[0], 1e-12);
  expect_near(out[4], along(f, {x, w}, {v, u}), 1e-8);
  expect_near(out[5], out[4], 1e-12);
  EXPECT_NEAR(inner(out[1], v) + inner(out[2], u), inner(c, out[4]), 1e-12);
  EXPECT_NEAR(inner(out[6], v), 2 * inner(out[1], v), 1e-12);
  expect_near(out[7], out[0], 1e-12);
}

// A tuple of a tuple is one argument, a model for instance: f(a, b) = sum(a² b).
TEST(Derivatives, TakeAnArgumentThatIsATuple) {
  constexpr auto both = [](const auto& a, const auto& b, const auto& da, const auto& db) {
    const auto f = [](const auto& model) {
      return ts::sum(std::get<0>(model) * std::get<0>(model) * std::get<1>(model));
    };
    const std::tuple model(a, b), tangent(da, db);
    using Model = std::remove_const_t<decltype(model)>;
    const auto [y, along] = ts::jvp(f, std::tuple<Model>(model), std::tuple<Model>(tangent));
    const auto [of_a, of_b] = ts::hvp(f, std::tuple<Model>(model), std::tuple<Model>(tangent));
    return std::tuple(y, along, of_a, of_b);
  };
  const Program program = trace<decltype(both), Float<1>, Float<1>, Float<1>, Float<1>>();
  const auto out =
      run(program.view(), {Array({2}, {1, 2}), Array({2}, {3, 4}), Array({2}, {5, 6}), Array({2}, {7, 8})});
  EXPECT_EQ(out[0].data, (std::vector<double>{19}));                                            // 3 + 16
  EXPECT_EQ(out[1].data, (std::vector<double>{2 * 3 * 5 + 7 + 2 * 2 * 4 * 6 + 4 * 8}));         // 2 a b da + a² db
  EXPECT_EQ(out[2].data, (std::vector<double>{2 * 3 * 5 + 2 * 1 * 7, 2 * 4 * 6 + 2 * 2 * 8}));  // 2 b da + 2 a db
  EXPECT_EQ(out[3].data, (std::vector<double>{2 * 1 * 5, 2 * 2 * 6}));                          // 2 a da
}

// The cotangent on which a jvp is built, and what only it needs, are not in the program.
TEST(Derivatives, AJvpHasOnlyWhatItNeeds) {
  constexpr auto tangent = [](const auto& a, const auto& b, const auto& da) {
    return std::get<1>(ts::jvp([&](const auto& in) { return ts::matmul(in, b); }, a, da));
  };
  const Program linear = trace<decltype(tangent), Float<2>, Float<2>, Float<2>>();
  EXPECT_EQ(linear.count(Op::einsum), 1);
  EXPECT_EQ(linear.count(Op::variable), 0);
  constexpr auto deep = [](const auto& a, const auto& b, const auto& da) {
    return ts::jvp([&](const auto& in) { return ts::matmul(ts::tanh(ts::matmul(in, b)), b); }, a, da);
  };
  const Program two = trace<decltype(deep), Float<2>, Float<2>, Float<2>>();
  EXPECT_EQ(two.count(Op::einsum), 4);  // two of f and two of its derivative
  EXPECT_EQ(two.count(Op::tanh), 1);
}

TEST(Derivatives, OfChosenArgumentsAndWithAuxiliaryResults) {
  constexpr auto f = [](const auto& a, const auto& b, const auto& d) {
    const auto loss = [](const auto& p, const auto& q, const auto& r) {
      const auto y = ts::tanh(ts::matmul(p, q));
      return ts::sum(y * y) + ts::sum(p * r);
    };
    const auto with_aux = [](const auto& p, const auto& q) {
      const auto y = ts::matmul(p, q);
      return std::tuple(ts::sum(ts::sin(y)), y);
    };
    const auto with_two = [&](const auto& p, const auto& q) {
      const auto [l, y] = with_aux(p, q);
      return std::tuple(l, y, y * 2.0);
    };
    const auto [value, both] = ts::value_and_grad<0, 1>(loss)(a, b, d);
    const auto of_b = ts::grad<1>(loss)(a, b, d);
    const auto swapped = ts::grad<2, 0>(loss)(a, b, d);
    const auto [slope, y] = ts::grad(with_aux, ts::has_aux)(a, b);
    const auto [same, two] = ts::grad(with_two, ts::has_aux)(a, b);
    return std::tuple(std::get<0>(both), ts::grad([&](const auto& own) { return loss(own, b, d); })(a),
                      std::get<1>(both), of_b, of_b, ts::grad([&](const auto& own) { return loss(a, own, d); })(b),
                      std::get<0>(swapped), a * 1.0, std::get<1>(swapped), std::get<0>(both), value, loss(a, b, d),
                      slope, ts::grad([&](const auto& own) { return std::get<0>(with_aux(own, b)); })(a), y,
                      ts::matmul(a, b), same, slope, std::get<1>(two), y * 2.0);
  };
  const auto out = results_of<Float<2>, Float<2>, Float<2>>(f, {x, w, v});
  for (std::size_t k = 0; k < out.size(); k += 2) expect_near(out[k], out[k + 1], 1e-12, std::to_string(k));
}

// An equal value that is not the argument is a constant, as in JAX.
TEST(Derivatives, OnlyTheArgumentVaries) {
  constexpr auto f = [](const auto& a) {
    const auto captured = ts::grad([&](const auto& own) { return ts::sum(own * a); })(a);
    const auto rest = ts::grad([](const auto& own, const auto& other) { return ts::sum(own * other); })(a, a);
    const auto stopped = ts::grad([](const auto& own) { return ts::sum(own * ts::stop_gradient(own)); })(a);
    const auto of_expression = ts::grad([&](const auto& own) { return ts::sum(own * own * a); })(a * 2.0);
    return std::tuple(captured, rest, stopped, of_expression);
  };
  const auto out = run(trace<decltype(f), Float<1>>().view(), {Array({2}, {3, 5})});
  for (int k = 0; k < 3; ++k) expect_near(out[static_cast<std::size_t>(k)], Array({2}, {3, 5}), 1e-12);
  expect_near(out[3], Array({2}, {36, 100}), 1e-12);
}

// Loops and branches: tangents against differences, second derivatives against differences of the first.
struct Block {
  ts::ShardedTensor<float, 2> weight;
  constexpr auto operator()(const auto& in) const { return ts::tanh(ts::matmul(in, weight)) + in; }
};
constexpr auto looped = [](const auto& h0, const auto& xs, const auto& weight) {
  const auto [last, all] = ts::scan(
      [&](const auto& h, const auto& in) {
        const auto next = ts::tanh(ts::matmul(h, weight) + in);
        return std::tuple(next, next * next);
      },
      h0, xs);
  const auto y = ts::sum<0>(all) + last;
  return ts::cond(
      ts::sum(y) > 100.0, [&] { return y * 0.0; }, [&] { return y * y; });
};
TEST(Derivatives, GoThroughLoopsAndBranches) {
  constexpr auto f = [](const auto& h0, const auto& xs, const auto& weight, const auto& d0, const auto& d1,
                        const auto& d2) {
    const auto [y, t] = ts::jvp(looped, std::tuple(h0, xs, weight), std::tuple(d0, d1, d2));
    const auto loss = [&](const auto& own) { return ts::sum(looped(h0, xs, own)); };
    return std::tuple(y, t, ts::grad(loss)(weight), ts::hvp(loss, weight, d2));
  };
  const Program program = trace<decltype(f), Float<2>, Float<3>, Float<2>, Float<2>, Float<3>, Float<2>>();
  const std::vector<Array> at{random_array({2, 3}, 1), random_array({4, 2, 3}, 2), random_array({3, 3}, 3)},
      direction{random_array({2, 3}, 4), random_array({4, 2, 3}, 5), random_array({3, 3}, 6)};
  const auto all = [&](std::vector<Array> arguments) {
    arguments.insert(arguments.end(), direction.begin(), direction.end());
    return run(program.view(), arguments);
  };
  const auto out = all(at);
  expect_near(out[1], along([&](const auto& a) { return all(a)[0]; }, at, direction), 1e-8);
  const std::vector<Array> only_weight{Array({2, 3}, 0), Array({4, 2, 3}, 0), direction[2]};
  expect_near(out[3], along([&](const auto& a) { return all(a)[2]; }, at, only_weight), 1e-8);
}

TEST(Derivatives, GoThroughStacks) {
  constexpr auto f = [](const auto& blocks, const auto& in, const auto& d) {
    const auto run_all = [&](const auto& own) { return blocks(own); };
    const auto [y, t] = ts::jvp(run_all, in, d);
    const auto [same, pullback] = ts::vjp([](const auto& model, const auto& own) { return model(own); }, blocks, in);
    const auto [of_blocks, of_in] = pullback(d);
    return std::tuple(y, t, of_in, of_blocks);
  };
  const Program program = trace<decltype(f), ts::Stack<Block>, Float<2>, Float<2>>();
  const Array weights = random_array({3, 4, 4}, 7), in = random_array({2, 4}, 8), d = random_array({2, 4}, 9);
  const auto out = run(program.view(), {weights, in, d});
  const auto y = [&](const auto& a) { return run(program.view(), {a[0], a[1], d})[0]; };
  expect_near(out[1], along(y, {weights, in}, {Array({3, 4, 4}, 0), d}), 1e-8);
  const auto loss = [&](const std::vector<Array>& a) { return inner(y(a), d); };
  expect_near(out[3], finite_difference(loss, {weights, in}, 0), 1e-8);
  expect_near(out[2], finite_difference(loss, {weights, in}, 1), 1e-8);
}

// As jax.grad and torch's backward: no NaN where a factor is infinite or where nothing is left.
TEST(Derivatives, HaveValuesAtEdges) {
  constexpr auto f = [](const auto& a, const ts::Scalar& rate) {
    const auto dropped = ts::grad([&](const auto& own) { return ts::sum(ts::dropout(own, rate, 3)); })(a);
    const auto largest = ts::grad([](const auto& own) { return ts::max(own); })(a);
    const auto kinks = ts::grad([](const auto& own) { return ts::sum(ts::relu(own) + ts::abs(own)); })(a * 0.0);
    return std::tuple(dropped, largest, kinks);
  };
  const auto out = run(trace<decltype(f), Float<1>, ts::Scalar>().view(), {Array({3}, {2, 5, 5}), Array::number(1)});
  expect_near(out[0], Array({3}, {0, 0, 0}), 1e-12);
  expect_near(out[1], Array({3}, {0, 0.5, 0.5}), 1e-12);
  expect_near(out[2], Array({3}, {0, 0, 0}), 1e-12);
}

TEST(Derivatives, StructuresMustMatch) {
  constexpr auto cotangent = [](const auto& a) {
    return std::get<1>(ts::vjp([](const auto& b) { return b * b; }, a))(1.0);
  };
  constexpr auto wrong = [](const auto& a) {
    return std::get<1>(ts::vjp([](const auto& b) { return b * b; }, a))(std::tuple(a, a));
  };
  constexpr auto tangent = [](const auto& a) {
    return std::get<1>(ts::jvp([](const auto& b) { return b * b; }, a, ts::sum(a)));
  };
  const auto out = run(trace<decltype(cotangent), Float<1>>().view(), {Array({2}, {3, 4})});
  expect_near(out[0], Array({2}, {6, 8}), 1e-12);
  const auto refused = [](auto f, const char* text) {
    try {
      trace<decltype(f), Float<1>>();
      FAIL();
    } catch (const ts::error& error) {
      EXPECT_EQ(error.id(), ts::errc::structure);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  };
  refused(wrong, "[vjp] cotangent");
  refused(tangent, "[jvp] tangents");
}

// A checkpoint recomputes what its policy does not store, in graphs of all kinds; values and derivatives are equal.
template <class Wrap> constexpr auto two_layers(const auto& in, const auto& weight, Wrap wrap) {
  const auto block = [](const auto& h, const auto& own) { return ts::tanh(ts::matmul(ts::exp(h * 0.5), own)); };
  const auto first = wrap(block)(in, weight);
  return ts::sum(wrap(block)(first, weight) * first);
}
constexpr auto unchanged = [](const auto& f) { return f; };
constexpr auto checkpointed = [](const auto& f) { return ts::checkpoint(f); };
TEST(Checkpoints, RecomputeAndKeepDerivatives) {
  constexpr auto plain = [](const auto& a, const auto& b, const auto& d) {
    const auto f = [](const auto& p, const auto& q) { return two_layers(p, q, unchanged); };
    return std::tuple(ts::value_and_grad(f)(b, a), ts::hvp(f, std::tuple(a, b), std::tuple(d, b)));
  };
  constexpr auto again = [](const auto& a, const auto& b, const auto& d) {
    const auto f = [](const auto& p, const auto& q) { return two_layers(p, q, checkpointed); };
    return std::tuple(ts::value_and_grad(f)(b, a), ts::hvp(f, std::tuple(a, b), std::tuple(d, b)));
  };
  const std::vector<Array> arguments{random_array({3, 3}, 1), random_array({3, 3}, 2), random_array({3, 3}, 3)};
  const auto want = run(trace<decltype(plain), Float<2>, Float<2>, Float<2>>().view(), arguments);
  const Program program = trace<decltype(again), Float<2>, Float<2>, Float<2>>();
  const auto got = run(program.view(), arguments);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], 1e-12, std::to_string(k));
  EXPECT_GT(program.count(Op::barrier), 0);
}

// The backward pass of a Stack with a checkpoint in its block keeps the input of each layer, and nothing else.
template <bool Checkpoint> struct Deep {
  ts::ShardedTensor<float, 2> weight;
  constexpr auto operator()(const auto& in) const {
    const auto block = [](const auto& h, const auto& own) {
      return ts::tanh(ts::matmul(ts::tanh(ts::matmul(h, own)), own)) + h;
    };
    if constexpr (Checkpoint)
      return ts::checkpoint(block)(in, weight);
    else
      return block(in, weight);
  }
};
constexpr auto of_stack = [](const auto& blocks, const auto& in) {
  return ts::value_and_grad([](const auto& model, const auto& own) { return ts::sum(model(own) * own); })(blocks, in);
};
/// The same with a norm, whose gradient is given as that of a ts::custom_vjp: what it reads is computed again too.
template <bool Checkpoint> struct DeepNorm {
  ts::ShardedTensor<float, 2> weight;
  constexpr auto operator()(const auto& in) const {
    const auto block = [](const auto& h, const auto& own) {
      return ts::tanh(ts::batch_norm(ts::matmul(h, own), ts::sum<0>(own), ts::mean<0>(own))) + h;
    };
    if constexpr (Checkpoint)
      return ts::checkpoint(block)(in, weight);
    else
      return block(in, weight);
  }
};
template <template <bool> class Layer> void expect_kept_inputs() {
  const Program plain = trace<decltype(of_stack), ts::Stack<Layer<false>>, Float<2>>(),
                again = trace<decltype(of_stack), ts::Stack<Layer<true>>, Float<2>>();
  const std::vector<Array> arguments{random_array({3, 4, 4}, 7), random_array({2, 4}, 8)};
  const auto want = run(plain.view(), arguments), got = run(again.view(), arguments);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) expect_near(got[k], want[k], 1e-12, std::to_string(k));
  const auto kept = [](const Program& program) {  // the carried value, and what is stored for each layer
    const GraphView& forward = program.graphs.at(1);
    return forward.output_count - 1;
  };
  EXPECT_EQ(kept(again), 1);
  EXPECT_GT(kept(plain), 1);
}
TEST(Checkpoints, AStackKeepsTheInputsOfItsLayers) {
  expect_kept_inputs<Deep>();
  expect_kept_inputs<DeepNorm>();
}

constexpr auto twice = [](const auto& a) { return a * 2.0; };
// Without the comparison, what is computed of an operand of other extents would have these extents.
TEST(Derivatives, CotangentsAndTangentsOfOtherExtentsAreRefused) {
  constexpr auto vjp = [](const auto& a, const auto& g) { return std::get<1>(ts::vjp(twice, a))(g); };
  constexpr auto jvp = [](const auto& a, const auto& d) { return std::get<1>(ts::jvp(twice, a, d)); };
  constexpr auto push = [](const auto& a, const auto& d) { return std::get<1>(ts::linearize(twice, a))(d); };
  constexpr auto push_in_loop = [](const auto& a, const auto& d) {
    const auto pushed = std::get<1>(ts::linearize(twice, a));
    return ts::fori_loop(
        0, 3, [&](const auto&, const auto& v) { return pushed(v); }, d);
  };
  constexpr auto push_in_nested_loops = [](const auto& a, const auto& d) {
    const auto pushed = std::get<1>(ts::linearize(twice, ts::sin(a)));
    const auto inner = [&](const auto&, const auto& v) { return pushed(v); };
    return ts::fori_loop(
        0, 3, [&](const auto&, const auto& v) { return ts::fori_loop(0, 2, inner, v); }, d);
  };
  constexpr auto pull_in_loop = [](const auto& a, const auto& g) {
    const auto pullback = std::get<1>(ts::vjp(twice, a));
    return ts::fori_loop(
        0, 3, [&](const auto&, const auto& v) { return pullback(v); }, g);
  };
  constexpr auto hvp = [](const auto& a, const auto& d) {
    return ts::hvp([](const auto& q) { return ts::sum(q * q); }, a, d);
  };
  constexpr auto custom = [](const auto& a, const auto& g) {
    const auto identity = ts::custom_vjp([](const auto& q) { return std::tuple(q * 1.0, std::tuple()); },
                                         [&](const auto&, const auto&) { return g; });
    return ts::grad([&](const auto& q) { return ts::sum(identity(q)); })(a);
  };
  const auto message = [](const auto& function, std::int64_t rows) -> std::string {
    try {
      ts::plan(function, ts::Mesh({{"data", 2}}), ts::abstract<float>({5, 3}, {"data"}),
               ts::abstract<float>({rows, 3}));
    } catch (const ts::error& error) {
      EXPECT_EQ(error.id(), ts::errc::shape_mismatch);
      return error.what();
    }
    return "";
  };
  const std::string shapes = ": f32[4,3] x f32[5,3]";
  const auto expect_refused = [&](const auto& function, const std::string& rule) {
    EXPECT_EQ(message(function, 5), "");
    EXPECT_EQ(message(function, 4).find(rule + shapes), 0u) << message(function, 4);
  };
  expect_refused(vjp, "[vjp] a cotangent must have the shape of the function's result");
  expect_refused(jvp, "[jvp] a tangent must have the shape of its argument");
  expect_refused(push, "[jvp] a tangent must have the shape of its argument");
  expect_refused(push_in_loop, "[jvp] a tangent must have the shape of its argument");
  expect_refused(push_in_nested_loops, "[jvp] a tangent must have the shape of its argument");
  expect_refused(pull_in_loop, "[vjp] a cotangent must have the shape of the function's result");
  expect_refused(hvp, "[hvp] a direction must have the shape of its argument");
  expect_refused(custom, "[custom_vjp] a cotangent that backward returns must have the shape of its argument");
}

}  // namespace
