#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_LAPLACE_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_LAPLACE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct Laplace {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[2] = {NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value loc, Value scale) {
    return -(abs(x - loc) / scale) - log(scale) - log_2;
  }
  static constexpr Value cdf(Value x, Value loc, Value scale) {
    const Value off = x - loc, below = less(off, 0);
    const Value tail = exp(select(below, off, -off) / scale) * 0.5;
    return select(below, tail, 1.0 - tail);
  }
  static constexpr Value icdf(Value p, Value loc, Value scale) {
    const Value below = less(p, 0.5), off = scale * log(select(below, p, 1.0 - p) * 2.0);
    return loc + select(below, off, -off);
  }
  static constexpr Value entropy(Value, Value scale) { return log(scale) + (1 + log_2); }
  static constexpr Value mean(Value loc, Value) { return loc; }
  static constexpr Value mode(Value loc, Value) { return loc; }
  static constexpr Value variance(Value, Value scale) { return square(scale) * 2.0; }
  static constexpr Value draw(const Draws& draws, Value loc, Value scale) {
    return loc + scale * tessera::detail::Laplace::draw(draws.uniform());
  }
  static constexpr Value kl_divergence(Value loc, Value scale, Value other, Value other_scale) {
    const Value ratio = scale / other_scale, off = abs(loc - other);
    return ratio * exp(-off / scale) + off / other_scale - log(ratio) - 1.0;
  }
};

}  // namespace formulas

/// The Laplace distribution of a mean `loc` and a `scale` above 0 (torch.distributions.Laplace): the density is
/// exp(-|x - loc| / scale) / (2 scale).
template <Operand Loc, Operand Scale> struct Laplace : Univariate<Laplace<Loc, Scale>, formulas::Laplace> {
  Loc loc;
  Scale scale;
  constexpr Laplace(const Loc& l, const Scale& s) : loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(loc, scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
