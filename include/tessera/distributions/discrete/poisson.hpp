#ifndef TESSERA_DISTRIBUTIONS_DISCRETE_POISSON_HPP
#define TESSERA_DISTRIBUTIONS_DISCRETE_POISSON_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>

#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/random/poisson.hpp>

namespace tessera::distributions {

namespace formulas {

struct Poisson {
  static constexpr bool has_rsample = false;

  static constexpr Value log_prob(Value k, Value rate) {
    return within_support(is_no_count(k), k, 0,
                          [&](Value inner) { return xlogy(inner, rate) - rate - lgamma(inner + 1.0); });
  }
  static constexpr Value mean(Value rate) { return rate; }
  static constexpr Value mode(Value rate) { return floor(rate); }
  static constexpr Value variance(Value rate) { return rate; }
  /// The rate of a Poisson draw.
  static constexpr Value draw(const Draws&, Value rate) { return rate; }
  static constexpr Value kl_divergence(Value rate, Value other) { return xlogy(rate, rate / other) - (rate - other); }
};

}  // namespace formulas

/// The Poisson distribution of a `rate` of at least 0 (torch.distributions.Poisson). Samples are drawn inside of a
/// traced function only, as by ts::poisson.
template <Operand Rate> struct Poisson : Univariate<Poisson<Rate>, formulas::Poisson> {
  Rate rate;
  constexpr explicit Poisson(const Rate& r) : rate(r) {}
  constexpr auto parameters() const { return std::tie(rate); }

  /// Draws in the shape of the rates. Key and stream: as for ts::poisson.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return tessera::poisson<Stream>(this->template drawn<Stream, false>(at, key), key, at);
  }
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return tessera::poisson<Stream>(this->template drawn<Stream, false>(at, key, like), key, at);
  }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
