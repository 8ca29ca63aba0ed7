// Activations and elementwise functions against PyTorch 1.13.1 (tests/reference/generate.py).
#include <cmath>
#include <cstdint>
#include <string>

#include "../../support/reference.hpp"
#include <gtest/gtest.h>

#include <tessera/nn/nn.hpp>

namespace ts = tessera;

namespace {

using reference::types;
template <class T> using Vector = ts::ShardedTensor<T, 1>;
template <class T> using Matrix = ts::ShardedTensor<T, 2>;
using IntVector = ts::ShardedTensor<std::int32_t, 1>;

#define CASE(name, ...) cases.check(types<Vector<T>>, name, [](const auto& x) { return __VA_ARGS__; })
#define BOTH(name, ...)    \
  CASE(name, __VA_ARGS__); \
  CASE(name "_edges", __VA_ARGS__)
#define PAIR(name, ...) \
  cases.check(types<Vector<T>, Vector<T>>, name, [](const auto& x, const auto& y) { return __VA_ARGS__; })
#define INTS(name, ...) \
  cases.check(types<IntVector, IntVector>, name, [](const auto& x, const auto& y) { return __VA_ARGS__; })

constexpr reference::Bound of_each{.f64 = 16, .f32 = 8, .least = 0}, near_one{.f64 = 16, .f32 = 8, .least = 1};

template <class T> void activations() {
  reference::Cases<T> cases("activations", near_one);
  BOTH("relu", ts::relu(x));
  BOTH("gelu", ts::gelu(x));
  BOTH("silu", ts::silu(x));
  BOTH("leaky_relu", ts::leaky_relu(x));
  BOTH("leaky_relu_slope", ts::leaky_relu(x, 0.25));
  BOTH("elu", ts::elu(x));
  BOTH("elu_alpha", ts::elu(x, 0.5));
  BOTH("celu", ts::celu(x, 0.5));
  BOTH("selu", ts::selu(x));
  // PyTorch's softplus is x above 20, and its slope 1.
  cases.set_bound({.f64 = 512, .f32 = 8, .least = 1});
  CASE("softplus", ts::softplus(x));
  CASE("softplus_beta", ts::softplus(x, 2.0));
  cases.set_bound(of_each);
  CASE("softplus_edges", ts::softplus(x));
  CASE("softplus_beta_edges", ts::softplus(x, 2.0));
  cases.set_bound(near_one);
  BOTH("mish", ts::mish(x));
  BOTH("logsigmoid", ts::logsigmoid(x));
  BOTH("softsign", ts::softsign(x));
  BOTH("hardtanh", ts::hardtanh(x, -0.75, 1.25));
  BOTH("threshold", ts::threshold(x, 0.25, -3.0));
  BOTH("softshrink", ts::softshrink(x));
  BOTH("hardshrink", ts::hardshrink(x));
  BOTH("tanhshrink", ts::tanhshrink(x));
  BOTH("relu6", ts::relu6(x));
  BOTH("hardsigmoid", ts::hardsigmoid(x));
  BOTH("hardswish", ts::hardswish(x));
  BOTH("sigmoid", ts::sigmoid(x));
  BOTH("tanh", ts::tanh(x));
  BOTH("sin", ts::sin(x));
  BOTH("cos", ts::cos(x));
  BOTH("atan", ts::atan(x));
  BOTH("asinh", ts::asinh(x));
  BOTH("exp", ts::exp(x));
  BOTH("expm1", ts::expm1(x));
  BOTH("erf", ts::erf(x));
  BOTH("erfc", ts::erfc(x));
  BOTH("abs", ts::abs(x));
  BOTH("square", ts::square(x));
  BOTH("sinc", ts::sinc(x));
  BOTH("exp2", ts::exp2(x));
  CASE("floor", ts::floor(x));
  CASE("ceil", ts::ceil(x));
  CASE("trunc", ts::trunc(x));
  CASE("round", ts::round(x));
  CASE("sign", ts::sign(x));
  BOTH("log", ts::log(x));
  BOTH("log2", ts::log2(x));
  BOTH("log10", ts::log10(x));
  BOTH("log1p", ts::log1p(x));
  BOTH("sqrt", ts::sqrt(x));
  BOTH("rsqrt", ts::rsqrt(x));
  BOTH("reciprocal", ts::reciprocal(x));
  BOTH("lgamma", ts::lgamma(x));
  // The trigamma function of PyTorch 1.13 has only nine digits.
  cases.set_bound({.f64 = 4e6, .f32 = 8, .least = 1});
  CASE("digamma", ts::digamma(x));
  CASE("polygamma1", ts::polygamma(1, x));
  cases.set_bound(near_one);
  CASE("digamma_edges", ts::digamma(x));
  CASE("polygamma3", ts::polygamma(3, x));
  CASE("i0", ts::i0(x));
  CASE("i1", ts::i1(x));
  CASE("i0e", ts::i0e(x));
  CASE("i1e", ts::i1e(x));
  BOTH("erfinv", ts::erfinv(x));
  BOTH("asin", ts::asin(x));
  BOTH("acos", ts::acos(x));
  BOTH("atanh", ts::atanh(x));
  CASE("acosh", ts::acosh(x));
  CASE("logit", ts::logit(x));
  CASE("nan_to_num", ts::nan_to_num(x, 0.5, 8.0, -9.0));
  CASE("clamp", ts::clamp(x, -0.5, 1.5));
  cases.check(types<Matrix<T>>, "softmax", [](const auto& x) { return ts::softmax<0>(x); });
  cases.check(types<Matrix<T>>, "log_softmax", [](const auto& x) { return ts::log_softmax(x); });
}

template <class T> void binary() {
  reference::Cases<T> cases("binary", of_each);
  PAIR("remainder", ts::remainder(x, y));
  PAIR("remainder_edges", ts::remainder(x, y));
  INTS("remainder_i32", ts::remainder(x, y));
  PAIR("fmod", ts::fmod(x, y));
  PAIR("fmod_edges", ts::fmod(x, y));
  INTS("fmod_i32", ts::fmod(x, y));
  PAIR("floor_divide", ts::floor_divide(x, y));
  PAIR("floor_divide_edges", ts::floor_divide(x, y));
  INTS("floor_divide_i32", ts::floor_divide(x, y));
  PAIR("pow", ts::pow(x, y));
  PAIR("pow_edges", ts::pow(x, y));
  CASE("pow_0", ts::pow(x, 0.0));
  CASE("pow_1", ts::pow(x, 1.0));
  CASE("pow_2", ts::pow(x, 2.0));
  CASE("pow_3", ts::pow(x, 3.0));
  CASE("pow_minus_1", ts::pow(x, -1.0));
  INTS("pow_i32", ts::pow(x, y));
  PAIR("atan2", ts::atan2(x, y));
  PAIR("atan2_edges", ts::atan2(x, y));
  PAIR("hypot", ts::hypot(x, y));
  PAIR("hypot_edges", ts::hypot(x, y));
  PAIR("logaddexp", ts::logaddexp(x, y));
  PAIR("logaddexp_edges", ts::logaddexp(x, y));
  PAIR("copysign", ts::copysign(x, y));
  PAIR("copysign_edges", ts::copysign(x, y));
  PAIR("xlogy", ts::xlogy(x, y));
  PAIR("xlogy_edges", ts::xlogy(x, y));
  PAIR("heaviside", ts::heaviside(x, y));
  PAIR("maximum", ts::maximum(x, y));
  PAIR("maximum_edges", ts::maximum(x, y));
  PAIR("minimum", ts::minimum(x, y));
  PAIR("minimum_edges", ts::minimum(x, y));
  cases.check(types<Vector<T>, Vector<T>, Vector<T>>, "lerp",
              [](const auto& a, const auto& b, const auto& weight) { return ts::lerp(a, b, weight); });
  PAIR("div", x / y);
  PAIR("div_edges", x / y);
  PAIR("isclose", ts::isclose(x, y, 1e-3, 1e-4));
}

#undef CASE
#undef BOTH
#undef PAIR
#undef INTS

TEST(ReferenceOfPyTorch, Activations) { activations<double>(); }
TEST(ReferenceOfPyTorch, BinaryFunctions) { binary<double>(); }

}  // namespace
