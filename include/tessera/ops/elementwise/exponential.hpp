#ifndef TESSERA_OPS_ELEMENTWISE_EXPONENTIAL_HPP
#define TESSERA_OPS_ELEMENTWISE_EXPONENTIAL_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>
#include <type_traits>

#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera::build {
constexpr Value exp(Value x) { return unary(Op::exp, x); }
constexpr Value log(Value x) { return unary(Op::log, x); }
constexpr Value sqrt(Value x) { return unary(Op::sqrt, x); }
constexpr Value rsqrt(Value x) { return unary(Op::rsqrt, x); }
constexpr Value tanh(Value x) { return unary(Op::tanh, x); }
constexpr Value sigmoid(Value x) { return unary(Op::sigmoid, x); }
}  // namespace tessera::build

namespace tessera::ops {

// Builtins, since including <cmath> costs each translation unit a tenth of a second.
inline double exp(double x) { return __builtin_exp(x); }
inline double log(double x) { return __builtin_log(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline double rsqrt(double x) { return 1 / __builtin_sqrt(x); }
inline double tanh(double x) { return __builtin_tanh(x); }
inline double sigmoid(double x) { return 1 / (1 + __builtin_exp(-x)); }

struct ExpOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "exp";
  static constexpr std::uint8_t flops = 12, lane_cost = 12;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return exp(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * r.y()); }
};

struct LogOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "log";
  static constexpr std::uint8_t flops = 14, lane_cost = 12;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return log(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() / r.x(0)); }
};

struct SqrtOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "sqrt";
  static constexpr std::uint8_t flops = 4, lane_cost = 8;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return sqrt(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * 0.5 / r.y()); }
};

struct RsqrtOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "rsqrt";
  static constexpr std::uint8_t flops = 4, lane_cost = 8;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return rsqrt(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * -0.5 * (r.y() * r.y() * r.y())); }
};

struct TanhOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "tanh";
  static constexpr std::uint8_t flops = 16, lane_cost = 12;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return tanh(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * (1.0 - r.y() * r.y())); }
};

struct SigmoidOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "sigmoid";
  static constexpr std::uint8_t flops = 16, lane_cost = 12;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return sigmoid(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * (r.y() * (1.0 - r.y()))); }
};

inline double erf(double x) { return __builtin_erf(x); }

struct ErfOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "erf";
  static constexpr std::uint8_t flops = 30, lane_cost = 24;
  static constexpr bool fractional = true, by_part = true;
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>) {
      return erf(x);
    } else if constexpr (std::is_same_v<typename V::value_type, double>) {
      // xsimd's erf of doubles has half of their digits, and is NaN of large ones.
      double element[V::size];
      x.store_unaligned(element);
      for (double& v : element) v = erf(v);
      return V::load_unaligned(element);
    } else {
      return V(erf(x));
    }
  }
  static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0);
    r.add(0, r.g() * 1.12837916709551257390 * build::exp(-(x * x)));  // 2/sqrt(pi)
  }
};

inline double expm1(double x) { return __builtin_expm1(x); }
inline double log1p(double x) { return __builtin_log1p(x); }
inline double exp2(double x) { return __builtin_exp2(x); }
inline double log2(double x) { return __builtin_log2(x); }
inline double log10(double x) { return __builtin_log10(x); }

/// A function that gives f32 for integers, and is computed on xsimd batches.
struct FloatingFunction : ElementwiseOperation<1> {
  static constexpr std::uint8_t flops = 20, lane_cost = 24;
  static constexpr bool fractional = true, by_part = true;
};

/// x within [-bound, bound], and 0 for NaN: xsimd converts exponents to integers, which infinities and NaN don't have.
template <class V> TESSERA_INLINE V bounded_exponent(const V& x, float bound) {
  const V most(bound), least(-bound);
  return V(select(x >= least, V(select(x <= most, x, most)), V(select(x < least, least, V(0.0f)))));
}
/// The function of a bounded exponent, or NaN where x is.
template <class V> TESSERA_INLINE V unless_nan(const V& x, const V& result) { return V(select(x == x, result, x)); }

struct Expm1Op : FloatingFunction {
  static constexpr std::string_view name = "expm1";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>) {
      return expm1(x);
    } else {
      // xsimd's is infinite from 88.4 on, and gives 0 for -0.
      const V y = bounded_exponent(x, 800.0f), root = exp(V(y * V(0.5f)));
      return unless_nan(x, V(select(x > V(40.0f), V(root * root), V(select(x == V(0.0f), x, expm1(y))))));
    }
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * (r.y() + 1.0)); }
};

struct Log1pOp : FloatingFunction {
  static constexpr std::string_view name = "log1p";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>)
      return log1p(x);
    else
      return V(select(x == V(0.0f), x, log1p(x)));  // xsimd's gives 0 for -0
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() / (r.x(0) + 1.0)); }
};

struct Exp2Op : FloatingFunction {
  static constexpr std::string_view name = "exp2";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>) {
      return exp2(x);
    } else {
      // xsimd's is infinite from 127 on, and 0 where the result is denormal.
      const auto large = x > V(100.0f), small = x < V(-100.0f);
      const V zero(0.0f), hundred(100.0f), step(select(large, V(1.0f), V(select(small, V(-hundred), zero))));
      const V power = exp2(V(bounded_exponent(x, 1200.0f) - step));
      return unless_nan(x, V(power * select(large, V(2.0f), V(select(small, V(0x1p-100f), V(1.0f))))));
    }
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * r.y() * 0.69314718055994530942); }
};

struct Log2Op : FloatingFunction {
  static constexpr std::string_view name = "log2";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>) {
      return log2(x);
    } else {
      // xsimd's is wrong of denormal doubles: they are multiplied by 2^54.
      using T = typename V::value_type;
      const auto denormal = x < V(std::numeric_limits<T>::min());
      const V power(0x1p54f), part(static_cast<T>(54));
      const V of = log2(V(select(denormal, V(x * power), x)));
      return V(select(denormal, V(of - part), of));
    }
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() / (r.x(0) * 0.69314718055994530942)); }
};

struct Log10Op : FloatingFunction {
  static constexpr std::string_view name = "log10";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>) {
      return log10(x);
    } else {
      // xsimd's is wrong of denormal doubles: they are multiplied by 2^54.
      using T = typename V::value_type;
      const auto denormal = x < V(std::numeric_limits<T>::min());
      const V power(0x1p54f), part(static_cast<T>(16.2556197658549845));
      const V of = log10(V(select(denormal, V(x * power), x)));
      return V(select(denormal, V(of - part), of));
    }
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() / (r.x(0) * 2.30258509299404568402)); }
};

using ExponentialOperations =
    OperationList<ExpOp, LogOp, SqrtOp, RsqrtOp, TanhOp, SigmoidOp, ErfOp, Expm1Op, Log1pOp, Exp2Op, Log2Op, Log10Op>;

}  // namespace tessera::ops

namespace tessera {

/// e^x. exp(-inf) is 0, exp(inf) and overflow give inf, NaN gives NaN. Error: 1.1 ulp for f32 and f64, denormal results
/// included. Shapes, element types and communication of these functions: see `abs`.
template <TensorArgument X> constexpr auto exp(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::ExpOp>>(Source::from(at), x);
}
/// The natural logarithm. log(0) is -inf, log(inf) is inf; NaN for x < 0 and NaN. Error: 0.9 ulp for f32, 0.8 ulp for
/// f64.
template <TensorArgument X> constexpr auto log(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::LogOp>>(Source::from(at), x);
}
/// The square root, correctly rounded (0.5 ulp). sqrt(-0) is -0; NaN for x < 0 and NaN. The gradient at 0 is inf.
template <TensorArgument X> constexpr auto sqrt(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::SqrtOp>>(Source::from(at), x);
}
/// 1 / sqrt(x). rsqrt(0) is inf, rsqrt(-0) is -inf, rsqrt(inf) is 0; NaN for x < 0 and NaN. Error: 1.5 ulp.
template <TensorArgument X> constexpr auto rsqrt(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::RsqrtOp>>(Source::from(at), x);
}
/// The hyperbolic tangent, in [-1, 1]; tanh(-0) is -0, NaN gives NaN. Error: 3.0 ulp for f32, 2.5 ulp for f64.
template <TensorArgument X> constexpr auto tanh(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::TanhOp>>(Source::from(at), x);
}
/// 1 / (1 + e^-x), in [0, 1]; 0 and 1 at the infinities, NaN gives NaN. Error: 2.7 ulp for f32, 2.8 ulp for f64.
template <TensorArgument X> constexpr auto sigmoid(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::SigmoidOp>>(Source::from(at), x);
}

/// The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x; -1 and 1 at the infinities, NaN gives
/// NaN. Error: 2.4 ulp for f32; 1.1 ulp for f64, which the C library computes element by element.
template <TensorArgument X> constexpr auto erf(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::ErfOp>>(Source::from(at), x);
}

/// exp(x) - 1, accurate where x is near 0. Error: 3.2 ulp for f32, 2.6 ulp for f64. Gradient: exp(x).
template <TensorArgument X> constexpr auto expm1(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::Expm1Op>>(Source::from(at), x);
}
/// log(1 + x), accurate where x is near 0; -infinity at -1, NaN below. Error: 0.9 ulp for f32, 0.8 ulp for f64.
/// Gradient: 1 / (1 + x).
template <TensorArgument X> constexpr auto log1p(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::Log1pOp>>(Source::from(at), x);
}
/// 2 to the power x. Error: 1.6 ulp for f32, 1.4 ulp for f64. Gradient: log(2) 2^x.
template <TensorArgument X> constexpr auto exp2(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::Exp2Op>>(Source::from(at), x);
}
/// Logarithm to base 2; -infinity at 0, NaN below. Error: 1.7 ulp for f32, 0.8 ulp for f64. Gradient: 1 / (x log 2).
template <TensorArgument X> constexpr auto log2(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::Log2Op>>(Source::from(at), x);
}
/// Logarithm to base 10; -infinity at 0, NaN below. Error: 1.0 ulp for f32, 0.7 ulp for f64. Gradient: 1 / (x log 10).
template <TensorArgument X> constexpr auto log10(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::Log10Op>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
