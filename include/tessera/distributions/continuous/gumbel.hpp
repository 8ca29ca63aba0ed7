#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_GUMBEL_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_GUMBEL_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Gumbel {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value loc, Value scale) {
    const Value y = (loc - x) / scale;
    return y - exp(y) - log(scale);
  }
  static constexpr Value cdf(Value x, Value loc, Value scale) { return exp(-exp((loc - x) / scale)); }
  static constexpr Value icdf(Value p, Value loc, Value scale) { return loc - scale * log(-log(p)); }
  static constexpr Value entropy(Value, Value scale) { return log(scale) + (1 + euler_gamma); }
  static constexpr Value mean(Value loc, Value scale) { return loc + scale * euler_gamma; }
  static constexpr Value mode(Value loc, Value) { return loc; }
  static constexpr Value variance(Value, Value scale) { return square(scale) * (ops::pi * ops::pi / 6); }
  static constexpr Value draw(const Draws& draws, Value loc, Value scale) {
    return loc + scale * tessera::detail::Gumbel::draw(draws.uniform());
  }
  static constexpr Value kl_divergence(Value loc, Value scale, Value other, Value other_scale) {
    const Value ratio = scale / other_scale, off = (loc - other) / other_scale;
    return off - log(ratio) + exp(lgamma(ratio + 1.0) - off) + ratio * euler_gamma - (1 + euler_gamma);
  }
};

}  // namespace formulas

/// The Gumbel distribution of the mode `loc` and a `scale` above 0 (torch.distributions.Gumbel).
template <Operand Loc, Operand Scale> struct Gumbel : Univariate<Gumbel<Loc, Scale>, formulas::Gumbel> {
  Loc loc;
  Scale scale;
  constexpr Gumbel(const Loc& l, const Scale& s) : loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(loc, scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
