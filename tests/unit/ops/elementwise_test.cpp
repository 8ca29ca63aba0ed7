#include "../../support/gradients.hpp"

#include <tessera/ops/elementwise.hpp>

namespace ts = tessera;
using namespace oracle;

namespace {

using M = Float<2>;
const Shape shape{2, 3};

Array any(unsigned seed = 1) { return random_array(shape, seed, -2, 2); }
Array positive(unsigned seed = 2) { return random_array(shape, seed, 0.5, 2); }

TEST(Elementwise, GradientOfEveryRow) {
  OpSet covered;
  const auto first = [&](auto f) { check_gradient<M>(f, {any()}, first_order, &covered); };
  const auto smooth = [&](auto f) { check_gradient<M>(f, {any()}, second_order, &covered); };
  const auto smooth_positive = [&](auto f) { check_gradient<M>(f, {positive()}, second_order, &covered); };
  smooth([](const auto& x) { return -x; });
  first([](const auto& x) { return ts::abs(x); });
  smooth([](const auto& x) { return ts::exp(x); });
  smooth_positive([](const auto& x) { return ts::log(x); });
  smooth_positive([](const auto& x) { return ts::sqrt(x); });
  smooth_positive([](const auto& x) { return ts::rsqrt(x); });
  smooth([](const auto& x) { return ts::tanh(x); });
  smooth([](const auto& x) { return ts::sigmoid(x); });
  first([](const auto& x) { return ts::relu(x); });
  smooth([](const auto& x) { return ts::gelu(x); });
  smooth([](const auto& x) { return ts::silu(x); });
  first([](const auto& x) { return ts::sign(x) * x; });
  smooth([](const auto& x) { return ts::cast<float>(ts::cast<double>(x) * 3) * x; });

  const auto two = [&](auto f, auto order) { check_gradient<M, M>(f, {any(), positive()}, order, &covered); };
  two([](const auto& x, const auto& y) { return x * y + x; }, second_order);
  two([](const auto& x, const auto& y) { return x - y * y; }, second_order);
  two([](const auto& x, const auto& y) { return x / y; }, second_order);
  two([](const auto& x, const auto& y) { return ts::pow(y, x); }, second_order);
  two([](const auto& x, const auto& y) { return ts::minimum(x, y) * y; }, first_order);
  two([](const auto& x, const auto& y) { return ts::maximum(x, y) * x; }, first_order);

  // Predicates have no gradient of their own; what they choose has.
  const auto chosen = [&](auto f) { two(f, first_order); };
  chosen([](const auto& x, const auto& y) { return ts::select(x < y, x * y, y); });
  chosen([](const auto& x, const auto& y) { return ts::select(x <= y, x, x * x * y); });
  chosen([](const auto& x, const auto& y) { return ts::select(x > y, x * y, 2.0); });
  chosen([](const auto& x, const auto& y) { return ts::select(x >= y, 0.5, y * x); });
  chosen([](const auto& x, const auto& y) { return ts::select(ts::equal(x, y), x, y * y); });
  chosen([](const auto& x, const auto& y) { return ts::select(ts::not_equal(x, y), x * y, y); });
  chosen([](const auto& x, const auto& y) { return ts::select(ts::logical_and(x<y, x> 0), x * y, y); });
  chosen([](const auto& x, const auto& y) { return ts::select(ts::logical_or(x<0, y> 1), x * y, y); });
  chosen([](const auto& x, const auto& y) { return ts::select(ts::logical_not(x < 0), x * y, y); });
  check_gradient<Float<1>, M>([](const auto& x, const auto& y) { return ts::broadcast_like(x, y) * y; },
                              {random_array({3}, 4), any()}, second_order, &covered);

  for (int op = 0; op < ts::op_count; ++op)
    if (ts::row_of(static_cast<Op>(op)).kind == ts::OpKind::elementwise)
      EXPECT_TRUE(covered[static_cast<std::size_t>(op)]) << ts::row_of(static_cast<Op>(op)).name;
}

TEST(Elementwise, GradientsSumOverWhatBroadcastingRepeats) {
  check_gradient<M, Float<1>>([](const auto& x, const auto& b) { return x * b + b; }, {any(), random_array({3}, 5)});
  check_gradient<M, Float<0>>([](const auto& x, const auto& s) { return s * x / (s + 3.0); },
                              {any(), random_array({}, 5)});
  check_gradient<M, Float<1>>([](const auto& x, const auto& r) { return ts::tanh(x) * ts::unit<1>(r); },
                              {any(), random_array({2}, 5)});
  check_gradient<Float<1>, Float<1>>([](const auto& a, const auto& b) { return ts::unit<1>(a) * ts::unit<0>(b); },
                                     {random_array({4}, 6), random_array({3}, 7)});
}

TEST(Elementwise, PowAtZero) {
  // Along the exponent the slope at base 0 is 0, not 0 * log 0.
  const auto f = [](const auto& x, const auto& p) { return ts::pow(x, p); };
  const Program program = trace<FirstGradient<decltype(f)>, std::tuple<Float<1>, Float<1>>, Float<1>>();
  const auto out = run(program.view(), {Array({2}, {0, 2}), Array({2}, {2, 3}), Array({2}, 1)});
  EXPECT_EQ(out[1].data, (std::vector<double>{0, 12}));
  EXPECT_EQ(out[2].data[0], 0);
  EXPECT_NEAR(out[2].data[1], 8 * std::log(2.0), 1e-12);
}

TEST(Elementwise, NumbersTakeTheTypeOfTheTensor) {
  const auto f = [](const auto& x, const ts::Scalar& rate, const ts::Dim& n) { return (2 * x + rate) / n - 0.5; };
  const Program program = trace<decltype(f), Float<1>, ts::Scalar, ts::Dim>();
  for (int id = 0; id < program.main().size; ++id)
    if (program.main()[id].rank > 0) EXPECT_EQ(program.main()[id].dtype, ts::DType::f32);
  expect_near(run(program.view(), {Array({2}, {1, 4}), Array::number(3), Array::number(5)})[0], Array({2}, {0.5, 1.7}),
              1e-15);
  const auto g = [](const auto& i) { return 7 - i * 2; };
  EXPECT_EQ(run(trace<decltype(g), Int<1>>().view(), {Array({2}, {1, 4})})[0].data, (std::vector<double>{5, -1}));
}

}  // namespace
