#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_WEIBULL_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_WEIBULL_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Weibull {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::positive, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value scale, Value concentration) {
    return within_support(less(x, 0), x, 1, [&](Value inner) {
      const Value part = inner / scale;
      return log(concentration / scale) + xlogy(concentration - 1.0, part) - pow(part, concentration);
    });
  }
  static constexpr Value cdf(Value x, Value scale, Value concentration) {
    return select(less(x, 0), 0, -expm1(-pow(select(less(x, 0), 0, x) / scale, concentration)));
  }
  static constexpr Value icdf(Value p, Value scale, Value concentration) {
    return scale * pow(-log1p(-p), 1.0 / concentration);
  }
  static constexpr Value entropy(Value scale, Value concentration) {
    return (1.0 - 1.0 / concentration) * euler_gamma + log(scale / concentration) + 1.0;
  }
  static constexpr Value mean(Value scale, Value concentration) {
    return scale * exp(lgamma(1.0 / concentration + 1.0));
  }
  static constexpr Value mode(Value scale, Value concentration) {
    return scale * pow((concentration - 1.0) / concentration, 1.0 / concentration);
  }
  static constexpr Value variance(Value scale, Value concentration) {
    const Value step = 1.0 / concentration;
    return square(scale) * (exp(lgamma(step * 2.0 + 1.0)) - exp(lgamma(step + 1.0) * 2.0));
  }
  static constexpr Value draw(const Draws& draws, Value scale, Value concentration) {
    return icdf(draws.uniform(), scale, concentration);
  }
};

}  // namespace formulas

/// The Weibull distribution of a `scale` and a `concentration` above 0 (torch.distributions.Weibull): its cdf is 1 -
/// exp(-(x / scale)^concentration) for x of at least 0.
template <Operand Scale, Operand Concentration>
struct Weibull : Univariate<Weibull<Scale, Concentration>, formulas::Weibull> {
  Scale scale;
  Concentration concentration;
  constexpr Weibull(const Scale& s, const Concentration& c) : scale(s), concentration(c) {}
  constexpr auto parameters() const { return std::tie(scale, concentration); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
