#ifndef TESSERA_DISTRIBUTIONS_DISCRETE_BERNOULLI_HPP
#define TESSERA_DISTRIBUTIONS_DISCRETE_BERNOULLI_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

template <ParameterKind Kind> struct Bernoulli {
  static constexpr bool of_logits = Kind == ParameterKind::logits;
  static constexpr bool has_rsample = false;

  static constexpr NumberRule rules[1] = {of_logits ? NumberRule::any : NumberRule::probability};
  static constexpr Value log_prob(Value x, Value parameter) {
    if (of_logits) return -((1.0 - x) * parameter + softplus(-parameter));
    return xlogy(x, parameter) + xlog1py(1.0 - x, -parameter);
  }
  static constexpr Value entropy(Value parameter) {
    if (of_logits) {  // equal for x and -x: of the negative one, whose probability is exact
      const Value size = abs(parameter);
      return softplus(-size) + size * sigmoid(-size);
    }
    return -xlogy(parameter, parameter) - xlog1py(1.0 - parameter, -parameter);
  }
  static constexpr Value mean(Value parameter) { return of_logits ? sigmoid(parameter) : parameter; }
  static constexpr Value mode(Value parameter) {
    const double middle = of_logits ? 0 : 0.5;
    const Value likely = build::cast(greater(parameter, middle), parameter.dtype());
    return select(build::equal(parameter, parameter.number(middle)), ops::not_a_number, likely);
  }
  static constexpr Value variance(Value parameter) {
    return of_logits ? sigmoid(parameter) * sigmoid(-parameter) : parameter * (1.0 - parameter);
  }
  static constexpr Value draw(const Draws& draws, Value parameter) {
    return build::cast(less(draws.uniform(), mean(parameter)), parameter.dtype());
  }
  static constexpr Value kl_divergence(Value parameter, Value other) {
    if (of_logits) {  // equal for both logits negated
      const Value flipped = greater(parameter, 0);
      const Value p = select(flipped, -parameter, parameter), q = select(flipped, -other, other);
      return sigmoid(p) * (p - q) + (softplus(q) - softplus(p));
    }
    return xlogy(parameter, parameter) - xlogy(parameter, other) + xlog1py(1.0 - parameter, -parameter) -
           xlog1py(1.0 - parameter, -other);
  }
};

}  // namespace formulas

/// 1 with a given probability, otherwise 0 (torch.distributions.Bernoulli). With logits, results are accurate also for
/// probabilities near 0 or 1; with probabilities, log_prob(1) is -infinity at 0. Samples have the element type of the
/// parameter; ts::bernoulli draws bools.
///
///     const auto gate = ts::distributions::Bernoulli(ts::distributions::Logits(x));
///     const auto loss = -ts::mean(gate.log_prob(target));
template <Operand Parameter, ParameterKind Kind>
struct Bernoulli : Univariate<Bernoulli<Parameter, Kind>, formulas::Bernoulli<Kind>> {
  Parameter parameter;  ///< logits or probabilities, see Kind

  constexpr explicit Bernoulli(const Logits<Parameter>& logits) : parameter(logits.value) {}
  constexpr explicit Bernoulli(const Probs<Parameter>& probs) : parameter(probs.value) {}
  constexpr auto parameters() const { return std::tie(parameter); }
  /// The probability of 1, which is the mean.
  constexpr auto probs(Here at = Here::current()) const { return this->mean(at); }
};
template <class X> Bernoulli(Logits<X>) -> Bernoulli<X, ParameterKind::logits>;
template <class X> Bernoulli(Probs<X>) -> Bernoulli<X, ParameterKind::probs>;

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
