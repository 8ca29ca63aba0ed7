#ifndef TESSERA_OPS_ELEMENTWISE_ACTIVATION_HPP
#define TESSERA_OPS_ELEMENTWISE_ACTIVATION_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/ops/elementwise/comparison.hpp>
#include <tessera/ops/elementwise/composition.hpp>
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
    r.add(0, build::select(build::greater(x, zero), r.g(), zero));
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
    const Value t = build::tanh(x * (x2 * (c * k) + c));
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
    const Value x = r.x(0), s = build::sigmoid(x);
    r.add(0, r.g() * (s * (x * (1.0 - s) + 1.0)));
  }
};

/// An operation of its own since compositions with abs or maximum have no smooth gradient at 0.
struct SoftplusOp : FloatingFunction {
  static constexpr std::string_view name = "softplus";
  static TESSERA_INLINE auto value(const auto& x) {
    using V = std::remove_cvref_t<decltype(x)>;
    if constexpr (std::is_same_v<V, double>)
      return maximum(x, 0) + log1p(exp(-abs(x)));
    else
      return unless_nan(x, V(max(x, V(0.0f)) + log1p(exp(V(V(0.0f) - bounded_exponent(V(abs(x)), 800.0f))))));
  }
  static constexpr void gradient(Gradient& r) { r.add(0, r.g() * build::sigmoid(r.x(0))); }
};

using ActivationOperations = OperationList<ReluOp, GeluOp, SiluOp, SoftplusOp>;

}  // namespace tessera::ops

namespace tessera {

namespace detail {

constexpr Value above_zero(Value x, Value yes, Value no) {
  return build::select(build::greater(x, x.number(0)), yes, no);
}
/// x between the bounds, and the bound at and beyond it: the gradient is 0 there, as for PyTorch's hardtanh.
constexpr Value bounded(Value x, double low, double high) {
  const Value least = x.number(low), most = x.number(high);
  return build::select(build::less_equal(x, least), least, build::select(build::greater_equal(x, most), most, x));
}
/// alpha (exp(x / width) - 1) below 0, and x above. The branch not taken stays finite: 0 times infinity is NaN.
constexpr Value exponential_below(Value x, Value alpha, Value width) {
  const Value negative = above_zero(x, x.number(0), x);
  return above_zero(x, x, alpha * build::apply<ops::Expm1Op>(negative / width));
}

struct LeakyReluTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x, Value slope) {
    x = x.at(context.source);
    return above_zero(x, x, x * slope);
  }
};
struct PReluTag : Binary<ops::DivOp> {
  static constexpr const char* function = "prelu";
  template <class X, class Weight> struct result : Binary<ops::DivOp>::result<X, Weight> {
    using Ranks = decltype([] {
      static_assert(Weight::rank <= 1 && Weight::rank <= X::rank,
                    "tessera: the weight of prelu has rank 0 or 1: one number, or one for each feature, the last dim");
    });
  };
  // The product is 0 where x is above 0: infinity times a cotangent of 0 is NaN.
  static constexpr Value emit(Value context, Value x, Value weight) {
    x = x.at(context.source);
    return above_zero(x, x, weight * above_zero(x, x.number(0), x));
  }
};
struct EluTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x, Value alpha) {
    x = x.at(context.source);
    return exponential_below(x, alpha, x.number(1));
  }
};
struct CeluTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x, Value alpha) {
    return exponential_below(x.at(context.source), alpha, alpha);
  }
};
struct SeluTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return exponential_below(x, x.number(1.6732632423543772848), x.number(1)) * 1.0507009873554804934;
  }
};
struct SoftplusTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x, Value beta) {
    x = x.at(context.source);
    return build::apply<ops::SoftplusOp>(x * beta) / beta;
  }
};
struct MishTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return x * build::tanh(build::apply<ops::SoftplusOp>(x));
  }
};
struct LogSigmoidTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) { return -build::apply<ops::SoftplusOp>(-x.at(context.source)); }
};
struct SoftsignTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return x / (build::abs(x) + 1.0);
  }
};
struct Relu6Tag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) { return bounded(x.at(context.source), 0, 6); }
};
struct HardsigmoidTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) { return bounded(x.at(context.source) + 3.0, 0, 6) * (1.0 / 6); }
};
/// x at and between the bounds replaced by 0, or moved towards 0 by a bound beyond them.
template <bool Soft> struct ShrinkTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x, Value bound) {
    x = x.at(context.source);
    const Value zero = x.number(0);
    const Value below = build::select(build::less(x, -bound), Soft ? x + bound : x, zero);
    const Value shrunk = build::select(build::greater(x, bound), Soft ? x - bound : x, below);
    return build::select(build::not_equal(x, x), x, shrunk);
  }
};
struct TanhshrinkTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return x - build::tanh(x);
  }
};
struct ThresholdTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x, Value threshold, Value value) {
    x = x.at(context.source);
    return build::select(build::less_equal(x, threshold), value, x);
  }
};
struct HardtanhTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x, Value low, Value high) {
    x = x.at(context.source);
    return build::select(build::less_equal(x, low), low, build::select(build::greater_equal(x, high), high, x));
  }
};
struct LogitTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return build::log(x / (1.0 - x));
  }
};
struct HardswishTag : FloatingComposition {
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    return x * bounded(x + 3.0, 0, 6) * (1.0 / 6);
  }
};

}  // namespace detail

/// max(x, 0) for numbers of any type; -0 stays -0, NaN stays NaN. Exact. The gradient at 0 is 0. Shapes, element types
/// and communication of activations: see `abs`.
template <TensorArgument X> constexpr auto relu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::ReluOp>>(Source::from(at), x);
}
/// The tanh approximation of gelu: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). gelu(NaN) is NaN, gelu(inf) is inf;
/// gelu(-inf) is -0 for f32 and NaN for f64. Error for x >= 0: 3.2 ulp for f32, 2.3 ulp for f64; the relative error
/// grows with the tail below 0, to 7.6 ulp at -2, 58 ulp at -6 and 156 ulp (f32, at -10), 1600 ulp (f64, at -21).
template <TensorArgument X> constexpr auto gelu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::GeluOp>>(Source::from(at), x);
}
/// x sigmoid(x). silu(NaN) is NaN, silu(inf) is inf; silu(-inf) is -0 for f32 and NaN for f64. Error: 3.7 ulp for f32;
/// 3.4 ulp for f64, but up to 370 ulp for x < -707, where exp(x) is a denormal number.
template <TensorArgument X> constexpr auto silu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::SiluOp>>(Source::from(at), x);
}

// Activations below keep shape and sharding, communicate nothing, and give f32 for integers; NaN gives NaN. Gradients
// at kinks are PyTorch's. Errors were measured against long double.

/// x where it is above 0, slope x elsewhere. Error: .5 ulp. The gradient at 0 is the slope.
template <TensorArgument X, NumberOperand N = double>
constexpr auto leaky_relu(const X& x, const N& slope = 0.01, Here at = Here::current()) {
  return call<detail::LeakyReluTag>(Source::from(at), x, slope);
}
/// x where it is above 0, weight x elsewhere, as torch.nn.functional.prelu. The weight, which is trained, has rank 0,
/// or is a vector with an element for each feature, the last dim of x. Gradients: of x 1 above 0, elsewhere the weight;
/// of the weight the sum of x up to 0. NaN gives NaN. Correctly rounded (0.5 ulp). Errors: shape_mismatch. Source: He
/// and others, 1502.01852.
template <TensorArgument X, Operand Weight>
constexpr auto prelu(const X& x, const Weight& weight, Here at = Here::current()) {
  return call<detail::PReluTag>(Source::from(at), x, weight);
}
/// x where it is above 0, alpha (exp(x) - 1) elsewhere. Error: 2 ulp, for an alpha that is no power of 2 .5 ulp more.
/// The gradient at 0 is alpha. Source: Clevert and others, 1511.07289.
template <TensorArgument X, NumberOperand N = double>
constexpr auto elu(const X& x, const N& alpha = 1.0, Here at = Here::current()) {
  return call<detail::EluTag>(Source::from(at), x, alpha);
}
/// x where it is above 0, alpha (exp(x / alpha) - 1) elsewhere: its slope is continuous. Error: 1.8 ulp of alpha = 3/4.
/// Source: Barron, 1704.07483.
template <TensorArgument X, NumberOperand N = double>
constexpr auto celu(const X& x, const N& alpha = 1.0, Here at = Here::current()) {
  return call<detail::CeluTag>(Source::from(at), x, alpha);
}
/// 1.0507 elu(x, 1.6733), which keeps mean 0 and variance 1. Error: 2.2 ulp for f32, 2.8 ulp for f64. Source: Klambauer
/// and others, 1706.02515.
template <TensorArgument X> constexpr auto selu(const X& x, Here at = Here::current()) {
  return call<detail::SeluTag>(Source::from(at), x);
}
/// log(1 + exp(beta x)) / beta, without overflow; results below 1e-38 are 0, of f64 those below 1e-307. Error of beta =
/// 1: 1.9 ulp for f32, 1.6 ulp for f64. Gradient: sigmoid(beta x). PyTorch's `threshold` is not needed.
template <TensorArgument X, NumberOperand N = double>
constexpr auto softplus(const X& x, const N& beta = 1.0, Here at = Here::current()) {
  return call<detail::SoftplusTag>(Source::from(at), x, beta);
}
/// x tanh(softplus(x)); 0 where softplus is, NaN for -infinity. Error: 4.2 ulp. Source: Misra, 1908.08681.
template <TensorArgument X> constexpr auto mish(const X& x, Here at = Here::current()) {
  return call<detail::MishTag>(Source::from(at), x);
}
/// log(sigmoid(x)), exact where sigmoid(x) is 0; results above -1e-38 are 0, of f64 those above -1e-307. Error: 1.9 ulp
/// for f32, 1.6 ulp for f64. Gradient: sigmoid(-x).
template <TensorArgument X> constexpr auto logsigmoid(const X& x, Here at = Here::current()) {
  return call<detail::LogSigmoidTag>(Source::from(at), x);
}
/// x / (1 + |x|); NaN of infinities. Error: 1.5 ulp.
template <TensorArgument X> constexpr auto softsign(const X& x, Here at = Here::current()) {
  return call<detail::SoftsignTag>(Source::from(at), x);
}
/// x clamped to [0, 6]; exact. The gradient at both bounds is 0.
template <TensorArgument X> constexpr auto relu6(const X& x, Here at = Here::current()) {
  return call<detail::Relu6Tag>(Source::from(at), x);
}
/// relu6(x + 3) / 6. Error: 1.4 ulp.
template <TensorArgument X> constexpr auto hardsigmoid(const X& x, Here at = Here::current()) {
  return call<detail::HardsigmoidTag>(Source::from(at), x);
}
/// x clamped to [low, high]; exact. The gradient at both bounds is 0, where that of clamp is 1.
template <TensorArgument X, NumberOperand Low = double, NumberOperand High = double>
constexpr auto hardtanh(const X& x, const Low& low = -1.0, const High& high = 1.0, Here at = Here::current()) {
  return call<detail::HardtanhTag>(Source::from(at), x, low, high);
}
/// x where it is above the threshold, `value` elsewhere; exact. The gradient at the threshold is 0.
template <TensorArgument X, NumberOperand Threshold, NumberOperand N>
constexpr auto threshold(const X& x, const Threshold& threshold, const N& value, Here at = Here::current()) {
  return call<detail::ThresholdTag>(Source::from(at), x, threshold, value);
}
/// x where it is further from 0 than the bound, 0 elsewhere; softshrink also moves x towards 0 by the bound. Error: .5
/// ulp. The gradient is 1 beyond the bound, and 0 at it.
template <TensorArgument X, NumberOperand N = double>
constexpr auto hardshrink(const X& x, const N& bound = 0.5, Here at = Here::current()) {
  return call<detail::ShrinkTag<false>>(Source::from(at), x, bound);
}
template <TensorArgument X, NumberOperand N = double>
constexpr auto softshrink(const X& x, const N& bound = 0.5, Here at = Here::current()) {
  return call<detail::ShrinkTag<true>>(Source::from(at), x, bound);
}
/// x - tanh(x). Error: 5.2 ulp where |x| is 1 or more; 2 ulp of x elsewhere, so small results have no correct digits.
template <TensorArgument X> constexpr auto tanhshrink(const X& x, Here at = Here::current()) {
  return call<detail::TanhshrinkTag>(Source::from(at), x);
}
/// log(x / (1 - x)), the inverse of sigmoid; -infinity of 0, infinity of 1, NaN outside of [0, 1]. Error: 2 ulp of the
/// larger of 1 and |y|.
template <TensorArgument X> constexpr auto logit(const X& x, Here at = Here::current()) {
  return call<detail::LogitTag>(Source::from(at), x);
}
/// x relu6(x + 3) / 6; as in PyTorch, infinite for x above a sixth of the largest number. Error: 2.3 ulp. Source:
/// Howard and others, 1905.02244.
template <TensorArgument X> constexpr auto hardswish(const X& x, Here at = Here::current()) {
  return call<detail::HardswishTag>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
