#ifndef TESSERA_OPS_ELEMENTWISE_TRIGONOMETRIC_HPP
#define TESSERA_OPS_ELEMENTWISE_TRIGONOMETRIC_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>
#include <type_traits>

#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>
#include <tessera/ops/elementwise/exponential.hpp>

namespace tessera::ops {

inline double sin(double x) { return __builtin_sin(x); }
inline double cos(double x) { return __builtin_cos(x); }
inline double tan(double x) { return __builtin_tan(x); }
inline double asin(double x) { return __builtin_asin(x); }
inline double acos(double x) { return __builtin_acos(x); }
inline double atan(double x) { return __builtin_atan(x); }
inline double sinh(double x) { return __builtin_sinh(x); }
inline double cosh(double x) { return __builtin_cosh(x); }
inline double asinh(double x) { return __builtin_asinh(x); }
inline double acosh(double x) { return __builtin_acosh(x); }
inline double atanh(double x) { return __builtin_atanh(x); }
inline double atan2(double y, double x) { return __builtin_atan2(y, x); }

/// The angle of (x, y) as C's atan2 has it: xsimd's gives NaN at (0, 0) and at infinities, and ignores the sign of -0.
template <class Batch> TESSERA_INLINE Batch angle(const Batch& y, const Batch& x) {
  using T = typename Batch::value_type;
  const Batch height = abs(y), width = abs(x), less = min(height, width), most = max(height, width);
  const Batch slope = select(most == Batch(T(0)), most, select(height == width, Batch(T(1)), Batch(less / most)));
  const Batch within = atan(slope);  // from 0 to pi/4
  const Batch right = select(height > width, Batch(Batch(T(1.57079632679489661923)) - within), within);
  const Batch upper =
      select(copysign(Batch(T(1)), x) < Batch(T(0)), Batch(Batch(T(3.14159265358979323846)) - right), right);
  return select((x == x) & (y == y), Batch(copysign(upper, y)), Batch(x + y));
}

struct SinOp : FloatingFunction {
  static constexpr std::string_view name = "sin";
  static TESSERA_INLINE auto value(const auto& x) { return sin(x); }
  static constexpr void gradient(Gradient& r);
};

struct CosOp : FloatingFunction {
  static constexpr std::string_view name = "cos";
  static TESSERA_INLINE auto value(const auto& x) { return cos(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, -(r.g() * build::apply<SinOp>(r.x(0)))); }
};
constexpr void SinOp::gradient(Gradient& r) { r.add(0, r.g() * build::apply<CosOp>(r.x(0))); }

struct TanOp : FloatingFunction {
  static constexpr std::string_view name = "tan";
  static constexpr bool divides_in_xsimd = true;
  static TESSERA_INLINE auto value(const auto& x) { return tan(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * (r.y() * r.y() + 1.0)); }
};

struct AsinOp : FloatingFunction {
  static constexpr std::string_view name = "asin";
  static constexpr bool divides_in_xsimd = true;
  static TESSERA_INLINE auto value(const auto& x) { return asin(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::apply<RsqrtOp>(1.0 - r.x(0) * r.x(0))); }
};

struct AcosOp : FloatingFunction {
  static constexpr std::string_view name = "acos";
  static TESSERA_INLINE auto value(const auto& x) { return acos(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, -(r.g() * build::apply<RsqrtOp>(1.0 - r.x(0) * r.x(0)))); }
};

struct AtanOp : FloatingFunction {
  static constexpr std::string_view name = "atan";
  static constexpr bool divides_in_xsimd = true;
  static TESSERA_INLINE auto value(const auto& x) { return atan(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() / (r.x(0) * r.x(0) + 1.0)); }
};

struct SinhOp : FloatingFunction {
  static constexpr std::string_view name = "sinh";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>)
      return sinh(x);
    else
      return unless_nan(x, V(sinh(bounded_exponent(x, 800.0f))));
  }
  static constexpr void gradient(Gradient& r);
};

struct CoshOp : FloatingFunction {
  static constexpr std::string_view name = "cosh";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>)
      return cosh(x);
    else
      return unless_nan(x, V(cosh(bounded_exponent(x, 800.0f))));
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::apply<SinhOp>(r.x(0))); }
};
constexpr void SinhOp::gradient(Gradient& r) { r.add(0, r.g() * build::apply<CoshOp>(r.x(0))); }

struct AsinhOp : FloatingFunction {
  static constexpr std::string_view name = "asinh";
  static constexpr bool divides_in_xsimd = true;
  static TESSERA_INLINE auto value(const auto& x) { return asinh(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::apply<RsqrtOp>(r.x(0) * r.x(0) + 1.0)); }
};

struct AcoshOp : FloatingFunction {
  static constexpr std::string_view name = "acosh";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>)
      return acosh(x);
    else  // xsimd's is infinite of large negative numbers
      return V(select(x < V(1.0f), V(std::numeric_limits<typename V::value_type>::quiet_NaN()), acosh(x)));
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::apply<RsqrtOp>(r.x(0) * r.x(0) - 1.0)); }
};

struct AtanhOp : FloatingFunction {
  static constexpr std::string_view name = "atanh";
  static TESSERA_INLINE auto value(const auto& x) { return atanh(x); }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() / (1.0 - r.x(0) * r.x(0))); }
};

struct Atan2Op : ElementwiseOperation<2> {
  static constexpr std::string_view name = "atan2";
  static constexpr std::uint8_t flops = 30, lane_cost = 30;
  static constexpr bool fractional = true, by_part = true, divides_in_xsimd = true;
  static TESSERA_INLINE auto value(const auto& y, const auto& x) {
    if constexpr (std::is_same_v<decltype(y), const double&>)
      return atan2(y, x);
    else
      return angle(y, x);
  }
  static constexpr void gradient(Gradient& r) {
    const Value y = r.x(0), x = r.x(1), square = x * x + y * y;
    r.add(0, r.g() * (x / square));
    r.add(1, -(r.g() * (y / square)));
  }
};

using TrigonometricOperations =
    OperationList<SinOp, CosOp, TanOp, AsinOp, AcosOp, AtanOp, SinhOp, CoshOp, AsinhOp, AcoshOp, AtanhOp, Atan2Op>;

}  // namespace tessera::ops

namespace tessera {

// Functions of one operand keep its shape and its sharding, and communicate nothing; integers and bools give f32. NaN
// gives NaN. Within 3 ulp.

/// Sine of radians; NaN of infinities. Error: 2.2 ulp for f32, 1.7 ulp for f64. Gradient: cos(x). Shapes, element types
/// and communication of these functions: see `abs`.
template <TensorArgument X> constexpr auto sin(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::SinOp>>(Source::from(at), x);
}
/// Cosine of radians; NaN of infinities. Error: 2.1 ulp for f32, 1.7 ulp for f64. Gradient: -sin(x).
template <TensorArgument X> constexpr auto cos(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::CosOp>>(Source::from(at), x);
}
/// Tangent of radians; NaN of infinities. Error: 3.1 ulp for f32, 2.6 ulp for f64. Gradient: 1 + tan(x)^2.
template <TensorArgument X> constexpr auto tan(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::TanOp>>(Source::from(at), x);
}
/// Arc sine, from -pi/2 to pi/2; NaN outside of [-1, 1]. Error: 2.4 ulp for f32, 1.2 ulp for f64. Gradient: 1 / sqrt(1
/// - x^2), infinite at -1 and 1.
template <TensorArgument X> constexpr auto asin(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::AsinOp>>(Source::from(at), x);
}
/// Arc cosine, from 0 to pi; NaN outside of [-1, 1]. Error: 1.3 ulp for f32, 1.2 ulp for f64. Gradient: -1 / sqrt(1 -
/// x^2), infinite at -1 and 1.
template <TensorArgument X> constexpr auto acos(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::AcosOp>>(Source::from(at), x);
}
/// Arc tangent, from -pi/2 to pi/2. Error: 2.3 ulp for f32 and f64. Gradient: 1 / (1 + x^2).
template <TensorArgument X> constexpr auto atan(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::AtanOp>>(Source::from(at), x);
}
/// Hyperbolic sine; infinite from 89.4 on (of double from 710.5 on). Error: 2.9 ulp for f32, 2.0 ulp for f64. Gradient:
/// cosh(x).
template <TensorArgument X> constexpr auto sinh(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::SinhOp>>(Source::from(at), x);
}
/// Hyperbolic cosine; infinite from 89.4 on (of double from 710.5 on). Error: 2.9 ulp for f32, 2.0 ulp for f64.
/// Gradient: sinh(x).
template <TensorArgument X> constexpr auto cosh(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::CoshOp>>(Source::from(at), x);
}
/// Inverse of sinh. Error: 3.8 ulp for f32, 1.6 ulp for f64. Gradient: 1 / sqrt(x^2 + 1).
template <TensorArgument X> constexpr auto asinh(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::AsinhOp>>(Source::from(at), x);
}
/// Inverse of cosh, at least 0; NaN below 1. Error: 1.9 ulp for f32, 1.8 ulp for f64. Gradient: 1 / sqrt(x^2 - 1),
/// infinite at 1.
template <TensorArgument X> constexpr auto acosh(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::AcoshOp>>(Source::from(at), x);
}
/// Inverse of tanh; infinite at -1 and 1, NaN outside. Error: 1.8 ulp for f32, 1.7 ulp for f64. Gradient: 1 / (1 -
/// x^2).
template <TensorArgument X> constexpr auto atanh(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::AtanhOp>>(Source::from(at), x);
}

/// The angle of the point (x, y), from -pi to pi: the arc tangent of y / x in the quadrant of (x, y). C's special cases
/// (ISO C F.10.1.4), as in PyTorch and JAX: for zeros and infinities the signs decide, so atan2(0, -0) is pi, atan2(-0,
/// 1) is -0; NaN where either operand is. Error: 2.7 ulp. Operands are broadcast against each other and promoted;
/// integers and bools give f32. Gradient: x / (x^2 + y^2) and -y / (x^2 + y^2), NaN at (0, 0) as in PyTorch and JAX.
/// Errors: shape_mismatch. No communication.
template <Operand Y, Operand X>
  requires(TensorOperand<Y> || TensorOperand<X>)
constexpr auto atan2(const Y& y, const X& x, Here at = Here::current()) {
  return call<detail::Binary<ops::Atan2Op>>(Source::from(at), y, x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
