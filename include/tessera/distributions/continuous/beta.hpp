#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_BETA_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_BETA_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/betainc.hpp>

namespace tessera::distributions {

namespace formulas {

struct Beta {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::positive, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value concentration1, Value concentration0) {
    return within_support(either(less(x, 0), greater(x, 1)), x, 0.5, [&](Value inner) {
      return xlogy(concentration1 - 1.0, inner) + xlog1py(concentration0 - 1.0, -inner) -
             betaln(concentration1, concentration0);
    });
  }
  static constexpr Value cdf(Value x, Value concentration1, Value concentration0) {
    const Value below = less(x, 0), above = greater(x, 1), inner = select(either(below, above), 0.5, x);
    const Value made = tessera::detail::incomplete_beta(concentration1, concentration0, inner);
    return select(below, 0, select(above, 1, made));
  }
  static constexpr Value entropy(Value concentration1, Value concentration0) {
    const Value both = concentration1 + concentration0;
    return betaln(concentration1, concentration0) - (concentration1 - 1.0) * digamma(concentration1) -
           (concentration0 - 1.0) * digamma(concentration0) + (both - 2.0) * digamma(both);
  }
  static constexpr Value mean(Value concentration1, Value concentration0) {
    return concentration1 / (concentration1 + concentration0);
  }
  /// NaN where both concentrations are 1; 1 where both are below, as in PyTorch.
  static constexpr Value mode(Value concentration1, Value concentration0) {
    const Value both_below = build::logical_and(less(concentration1, 1), less(concentration0, 1));
    const Value one = positive_part(concentration1 - 1.0), zero = positive_part(concentration0 - 1.0);
    return select(both_below, 1, one / select(both_below, 1, one + zero));
  }
  static constexpr Value variance(Value concentration1, Value concentration0) {
    const Value both = concentration1 + concentration0;
    return concentration1 * concentration0 / (square(both) * (both + 1.0));
  }
  static constexpr Value draw(const Draws& draws, Value concentration1, Value concentration0) {
    return sigmoid(log_standard_gamma(draws, concentration1, 2 * draws.stream) -
                   log_standard_gamma(draws, concentration0, 2 * draws.stream + 1));
  }
  static constexpr Value kl_divergence(Value one, Value zero, Value other_one, Value other_zero) {
    return betaln(other_one, other_zero) - betaln(one, zero) + (one - other_one) * digamma(one) +
           (zero - other_zero) * digamma(zero) + (other_one - one + (other_zero - zero)) * digamma(one + zero);
  }
};

}  // namespace formulas

/// The beta distribution of numbers in [0, 1], of two concentrations above 0 (torch.distributions.Beta): the density is
/// proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1). Gradients of rsample: as for Gamma.
template <Operand Concentration1, Operand Concentration0>
struct Beta : Univariate<Beta<Concentration1, Concentration0>, formulas::Beta> {
  Concentration1 concentration1;
  Concentration0 concentration0;
  constexpr Beta(const Concentration1& one, const Concentration0& zero) : concentration1(one), concentration0(zero) {}
  constexpr auto parameters() const { return std::tie(concentration1, concentration0); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
