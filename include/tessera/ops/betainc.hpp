#ifndef TESSERA_OPS_BETAINC_HPP
#define TESSERA_OPS_BETAINC_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <string_view>

#include <tessera/graph/transform/gradient.hpp>
#include <tessera/ops/custom/custom_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/elementwise/beta_functions.hpp>

// The incomplete beta function, and the logarithm of the beta function.

namespace tessera {

namespace detail {

/// Kernels have no arithmetic of three operands, so these are calls of a C++ function for each element.
template <class Function, class T> constexpr Value beta_call(int result, Value a, Value b, Value x) {
  const Value operands[] = {a, b, x};
  return build::custom_call(custom_row_v<Function, T, T, T>, operands, result);
}

/// The derivatives by a, b and x.
struct BetaincGradients {
  static constexpr std::string_view name = "betainc_gradients";
  static constexpr std::string_view signature = "(),(),()->(),(),()";

  template <class T>
  static void run(CallArray<const T, 0> a, CallArray<const T, 0> b, CallArray<const T, 0> x, CallArray<T, 0> by_a,
                  CallArray<T, 0> by_b, CallArray<T, 0> by_x) {
    const ops::ByBoth made = ops::incomplete_beta_by_both(a(), b(), x());
    by_a() = static_cast<T>(made.by_a);
    by_b() = static_cast<T>(made.by_b);
    by_x() = static_cast<T>(ops::beta_density(a(), b(), x()));
  }
  template <class T, class, class> static constexpr void gradient(Gradient& r) {
    const Value a = r.x(0), b = r.x(1), x = r.x(2);
    const auto digamma = [](Value v) { return build::apply<ops::DigammaOp>(v); };
    const auto by_a = [&] { return build::log(x) + digamma(a + b) - digamma(a); };  // of the density's logarithm
    const auto by_b = [&] { return build::apply<ops::Log1pOp>(-x) + digamma(a + b) - digamma(b); };
    if (const int result = CustomCall::of(r.node()).result; result != 2) {
      if (r.needs(0) || r.needs(1))
        r.y().refuse(errc::unsupported,
                     "[betainc] gradient: there is no second derivative by the first two operands of betainc");
      const auto of_x = [&](const Value& slope) {
        r.add(2, r.full_g() * beta_call<BetaincGradients, T>(2, a, b, x) * slope);
      };
      if (r.needs(2)) of_x(result == 0 ? by_a() : by_b());
      return;
    }
    const Value slope = r.full_g() * r.y();
    if (r.needs(0)) r.add(0, slope * by_a());
    if (r.needs(1)) r.add(1, slope * by_b());
    if (r.needs(2)) r.add(2, slope * ((a - 1.0) / x - (b - 1.0) / (1.0 - x)));
  }
};

struct Betainc {
  static constexpr std::string_view name = "betainc";
  static constexpr std::string_view signature = "(),(),()->()";

  template <class T>
  static void run(CallArray<const T, 0> a, CallArray<const T, 0> b, CallArray<const T, 0> x, CallArray<T, 0> y) {
    y() = static_cast<T>(ops::incomplete_beta(a(), b(), x()));
  }
  template <class T, class, class> static constexpr void gradient(Gradient& r) {
    for (int i = 0; i < 3; ++i)
      if (r.needs(i)) r.add(i, r.full_g() * beta_call<BetaincGradients, T>(i, r.x(0), r.x(1), r.x(2)));
  }
};

/// betainc of values of one element type, f32 or f64, broadcast against each other.
constexpr Value incomplete_beta(Value a, Value b, Value x) {
  const Value met = a + b + x;  // of this only the shape is used
  const bool is_scalar = met.rank() == 0;
  const Value like = is_scalar ? build::insert_singletons(met, 1u, 1) : met;
  const auto spread = [&](Value v) {
    return v.rank() == 0 ? build::broadcast(v, like) : build::checked_broadcast(v, like, MadeBy::broadcast_like);
  };
  const Value made = x.dtype() == DType::f64 ? beta_call<Betainc, double>(0, spread(a), spread(b), spread(x))
                                             : beta_call<Betainc, float>(0, spread(a), spread(b), spread(x));
  return is_scalar ? build::drop_singletons(made, 1u) : made;
}

struct BetaincTag {
  static constexpr const char* function = "betainc";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class... X>
  using result = Typed<element_t<floating_type(dtype_v<typename MeetAll<X...>::type>)>, MeetAll<X...>::rank>;
  template <class... X> static constexpr void convert(std::same_as<Value> auto&... operands) {
    ((operands = build::cast(operands, dtype_v<typename result<X...>::type>)), ...);
  }
  static constexpr Value emit(Value context, Value a, Value b, Value x) {
    const DType type = a.dtype(), wide = computed_as(type);
    return build::cast(
        incomplete_beta(build::cast(a.at(context.source), wide), build::cast(b, wide), build::cast(x, wide)), type);
  }
};

struct BetalnTag : Binary<ops::HypotOp> {
  static constexpr const char* function = "betaln";
  static constexpr Value emit(Value context, Value a, Value b) {
    const DType type = a.dtype();
    a = build::cast(a.at(context.source), computed_as(type)), b = build::cast(b, computed_as(type));
    const auto lgamma = [](Value v) { return build::apply<ops::LgammaOp>(v); };
    return build::cast(lgamma(a) + lgamma(b) - lgamma(a + b), type);
  }
};

}  // namespace detail

/// The regularised incomplete beta function, the integral of t^(a - 1) (1 - t)^(b - 1) from 0 to x over that from 0 to
/// 1 (scipy.special.betainc, jax.scipy.special.betainc): the distribution function of a beta distribution. NaN for a or
/// b that are not above 0 or infinite, and for x outside of [0, 1]. Operands are numbers or tensors, broadcast against
/// each other; integers give f32. Computed in double: an error of 1e-15 (1 + a + b). Gradients of all operands.
/// Derivatives of all orders by x, and of these by a and b; of the derivatives by a and b those by x. Errors:
/// shape_mismatch; unsupported for a second derivative by a and b of what is not a derivative by x. No communication; a
/// call for each element, which does not fuse. Source: Numerical Recipes 6.4.
template <Operand A, Operand B, Operand X>
  requires(TensorOperand<A> || TensorOperand<B> || TensorOperand<X>)
constexpr auto betainc(const A& a, const B& b, const X& x, Here at = Here::current()) {
  return call<detail::BetaincTag>(Source::from(at), a, b, x);
}

/// The logarithm of the beta function, lgamma(a) + lgamma(b) - lgamma(a + b) (scipy.special.betaln,
/// jax.scipy.special.betaln), for a and b above 0; NaN gives NaN. The error is that of the three lgamma, relative to
/// the largest of them. Gradients: digamma(a) - digamma(a + b), and of b alike. Errors: shape_mismatch.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto betaln(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::BetalnTag>(Source::from(at), a, b);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
