#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_STUDENT_T_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_STUDENT_T_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct StudentT {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[3] = {NumberRule::positive, NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value df, Value loc, Value scale) {
    const Value half = (df + 1.0) * 0.5;
    return lgamma(half) - half * log1p(square((x - loc) / scale) / df) - lgamma(df * 0.5) - log(scale) -
           (log(df) + log_pi) * 0.5;
  }
  static constexpr Value entropy(Value df, Value, Value scale) {
    const Value half = (df + 1.0) * 0.5;
    return log(scale) + half * (digamma(half) - digamma(df * 0.5)) + log(df) * 0.5 + betaln(df * 0.5, df.number(0.5));
  }
  static constexpr Value mean(Value df, Value loc, Value) { return select(greater(df, 1), loc, df.number(nan)); }
  static constexpr Value mode(Value, Value loc, Value) { return loc; }
  static constexpr Value variance(Value df, Value, Value scale) {
    const Value finite = greater(df, 2), safe = select(finite, df, df.number(3));
    const Value rest = select(greater(df, 1), df.number(ops::infinity), df.number(nan));
    return select(finite, square(scale) * (safe / (safe - 2.0)), rest);
  }
  static constexpr Value draw(const Draws& draws, Value df, Value loc, Value scale) {
    const Value degrees = draws.spread(df);
    const Value chi2 = standard_gamma(draws, degrees * 0.5, draws.stream) * 2.0;
    return loc + scale * (draws.normal() / sqrt(chi2 / degrees));
  }

 private:
  static constexpr double nan = ops::not_a_number;
};

}  // namespace formulas

/// Student's t distribution of `df` degrees of freedom above 0, a `loc` and a `scale` above 0
/// (torch.distributions.StudentT). Its mean is NaN for up to 1 degree; its variance is infinite for up to 2 and NaN for
/// up to 1.
template <Operand Df, Operand Loc, Operand Scale>
struct StudentT : Univariate<StudentT<Df, Loc, Scale>, formulas::StudentT> {
  Df df;
  Loc loc;
  Scale scale;
  constexpr StudentT(const Df& d, const Loc& l, const Scale& s) : df(d), loc(l), scale(s) {}
  constexpr auto parameters() const { return std::tie(df, loc, scale); }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
