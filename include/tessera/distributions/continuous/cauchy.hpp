#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_CAUCHY_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_CAUCHY_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Cauchy {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value loc, Value scale) {
    return -log1p(square((x - loc) / scale)) - log(scale) - log_pi;
  }
  static constexpr Value cdf(Value x, Value loc, Value scale) {
    const Value t = (x - loc) / scale, is_tail = less(t, -1);
    const Value angle = build::apply<ops::AtanOp>(select(is_tail, -1.0 / select(is_tail, t, t.number(-1)), t));
    return select(is_tail, angle, angle + ops::pi / 2) * (1 / ops::pi);
  }
  static constexpr Value icdf(Value p, Value loc, Value scale) {
    // Near 0 and 1 by the cotangent: pi / 2 is no number, and the tangent of a number beyond it has the wrong sign.
    const Value below = less(p, 0.25), above = greater(p, 0.75), is_tail = either(below, above);
    const Value end = select(below, p, 1.0 - p), angle = select(is_tail, end, p - 0.5) * ops::pi;
    const Value tangent = build::apply<ops::TanOp>(angle);
    const Value inverse = 1.0 / select(is_tail, tangent, tangent.number(1));
    return loc + scale * select(below, -inverse, select(above, inverse, tangent));
  }
  static constexpr Value entropy(Value, Value scale) { return log(scale) + (2 * log_2 + log_pi); }
  static constexpr Value mean(Value loc, Value) { return loc.number(ops::not_a_number); }
  static constexpr Value mode(Value loc, Value) { return loc; }
  static constexpr Value variance(Value loc, Value) { return loc.number(ops::infinity); }
  static constexpr Value draw(const Draws& draws, Value loc, Value scale) {
    return loc + scale * tessera::detail::Cauchy::draw(draws.uniform());
  }
  /// Source: Chyzak, Nielsen, 1905.10965.
  static constexpr Value kl_divergence(Value loc, Value scale, Value other, Value other_scale) {
    return log((square(scale + other_scale) + square(loc - other)) / (scale * other_scale)) - 2 * log_2;
  }
};

}  // namespace formulas

/// The Cauchy distribution of a median `loc` and half the interquartile range, `scale` above 0
/// (torch.distributions.Cauchy). Its mean is NaN, its variance infinite.
template <Operand Loc, Operand Scale> struct Cauchy : Univariate<Cauchy<Loc, Scale>, formulas::Cauchy> {
  Loc loc;
  Scale scale;
  constexpr Cauchy(const Loc& l, const Scale& s) : loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(loc, scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
