#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_PARETO_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_PARETO_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Pareto {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::positive, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value scale, Value alpha) {
    const Value outside = less(x, scale), inner = select(outside, scale, x);
    return select(outside, -ops::infinity, log(alpha) + alpha * log(scale) - (alpha + 1.0) * log(inner));
  }
  static constexpr Value cdf(Value x, Value scale, Value alpha) {
    const Value outside = less(x, scale);
    return select(outside, 0, -expm1(alpha * log(scale / select(outside, scale, x))));
  }
  static constexpr Value icdf(Value p, Value scale, Value alpha) { return scale * exp(-log1p(-p) / alpha); }
  static constexpr Value entropy(Value scale, Value alpha) { return log(scale / alpha) + 1.0 / alpha + 1.0; }
  static constexpr Value mean(Value scale, Value alpha) {
    const Value finite = greater(alpha, 1), safe = select(finite, alpha, alpha.number(2));
    return select(finite, scale * safe / (safe - 1.0), alpha.number(ops::infinity));
  }
  static constexpr Value mode(Value scale, Value) { return scale; }
  static constexpr Value variance(Value scale, Value alpha) {
    const Value finite = greater(alpha, 2), safe = select(finite, alpha, alpha.number(3));
    return select(finite, square(scale / (safe - 1.0)) * (safe / (safe - 2.0)), alpha.number(ops::infinity));
  }
  static constexpr Value draw(const Draws& draws, Value scale, Value alpha) {
    return icdf(draws.uniform(), scale, alpha);
  }
  static constexpr Value kl_divergence(Value scale, Value alpha, Value other_scale, Value other_alpha) {
    const Value ratio = other_alpha / alpha;
    const Value finite = other_alpha * log(scale / other_scale) - log(ratio) + ratio - 1.0;
    return select(less(scale, other_scale), ops::infinity, finite);
  }
};

}  // namespace formulas

/// The Pareto distribution of numbers from `scale` on, with a shape `alpha`, both above 0 (torch.distributions.Pareto).
/// Its mean is infinite for an alpha of up to 1, its variance for one of up to 2.
template <Operand Scale, Operand Alpha> struct Pareto : Univariate<Pareto<Scale, Alpha>, formulas::Pareto> {
  Scale scale;
  Alpha alpha;
  constexpr Pareto(const Scale& s, const Alpha& a) : scale(s), alpha(a) {}
  constexpr auto parameters() const { return std::tie(scale, alpha); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
