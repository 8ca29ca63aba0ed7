#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_CHI2_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_CHI2_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Chi2 {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[1] = {NumberRule::positive};
  static constexpr Value log_prob(Value x, Value df) { return Gamma::log_prob(x, df * 0.5, df.number(0.5)); }
  static constexpr Value cdf(Value x, Value df) { return Gamma::cdf(x, df * 0.5, df.number(0.5)); }
  static constexpr Value entropy(Value df) { return Gamma::entropy(df * 0.5, df.number(0.5)); }
  static constexpr Value mean(Value df) { return df; }
  static constexpr Value mode(Value df) { return positive_part(df - 2.0); }
  static constexpr Value variance(Value df) { return df * 2.0; }
  static constexpr Value draw(const Draws& draws, Value df) { return Gamma::draw(draws, df * 0.5, df.number(0.5)); }
  static constexpr Value kl_divergence(Value df, Value other) {
    return Gamma::kl_divergence(df * 0.5, df.number(0.5), other * 0.5, df.number(0.5));
  }
};

}  // namespace formulas

/// The chi-squared distribution of `df` degrees of freedom above 0 (torch.distributions.Chi2): the gamma distribution
/// of concentration df / 2 and rate 1/2.
template <Operand Df> struct Chi2 : Univariate<Chi2<Df>, formulas::Chi2> {
  Df df;
  constexpr explicit Chi2(const Df& d) : df(d) {}
  constexpr auto parameters() const { return std::tie(df); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
