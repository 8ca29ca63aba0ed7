#ifndef TESSERA_OPS_ELEMENTWISE_ROUNDING_HPP
#define TESSERA_OPS_ELEMENTWISE_ROUNDING_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera::ops {

inline double floor(double x) { return __builtin_floor(x); }
inline double ceil(double x) { return __builtin_ceil(x); }
inline double trunc(double x) { return __builtin_trunc(x); }
inline double nearbyint(double x) { return __builtin_nearbyint(x); }
inline double copysign(double x, double y) { return __builtin_copysign(x, y); }

/// The gradient is 0 everywhere. xsimd loses the sign of results that are zero.
struct RoundingFunction : ElementwiseOperation<1> {
  static constexpr std::uint8_t lane_cost = 2;
  static constexpr bool of_bools = false, by_part = true;
};

struct FloorOp : RoundingFunction {
  static constexpr std::string_view name = "floor";
  static TESSERA_INLINE auto value(const auto& x) { return copysign(floor(x), x); }
};

struct CeilOp : RoundingFunction {
  static constexpr std::string_view name = "ceil";
  static TESSERA_INLINE auto value(const auto& x) { return copysign(ceil(x), x); }
};

struct TruncOp : RoundingFunction {
  static constexpr std::string_view name = "trunc";
  static TESSERA_INLINE auto value(const auto& x) { return copysign(trunc(x), x); }
};

struct RoundOp : RoundingFunction {
  static constexpr std::string_view name = "round";
  static TESSERA_INLINE auto value(const auto& x) { return copysign(nearbyint(x), x); }
};

using RoundingOperations = OperationList<FloorOp, CeilOp, TruncOp, RoundOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {
/// Integers are whole already.
template <class Operation> struct Rounding : Unary<Operation> {
  static constexpr Value emit(Value context, Value x) {
    return is_floating(x.dtype()) ? Unary<Operation>::emit(context, x) : x;
  }
};
/// What trunc leaves: x minus its whole part.
struct FracTag : Unary<ops::TruncOp> {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return is_floating(x.dtype()) ? x - build::apply<ops::TruncOp>(x) : x - x;
  }
};
}  // namespace detail

// The result has the element type, the shape and the sharding of the operand, and nothing is communicated. Integers are
// given as they are, NaN gives NaN, infinities and the sign of zeros are kept. The gradient is 0. Exact.

/// The largest whole number that is at most x; integers stay as they are. Exact. The gradient is 0. Shapes, element
/// types and communication of these functions: see `abs`.
template <TensorArgument X> constexpr auto floor(const X& x, Here at = Here::current()) {
  return call<detail::Rounding<ops::FloorOp>>(Source::from(at), x);
}
/// The smallest whole number that is at least x. Otherwise as floor.
template <TensorArgument X> constexpr auto ceil(const X& x, Here at = Here::current()) {
  return call<detail::Rounding<ops::CeilOp>>(Source::from(at), x);
}
/// x without its fraction, towards 0. Otherwise as floor.
template <TensorArgument X> constexpr auto trunc(const X& x, Here at = Here::current()) {
  return call<detail::Rounding<ops::TruncOp>>(Source::from(at), x);
}
/// The nearest whole number; halves are rounded to the even neighbour, as in PyTorch, JAX and IEEE 754: 0.5 gives 0 and
/// 1.5 gives 2. Otherwise as floor.
template <TensorArgument X> constexpr auto round(const X& x, Here at = Here::current()) {
  return call<detail::Rounding<ops::RoundOp>>(Source::from(at), x);
}

/// The fraction of x with its sign, x - trunc(x), as torch.frac: 0.25 of 3.25, -0.25 of -3.25. NaN of infinities, 0 of
/// integers, which torch.frac refuses. The gradient is 1.
template <TensorArgument X> constexpr auto frac(const X& x, Here at = Here::current()) {
  return call<detail::FracTag>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
