#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_GAMMA_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_GAMMA_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>

#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/elementwise/incomplete_gamma.hpp>
#include <tessera/ops/random/gamma_draws.hpp>

namespace tessera::distributions {

namespace formulas {

/// Gamma draws of rate 1, with the gradient of the concentration.
constexpr Value standard_gamma(const Draws& draws, Value concentration, std::uint32_t stream) {
  const Value a = draws.spread(concentration);
  const Value drawn = build::gamma(a, build::folded_key(draws.key, stream));
  return build::apply<ops::ReparametrizedGammaOp>(a, build::above_zero_gamma(drawn, draws.type));
}
/// Their logarithms l, also of draws that are below the smallest number of the type. Such a quantile is proportional to
/// c^(1 / a) for some c, so the derivative of its logarithm by a is that at the least number, `near`, plus
/// -(l - near) / a.
constexpr Value log_standard_gamma(const Draws& draws, Value concentration, std::uint32_t stream) {
  const Value a = draws.spread(concentration);
  const Value l = build::gamma<build::GammaDraw::logarithm>(a, build::folded_key(draws.key, stream));
  const Value near = build::maximum(l, l.number(l.dtype() == DType::f64 ? -700 : -80));
  const Value fixed = build::unary(ops::op_v<ops::StopGradientOp>, a);
  return log(build::apply<ops::ReparametrizedGammaOp>(a, exp(near))) + (l - near) * (fixed / a);
}

struct Gamma {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::positive, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value concentration, Value rate) {
    return within_support(less(x, 0), x, 1, [&](Value inner) {
      return concentration * log(rate) + xlogy(concentration - 1.0, inner) - rate * inner - lgamma(concentration);
    });
  }
  static constexpr Value cdf(Value x, Value concentration, Value rate) {
    return select(less(x, 0), 0, build::apply<ops::IgammaOp>(concentration, rate * select(less(x, 0), 0, x)));
  }
  static constexpr Value entropy(Value concentration, Value rate) {
    return concentration - log(rate) + lgamma(concentration) + (1.0 - concentration) * digamma(concentration);
  }
  static constexpr Value mean(Value concentration, Value rate) { return concentration / rate; }
  static constexpr Value mode(Value concentration, Value rate) { return positive_part((concentration - 1.0) / rate); }
  static constexpr Value variance(Value concentration, Value rate) { return concentration / square(rate); }
  static constexpr Value draw(const Draws& draws, Value concentration, Value rate) {
    return standard_gamma(draws, concentration, draws.stream) / rate;
  }
  static constexpr Value kl_divergence(Value concentration, Value rate, Value other, Value other_rate) {
    return other * log(rate / other_rate) + lgamma(other) - lgamma(concentration) +
           (concentration - other) * digamma(concentration) + (other_rate - rate) * (concentration / rate);
  }
};

}  // namespace formulas

/// The gamma distribution of a `concentration` and a `rate` above 0 (torch.distributions.Gamma), of mean concentration
/// / rate. Gradients of rsample are those of the inverse of its cdf (implicit reparametrization, Figurnov et al. 2018).
template <Operand Concentration, Operand Rate> struct Gamma : Univariate<Gamma<Concentration, Rate>, formulas::Gamma> {
  Concentration concentration;
  Rate rate;
  constexpr Gamma(const Concentration& c, const Rate& r) : concentration(c), rate(r) {}
  constexpr auto parameters() const { return std::tie(concentration, rate); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
