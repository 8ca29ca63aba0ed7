#include "scalar_ops.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

#include <tessera/ops/rows.hpp>

namespace oracle {

namespace {

/// The sum of (x + k)^-s over k, for x above 0; of s = 1 less the logarithm: minus digamma. With the first terms of
/// Euler and Maclaurin's formula behind the 400th.
double sum_of_powers(double s, double x) {
  double sum = 0;
  for (int k = 0; k < 400; ++k, x += 1) sum += std::pow(x, -s);
  const double rest = s == 1 ? -std::log(x) : std::pow(x, 1 - s) / (s - 1);
  return sum + rest + std::pow(x, -s) / 2 + s * std::pow(x, -s - 1) / 12;
}
/// The integral of t^(a - 1) exp(-t) / gamma(a) from 0 to x: of u = t^a, whose integrand has no pole, by Simpson's
/// rule.
double lower_gamma(double a, double x) {
  const int steps = 20000;
  const double end = std::pow(x, a), width = end / steps;
  double sum = 0;
  for (int i = 0; i <= steps; ++i)
    sum += std::exp(-std::pow(i * width, 1 / a)) * (i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2);
  return sum * width / 3 / std::tgamma(a + 1);
}
double polygamma(double n, double x) {
  n = std::trunc(n);
  return (std::fmod(n, 2) == 0 ? -1 : 1) * std::tgamma(n + 1) * sum_of_powers(n + 1, x);
}

}  // namespace

double to_integer(DType type, double number) {
  return tessera::dispatch(
      type,
      [&]<class T>() {
        const auto least = static_cast<double>(std::numeric_limits<T>::lowest()),
                   most = static_cast<double>(std::numeric_limits<T>::max());
        return std::isnan(number) ? 0.0 : std::clamp(std::trunc(number), least, most);
      },
      []() -> double { throw std::logic_error("to_integer: not an integer type"); });
}

double apply(Op op, DType to, DType from, double a, double b, double c) {
  if (op == tessera::ops::op_v<tessera::ops::CastOp> && is_floating(from) && !is_floating(to) && to != DType::bool_)
    return to_integer(to, a);
  if (op == tessera::ops::op_v<tessera::ops::ErfOp>) return std::erf(a);
  if (op == tessera::ops::op_v<tessera::ops::Atan2Op>) return std::atan2(a, b);
  if (op == tessera::ops::op_v<tessera::ops::PolygammaOp>) return polygamma(a, b);
  if (op == tessera::ops::op_v<tessera::ops::HypotOp>) return std::hypot(a, b);
  if (op == tessera::ops::op_v<tessera::ops::IgammaOp>) return lower_gamma(a, b);
  if (op == tessera::ops::op_v<tessera::ops::IgammacOp>) return 1 - lower_gamma(a, b);
  if (op == tessera::ops::op_v<tessera::ops::ZetaOp>) return sum_of_powers(a, b);
  if (op == tessera::ops::op_v<tessera::ops::GcdOp>)
    return static_cast<double>(std::gcd(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
  if (op == tessera::ops::op_v<tessera::ops::LogAddExpOp>) return std::log(std::exp(a) + std::exp(b));
  if (op == tessera::ops::op_v<tessera::ops::FmodOp>) return b == 0 && !is_floating(to) ? a : std::fmod(a, b);
  const auto whole = [](double number) { return static_cast<std::int64_t>(number); };
  const bool outside = b < 0 || b >= static_cast<double>(8 * tessera::size_of(to));
  if (op == tessera::ops::op_v<tessera::ops::BitwiseAndOp>) return static_cast<double>(whole(a) & whole(b));
  if (op == tessera::ops::op_v<tessera::ops::BitwiseOrOp>) return static_cast<double>(whole(a) | whole(b));
  if (op == tessera::ops::op_v<tessera::ops::BitwiseXorOp>) return static_cast<double>(whole(a) ^ whole(b));
  if (op == tessera::ops::op_v<tessera::ops::BitwiseNotOp>) return -1 - a;
  if (op == tessera::ops::op_v<tessera::ops::LeftShiftOp>) return outside ? 0 : a * std::exp2(b);
  if (op == tessera::ops::op_v<tessera::ops::RightShiftOp>)
    return outside ? (a < 0 ? -1 : 0) : std::floor(a / std::exp2(b));
  static const std::map<Op, double (*)(double)> functions = {
      {tessera::ops::op_v<tessera::ops::SoftplusOp>,
       [](double x) { return std::log1p(std::exp(-std::fabs(x))) + std::fmax(x, 0); }},
      {tessera::ops::op_v<tessera::ops::ErfcOp>, std::erfc},
      {tessera::ops::op_v<tessera::ops::ErfinvOp>,
       [](double x) {  // bisection
         double low = -6, high = 6;
         for (int i = 0; i < 60; ++i) (std::erf((low + high) / 2) < x ? low : high) = (low + high) / 2;
         return low;
       }},
      {tessera::ops::op_v<tessera::ops::LgammaOp>, [](double x) { return std::log(std::fabs(std::tgamma(x))); }},
      {tessera::ops::op_v<tessera::ops::DigammaOp>, [](double x) { return polygamma(0, x); }},
      {tessera::ops::op_v<tessera::ops::I0Op>, [](double x) { return std::cyl_bessel_i(0, std::fabs(x)); }},
      {tessera::ops::op_v<tessera::ops::I1Op>,
       [](double x) { return std::copysign(std::cyl_bessel_i(1, std::fabs(x)), x); }},
      {tessera::ops::op_v<tessera::ops::I0eOp>,
       [](double x) { return std::exp(-std::fabs(x)) * std::cyl_bessel_i(0, std::fabs(x)); }},
      {tessera::ops::op_v<tessera::ops::I1eOp>,
       [](double x) { return std::exp(-std::fabs(x)) * std::copysign(std::cyl_bessel_i(1, std::fabs(x)), x); }},
      {tessera::ops::op_v<tessera::ops::SinOp>, std::sin},
      {tessera::ops::op_v<tessera::ops::CosOp>, std::cos},
      {tessera::ops::op_v<tessera::ops::TanOp>, std::tan},
      {tessera::ops::op_v<tessera::ops::AsinOp>, std::asin},
      {tessera::ops::op_v<tessera::ops::AcosOp>, std::acos},
      {tessera::ops::op_v<tessera::ops::AtanOp>, std::atan},
      {tessera::ops::op_v<tessera::ops::SinhOp>, std::sinh},
      {tessera::ops::op_v<tessera::ops::CoshOp>, std::cosh},
      {tessera::ops::op_v<tessera::ops::AsinhOp>, std::asinh},
      {tessera::ops::op_v<tessera::ops::AcoshOp>, std::acosh},
      {tessera::ops::op_v<tessera::ops::AtanhOp>, std::atanh},
      {tessera::ops::op_v<tessera::ops::Expm1Op>, std::expm1},
      {tessera::ops::op_v<tessera::ops::Log1pOp>, std::log1p},
      {tessera::ops::op_v<tessera::ops::Exp2Op>, std::exp2},
      {tessera::ops::op_v<tessera::ops::Log2Op>, std::log2},
      {tessera::ops::op_v<tessera::ops::Log10Op>, std::log10},
      {tessera::ops::op_v<tessera::ops::FloorOp>, std::floor},
      {tessera::ops::op_v<tessera::ops::CeilOp>, std::ceil},
      {tessera::ops::op_v<tessera::ops::TruncOp>, std::trunc},
      {tessera::ops::op_v<tessera::ops::RoundOp>, std::nearbyint},
  };
  if (const auto found = functions.find(op); found != functions.end()) return found->second(a);
  switch (op) {
    case Op::neg:
      return -a;
    case Op::abs:
      return std::fabs(a);
    case Op::exp:
      return std::exp(a);
    case Op::log:
      return std::log(a);
    case Op::sqrt:
      return std::sqrt(a);
    case Op::rsqrt:
      return 1 / std::sqrt(a);
    case Op::tanh:
      return std::tanh(a);
    case Op::sigmoid:
      return 1 / (1 + std::exp(-a));
    case Op::relu:
      return a <= 0 ? 0 : a;  // NaN stays
    case Op::gelu:
      return 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)));
    case Op::silu:
      return a / (1 + std::exp(-a));
    case Op::sign:
      return a > 0 ? 1 : a < 0 ? -1 : 0;
    case Op::logical_not:
      return a == 0;
    case Op::broadcast:
      return a;
    case Op::cast:
      if (to == DType::bool_) return a != 0;
      // Only a cast to 16 or 8 bits rounds; other results of such types may stay unrounded inside a fused kernel.
      if (tessera::computed_as(to) != to) return tessera::rounded_to(to, a);
      return is_floating(from) && !is_floating(to) ? std::trunc(a) : a;
    case Op::add:  // of bools: or; their product: and
      return to == DType::bool_ ? a != 0 || b != 0 : a + b;
    case Op::sub:
      return a - b;
    case Op::mul:
      return a * b;
    case Op::div:
      return is_floating(to) ? a / b : b == 0 ? 0 : std::trunc(a / b);
    case Op::pow:
      return std::pow(a, b);
    case Op::minimum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
    case Op::maximum:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
    case Op::equal:
      return a == b;
    case Op::not_equal:
      return a != b;
    case Op::less:
      return a < b;
    case Op::less_equal:
      return a <= b;
    case Op::greater:
      return a > b;
    case Op::greater_equal:
      return a >= b;
    case Op::logical_and:
      return a != 0 && b != 0;
    case Op::logical_or:
      return a != 0 || b != 0;
    case Op::select:
      return a != 0 ? b : c;
    default:
      throw std::logic_error("oracle: an operation it does not know: " + std::to_string(static_cast<int>(op)));
  }
}

}  // namespace oracle
