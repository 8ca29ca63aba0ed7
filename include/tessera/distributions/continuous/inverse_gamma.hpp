#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_INVERSE_GAMMA_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_INVERSE_GAMMA_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/elementwise/incomplete_gamma.hpp>

namespace tessera::distributions {

namespace formulas {

struct InverseGamma {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::positive, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value concentration, Value rate) {
    return within_support(is_not_above_0(x), x, 1, [&](Value inner) {
      return concentration * log(rate) - (concentration + 1.0) * log(inner) - rate / inner - lgamma(concentration);
    });
  }
  static constexpr Value cdf(Value x, Value concentration, Value rate) {
    const Value outside = is_not_above_0(x);
    return select(outside, 0, build::apply<ops::IgammacOp>(concentration, rate / select(outside, 1, x)));
  }
  static constexpr Value entropy(Value concentration, Value rate) {
    return concentration + log(rate) + lgamma(concentration) - (concentration + 1.0) * digamma(concentration);
  }
  static constexpr Value mean(Value concentration, Value rate) {
    const Value finite = greater(concentration, 1), safe = select(finite, concentration, concentration.number(2));
    return select(finite, rate / (safe - 1.0), rate.number(ops::infinity));
  }
  static constexpr Value mode(Value concentration, Value rate) { return rate / (concentration + 1.0); }
  static constexpr Value variance(Value concentration, Value rate) {
    const Value finite = greater(concentration, 2), safe = select(finite, concentration, concentration.number(3));
    return select(finite, square(rate / (safe - 1.0)) / (safe - 2.0), rate.number(ops::infinity));
  }
  static constexpr Value draw(const Draws& draws, Value concentration, Value rate) {
    return rate / standard_gamma(draws, concentration, draws.stream);
  }
  /// That of the gamma distributions of the reciprocals.
  static constexpr Value kl_divergence(Value concentration, Value rate, Value other, Value other_rate) {
    return Gamma::kl_divergence(concentration, rate, other, other_rate);
  }

 private:
  static constexpr Value is_not_above_0(Value x) { return build::less_equal(x, x.number(0)); }
};

}  // namespace formulas

/// The distribution of the reciprocal of a gamma distributed number, of a `concentration` and a `rate` above 0
/// (torch.distributions.InverseGamma): of mean rate / (concentration - 1), infinite for a concentration of up to 1; of
/// infinite variance for one of up to 2. Gradients of rsample: as for Gamma.
template <Operand Concentration, Operand Rate>
struct InverseGamma : Univariate<InverseGamma<Concentration, Rate>, formulas::InverseGamma> {
  Concentration concentration;
  Rate rate;
  constexpr InverseGamma(const Concentration& c, const Rate& r) : concentration(c), rate(r) {}
  constexpr auto parameters() const { return std::tie(concentration, rate); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
