#include <array>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "../../support/gradients.hpp"

#include <tessera/partition/plan/static_plan.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

const Array x = random_array({3, 4}, 1), w = random_array({4, 2}, 2), c = random_array({3, 2}, 5);

TEST(CustomGradients, ACustomGradientReplacesTheOwnOne) {
  constexpr auto f = [](const auto& a, const auto& b) {
    const auto scaled = ts::custom_vjp([](const auto& p, const auto& q) { return ts::exp(p) * q; },
                                       [](const auto& p, const auto& q) {
                                         const auto e = ts::exp(p);
                                         return std::tuple(e * q, std::tuple(e, q));
                                       },
                                       [](const auto& kept, const auto& g) {
                                         const auto& [e, q] = kept;
                                         return std::tuple(ts::minimum(g, 1.5) * e * q * 10.0, g * e);
                                       });
    const auto loss = [&](const auto& p, const auto& q) { return ts::sum(scaled(p * 2.0, q) * 3.0); };
    const auto of_a = ts::grad(loss)(a, b);
    const auto of_b = ts::grad([&](const auto& q) { return loss(a, q); })(b);
    const auto second =
        ts::grad([&](const auto& q) { return ts::sum(ts::grad(loss)(a, q)); })(b);  // backward has a gradient
    const auto in_scan = ts::grad([&](const auto& p) {
      return ts::sum(ts::fori_loop(
          0, 2, [&](const auto&, const auto& h) { return scaled(h, b); }, p));
    })(a);
    return std::tuple(scaled(a, b), of_a, of_b, second, in_scan);
  };
  const Program program = trace<decltype(f), Float<1>, Float<1>>();
  const auto out = run(program.view(), {Array({1}, 0.25), Array({1}, 0.5)});
  const double e = std::exp(0.5), e1 = std::exp(0.25), h = e1 * 0.5;
  expect_near(out[0], Array({1}, h), 1e-12);
  expect_near(out[1], Array({1}, 1.5 * e * 0.5 * 10 * 2), 1e-12);
  expect_near(out[2], Array({1}, 3 * e), 1e-12);
  expect_near(out[3], Array({1}, 1.5 * e * 10 * 2), 1e-12);
  const double outer = std::min(1.0, 1.5) * std::exp(h) * 0.5 * 10;
  expect_near(out[4], Array({1}, std::min(outer, 1.5) * h * 10), 1e-12);
  EXPECT_EQ(program.count(Op::custom_gradient), 0);
}

// Results in a tuple and in a struct, an argument of integers, one cotangent for all results, and a rule that is not
// linear in them; what the loss doesn't use has a cotangent of zeros.
struct Moments {
  ts::ShardedTensor<float, 1> square;
  ts::ShardedTensor<float, 0> sum;
};
/// x picked by integers, and its squares, sums and a number of elements. The gradients are 7 and 11 times the true
/// ones.
constexpr auto moments = ts::custom_vjp(
    [](const auto& p, const auto& picks, const auto& q) {
      const auto picked = ts::gather<0>(p, picks);
      return std::tuple(std::tuple(picked * q, Moments{p * p, ts::sum(p * q)}, ts::sum(picks)),
                        std::tuple(p, picks, q));
    },
    [](const auto& kept, const auto& cotangents) {
      const auto& [p, picks, q] = kept;
      const auto& [of_picked, of_moments, count] = cotangents;
      static_assert(std::is_same_v<typename std::decay_t<decltype(count)>::element, std::int32_t>);
      const auto scattered = ts::scatter_add<0>(ts::zeros_like(p), picks, of_picked * q);
      return std::tuple((scattered + of_moments.square * p * 2.0 + of_moments.sum * q) * 7.0, std::tuple(),
                        (ts::gather<0>(p, picks) * of_picked + of_moments.sum * p) * 11.0);
    });
constexpr auto plain_moments = [](const auto& p, const auto& picks, const auto& q) {
  const auto picked = ts::gather<0>(p, picks);
  return std::tuple(picked * q, Moments{p * p, ts::sum(p * q)}, ts::sum(picks));
};
constexpr auto of_all = [](const auto& f) {
  return [f](const auto& p, const auto& picks, const auto& q) {
    const auto [a, b, n] = f(p * 2.0, picks, q);
    return ts::sum(a * a) + ts::sum(b.square * 0.5) + b.sum * ts::cast<float>(n);
  };
};
constexpr auto of_one = [](const auto& f) {  // uses a result in the middle only
  return [f](const auto& p, const auto& picks, const auto& q) { return std::get<1>(f(p, picks, q)).sum * 3.0; };
};
TEST(CustomGradients, ACustomGradientOfSeveralResults) {
  constexpr auto f = [](const auto& p, const auto& picks, const auto& q) {
    const auto of = [&](const auto& loss) {
      return std::tuple(ts::value_and_grad([&](const auto& own) { return loss(own, picks, q); })(p),
                        ts::grad([&](const auto& own) { return loss(p, picks, own); })(q));
    };
    const auto in_scan = [&](const auto& own) {
      return std::get<0>(ts::scan(
          [&](const auto& h, const auto& in) {
            const auto [a, b, n] = own(h, picks, in);
            return std::tuple(a * 0.5 + b.square * 0.1 + b.sum, std::tuple());
          },
          p, ts::stack<0>(q, q * 0.5)));
    };
    const auto step = ts::grad([&](const auto& own) { return ts::sum(own * own); });
    return std::tuple(of(of_all(moments)), of(of_all(plain_moments)), of(of_one(moments)), of(of_one(plain_moments)),
                      moments(p, picks, q), ts::sum(in_scan(moments)), ts::sum(in_scan(plain_moments)), step(p));
  };
  const Program program = trace<decltype(f), Float<1>, Int<1>, Float<1>>();
  const Array p({3}, {0.5, -1, 2}), picks({3}, {2, 2, 0}), q({3}, {1, 3, -2});
  const auto out = run(program.view(), {p, picks, q});
  const auto times = [](Array of, double factor) {
    for (double& own : of.data) own *= factor;
    return of;
  };
  for (std::size_t k : {std::size_t{0}, std::size_t{6}}) {  // all results, one result: value, d p, d q
    expect_near(out[k], out[k + 3], 1e-12);
    expect_near(out[k + 1], times(out[k + 4], 7), 1e-12);
    expect_near(out[k + 2], times(out[k + 5], 11), 1e-12);
  }
  // The plain gradients against differences.
  const auto value = [&](const std::vector<Array>& at) { return run(program.view(), at).at(3).data[0]; };
  expect_near(out[4], finite_difference(value, {p, picks, q}, 0), 1e-6);
  expect_near(out[5], finite_difference(value, {p, picks, q}, 2), 1e-6);
  expect_near(out[12], Array({3}, {2, 6, -1}), 1e-12);  // p at 2, 2, 0 times q
  EXPECT_EQ(out[15].data[0], 4);
  expect_near(out[16], out[17], 1e-12);
  EXPECT_EQ(program.count(Op::custom_gradient) + program.count(Op::custom_result), 0);
}

// The rule is used in the backward body of a loop and in a Stack's layers, and not linear in its cotangents.
constexpr auto clipped_pair = [](const auto& f) {  // each cotangent at most as large as the other
  return ts::custom_vjp([f](const auto& a, const auto& b) { return std::tuple(f(a, b), std::tuple()); },
                        [](const auto&, const auto& g) {
                          return std::tuple(ts::minimum(g.first, g.second), ts::minimum(g.second, g.first * 0.5));
                        });
};
TEST(CustomGradients, ACustomGradientOfSeveralResultsInALoop) {
  constexpr auto f = [](const auto& start, const auto& y) {
    const auto both = clipped_pair([](const auto& a, const auto& b) { return std::pair(a * 1.0, b * 1.0); });
    const auto loop = [&](const auto& a) {
      const auto [h, g] = ts::fori_loop(
          0, 2,
          [&](const auto&, const auto& carry) {
            const auto [p, q] = both(carry.first, carry.second);
            return std::pair(p * 2.0, q * 3.0);
          },
          std::pair(a, y));
      return ts::sum(h) * 5.0 + ts::sum(g);
    };
    return std::tuple(loop(start), ts::grad(loop)(start));
  };
  const auto out = run(trace<decltype(f), Float<1>, Float<1>>().view(), {Array({1}, 2), Array({1}, 3)});
  EXPECT_EQ(out[0].data[0], 5 * 2 * 4 + 3 * 9);
  // Last step: (5, 1) * (2, 3) = (10, 3) -> (3, 3); first step: (6, 9) -> (6, 3).
  EXPECT_EQ(out[1].data[0], 6);
}

TEST(CustomGradients, ACustomGradientChecksWhatItReturns) {
  constexpr auto wrong = [](const auto& a) {
    const auto twice = ts::custom_vjp(
        [](const auto& p) { return std::tuple(std::tuple(p, ts::sum(p)), std::tuple()); },
        [](const auto&, const auto& g) { return std::get<1>(g); });  // the cotangent of the sum has another rank
    return ts::grad([&](const auto& p) { return std::get<1>(twice(p)); })(a);
  };
  try {
    trace<decltype(wrong), Float<1>>();
    FAIL();
  } catch (const ts::error& error) {
    EXPECT_EQ(error.id(), ts::errc::structure);
    EXPECT_NE(std::string(error.what()).find("[custom_vjp] result of backward"), std::string::npos) << error.what();
  }
}

// Forward and reverse mode both use the rule, which is 10 times the true derivative.
TEST(CustomGradients, ACustomJvpReplacesTheOwnDerivative) {
  constexpr auto f = [](const auto& a, const auto& b, const auto& picks, const auto& da, const auto& db) {
    const auto product = ts::custom_jvp(
        [](const auto& p, const auto& n, const auto& q) { return std::pair(ts::gather<0>(p, n) * q, p - q); },
        [](const auto& primals, const auto& tangents) {
          const auto& [p, n, q] = primals;
          const auto& [dp, dn, dq] = tangents;
          return std::pair((ts::gather<0>(dp, n) * q + ts::gather<0>(p, n) * dq) * 10.0, (dp - dq) * 10.0);
        });
    const auto plain = [](const auto& p, const auto& n, const auto& q) {
      return std::pair(ts::gather<0>(p, n) * q, p - q);
    };
    const auto all = [&](const auto& own) {
      const auto pushed =
          ts::jvp([&](const auto& p, const auto& q) { return own(p, picks, q); }, std::tuple(a, b), std::tuple(da, db));
      const auto loss = [&](const auto& p, const auto& q) {
        const auto [product_of, difference] = own(p, picks, q);
        return ts::sum(product_of * product_of) + ts::sum(difference);
      };
      return std::tuple(pushed, ts::grad(loss)(a, b), ts::grad([&](const auto& q) { return loss(a, q); })(b));
    };
    return std::tuple(all(product), all(plain));
  };
  const Program program = trace<decltype(f), Float<1>, Float<1>, Int<1>, Float<1>, Float<1>>();
  const auto out = run(program.view(), {random_array({3}, 1), random_array({3}, 2), Array({3}, {1, 0, 1}),
                                        random_array({3}, 3), random_array({3}, 4)});
  const std::size_t half = out.size() / 2;
  ASSERT_EQ(half, 6u);
  for (std::size_t k = 0; k < half; ++k) {
    Array want = out[half + k];
    if (k >= 2)
      for (double& own : want.data) own *= 10;
    expect_near(out[k], want, 1e-12, std::to_string(k));
  }
}

}  // namespace
