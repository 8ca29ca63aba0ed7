#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_HALF_CAUCHY_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_HALF_CAUCHY_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/cauchy.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct HalfCauchy {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[1] = {NumberRule::positive};
  static constexpr Value log_prob(Value x, Value scale) {
    return within_support(less(x, 0), x, 0,
                          [&](Value inner) { return Cauchy::log_prob(inner, inner.number(0), scale) + log_2; });
  }
  static constexpr Value cdf(Value x, Value scale) {
    return select(less(x, 0), 0, build::apply<ops::AtanOp>(x / scale) * (2 / ops::pi));
  }
  static constexpr Value icdf(Value p, Value scale) {
    const Value is_tail = greater(p, 0.5), angle = select(is_tail, 1.0 - p, p) * (ops::pi / 2);
    const Value tangent = build::apply<ops::TanOp>(angle);
    return scale * select(is_tail, 1.0 / select(is_tail, tangent, tangent.number(1)), tangent);
  }
  static constexpr Value entropy(Value scale) { return Cauchy::entropy(scale, scale) - log_2; }
  static constexpr Value mean(Value scale) { return scale.number(ops::infinity); }
  static constexpr Value mode(Value scale) { return scale.number(0); }
  static constexpr Value variance(Value scale) { return scale.number(ops::infinity); }
  static constexpr Value draw(const Draws& draws, Value scale) {
    return scale * abs(tessera::detail::Cauchy::draw(draws.uniform()));
  }
  static constexpr Value kl_divergence(Value scale, Value other) {
    return Cauchy::kl_divergence(scale.number(0), scale, scale.number(0), other);
  }
};

}  // namespace formulas

/// The distribution of |x| for x of a Cauchy distribution of median 0 and `scale` above 0
/// (torch.distributions.HalfCauchy). Its mean and variance are infinite.
template <Operand Scale> struct HalfCauchy : Univariate<HalfCauchy<Scale>, formulas::HalfCauchy> {
  Scale scale;
  constexpr explicit HalfCauchy(const Scale& s) : scale(s) {}
  constexpr auto parameters() const { return std::tie(scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
