#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_EXPONENTIAL_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_EXPONENTIAL_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Exponential {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[1] = {NumberRule::positive};
  static constexpr Value log_prob(Value x, Value rate) {
    return select(less(x, 0), -ops::infinity, log(rate) - rate * x);
  }
  static constexpr Value cdf(Value x, Value rate) { return select(less(x, 0), 0, -expm1(-(rate * x))); }
  static constexpr Value icdf(Value p, Value rate) { return -log1p(-p) / rate; }
  static constexpr Value entropy(Value rate) { return 1.0 - log(rate); }
  static constexpr Value mean(Value rate) { return 1.0 / rate; }
  static constexpr Value mode(Value rate) { return rate.number(0); }
  static constexpr Value variance(Value rate) { return 1.0 / square(rate); }
  static constexpr Value draw(const Draws& draws, Value rate) { return -log1p(-draws.uniform()) / rate; }
  static constexpr Value kl_divergence(Value rate, Value other) {
    const Value ratio = other / rate;
    return ratio - 1.0 - log(ratio);
  }
};

}  // namespace formulas

/// The exponential distribution of a `rate` above 0 (torch.distributions.Exponential): the density is rate exp(-rate x)
/// for x of at least 0.
template <Operand Rate> struct Exponential : Univariate<Exponential<Rate>, formulas::Exponential> {
  Rate rate;
  constexpr explicit Exponential(const Rate& r) : rate(r) {}
  constexpr auto parameters() const { return std::tie(rate); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
