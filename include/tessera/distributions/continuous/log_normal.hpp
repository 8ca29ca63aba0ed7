#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_LOG_NORMAL_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_LOG_NORMAL_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/normal.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct LogNormal {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value loc, Value scale) {
    // At 0 the density is 0 too.
    return within_support(build::less_equal(x, x.number(0)), x, 1, [&](Value inner) {
      const Value logarithm = log(inner);
      return Normal::log_prob(logarithm, loc, scale) - logarithm;
    });
  }
  static constexpr Value cdf(Value x, Value loc, Value scale) {
    const Value none = build::less_equal(x, x.number(0));
    return select(none, 0, Normal::cdf(log(select(none, 1, x)), loc, scale));
  }
  static constexpr Value icdf(Value p, Value loc, Value scale) { return exp(Normal::icdf(p, loc, scale)); }
  static constexpr Value entropy(Value loc, Value scale) { return Normal::entropy(loc, scale) + loc; }
  static constexpr Value mean(Value loc, Value scale) { return exp(loc + square(scale) * 0.5); }
  static constexpr Value mode(Value loc, Value scale) { return exp(loc - square(scale)); }
  static constexpr Value variance(Value loc, Value scale) {
    return expm1(square(scale)) * exp(loc * 2.0 + square(scale));
  }
  static constexpr Value draw(const Draws& draws, Value loc, Value scale) {
    return exp(Normal::draw(draws, loc, scale));
  }
  static constexpr Value kl_divergence(Value loc, Value scale, Value other, Value other_scale) {
    return Normal::kl_divergence(loc, scale, other, other_scale);
  }
};

}  // namespace formulas

/// The distribution of numbers above 0 whose logarithms are normal with mean `loc` and standard deviation `scale` above
/// 0 (torch.distributions.LogNormal).
template <Operand Loc, Operand Scale> struct LogNormal : Univariate<LogNormal<Loc, Scale>, formulas::LogNormal> {
  Loc loc;
  Scale scale;
  constexpr LogNormal(const Loc& l, const Scale& s) : loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(loc, scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
