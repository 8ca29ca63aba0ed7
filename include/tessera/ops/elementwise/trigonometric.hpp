#ifndef TESSERA_OPS_ELEMENTWISE_TRIGONOMETRIC_HPP
#define TESSERA_OPS_ELEMENTWISE_TRIGONOMETRIC_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera::ops {

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

struct Atan2Op : ElementwiseOperation<2> {
  static constexpr std::string_view name = "atan2";
  static constexpr std::uint8_t flops = 30, lane_cost = 30;
  static constexpr bool fractional = true, by_part = true;
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

using TrigonometricOperations = OperationList<Atan2Op>;

}  // namespace tessera::ops

namespace tessera {

/// The angle of the point (x, y), from -pi to pi: the arc tangent of y / x in the quadrant of (x, y). C's special cases
/// (ISO C F.10.1.4), which PyTorch and JAX have too: of zeros and infinities the signs say the angle, atan2(0, -0) is
/// pi, atan2(-0, 1) is -0; NaN where either operand is. Within 2.5 ulp. Operands are broadcast against each other and
/// promoted; of integers and bools the result is f32. Gradient: x / (x^2 + y^2) and -y / (x^2 + y^2), NaN at (0, 0) as
/// in PyTorch and JAX. Errors: shape_mismatch. No communication.
template <Operand Y, Operand X>
  requires(TensorOperand<Y> || TensorOperand<X>)
constexpr auto atan2(const Y& y, const X& x, Here at = Here::current()) {
  return call<detail::Binary<ops::Atan2Op>>(Source::from(at), y, x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
