#ifndef TESSERA_DISTRIBUTIONS_TRANSFORMS_HPP
#define TESSERA_DISTRIBUTIONS_TRANSFORMS_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/formula.hpp>

// The transforms of ts::distributions::TransformedDistribution, named as those of torch.distributions.transforms. The
// formulas of a transform y = f(x): f, its inverse, the logarithm of the absolute value of its derivative, and its
// range.

namespace tessera::distributions {

namespace formulas {

struct Exp {
  static constexpr double low = 0, high = ops::infinity;
  static constexpr Value forward(Value x) { return exp(x); }
  static constexpr Value inverse(Value y) { return log(y); }
  static constexpr Value log_slope(Value x, Value) { return x; }
};
struct Sigmoid {
  static constexpr double low = 0, high = 1;
  static constexpr Value forward(Value x) { return sigmoid(x); }
  static constexpr Value inverse(Value y) { return log(y) - log1p(-y); }
  static constexpr Value log_slope(Value x, Value) { return -softplus(-x) - softplus(x); }
};
struct Tanh {
  static constexpr double low = -1, high = 1;
  static constexpr Value forward(Value x) { return build::tanh(x); }
  static constexpr Value inverse(Value y) { return (log1p(y) - log1p(-y)) * 0.5; }
  static constexpr Value log_slope(Value x, Value) { return (-x - softplus(x * -2.0) + log_2) * 2.0; }
};
struct Softplus {
  static constexpr double low = 0, high = ops::infinity;
  static constexpr Value forward(Value x) { return softplus(x); }
  static constexpr Value inverse(Value y) { return log(-expm1(-y)) + y; }
  static constexpr Value log_slope(Value x, Value) { return -softplus(-x); }
};
struct Affine {
  static constexpr double low = -ops::infinity, high = ops::infinity;
  static constexpr Value forward(Value x, Value loc, Value scale) { return loc + scale * x; }
  static constexpr Value inverse(Value y, Value loc, Value scale) { return (y - loc) / scale; }
  static constexpr Value log_slope(Value, Value, Value, Value scale) { return log(abs(scale)); }
  static constexpr Value decreases(Value, Value scale) { return less(scale, 0); }
};
struct Power {
  static constexpr double low = 0, high = ops::infinity;
  static constexpr Value forward(Value x, Value exponent) { return pow(x, exponent); }
  static constexpr Value inverse(Value y, Value exponent) { return pow(y, 1.0 / exponent); }
  static constexpr Value log_slope(Value x, Value y, Value exponent) { return log(abs(exponent * y / x)); }
  static constexpr Value decreases(Value exponent) { return less(exponent, 0); }
};

}  // namespace formulas

/// y = exp(x).
struct ExpTransform {
  using formulas = formulas::Exp;
  static constexpr std::tuple<> parameters() { return {}; }
};
/// y = 1 / (1 + exp(-x)).
struct SigmoidTransform {
  using formulas = formulas::Sigmoid;
  static constexpr std::tuple<> parameters() { return {}; }
};
/// y = tanh(x).
struct TanhTransform {
  using formulas = formulas::Tanh;
  static constexpr std::tuple<> parameters() { return {}; }
};
/// y = log(1 + exp(x)).
struct SoftplusTransform {
  using formulas = formulas::Softplus;
  static constexpr std::tuple<> parameters() { return {}; }
};
/// y = loc + scale x, of floating tensors or numbers; scale is not 0.
template <Operand Loc, Operand Scale> struct AffineTransform {
  using formulas = formulas::Affine;
  Loc loc;
  Scale scale;
  constexpr AffineTransform(const Loc& l, const Scale& s) : loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(loc, scale); }
};
/// y = x to the power of `exponent`, for x above 0; exponent is not 0.
template <Operand Exponent> struct PowerTransform {
  using formulas = formulas::Power;
  Exponent exponent;
  constexpr explicit PowerTransform(const Exponent& e) : exponent(e) {}
  constexpr auto parameters() const { return std::tie(exponent); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
