#ifndef TESSERA_OPS_NORMAL_FUNCTIONS_HPP
#define TESSERA_OPS_NORMAL_FUNCTIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/custom/given_gradient.hpp>
#include <tessera/ops/elementwise.hpp>

// Functions of the tails of normal distributions, composed of others: erfc, erfinv, ndtr and log_ndtr are in
// elementwise/special.hpp.

namespace tessera {

namespace detail {

/// exp(x^2) erfc(x), in f64; from 10 on by the asymptotic series, whose next term is below 1e-16.
struct ErfcxTag : FloatingComposition {
  static constexpr Value emit(Value context, Value given) {
    const Value x = build::cast(given.at(context.source), DType::f64), edge = x.number(10);
    const Value in_tail = build::greater(x, edge), far = build::select(in_tail, x, edge),
                near = build::select(in_tail, edge, x);
    const Value direct = build::exp(near * near) * build::apply<ops::ErfcOp>(near);
    const Value inverse = 1.0 / far, step = inverse * inverse * 0.5;
    Value series = x.number(1);
    for (int n = 12; n >= 1; --n) series = 1.0 - step * series * (2.0 * n - 1);
    const Value tail = inverse * series * 0.56418958354775628695;  // 1 / sqrt(pi)
    return build::cast(build::select(in_tail, tail, direct), given.dtype());
  }
};

/// In f64: of the smaller of p and 1 - p, whose logarithm tells small probabilities apart; in the middle by erfinv.
struct NdtriTag : FloatingComposition {
  static constexpr Value emit(Value context, Value given) {
    const Value p = build::cast(given.at(context.source), DType::f64), zero = p.number(0);
    const Value below = build::less(p, p.number(0.5)), rest = build::select(below, p, 1.0 - p);
    const Value central = build::less(build::abs(p - 0.5), p.number(0.425));
    const Value is_inside = build::greater(rest, zero);
    const Value in_tail = build::logical_and(is_inside, build::logical_not(central));
    // Each formula gets only numbers for which it is finite.
    const Value middle =
        build::apply<ops::ErfinvOp>(build::select(central, p, p.number(0.5)) * 2.0 - 1.0) * 1.41421356237309504880;
    const Value r = build::sqrt(-build::log(build::select(in_tail, rest, p.number(0.01))));
    const Value is_near = build::less_equal(r, r.number(5));
    const Value near = build::select(is_near, r - 1.6, zero), far = build::select(is_near, zero, r - 5.0);
    using Tail = ops::NormalTail;
    const Value size =
        build::select(is_near, polynomial(near, Tail::near_numerator) / polynomial(near, Tail::near_denominator),
                      polynomial(far, Tail::far_numerator) / polynomial(far, Tail::far_denominator));
    const Value tail = build::select(below, -size, size);
    const Value end = build::select(
        build::equal(p, zero), p.number(-ops::infinity),
        build::select(build::equal(p, p.number(1)), p.number(ops::infinity), p.number(ops::not_a_number)));
    const Value made = build::select(central, middle, build::select(is_inside, tail, end));
    const Value cotangent = build::variable_like(made);
    const Value values[] = {p};
    const Value gradients[] = {cotangent * build::exp(made * made * 0.5) * 2.50662827463100050242};  // sqrt(2 pi)
    return build::cast(build::with_gradients(made, cotangent, values, gradients), given.dtype());
  }

 private:
  /// Of eight coefficients. No template: clang 16 instantiates those after it has traced functions that call `emit`.
  static constexpr Value polynomial(Value x, const double (&c)[8]) {
    Value sum = x.number(c[7]);
    for (int i = 6; i >= 0; --i) sum = sum * x + c[i];
    return sum;
  }
};

}  // namespace detail

// Shape and sharding are those of the operand; no communication. Integers and bools give f32. NaN gives NaN.

/// exp(x^2) erfc(x), which is about 1 / (x sqrt(pi)) where erfc(x) is 0 (torch.special.erfcx); infinite below -26.
/// Relative error: 2e-14; computed in double. Gradient: 2 x erfcx(x) - 2 / sqrt(pi).
template <TensorArgument X> constexpr auto erfcx(const X& x, Here at = Here::current()) {
  return call<detail::ErfcxTag>(Source::from(at), x);
}
/// The inverse of ndtr, the normal quantile of a probability (torch.special.ndtri, jax.scipy.special.ndtri): -infinity
/// of 0, infinity of 1, NaN outside of [0, 1]. Relative error: 1e-14, also of the smallest probabilities; computed in
/// double. Gradient: sqrt(2 pi) exp(ndtri(p)^2 / 2).
template <TensorArgument X> constexpr auto ndtri(const X& p, Here at = Here::current()) {
  return call<detail::NdtriTag>(Source::from(at), p);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
