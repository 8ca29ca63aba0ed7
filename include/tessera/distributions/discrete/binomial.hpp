#ifndef TESSERA_DISTRIBUTIONS_DISCRETE_BINOMIAL_HPP
#define TESSERA_DISTRIBUTIONS_DISCRETE_BINOMIAL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>

#include <tessera/distributions/discrete/bernoulli.hpp>
#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/random/binomial.hpp>

namespace tessera::distributions {

namespace formulas {

template <ParameterKind Kind> struct Binomial {
  static constexpr bool of_logits = Kind == ParameterKind::logits;
  static constexpr bool has_rsample = false;

  static constexpr NumberRule rules[2] = {NumberRule::any, of_logits ? NumberRule::any : NumberRule::probability};
  static constexpr Value log_prob(Value k, Value n, Value parameter) {
    const Value outside = either(is_no_count(k), greater(k, n));
    return within_support(outside, k, 0, [&](Value inner) {
      const Value rest = n - inner, ways = lgamma(n + 1.0) - lgamma(inner + 1.0) - lgamma(rest + 1.0);
      if (of_logits) return ways + inner * parameter - n * softplus(parameter);
      return ways + xlogy(inner, parameter) + xlog1py(rest, -parameter);
    });
  }
  static constexpr Value mean(Value n, Value parameter) { return n * Bernoulli<Kind>::mean(parameter); }
  static constexpr Value mode(Value n, Value parameter) {
    const Value most = floor((n + 1.0) * Bernoulli<Kind>::mean(parameter));
    return select(less(n, most), n, most);
  }
  static constexpr Value variance(Value n, Value parameter) { return n * Bernoulli<Kind>::variance(parameter); }
  /// The probability of a binomial draw.
  static constexpr Value draw(const Draws&, Value, Value parameter) { return Bernoulli<Kind>::mean(parameter); }
  /// NaN for fewer trials than the other distribution has, of which PyTorch has no divergence either.
  static constexpr Value kl_divergence(Value n, Value parameter, Value other_n, Value other) {
    const Value of_equal = n * Bernoulli<Kind>::kl_divergence(parameter, other);
    return select(greater(n, other_n), ops::infinity, select(less(n, other_n), ops::not_a_number, of_equal));
  }
};

}  // namespace formulas

/// The number of successes in `total_count` trials, given the probability of success (torch.distributions.Binomial).
/// Samples are drawn only in a traced function, as by ts::binomial.
template <Operand TotalCount, Operand Parameter, ParameterKind Kind>
struct Binomial : Univariate<Binomial<TotalCount, Parameter, Kind>, formulas::Binomial<Kind>> {
  TotalCount total_count;
  Parameter parameter;  ///< logits or probabilities, see Kind

  constexpr Binomial(const TotalCount& n, const Logits<Parameter>& logits) : total_count(n), parameter(logits.value) {}
  constexpr Binomial(const TotalCount& n, const Probs<Parameter>& probs) : total_count(n), parameter(probs.value) {}
  constexpr auto parameters() const { return std::tie(total_count, parameter); }

  /// Draws in the shape of the parameters. Key and stream: as for ts::binomial.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return tessera::binomial<Stream>(total_count, this->template drawn<Stream, false>(at, key), key, at);
  }
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return tessera::binomial<Stream>(total_count, this->template drawn<Stream, false>(at, key, like), key, at);
  }
};
template <class N, class X> Binomial(N, Logits<X>) -> Binomial<N, X, ParameterKind::logits>;
template <class N, class X> Binomial(N, Probs<X>) -> Binomial<N, X, ParameterKind::probs>;

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
