#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_LOGISTIC_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_LOGISTIC_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Logistic {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value loc, Value scale) {
    const Value y = (x - loc) / scale;
    return -y - softplus(-y) * 2.0 - log(scale);
  }
  static constexpr Value cdf(Value x, Value loc, Value scale) { return sigmoid((x - loc) / scale); }
  static constexpr Value icdf(Value p, Value loc, Value scale) { return loc + scale * (log(p) - log1p(-p)); }
  static constexpr Value entropy(Value, Value scale) { return log(scale) + 2.0; }
  static constexpr Value mean(Value loc, Value) { return loc; }
  static constexpr Value mode(Value loc, Value) { return loc; }
  static constexpr Value variance(Value, Value scale) { return square(scale) * (ops::pi * ops::pi / 3); }
  static constexpr Value draw(const Draws& draws, Value loc, Value scale) {
    return loc + scale * tessera::detail::Logistic::draw(draws.uniform());
  }
};

}  // namespace formulas

/// The logistic distribution of a mean `loc` and a `scale` above 0 (jax.scipy.stats.logistic): its cdf is a sigmoid.
template <Operand Loc, Operand Scale> struct Logistic : Univariate<Logistic<Loc, Scale>, formulas::Logistic> {
  Loc loc;
  Scale scale;
  constexpr Logistic(const Loc& l, const Scale& s) : loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(loc, scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
