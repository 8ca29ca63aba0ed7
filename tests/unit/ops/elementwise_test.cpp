#include "../../support/gradients.hpp"
#include "../base/expect_error.hpp"

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
  smooth([](const auto& x) { return ts::erf(x); });
  smooth([](const auto& x) { return ts::expm1(x) + ts::log1p(x * x) + ts::exp2(x); });
  smooth_positive([](const auto& x) { return ts::log2(x) * ts::log10(x); });
  smooth([](const auto& x) { return ts::sin(x) * ts::cos(2 * x) + ts::tan(x / 2); });
  smooth([](const auto& x) { return ts::asin(x / 3) * ts::acos(x / 4) + ts::atan(x); });
  smooth([](const auto& x) { return ts::sinh(x) + ts::cosh(x / 2) + ts::asinh(x) * ts::atanh(x / 3); });
  smooth_positive([](const auto& x) { return ts::acosh(x + 1.25); });
  first([](const auto& x) { return ts::floor(x) * x + ts::ceil(x * 3) * x + ts::trunc(x * 2) * x + ts::round(x) * x; });
  smooth([](const auto& x) { return ts::softplus(x, 1.5); });
  smooth([](const auto& x) { return ts::erfc(x) + ts::erfinv(x / 3) * ts::sinc(x); });
  smooth_positive([](const auto& x) { return ts::lgamma(x) + ts::digamma(x + 1) * ts::polygamma(1, x + 1); });
  smooth([](const auto& x) { return ts::i0(x) + ts::i1(2 * x) + ts::i0e(x) * ts::i1e(x); });
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
  two([](const auto& x, const auto& y) { return ts::atan2(x, y); }, second_order);
  two([](const auto& x, const auto& y) { return ts::fmod(3 * x, y) * ts::remainder(5 * x, y); }, first_order);
  two([](const auto& x, const auto& y) { return ts::logaddexp(x, y) * ts::hypot(x, y) + ts::xlogy(x, y); },
      second_order);
  two([](const auto& x, const auto& y) { return ts::copysign(y, x) * x + ts::heaviside(x, y) * x; }, first_order);
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
  check_gradient<M, Int<2>>(
      [](const auto& x, const auto& i) {
        const auto bits = ts::bitwise_and(i, 6) + ts::bitwise_or(i, 9) * ts::bitwise_xor(i, 5) + ts::bitwise_not(i) +
                          ts::bitwise_left_shift(i, 2) - ts::bitwise_right_shift(i, 1);
        return bits * x * x;
      },
      {any(), Array(shape, {0, 1, -2, 3, 12, -7})}, second_order, &covered);
  check_gradient<Float<1>, M>([](const auto& x, const auto& y) { return ts::broadcast_like(x, y) * y; },
                              {random_array({3}, 4), any()}, second_order, &covered);

  const auto expect_covered = [&]<class... Operation>(ts::ops::OperationList<Operation...>) {
    for (const ts::OpRow* row : {&ts::ops::row_v<Operation>...})
      EXPECT_TRUE(covered.contains(static_cast<Op>(ts::operation_id(row->name)))) << row->name;
  };
  expect_covered(ts::ops::ElementwiseOperations{});
}

TEST(Elementwise, GradientsSumOverWhatBroadcastingRepeats) {
  check_gradient<M, Float<1>>([](const auto& x, const auto& b) { return x * b + b; }, {any(), random_array({3}, 5)});
  check_gradient<M, Float<0>>([](const auto& x, const auto& s) { return s * x / (s + 3.0); },
                              {any(), random_array({}, 5)});
  check_gradient<M, Float<1>>([](const auto& x, const auto& r) { return ts::tanh(x) * ts::unsqueeze<1>(r); },
                              {any(), random_array({2}, 5)});
  check_gradient<Float<1>, Float<1>>(
      [](const auto& a, const auto& b) { return ts::unsqueeze<1>(a) * ts::unsqueeze<0>(b); },
      {random_array({4}, 6), random_array({3}, 7)});
}

/// Gradients of the sum of f(x, y), elementwise.
template <class F> std::pair<std::vector<double>, std::vector<double>> slopes(F, Array x, Array y) {
  const Array weights({static_cast<std::int64_t>(x.data.size())}, 1);
  const Program program = trace<FirstGradient<F>, std::tuple<Float<1>, Float<1>>, Float<1>>();
  const auto out = run(program.view(), {x, y, weights});
  return {out[1].data, out[2].data};
}

void expect_alike(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(got[i]) : std::fabs(got[i] - want[i]) < 1e-12 || got[i] == want[i])
        << i << ": " << got[i] << " instead of " << want[i];
}

// torch.pow(x, p).sum().backward() of PyTorch 2.
TEST(Elementwise, GradientOfPow) {
  const auto f = [](const auto& x, const auto& p) { return ts::pow(x, p); };
  const Array x({8}, {0, 0, 0, 0, 2, 2, -2, -2}), p({8}, {0, 1, 2, 3, 0, 3, 0, 3});
  const auto [base, exponent] = slopes(f, x, p);
  expect_alike(base, {0, 1, 0, 0, 0, 12, 0, 12});
  expect_alike(exponent, {0, 0, 0, 0, std::log(2.0), 8 * std::log(2.0), NAN, NAN});

  const auto constant = [](const auto& v) { return ts::pow(v, 0.0) + ts::pow(v, 2.0); };
  const Program program = trace<FirstGradient<decltype(constant)>, std::tuple<Float<1>>, Float<1>>();
  expect_alike(run(program.view(), {Array({2}, {0, 3}), Array({2}, 1)})[1].data, {0, 6});
  // The slope at 0 has a slope, too.
  check_gradient<Float<1>>([](const auto& v) { return ts::pow(v, 2.0) + ts::pow(v, 3.0); }, {Array({2}, {0, 1})});
}

// torch.atan2(y, x).sum().backward(): x / (x^2 + y^2) and -y / (x^2 + y^2), which at the origin are 0 / 0.
TEST(Elementwise, GradientOfAtan2) {
  const Array y({5}, {0, 1, 0, -3, 0}), x({5}, {2, 0, -2, -4, 0});
  const auto [up, along] = slopes([](const auto& a, const auto& b) { return ts::atan2(a, b); }, y, x);
  expect_alike(up, {0.5, 0, -0.5, -0.16, NAN});
  expect_alike(along, {0, -1, 0, 0.12, NAN});
}

// jax.grad of jnp.maximum and jnp.minimum, and torch.maximum: equal operands get half each.
TEST(Elementwise, EqualOperandsShareTheGradient) {
  const Array x({4}, {1, 2, 3, 0}), y({4}, {1, 3, 2, -0.0});
  const auto larger = slopes([](const auto& a, const auto& b) { return ts::maximum(a, b); }, x, y);
  expect_alike(larger.first, {0.5, 0, 1, 0.5});
  expect_alike(larger.second, {0.5, 1, 0, 0.5});
  const auto smaller = slopes([](const auto& a, const auto& b) { return ts::minimum(a, b); }, x, y);
  expect_alike(smaller.first, {0.5, 1, 0, 0.5});
  expect_alike(smaller.second, {0.5, 0, 1, 0.5});

  // log(1 + exp(z)) - z t, written stably, is smooth at 0.
  const auto loss = [](const auto& z) { return ts::maximum(z, 0.0) + ts::log(1.0 + ts::exp(-ts::abs(z))); };
  const Program program = trace<FirstGradient<decltype(loss)>, std::tuple<Float<1>>, Float<1>>();
  expect_alike(run(program.view(), {Array({1}, 0), Array({1}, 1)})[1].data, {0.5});
}

// A weight of integers is a constant to the gradient, and a promoted operand gets its cotangent in its own type.
TEST(Elementwise, GradientsThroughPromotion) {
  check_gradient<M, Int<2>>([](const auto& x, const auto& i) { return x * i + i / 4; },
                            {any(), Array(shape, {1, 2, 3, 4, 5, 6})});
  check_gradient<M, ts::ShardedTensor<double, 2>>([](const auto& x, const auto& d) { return x * d; }, {any(), any(4)});
}

TEST(Elementwise, NumbersThatAnIntegerTypeLacksAreErrors) {
  using Bytes = ts::ShardedTensor<std::uint8_t, 1>;
  const auto over = [](const auto& u) { return u + 256; };
  const auto under = [](const auto& u) { return ts::maximum(u, -1); };
  const auto compared = [](const auto& u) { return u < 300; };
  const auto filled = [](const auto& u) { return ts::full_like(u, 300); };
  tessera_test::expect_error(ts::errc::dtype_mismatch, [&] { trace<decltype(over), Bytes>(); });
  tessera_test::expect_error(ts::errc::dtype_mismatch, [&] { trace<decltype(under), Bytes>(); });
  tessera_test::expect_error(ts::errc::dtype_mismatch, [&] { trace<decltype(compared), Bytes>(); });
  tessera_test::expect_error(ts::errc::dtype_mismatch, [&] { trace<decltype(filled), Bytes>(); });
  const auto least = [](const auto& u) { return u + 255; };
  EXPECT_EQ((trace<decltype(least), Bytes>().main()[1].dtype), ts::DType::u8);
}

// PyTorch: floor and its like give integers as they are; functions of fractions give float32 of them.
TEST(Elementwise, RoundingOfIntegersIsNothing) {
  const auto whole = [](const auto& i) { return ts::floor(i) + ts::ceil(i) + ts::trunc(i) + ts::round(i); };
  const Program program = trace<decltype(whole), Int<1>>();
  EXPECT_EQ(program.main()[program.main().size - 1].dtype, ts::DType::i32);
  EXPECT_EQ(run(program.view(), {Array({2}, {-3, 4})})[0].data, (std::vector<double>{-12, 16}));
  const auto function = [](const auto& i) { return ts::sin(i); };
  EXPECT_EQ((trace<decltype(function), Int<1>>().main()[2].dtype), ts::DType::f32);
}

/// f of the elements of one tensor, and the gradient of their sum.
template <class F> std::pair<std::vector<double>, std::vector<double>> with_slope(F, const Array& x) {
  const Array ones({static_cast<std::int64_t>(x.data.size())}, 1);
  return {run(trace<F, Float<1>>().view(), {x}).at(0).data,
          run(trace<FirstGradient<F>, std::tuple<Float<1>>, Float<1>>().view(), {x, ones}).at(1).data};
}
/// Compares with a function of doubles on points of all sizes, and its gradient with finite differences.
template <class F, class G> void expect_composed(F f, G exact) {
  Array points({14}, {-INFINITY, -1e4, -90, -7, -2.5, -0.75, -0.0, 0, 0.25, 1.5, 2.75, 8, 100, 1e4});
  const auto [values, slopes] = with_slope(f, points);
  for (std::size_t i = 0; i < points.data.size(); ++i) {
    const double want = exact(points.data[i]);
    EXPECT_TRUE(std::isnan(want) ? std::isnan(values[i]) : values[i] == want || std::fabs(values[i] - want) < 1e-12)
        << values[i] << " at " << points.data[i] << ", not " << want;
    EXPECT_FALSE(i > 0 && std::isnan(slopes[i])) << points.data[i];
  }
  EXPECT_TRUE(std::isnan(run(trace<F, Float<1>>().view(), {Array({1}, NAN)}).at(0).data[0]));
  check_gradient<M>(f, {Array(shape, {-5.5, -1.25, -0.5, 0.75, 2.5, 7.5})}, second_order);
}

// The formulas of torch.nn.functional's documentation.
TEST(Elementwise, Activations) {
  const auto softplus = [](double x) { return x > 40 ? x : std::log1p(std::exp(x)); };
  expect_composed([](const auto& x) { return ts::leaky_relu(x, 0.2); }, [](double x) { return x > 0 ? x : 0.2 * x; });
  expect_composed([](const auto& x) { return ts::elu(x, 1.5); },
                  [](double x) { return x > 0 ? x : 1.5 * std::expm1(x); });
  expect_composed([](const auto& x) { return ts::celu(x, 2.0); },
                  [](double x) { return std::fmax(0, x) + std::fmin(0, 2 * std::expm1(x / 2)); });
  expect_composed([](const auto& x) { return ts::selu(x); },
                  [](double x) {
                    return 1.0507009873554804934193349852946 *
                           (std::fmax(0, x) + std::fmin(0, 1.6732632423543772848170429916717 * std::expm1(x)));
                  });
  expect_composed([](const auto& x) { return ts::softplus(x); }, softplus);
  expect_composed([](const auto& x) { return ts::logsigmoid(x); }, [&](double x) { return -softplus(-x); });
  expect_composed([](const auto& x) { return ts::mish(x); }, [&](double x) { return x * std::tanh(softplus(x)); });
  expect_composed([](const auto& x) { return ts::softsign(x); }, [](double x) { return x / (1 + std::fabs(x)); });
  const auto six = [](double x) { return std::fmin(std::fmax(x, 0), 6); };
  expect_composed([](const auto& x) { return ts::relu6(x); }, six);
  expect_composed([](const auto& x) { return ts::hardsigmoid(x); }, [&](double x) { return six(x + 3) / 6; });
  expect_composed([](const auto& x) { return ts::hardswish(x); }, [&](double x) { return x * six(x + 3) / 6; });
  expect_composed([](const auto& x) { return ts::hardtanh(x); },
                  [](double x) { return std::fmin(std::fmax(x, -1), 1); });
  expect_composed([](const auto& x) { return ts::hardtanh(x, -2, 3); },
                  [](double x) { return std::fmin(std::fmax(x, -2), 3); });
  expect_composed([](const auto& x) { return ts::threshold(x, 0.5, 20); }, [](double x) { return x > 0.5 ? x : 20; });
  expect_composed([](const auto& x) { return ts::hardshrink(x, 1.0); },
                  [](double x) { return std::fabs(x) > 1 ? x : 0; });
  expect_composed([](const auto& x) { return ts::softshrink(x, 1.0); },
                  [](double x) { return std::copysign(std::fmax(std::fabs(x) - 1, 0), x); });
  expect_composed([](const auto& x) { return ts::tanhshrink(x); }, [](double x) { return x - std::tanh(x); });
}

// Gradients of torch 2 where a function has a kink.
TEST(Elementwise, SlopesAtKinks) {
  const Array kinks({4}, {0, 6, -3, 3});
  expect_alike(with_slope([](const auto& x) { return ts::leaky_relu(x, 0.2); }, kinks).second, {0.2, 1, 0.2, 1});
  expect_alike(with_slope([](const auto& x) { return ts::relu6(x); }, kinks).second, {0, 0, 0, 1});
  expect_alike(with_slope([](const auto& x) { return ts::hardsigmoid(x); }, kinks).second, {1. / 6, 0, 0, 0});
  expect_alike(with_slope([](const auto& x) { return ts::hardswish(x); }, kinks).second, {0.5, 1, 0, 1});
  expect_alike(with_slope([](const auto& x) { return ts::softplus(x); }, kinks).second,
               {0.5, 1 / (1 + std::exp(-6.0)), 1 / (1 + std::exp(3.0)), 1 / (1 + std::exp(-3.0))});
  expect_alike(with_slope([](const auto& x) { return ts::clamp(x, -3, 3); }, kinks).second, {1, 0, 1, 1});
  expect_alike(with_slope([](const auto& x) { return ts::hardtanh(x, -3, 3); }, kinks).second, {1, 0, 0, 0});
  expect_alike(with_slope([](const auto& x) { return ts::threshold(x, 3, 0); }, kinks).second, {0, 1, 0, 0});
  expect_alike(with_slope([](const auto& x) { return ts::softshrink(x, 3); }, kinks).second, {0, 1, 0, 0});
  expect_alike(with_slope([](const auto& x) { return ts::hardshrink(x, 3); }, kinks).second, {0, 1, 0, 0});
}

TEST(Elementwise, LogitAndIsclose) {
  const auto logit = [](const auto& x) { return ts::logit(x); };
  expect_alike(run(trace<decltype(logit), Float<1>>().view(), {Array({4}, {0, 1, 0.5, 0.25})}).at(0).data,
               {-INFINITY, INFINITY, 0, -std::log(3.0)});
  check_gradient<Float<1>>(logit, {Array({3}, {0.125, 0.5, 0.875})}, second_order);
  // torch.isclose
  const auto close = [](const auto& a, const auto& b) {
    return std::tuple(ts::isclose(a, b), ts::isclose<true>(a, b, 0.0, 0.5));
  };
  const Array a({6}, {1, 1, INFINITY, INFINITY, NAN, 1e10}), b({6}, {1 + 9e-6, 1.4, INFINITY, 1, NAN, INFINITY});
  const auto got = run(trace<decltype(close), Float<1>, Float<1>>().view(), {a, b});
  expect_alike(got.at(0).data, {1, 0, 1, 0, 0, 0});
  expect_alike(got.at(1).data, {1, 1, 1, 0, 1, 0});
}

// torch.clamp: NaN stays, also of a bound, bounds in the wrong order give the upper one; torch.lerp: exact at both
// ends.
TEST(Elementwise, ClampAndLerp) {
  const Array x({5}, {-2, 0.5, NAN, 3, INFINITY});
  const auto clamped = [&](auto f) { return run(trace<decltype(f), Float<1>>().view(), {x}).at(0).data; };
  expect_alike(clamped([](const auto& v) { return ts::clamp(v, -1, 1.5); }), {-1, 0.5, NAN, 1.5, 1.5});
  expect_alike(clamped([](const auto& v) { return ts::clamp(v, 2, 1); }), {1, 1, NAN, 1, 1});
  expect_alike(clamped([](const auto& v) { return ts::clamp(v, NAN, 1); }), {NAN, NAN, NAN, NAN, NAN});
  expect_alike(clamped([](const auto& v) { return ts::clamp(v * 0.0 - 5.0, v, 2.0 - v * 0.0); }),
               {-2, 0.5, NAN, 2, NAN});
  expect_alike(clamped([](const auto& v) { return ts::clamp(3.0, 1.0, v); }), {-2, 0.5, NAN, 3, 3});
  const auto whole = [](const auto& i) { return ts::clamp(i, 0, 5); };
  const Program integers = trace<decltype(whole), Int<1>>();
  EXPECT_EQ(integers.main()[integers.main().size - 1].dtype, ts::DType::i32);
  EXPECT_EQ(run(integers.view(), {Array({3}, {-4, 3, 9})})[0].data, (std::vector<double>{0, 3, 5}));
  check_gradient<M, M>([](const auto& a, const auto& b) { return ts::clamp(a * 2, -b, b); }, {any(), positive()},
                       first_order);
  const auto line = [](const auto& a, const auto& b) { return ts::lerp(a, b, 1.0) - b + ts::lerp(a, b, 0.0) - a; };
  expect_alike(
      run(trace<decltype(line), Float<1>, Float<1>>().view(), {Array({2}, {1e17, -3}), Array({2}, {1, 0.1})})[0].data,
      {0, 0});
  check_gradient<M, M>([](const auto& a, const auto& b) { return ts::lerp(a, b, ts::sigmoid(a)); }, {any(), any(7)});
}

// torch.fmod, torch.remainder and torch.floor_divide; of integers by 0 PyTorch throws.
TEST(Elementwise, Remainders) {
  const auto f = [](const auto& x, const auto& y) {
    return std::tuple(ts::fmod(x, y), ts::remainder(x, y), ts::floor_divide(x, y));
  };
  const Array x({8}, {-7, 7, -7, 7, 6, -0.0, 1, 5}), y({8}, {3, 3, -3, -3, -2, 3, INFINITY, 0});
  const auto of = run(trace<decltype(f), Float<1>, Float<1>>().view(), {x, y});
  expect_alike(of[0].data, {-1, 1, -1, 1, 0, -0.0, 1, NAN});
  expect_alike(of[1].data, {2, 1, -1, -2, 0, -0.0, 1, NAN});
  expect_alike(of[2].data, {-3, 2, 2, -3, -3, -0.0, 0, INFINITY});
  const auto whole = run(trace<decltype(f), Int<1>, Int<1>>().view(),
                         {Array({6}, {-7, 7, -7, 7, 6, -5}), Array({6}, {3, 3, -3, -3, -2, 0})});
  expect_alike(whole[0].data, {-1, 1, -1, 1, 0, -5});
  expect_alike(whole[2].data, {-3, 2, 2, -3, -3, 0});
  const auto bools = [](const auto& a, const auto& b) {
    return ts::cast<std::int32_t>(ts::bitwise_xor(a > 0, b > 0)) + 2 * ts::cast<std::int32_t>(ts::bitwise_not(a > 0)) +
           4 * ts::cast<std::int32_t>(ts::bitwise_and(a > 0, ts::bitwise_or(a > 0, b > 0)));
  };
  expect_alike(
      run(trace<decltype(bools), Float<1>, Float<1>>().view(), {Array({2}, {1, -1}), Array({2}, {1, 1})})[0].data,
      {4, 3});
}

// Special cases of torch.special, scipy.special and NumPy.
TEST(Elementwise, SpecialFunctions) {
  const auto f = [](const auto& x) {
    return std::tuple(ts::sinc(x), ts::signbit(x), ts::nan_to_num(x), ts::heaviside(x, 0.25),
                      ts::nan_to_num(x, 7, 8, 9));
  };
  const double least = -3.4028234663852886e38, gamma = 0.57721566490153286;
  const auto of =
      run(trace<decltype(f), Float<1>>().view(), {Array({8}, {0, -0.0, 1, -1, -0.5, INFINITY, -INFINITY, NAN})});
  expect_alike(of[0].data, {1, 1, 0, 0, 2 / M_PI, NAN, NAN, NAN});
  expect_alike(of[1].data, {0, 1, 0, 1, 1, 0, 1, 0});
  expect_alike(of[2].data, {0, 0, 1, -1, -0.5, -least, least, 0});
  expect_alike(of[3].data, {0.25, 0.25, 1, 0, 0, 1, 0, NAN});
  expect_alike(of[4].data, {0, 0, 1, -1, -0.5, 8, 9, 7});

  const auto g = [](const auto& a, const auto& b) { return std::tuple(ts::xlogy(a, b), ts::copysign(a, b)); };
  const Array a({6}, {0, 0, 2, INFINITY, -INFINITY, -3}), b({6}, {0, NAN, 0, INFINITY, -INFINITY, -0.0});
  const auto pairs = run(trace<decltype(g), Float<1>, Float<1>>().view(), {a, b});
  expect_alike(pairs[0].data, {0, NAN, -INFINITY, INFINITY, NAN, INFINITY});
  expect_alike(pairs[1].data, {0, 0, 2, INFINITY, -INFINITY, -3});

  const auto xlogy = slopes([](const auto& u, const auto& v) { return ts::xlogy(u, v); }, Array({4}, {0, 0, 2, 0}),
                            Array({4}, {0, 2, 4, -1}));
  expect_alike(xlogy.first, {0, std::log(2), std::log(4), 0});
  expect_alike(xlogy.second, {0, 0, 0.5, 0});
  const auto sums = slopes([](const auto& u, const auto& v) { return ts::logaddexp(u, v) + ts::hypot(u, v); },
                           Array({2}, {INFINITY, 0}), Array({2}, {INFINITY, 0}));
  EXPECT_EQ(sums.first[1], 0.5);
  expect_alike(slopes([](const auto& u, const auto& v) { return ts::logaddexp(u, v); },
                      Array({2}, {-INFINITY, INFINITY}), Array({2}, {-INFINITY, 3}))
                   .first,
               {0.5, 1});
  // Integers give f32, but for those that only replace.
  const auto whole = [](const auto& i) { return std::tuple(ts::digamma(i), ts::copysign(i, -1), ts::nan_to_num(i)); };
  const auto integers = run(trace<decltype(whole), Int<1>>().view(), {Array({2}, {1, 2})});
  expect_alike(integers[0].data, {-gamma, 1 - gamma});
  expect_alike(integers[1].data, {-1, -2});
  expect_alike(integers[2].data, {1, 2});
  check_gradient<M, M>([](const auto& u, const auto& v) { return ts::logaddexp(u, v); }, {any(), any()}, second_order);
}

TEST(Elementwise, Classes) {
  const Array x({4}, {NAN, -INFINITY, INFINITY, 1e300});
  const auto classes = [](const auto& v) {
    return ts::cast<std::int32_t>(ts::isnan(v)) + ts::cast<std::int32_t>(ts::isinf(v)) * 2 +
           ts::cast<std::int32_t>(ts::isfinite(v)) * 4;
  };
  expect_alike(run(trace<decltype(classes), Float<1>>().view(), {x})[0].data, {1, 2, 2, 4});
  expect_alike(run(trace<decltype(classes), Int<1>>().view(), {Array({2}, {0, -7})})[0].data, {4, 4});
  check_gradient<M>([](const auto& v) { return ts::square(v) + ts::reciprocal(v * v + 1); }, {any()});
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
