#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_HALF_NORMAL_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_HALF_NORMAL_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/normal.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct HalfNormal {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[1] = {NumberRule::positive};
  static constexpr Value log_prob(Value x, Value scale) {
    return within_support(less(x, 0), x, 0,
                          [&](Value inner) { return Normal::log_prob(inner, inner.number(0), scale) + log_2; });
  }
  static constexpr Value cdf(Value x, Value scale) {
    return select(less(x, 0), 0, erf(x / scale * 0.70710678118654752440));
  }
  static constexpr Value icdf(Value p, Value scale) { return scale * (erfinv(p) * 1.41421356237309504880); }
  static constexpr Value entropy(Value scale) { return Normal::entropy(scale, scale) - log_2; }
  static constexpr Value mean(Value scale) { return scale * 0.79788456080286535588; }  // sqrt(2 / pi)
  static constexpr Value mode(Value scale) { return scale.number(0); }
  static constexpr Value variance(Value scale) { return square(scale) * 0.36338022763241865692; }  // 1 - 2 / pi
  static constexpr Value draw(const Draws& draws, Value scale) { return scale * abs(draws.normal()); }
  static constexpr Value kl_divergence(Value scale, Value other) {
    return Normal::kl_divergence(scale.number(0), scale, scale.number(0), other);
  }
};

}  // namespace formulas

/// The distribution of |x| for normal x of mean 0 and standard deviation `scale` above 0
/// (torch.distributions.HalfNormal).
template <Operand Scale> struct HalfNormal : Univariate<HalfNormal<Scale>, formulas::HalfNormal> {
  Scale scale;
  constexpr explicit HalfNormal(const Scale& s) : scale(s) {}
  constexpr auto parameters() const { return std::tie(scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
