#ifndef TESSERA_OPS_ELEMENTWISE_ACTIVATION_HPP
#define TESSERA_OPS_ELEMENTWISE_ACTIVATION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/elementwise_operation.hpp>
#include <tessera/ops/elementwise/exponential.hpp>
#include <tessera/ops/elementwise/select.hpp>

namespace tessera::ops {

inline double relu(double x) { return x < 0 ? 0 : x; }
inline double gelu(double x) {
  return x / 2 * (1 + __builtin_tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
inline double silu(double x) { return x / (1 + __builtin_exp(-x)); }

struct ReluOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "relu";
  static constexpr bool of_bools = false;
  static TESSERA_INLINE auto value(const auto& x) { return relu(x); }
  static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0), zero = x.number(0);
    r.add(0, build::select(build::binary(Op::greater, x, zero), r.g(), zero));
  }
};

struct GeluOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "gelu";
  static constexpr std::uint8_t flops = 22, lane_cost = 12;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return gelu(x); }
  static constexpr void gradient(Gradient& r) {
    constexpr double c = 0.79788456080286535588, k = 0.044715;
    const Value x = r.x(0), x2 = x * x;
    const Value t = build::unary(Op::tanh, x * (x2 * (c * k) + c));
    const Value rest = (1.0 - t * t) * x * (x2 * (1.5 * c * k) + 0.5 * c);
    r.add(0, r.g() * (t * 0.5 + 0.5 + rest));
  }
};

struct SiluOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "silu";
  static constexpr std::uint8_t flops = 17, lane_cost = 12;
  static constexpr bool fractional = true;
  static TESSERA_INLINE auto value(const auto& x) { return silu(x); }
  static constexpr void gradient(Gradient& r) {
    const Value x = r.x(0), s = build::unary(Op::sigmoid, x);
    r.add(0, r.g() * (s * (x * (1.0 - s) + 1.0)));
  }
};

using ActivationOperations = OperationList<ReluOp, GeluOp, SiluOp>;

}  // namespace tessera::ops

namespace tessera {

/// max(x, 0) for numbers of any type; -0 stays -0, NaN stays NaN. Exact. The gradient at 0 is 0.
template <TensorOperand X> constexpr auto relu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::ReluOp>>(Source::from(at), x);
}
/// The tanh approximation of gelu: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). gelu(NaN) is NaN, gelu(inf) is inf;
/// gelu(-inf) is -0 for f32 and NaN for f64. Error for x >= 0: 3.2 ulp for f32, 2.3 ulp for f64; the relative error
/// grows with the tail below 0, to 7.6 ulp at -2, 58 ulp at -6 and 156 ulp (f32, at -10), 1600 ulp (f64, at -21).
template <TensorOperand X> constexpr auto gelu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::GeluOp>>(Source::from(at), x);
}
/// x sigmoid(x). silu(NaN) is NaN, silu(inf) is inf; silu(-inf) is -0 for f32 and NaN for f64. Error: 3.7 ulp for f32;
/// 3.4 ulp for f64, but up to 370 ulp for x < -707, where exp(x) is a denormal number.
template <TensorOperand X> constexpr auto silu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::SiluOp>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
