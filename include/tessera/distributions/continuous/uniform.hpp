#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_UNIFORM_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_UNIFORM_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Uniform {
  static constexpr bool has_rsample = true;

  static constexpr Value log_prob(Value x, Value low, Value high) {
    const Value outside = either(less(x, low), build::greater_equal(x, high));
    return select(outside, -ops::infinity, x * 0.0 - log(high - low));
  }
  static constexpr Value cdf(Value x, Value low, Value high) {
    const Value part = (x - low) / (high - low);
    return select(less(part, 0), 0, select(greater(part, 1), 1, part));
  }
  static constexpr Value icdf(Value p, Value low, Value high) { return low + p * (high - low); }
  static constexpr Value entropy(Value low, Value high) { return log(high - low); }
  static constexpr Value mean(Value low, Value high) { return (low + high) * 0.5; }
  static constexpr Value mode(Value low, Value) { return low.number(ops::not_a_number); }
  static constexpr Value variance(Value low, Value high) { return square(high - low) * (1.0 / 12); }
  static constexpr Value draw(const Draws& draws, Value low, Value high) {
    return low + (high - low) * draws.uniform_below_one();
  }
  static constexpr Value kl_divergence(Value low, Value high, Value other_low, Value other_high) {
    const Value beyond = either(less(low, other_low), greater(high, other_high));
    return select(beyond, ops::infinity, log((other_high - other_low) / (high - low)));
  }
};

}  // namespace formulas

/// The uniform distribution from `low` to `high`, above it (torch.distributions.Uniform). The density is 0 outside of
/// [low, high).
template <Operand Low, Operand High> struct Uniform : Univariate<Uniform<Low, High>, formulas::Uniform> {
  Low low;
  High high;
  constexpr Uniform(const Low& l, const High& h) : low(l), high(h) {}
  constexpr auto parameters() const { return std::tie(low, high); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
