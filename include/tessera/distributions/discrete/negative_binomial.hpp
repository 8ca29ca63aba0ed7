#ifndef TESSERA_DISTRIBUTIONS_DISCRETE_NEGATIVE_BINOMIAL_HPP
#define TESSERA_DISTRIBUTIONS_DISCRETE_NEGATIVE_BINOMIAL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>

#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/random/gamma_draws.hpp>
#include <tessera/ops/random/poisson.hpp>

namespace tessera::distributions {

namespace formulas {

template <ParameterKind Kind> struct NegativeBinomial {
  static constexpr bool of_logits = Kind == ParameterKind::logits;
  static constexpr bool has_rsample = false;

  static constexpr NumberRule rules[2] = {NumberRule::positive, of_logits ? NumberRule::any : NumberRule::probability};
  static constexpr Value log_prob(Value k, Value n, Value parameter) {
    return within_support(is_no_count(k), k, 0, [&](Value inner) {
      const Value ways = lgamma(n + inner) - lgamma(inner + 1.0) - lgamma(n);
      if (of_logits) return ways - n * softplus(parameter) - inner * softplus(-parameter);
      return ways + xlog1py(n, -parameter) + xlogy(inner, parameter);
    });
  }
  static constexpr Value mean(Value n, Value parameter) { return n * odds(parameter); }
  static constexpr Value mode(Value n, Value parameter) { return positive_part(floor((n - 1.0) * odds(parameter))); }
  static constexpr Value variance(Value n, Value parameter) {
    return of_logits ? mean(n, parameter) * (odds(parameter) + 1.0) : mean(n, parameter) / (1.0 - parameter);
  }
  /// The rate of a Poisson draw.
  static constexpr Value draw(const Draws& draws, Value n, Value parameter) {
    return Gamma::draw(draws, n, n.number(1)) * odds(parameter);
  }

 private:
  static constexpr Value odds(Value parameter) { return of_logits ? exp(parameter) : parameter / (1.0 - parameter); }
};

}  // namespace formulas

/// The number of successes before `total_count` failures (torch.distributions.NegativeBinomial), given the probability
/// of success; the count may be a fraction. Samples are drawn only in a traced function, as Poisson samples with gamma
/// distributed rates.
template <Operand TotalCount, Operand Parameter, ParameterKind Kind>
struct NegativeBinomial : Univariate<NegativeBinomial<TotalCount, Parameter, Kind>, formulas::NegativeBinomial<Kind>> {
  TotalCount total_count;
  Parameter parameter;  ///< logits or probabilities, see Kind

  constexpr NegativeBinomial(const TotalCount& n, const Logits<Parameter>& logits)
      : total_count(n), parameter(logits.value) {}
  constexpr NegativeBinomial(const TotalCount& n, const Probs<Parameter>& probs)
      : total_count(n), parameter(probs.value) {}
  constexpr auto parameters() const { return std::tie(total_count, parameter); }

  /// Draws in the shape of the parameters. Key and stream: as for ts::poisson and ts::gamma.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return tessera::poisson<Stream>(this->template drawn<Stream, false>(at, key), key, at);
  }
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return tessera::poisson<Stream>(this->template drawn<Stream, false>(at, key, like), key, at);
  }
};
template <class N, class X> NegativeBinomial(N, Logits<X>) -> NegativeBinomial<N, X, ParameterKind::logits>;
template <class N, class X> NegativeBinomial(N, Probs<X>) -> NegativeBinomial<N, X, ParameterKind::probs>;

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
