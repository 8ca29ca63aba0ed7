#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_STUDENT_T_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_STUDENT_T_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>

#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/betainc.hpp>

namespace tessera::distributions {

namespace formulas {

struct StudentT {
  static constexpr bool has_rsample = true;

  static constexpr NumberRule rules[3] = {NumberRule::positive, NumberRule::any, NumberRule::positive};
  static constexpr Value log_prob(Value x, Value df, Value loc, Value scale) {
    return log_density_at_0(df) - (df + 1.0) * 0.5 * log1p(square((x - loc) / scale) / df) - log(scale);
  }
  /// By the incomplete beta function of p = u / (1 + u), for u = t^2 / df or, in the tails, its inverse; so that small
  /// probabilities of the lower tail are exact. At t = 0 the slope of p is 0 and that of the function infinite: there
  /// it is the density times t.
  static constexpr Value cdf(Value x, Value df, Value loc, Value scale) {
    const Value t = (x - loc) / scale, one = t.number(1), half_df = df * 0.5;
    const Value is_near = less(square(t), 1e-16), u = select(is_near, one, square(t)) / df;
    const Value is_tail = greater(u, 1), r = select(is_tail, one / select(is_tail, u, one), u);
    const Value a = select(is_tail, half_df, t.number(0.5)), b = select(is_tail, t.number(0.5), half_df);
    const Value half = tessera::detail::incomplete_beta(a, b, r / (r + 1.0)) * 0.5;
    const Value below = select(is_tail, half, -half + 0.5), above = select(is_tail, -half + 1.0, half + 0.5);
    return select(is_near, t * exp(log_density_at_0(df)) + 0.5, select(less(t, 0), below, above));
  }
  static constexpr Value entropy(Value df, Value, Value scale) {
    return log(scale) + (df + 1.0) * 0.5 * digamma_step(df * 0.5) - log_density_at_0(df);
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

  /// Whether the series for large z are exact in the type of z.
  static constexpr Value is_large(Value z) { return greater(z, z.dtype() == DType::f64 ? 64 : 8); }
  /// The logarithm of gamma(z + 1/2) / (gamma(z) sqrt(2 pi z)), of z = df / 2. Logarithms of gamma functions have the
  /// size z log(z), so of large z their difference has no correct digits. Source of the series: the one of Stirling.
  static constexpr Value log_density_at_0(Value df) {
    const Value z = df * 0.5, large = is_large(z), far = 1.0 / select(large, z, z.number(1)), f2 = square(far);
    const Value series = far * (f2 * (1.0 / 192 - f2 * (1.0 / 640)) - 0.125);
    const Value near = select(large, z.number(1), z);
    const Value direct = lgamma(near + 0.5) - lgamma(near) - log(near) * 0.5;
    return select(large, series, direct) - (log_2 + log_pi) * 0.5;
  }
  /// digamma(z + 1/2) - digamma(z).
  static constexpr Value digamma_step(Value z) {
    const Value large = is_large(z), far = 1.0 / select(large, z, z.number(1)), f2 = square(far);
    const Value series = far * 0.5 + f2 * (0.125 - f2 * (1.0 / 64 - f2 * (1.0 / 128)));
    const Value near = select(large, z.number(1), z);
    return select(large, series, digamma(near + 0.5) - digamma(near));
  }
};

}  // namespace formulas

/// Student's t distribution of `df` degrees of freedom above 0, a `loc` and a `scale` above 0
/// (torch.distributions.StudentT). Its mean is NaN for up to 1 degree; its variance is infinite for up to 2 and NaN for
/// up to 1. Its cdf is ts::betainc, with its gradients of value and parameters; PyTorch has none.
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
