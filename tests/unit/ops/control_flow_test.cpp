#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"
#include "../../support/written_out.hpp"
#include "../base/expect_error.hpp"

#include <tessera/partition/propagation/shapes.hpp>

namespace ts = tessera;
using namespace oracle;
using namespace oracle::loops;

namespace {

// ---- loops and maps

TEST(Map, IsTheFunctionOfEachSlice) {
  expect_equal<Float<3>, Float<2>>(
      [](const auto& xs, const auto& w) {
        return ts::map([&](const auto& x) { return ts::softmax<1>(ts::matmul(x, w)); }, xs);
      },
      [](const auto& xs, const auto& w) { return ts::softmax<2>(ts::matmul(xs, w)); },
      {random_array({4, 3, 2}, 1), random_array({2, 5}, 2)});
}
TEST(ForiLoop, CountsFromAndTo) {
  expect_equal<Float<1>, ts::Dim>(
      [](const auto& x, const ts::Dim& n) {
        const auto powers = ts::fori_loop(
            2, n, [](const auto& i, const auto& v) { return v * 0.5 + ts::cast<float>(i); }, x);
        return std::tuple(powers, ts::fori_loop(
                                      0, 3, [&](const auto&, const auto& v) { return v + x; }, x * 2.0));
      },
      [](const auto& x, const ts::Dim&) { return std::tuple(((x * 0.5 + 2.0) * 0.5 + 3.0) * 0.5 + 4.0, x * 5.0); },
      {random_array({3}, 1), Array::number(5)}, 2);
}

// ---- unrolled loops

/// A scan with a carry and a y of several tensors, unrolled by `Steps`, and its gradients.
template <int Steps, bool Reverse>
constexpr auto unrolled = [](const auto& h0, const auto& xs, const auto& w) {
  const auto loss = [&](const auto& first, const auto& all, const auto& own) {
    const auto step = [&](const auto& carry, const auto& x) {
      const auto& [h, sums] = carry;
      const auto next = ts::tanh(ts::matmul(h, own) + x.first * ts::sum(x.second));
      return std::tuple(std::tuple(next, sums * 0.5 + ts::sum(next)),
                        std::pair(next * 2.0, std::array{ts::sum(next), sums * sums}));
    };
    const auto [last, ys] = ts::scan(step, std::tuple(first, 0.5), std::pair(all, ts::sum<1>(all * all)),
                                     ts::unroll<Steps>, {.reverse = Reverse});
    const auto squares = ts::map([](const auto& x) { return x * x; }, all, ts::unroll<Steps>);
    const auto powers = ts::fori_loop(
        1, ts::extent<0>(all), [&](const auto& i, const auto& v) { return v * 0.5 + ts::cast<float>(i); }, first,
        ts::unroll<Steps>);
    const auto counted = ts::scan([](const auto& v) { return std::tuple(v * 0.5 + 1.0, v); }, ts::sum(first),
                                  ts::extent<0>(all), ts::unroll<Steps>);
    return std::tuple(ts::sum(ys.first * ys.first) + ts::sum(std::get<1>(last)) + ts::sum(ys.second[0] * ys.second[1]) +
                          ts::sum(squares) + ts::sum(powers * powers) + ts::sum(std::get<1>(counted)),
                      std::get<0>(last), ys, squares, powers, counted);
  };
  const auto [pulled, pullback] = ts::vjp([&](const auto&... own) { return std::get<0>(loss(own...)); }, h0, xs, w);
  return std::tuple(loss(h0, xs, w), pullback(1.0));
};
template <int Steps, bool Reverse> void expect_unrolled(std::int64_t steps) {
  constexpr auto f = unrolled<Steps, Reverse>;
  constexpr auto g = unrolled<1, Reverse>;
  const Program program = trace<decltype(f), Float<2>, Float<3>, Float<2>>(),
                plain = trace<decltype(g), Float<2>, Float<3>, Float<2>>();
  EXPECT_EQ(program.count(Op::repeat), 2 * plain.count(Op::repeat));
  const std::vector<Array> arguments{random_array({2, 3}, 1), random_array({steps, 2, 3}, 2), random_array({3, 3}, 3)};
  const auto got = run(program.view(), arguments), want = run(plain.view(), arguments);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape, want[k].shape) << k;
    // Values are computed by the same operations; gradients of what all steps read are summed in another order.
    if (k < got.size() - 3)
      EXPECT_EQ(got[k].data, want[k].data) << "result " << k << " of " << steps << " steps";
    else
      expect_near(got[k], want[k], 1e-13, "gradient");
  }
}
TEST(ForiLoop, RefusesToRunBackwards) {
  const auto f = [](const auto& v, const ts::Dim& to) {
    return ts::fori_loop(
        2, to, [](const auto&, const auto& carry) { return carry * 2.0; }, v);
  };
  const auto program = trace<decltype(f), Float<1>, ts::Dim>();
  const auto infer = [&](std::int64_t to) {
    return [&program, to] {
      const ts::Shape shapes[] = {{4}, {}};
      const ts::HostNumber numbers[] = {0, to};
      ts::infer_shapes(program.view(), shapes, numbers);
    };
  };
  EXPECT_NO_THROW(infer(2)());
  tessera_test::expect_error(ts::errc::shape_mismatch, infer(-1),
                             "[fori_loop] steps: `to` is less than `from`, by 3 at control_flow_test.cpp:");
}

TEST(Unroll, EqualsTheLoopOfSingleSteps) {
  for (std::int64_t steps : {1, 2, 3, 4, 7, 8}) {
    expect_unrolled<2, false>(steps);
    expect_unrolled<2, true>(steps);
    expect_unrolled<3, true>(steps);
  }
  expect_unrolled<18, false>(19);  // more y than a concat has operands
}
// Of each group of steps and of the rest: the body of the first loop has the products of all steps.
TEST(Unroll, HasTheProductsOfAllItsSteps) {
  constexpr auto f = [](const auto& h0, const auto& xs, const auto& w) {
    const auto step = [&](const auto& h, const auto& x) { return std::tuple(ts::tanh(ts::matmul(h, w)) + x, h); };
    return ts::scan(step, h0, xs, ts::unroll<4>);
  };
  const Program program = trace<decltype(f), Float<2>, Float<3>, Float<2>>();
  EXPECT_EQ(program.count(Op::repeat), 2);
  EXPECT_EQ(program.count(Op::einsum), 4 + 1);
}
TEST(Unroll, RefusesRandomNumbers) {
  constexpr auto f = [](const auto& x) {
    return ts::fori_loop(
        0, 4, [](const auto&, const auto& v) { return ts::dropout(v, 0.5, 3); }, x, ts::unroll<2>);
  };
  try {
    trace<decltype(f), Float<1>>();
    FAIL();
  } catch (const ts::error& error) {
    EXPECT_EQ(error.id(), ts::errc::unsupported);
    EXPECT_NE(std::string(error.what()).find("[scan] unroll: the steps draw random numbers"), std::string::npos);
  }
}

// ---- branches

constexpr auto branch = [](const auto& x, const auto& w) {
  const auto scale = ts::sum<0>(w);
  const auto [y, sums] = ts::cond(
      ts::sum(w) > 0.0, [&](const auto& v) { return std::tuple(ts::matmul(v, w) * scale, ts::sum<1>(v)); },
      [](const auto& v) { return std::tuple(v * v, ts::sum<1>(ts::tanh(v))); }, x);
  return y + ts::unsqueeze<1>(sums) * x;
};
constexpr auto branch_by_select = [](const auto& x, const auto& w) {
  const auto holds = ts::sum(w) > 0.0;
  const auto y = ts::select(holds, ts::matmul(x, w) * ts::sum<0>(w), x * x);
  return y + ts::unsqueeze<1>(ts::select(holds, ts::sum<1>(x), ts::sum<1>(ts::tanh(x)))) * x;
};
TEST(Cond, RunsOneBranch) {
  for (const double low : {-0.2, -1.0}) {
    const std::vector<Array> arguments{random_array({2, 3}, 1), random_array({3, 3}, 2, low, low + 1.2)};
    expect_equal<Float<2>, Float<2>>(branch, branch_by_select, arguments, 2);
    check_gradient<Float<2>, Float<2>>(branch, arguments);
  }
}
TEST(Cond, RejectsResultsOfTwoShapes) {
  const auto f = [](const auto& x, const auto& y) {
    const auto a = ts::cond(
        ts::sum(x) > 0.0, [&] { return x; }, [&] { return y; });
    return std::pair(a, ts::while_loop([](const auto& v) { return ts::sum(v) < 9.0; },
                                       [&](const auto& v) { return ts::concat<0>(v, y); }, x, 3));
  };
  const Program program = trace<decltype(f), Float<1>, Float<1>>();
  const auto message = [&](std::int64_t of_x, std::int64_t of_y) -> std::string {
    const std::vector<ts::Shape> arguments{{of_x}, {of_y}};
    try {
      ts::infer_shapes(program.view(), arguments.data(), nullptr);
      return "no error";
    } catch (const ts::error& e) {
      EXPECT_EQ(e.id(), ts::errc::shape_mismatch);
      return e.what();
    }
  };
  const std::string rule =
      "[cond] results: the branches of ts::cond and ts::switch_case must return one shape, and a step of "
      "ts::while_loop the shape of its carry, but here the shapes are ";
  EXPECT_NE(message(4, 2).find(rule + "f32[4] and f32[2] at control_flow_test.cpp:"), std::string::npos)
      << message(4, 2);
  EXPECT_NE(message(3, 3).find(rule + "f32[3] and f32[6] at control_flow_test.cpp:"), std::string::npos)
      << message(3, 3);
}
TEST(Cond, OfNumbersOfTheHost) {
  const auto f = [](const auto& x, const ts::Scalar& rate, const ts::Dim& n) {
    const auto doubled = [&] { return x * 2.0; };
    const auto kept = [&] { return x; };
    return std::tuple(ts::cond(rate, doubled, kept), ts::cond(n, kept, doubled));
  };
  const Program program = trace<decltype(f), Float<1>, ts::Scalar, ts::Dim>();
  const Array x = random_array({3}, 1);
  for (const double n : {0.0, 2.0}) {
    const auto got = run(program.view(), {x, Array::number(n), Array::number(n)});
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got[0].data[i], x.data[i] * (n == 0 ? 1 : 2));
      EXPECT_EQ(got[1].data[i], x.data[i] * (n == 0 ? 2 : 1));
    }
  }
}
// Inside a scan, where each step takes the branch that its x says.
constexpr auto branches = [](const auto& h, const auto& xs, const auto& choices) {
  const auto step = [](const auto& v, const auto& both) {
    const auto& x = both.first;
    const auto next = ts::cond(
        both.second, [&](const auto& w) { return ts::tanh(w) * x; }, [&](const auto& w) { return w + x * x; }, v);
    return std::pair(next, next * 0.5);
  };
  const auto [last, all] = ts::scan(step, h, std::pair(xs, choices));
  return last * ts::sum<0>(all);
};
TEST(Cond, InsideAScan) {
  check_gradient<Float<1>, Float<2>, Int<1>>(branches,
                                             {random_array({3}, 1), random_array({4, 3}, 2), Array({4}, {1, 0, 0, 2})});
}

// ---- switch_case

constexpr auto three_ways = [](const auto& x, const auto& w, const auto& index) {
  return ts::switch_case(index,
                         std::tuple([&](const auto& v, const auto& u) { return ts::matmul(v, w) * u; },
                                    [](const auto& v, const auto& u) { return ts::tanh(v + u); },
                                    [](const auto& v, const auto&) { return v * v; }),
                         x, x * 0.5);
};
constexpr auto three_ways_by_select = [](const auto& x, const auto& w, const auto& index) {
  const auto half = x * 0.5;
  return ts::select(index < 1, ts::matmul(x, w) * half, ts::select(index < 2, ts::tanh(x + half), x * x));
};
// An index that is out of range runs the first or the last branch, as in jax.lax.switch.
TEST(SwitchCase, RunsTheBranchOfItsIndex) {
  for (const double index : {-3.0, 0.0, 1.0, 2.0, 7.0}) {
    const std::vector<Array> arguments{random_array({2, 3}, 1), random_array({3, 3}, 2), Array::number(index)};
    expect_equal<Float<2>, Float<2>, Int<0>>(three_ways, three_ways_by_select, arguments, 3);
    check_gradient<Float<2>, Float<2>, Int<0>>(three_ways, arguments);
  }
}
TEST(SwitchCase, OfANumberOfTheHostAndOfOneBranch) {
  const auto f = [](const auto& x, const ts::Dim& n) {
    const auto times = [&](double factor) { return [factor](const auto& v) { return v * factor; }; };
    return std::tuple(ts::switch_case(n, std::tuple(times(1), times(2), times(3), times(4)), x),
                      ts::switch_case(n, std::tuple(times(5)), x));
  };
  const Program program = trace<decltype(f), Float<1>, ts::Dim>();
  const Array x = random_array({3}, 1);
  for (const double n : {0.0, 1.0, 2.0, 3.0, 9.0}) {
    const auto got = run(program.view(), {x, Array::number(n)});
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got[0].data[i], x.data[i] * (n > 3 ? 4 : n + 1));
      EXPECT_EQ(got[1].data[i], x.data[i] * 5);
    }
  }
}

// Newton's square root: as many steps as it takes.
constexpr auto root = [](const auto& a) {
  const auto [x, steps] = ts::while_loop(
      [&](const auto& carry) { return ts::max(ts::abs(std::get<0>(carry) * std::get<0>(carry) - a)) > 1e-9; },
      [&](const auto& carry) {
        const auto& v = std::get<0>(carry);
        return std::tuple((v + a / v) * 0.5, std::get<1>(carry) + 1);
      },
      std::tuple(ts::ones_like(a), 0), 20);
  return std::tuple(x, steps);
};
TEST(WhileLoop, EndsWhenItsConditionDoes) {
  const Program program = trace<decltype(root), Float<1>>();
  const auto got = run(program.view(), {Array({3}, {0.5, 2, 9})});
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(got[0].data[i], std::sqrt(std::vector<double>{0.5, 2, 9}[i]), 1e-9);
  EXPECT_EQ(got[1].data[0], 6);
  EXPECT_EQ(run(program.view(), {Array(ts::Shape{1}, 1)})[1].data[0], 0);
  check_gradient<Float<1>>([](const auto& a) { return std::get<0>(root(a)); }, {Array({3}, {0.5, 2, 9})}, first_order);
  EXPECT_EQ(program.count(Op::repeat), 2) << "a loop, and in each step one body that runs where the condition holds";
}

// ---- numbers in a carry

// A number begins with the element type that a step returns in its place, as the weak types of JAX: f64 and i64 here,
// f32 of an integer. The condition, nested tuples, arrays, steps without xs and unrolled loops.
constexpr auto numbers_adapt = [](const auto& xs, const auto& ids) {
  const auto add = [](const auto& carry, const auto& both) {
    const auto& [sum, count, pair, bare] = carry;
    const auto& [x, id] = both;
    const auto next =
        std::tuple(sum + x, count + id, std::pair(std::array{pair.first[1] + x, pair.first[0] + x}, pair.second),
                   bare + ts::cast<float>(x));
    return std::tuple(next, sum);
  };
  const auto zeros = std::tuple(0.5, 2, std::pair(std::array{1.0, 3.0}, 7), 0);
  const auto scanned = ts::scan(add, zeros, std::tuple(xs, ids));
  const auto unrolled = ts::scan(add, zeros, std::tuple(xs, ids), ts::unroll<2>);
  const auto halved = ts::while_loop([](const auto& s) { return std::get<0>(s) > 0.1; },
                                     [](const auto& s) {
                                       const auto& [x, count, least] = s;
                                       return std::tuple(least / (count + 1.0), count + 1, least);
                                     },
                                     std::tuple(std::numeric_limits<double>::infinity(), 0, ts::min(xs)), 20);
  const auto steps = ts::extent<0>(xs);
  const auto counted = ts::fori_loop(
      0, steps, [&](const auto&, const auto& n) { return n + ts::sum(ids); }, 4);
  const auto repeated = ts::scan([&](const auto& n) { return std::tuple(n * ts::max(xs), std::tuple()); }, 1.0, steps);
  return std::tuple(scanned, unrolled, halved, counted, std::get<0>(repeated));
};
TEST(Carry, NumbersTakeTheElementTypeThatAStepReturns) {
  using Doubles = ts::ShardedTensor<double, 1>;
  using Longs = ts::ShardedTensor<std::int64_t, 1>;
  const Program program = trace<decltype(numbers_adapt), Doubles, Longs>();
  const auto got = run(program.view(), {Array({3}, {0.25, 1, 0.5}), Array({3}, {3, 4, 5})});
  std::vector<double> values;
  std::vector<std::string> types;
  const ts::GraphView& main = program.main();
  for (int k = 0; k < main.output_count; ++k) types.emplace_back(ts::name_of(main[main.outputs[k]].dtype));
  for (const Array& one : got) values.insert(values.end(), one.data.begin(), one.data.end());
  const std::vector<double> loop{2.25, 14, 4.75, 2.75, 7, 1.75, 0.5, 0.75, 1.75};
  std::vector<double> want = loop;
  want.insert(want.end(), loop.begin(), loop.end());
  for (const double v : {0.25 / 3, 3.0, 0.25, 40.0, 1.0}) want.push_back(v);
  EXPECT_EQ(values, want);
  const std::vector<std::string> of_loop{"f64", "i64", "f64", "f64", "i32", "f32", "f64"};
  std::vector<std::string> all = of_loop;
  all.insert(all.end(), of_loop.begin(), of_loop.end());
  for (const char* type : {"f64", "i32", "f64", "i64", "f64"}) all.emplace_back(type);
  EXPECT_EQ(types, all);
}

// As in jax.lax.cond, a number that a branch returns has the element type of the other branch.
constexpr auto numbers_in_branches = [](const auto& x) {
  const auto sum = [&] { return std::tuple(ts::sum(x), 3); };
  const auto none = [&] { return std::tuple(0.5, ts::cast<std::int64_t>(ts::count_nonzero(x))); };
  return std::tuple(ts::cond(ts::max(x) > 0.0, sum, none), ts::cond(ts::max(x) > 0.0, none, sum));
};
TEST(Cond, NumbersTakeTheElementTypeOfTheOtherBranch) {
  const Program program = trace<decltype(numbers_in_branches), ts::ShardedTensor<double, 1>>();
  const ts::GraphView& main = program.main();
  std::string types;
  for (int k = 0; k < main.output_count; ++k) types += std::string(ts::name_of(main[main.outputs[k]].dtype)) + " ";
  EXPECT_EQ(types, "f64 i64 f64 i64 ");
  const auto values = [&](const Array& x) {
    std::vector<double> all;
    for (const Array& one : run(program.view(), {x})) all.push_back(one.data[0]);
    return all;
  };
  EXPECT_EQ(values(Array({2}, {1, 2})), (std::vector<double>{3, 3, 0.5, 2}));
  EXPECT_EQ(values(Array({2}, {-1, 0})), (std::vector<double>{0.5, 1, -1, 3}));
}

}  // namespace
