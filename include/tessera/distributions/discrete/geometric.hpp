#ifndef TESSERA_DISTRIBUTIONS_DISCRETE_GEOMETRIC_HPP
#define TESSERA_DISTRIBUTIONS_DISCRETE_GEOMETRIC_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/discrete/bernoulli.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

template <ParameterKind Kind> struct Geometric {
  static constexpr bool of_logits = Kind == ParameterKind::logits;
  static constexpr bool has_rsample = false;

  static constexpr NumberRule rules[1] = {of_logits ? NumberRule::any : NumberRule::probability};
  static constexpr Value log_prob(Value k, Value parameter) {
    return within_support(is_no_count(k), k, 0, [&](Value inner) {
      if (of_logits) return -(inner * softplus(parameter)) - softplus(-parameter);
      return xlog1py(inner, -parameter) + log(parameter);
    });
  }
  static constexpr Value entropy(Value parameter) {
    if (!of_logits) return Bernoulli<Kind>::entropy(parameter) / probs(parameter);
    // -log(p) - (1 - p) / p log(1 - p). The last term is 1 for p = 0, where it would be infinity times 0.
    const Value is_rare = less(parameter, -20), x = select(is_rare, 0, parameter);
    const Value rest =
        select(is_rare, 1.0 - exp(select(is_rare, parameter, parameter.number(-20))) * 0.5, exp(-x) * softplus(x));
    return softplus(-parameter) + rest;
  }
  static constexpr Value mean(Value parameter) { return of_logits ? exp(-parameter) : 1.0 / parameter - 1.0; }
  static constexpr Value mode(Value parameter) { return parameter.number(0); }
  static constexpr Value variance(Value parameter) { return mean(parameter) / probs(parameter); }
  static constexpr Value draw(const Draws& draws, Value parameter) {
    const Value log_failure = of_logits ? -softplus(parameter) : log1p(-parameter);
    return floor(log1p(-draws.uniform()) / log_failure);
  }
  static constexpr Value kl_divergence(Value parameter, Value other) {
    return Bernoulli<Kind>::kl_divergence(parameter, other) / probs(parameter);
  }

 private:
  static constexpr Value probs(Value parameter) { return Bernoulli<Kind>::mean(parameter); }
};

}  // namespace formulas

/// The number of failures before the first success, 0, 1, ... (torch.distributions.Geometric), given the probability of
/// success. ts::geometric counts the success too, as jax.random.geometric.
template <Operand Parameter, ParameterKind Kind>
struct Geometric : Univariate<Geometric<Parameter, Kind>, formulas::Geometric<Kind>> {
  Parameter parameter;  ///< logits or probabilities, see Kind

  constexpr explicit Geometric(const Logits<Parameter>& logits) : parameter(logits.value) {}
  constexpr explicit Geometric(const Probs<Parameter>& probs) : parameter(probs.value) {}
  constexpr auto parameters() const { return std::tie(parameter); }
};
template <class X> Geometric(Logits<X>) -> Geometric<X, ParameterKind::logits>;
template <class X> Geometric(Probs<X>) -> Geometric<X, ParameterKind::probs>;

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
