#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_NORMAL_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_NORMAL_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/normal_functions.hpp>

namespace tessera::distributions {

namespace formulas {

struct Normal {
  static constexpr bool has_rsample = true;
  static constexpr double half_log_2_pi = 0.91893853320467274178;

  static constexpr NumberRule rules[2] = {NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value loc, Value scale) {
    return square((x - loc) / scale) * -0.5 - log(scale) - half_log_2_pi;
  }
  static constexpr Value cdf(Value x, Value loc, Value scale) {
    return build::apply<ops::ErfcOp>((x - loc) / scale * -0.70710678118654752440) * 0.5;
  }
  static constexpr Value icdf(Value p, Value loc, Value scale) {
    return loc + scale * tessera::detail::NdtriTag::emit(p, p);
  }
  static constexpr Value entropy(Value, Value scale) { return log(scale) + (0.5 + half_log_2_pi); }
  static constexpr Value mean(Value loc, Value) { return loc; }
  static constexpr Value mode(Value loc, Value) { return loc; }
  static constexpr Value variance(Value, Value scale) { return square(scale); }
  static constexpr Value draw(const Draws& draws, Value loc, Value scale) { return loc + scale * draws.normal(); }
  static constexpr Value kl_divergence(Value loc, Value scale, Value other, Value other_scale) {
    const Value ratio = scale / other_scale;  // whose square may be 0
    return (square(ratio) + square((loc - other) / other_scale) - 1.0) * 0.5 - log(ratio);
  }
};

}  // namespace formulas

/// The normal distribution of a mean `loc` and a standard deviation `scale` above 0 (torch.distributions.Normal,
/// jax.scipy.stats.norm).
///
///     const auto policy = ts::distributions::Normal(mean, ts::exp(log_std));
///     const auto action = policy.sample(key);
///     const auto loss = -ts::mean(policy.log_prob(action) * advantage);
template <Operand Loc, Operand Scale> struct Normal : Univariate<Normal<Loc, Scale>, formulas::Normal> {
  Loc loc;
  Scale scale;
  constexpr Normal(const Loc& l, const Scale& s) : loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(loc, scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
