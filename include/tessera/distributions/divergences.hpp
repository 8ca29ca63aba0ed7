#ifndef TESSERA_DISTRIBUTIONS_DIVERGENCES_HPP
#define TESSERA_DISTRIBUTIONS_DIVERGENCES_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <utility>

#include <tessera/distributions/continuous/pareto.hpp>
#include <tessera/distributions/continuous/uniform.hpp>
#include <tessera/distributions/univariate.hpp>

// The Kullback-Leibler divergences of pairs of families that have a closed form: those that PyTorch registers in
// torch/distributions/kl.py. A divergence is the mean of log p(x) over x of p, which is minus the entropy, minus the
// mean of log q(x), for which each family q needs moments of p.

namespace tessera::distributions::formulas {

struct Beta;
struct Chi2;
struct Exponential;
struct Gamma;
struct Gumbel;
struct Laplace;
struct Normal;
struct Poisson;
template <ParameterKind> struct Bernoulli;
template <ParameterKind> struct Binomial;

/// A distribution with its parameters.
template <class Formulas, std::size_t Count> struct Given {
  Value parameters[Count];

  constexpr Value operator[](std::size_t i) const { return parameters[i]; }
  constexpr Value entropy() const {
    return with([](std::same_as<Value> auto... p) { return Formulas::entropy(p...); });
  }
  constexpr Value mean() const {
    return with([](std::same_as<Value> auto... p) { return Formulas::mean(p...); });
  }
  constexpr Value variance() const {
    return with([](std::same_as<Value> auto... p) { return Formulas::variance(p...); });
  }
  template <class F> constexpr Value with(F f) const {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return f(parameters[I]...);
    }(std::make_index_sequence<Count>{});
  }
};

template <class P, class... All>
concept OneOf = (std::same_as<P, All> || ...);
template <class P>
concept OnAllNumbers = OneOf<P, Gumbel, Laplace, Normal>;
template <class P>
concept OnPositiveNumbers = OneOf<P, Exponential, Gamma>;

/// Computed of other parameters, which give a finite divergence, where that of these is infinite: otherwise gradients
/// of parameters that are broadcast would be NaN there.
template <class Formula> constexpr Value infinite_where(Value beyond, const Given<Uniform, 2>& p, Formula finite) {
  return select(beyond, ops::infinity,
                finite(Given<Uniform, 2>{{select(beyond, 0.25, p[0]), select(beyond, 0.75, p[1])}}));
}
template <class Formula> constexpr Value infinite_where(Value beyond, const Given<Pareto, 2>& p, Formula finite) {
  return select(beyond, ops::infinity, finite(Given<Pareto, 2>{{p[0], select(beyond, 3, p[1])}}));
}
constexpr Value less_equal(Value x, double y) { return build::less_equal(x, x.number(y)); }

/// The mean of log(x) for x between two numbers of at least 0.
constexpr Value mean_of_log(Value low, Value high) {
  return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1.0;
}
constexpr Value mean_of_log(const Given<Beta, 2>& p) { return digamma(p[0]) - digamma(p[0] + p[1]); }
constexpr Value mean_of_log(const Given<Exponential, 1>& p) { return -log(p[0]) - euler_gamma; }
constexpr Value mean_of_log(const Given<Pareto, 2>& p) { return log(p[0]) + 1.0 / p[1]; }
constexpr Value mean_of_log(const Given<Uniform, 2>& p) { return mean_of_log(p[0], p[1]); }

/// The mean of exp((loc - x) / scale).
constexpr Value mean_of_exp(const Given<Exponential, 1>& p, Value loc, Value scale) {
  const Value product = p[0] * scale;
  return exp(loc / scale) * (product / (product + 1.0));
}
constexpr Value mean_of_exp(const Given<Gamma, 2>& p, Value loc, Value scale) {
  return exp(loc / scale - p[0] * log1p(1.0 / (p[1] * scale)));
}
constexpr Value mean_of_exp(const Given<Normal, 2>& p, Value loc, Value scale) {
  return exp((loc - p[0]) / scale + square(p[1] / scale) * 0.5);
}
constexpr Value mean_of_exp(const Given<Uniform, 2>& p, Value loc, Value scale) {
  return (exp((loc - p[0]) / scale) - exp((loc - p[1]) / scale)) * (scale / (p[1] - p[0]));
}

/// Minus the entropy of p minus the mean of log q(x), where all moments of p are finite.
template <class P, std::size_t N> constexpr Value of_moments(const Given<P, N>& p, const Given<Exponential, 1>& q) {
  return q[0] * p.mean() - log(q[0]) - p.entropy();
}
template <class P, std::size_t N> constexpr Value of_moments(const Given<P, N>& p, const Given<Gamma, 2>& q) {
  return lgamma(q[0]) - q[0] * log(q[1]) + (1.0 - q[0]) * mean_of_log(p) + q[1] * p.mean() - p.entropy();
}
template <class P, std::size_t N> constexpr Value of_moments(const Given<P, N>& p, const Given<Gumbel, 2>& q) {
  return log(q[1]) + (p.mean() - q[0]) / q[1] + mean_of_exp(p, q[0], q[1]) - p.entropy();
}
template <class P, std::size_t N> constexpr Value of_moments(const Given<P, N>& p, const Given<Normal, 2>& q) {
  const Value square_off = p.variance() + square(p.mean() - q[0]);
  return (square_off / square(q[1]) + (log_2 + log_pi)) * 0.5 + log(q[1]) - p.entropy();
}

/// Two distributions of one family.
template <class P, std::size_t N>
  requires requires { &P::kl_divergence; }
constexpr Value divergence(const Given<P, N>& p, const Given<P, N>& q) {
  return p.with([&](std::same_as<Value> auto... of_p) {
    return q.with([&](std::same_as<Value> auto... of_q) { return P::kl_divergence(of_p..., of_q...); });
  });
}

/// Samples of p that can't be samples of q.
template <class P, std::size_t N, class Q, std::size_t M>
  requires(OnAllNumbers<P> && (OnPositiveNumbers<Q> || OneOf<Q, Beta, Pareto, Uniform>)) ||
          (OnPositiveNumbers<P> && OneOf<Q, Beta, Pareto, Uniform>) ||
          (std::same_as<P, Pareto> && OneOf<Q, Beta, Uniform>) || (std::same_as<P, Beta> && std::same_as<Q, Pareto>) ||
          (std::same_as<P, Poisson> && OneOf<Q, Bernoulli<ParameterKind::logits>, Bernoulli<ParameterKind::probs>,
                                             Binomial<ParameterKind::logits>, Binomial<ParameterKind::probs>>)
constexpr Value divergence(const Given<P, N>& p, const Given<Q, M>&) {
  return p[0].number(ops::infinity);
}

template <OneOf<Beta, Exponential, Gamma, Gumbel, Laplace> P, std::size_t N>
constexpr Value divergence(const Given<P, N>& p, const Given<Normal, 2>& q) {
  return of_moments(p, q);
}
template <OneOf<Exponential, Gamma, Normal> P, std::size_t N>
constexpr Value divergence(const Given<P, N>& p, const Given<Gumbel, 2>& q) {
  return of_moments(p, q);
}
template <OneOf<Beta, Gamma> P> constexpr Value divergence(const Given<P, 2>& p, const Given<Exponential, 1>& q) {
  return of_moments(p, q);
}
template <OneOf<Beta, Exponential> P, std::size_t N>
constexpr Value divergence(const Given<P, N>& p, const Given<Gamma, 2>& q) {
  return of_moments(p, q);
}
template <std::same_as<Beta> P> constexpr Value divergence(const Given<P, 2>& p, const Given<Uniform, 2>& q) {
  const Value beyond = either(greater(q[0], 0), less(q[1], 1));
  return select(beyond, ops::infinity, log(q[1] - q[0]) - p.entropy());
}
/// With z = (loc of p - loc of q) / scale of p, the mean of |x - loc of q| is that of a folded normal distribution.
constexpr Value divergence(const Given<Normal, 2>& p, const Given<Laplace, 2>& q) {
  const Value off = p[0] - q[0], z = off / p[1];
  const Value distance = p[1] * exp(square(z) * -0.5) * 0.79788456080286535588 +  // sqrt(2 / pi)
                         off * erf(z * 0.70710678118654752440);
  return log(q[1] / p[1]) + distance / q[1] - 0.5 * (1 + log_pi - log_2);
}

template <OneOf<Exponential, Gamma> Q, std::size_t M>
constexpr Value divergence(const Given<Pareto, 2>& p, const Given<Q, M>& q) {
  return infinite_where(less_equal(p[1], 1), p, [&](const auto& inner) { return of_moments(inner, q); });
}
constexpr Value divergence(const Given<Pareto, 2>& p, const Given<Normal, 2>& q) {
  return infinite_where(less_equal(p[1], 2), p, [&](const auto& inner) { return of_moments(inner, q); });
}

template <OneOf<Gumbel, Normal> Q> constexpr Value divergence(const Given<Uniform, 2>& p, const Given<Q, 2>& q) {
  return of_moments(p, q);
}
template <OneOf<Exponential, Gamma> Q, std::size_t M>
constexpr Value divergence(const Given<Uniform, 2>& p, const Given<Q, M>& q) {
  return infinite_where(less(p[0], 0), p, [&](const auto& inner) { return of_moments(inner, q); });
}
constexpr Value divergence(const Given<Uniform, 2>& p, const Given<Beta, 2>& q) {
  return infinite_where(either(less(p[0], 0), greater(p[1], 1)), p, [&](const auto& inner) {
    return betaln(q[0], q[1]) - (q[0] - 1.0) * mean_of_log(inner) -
           (q[1] - 1.0) * mean_of_log(1.0 - inner[1], 1.0 - inner[0]) - inner.entropy();
  });
}
constexpr Value divergence(const Given<Uniform, 2>& p, const Given<Pareto, 2>& q) {
  return infinite_where(less(p[0], q[0]), p, [&](const auto& inner) {
    return (q[1] + 1.0) * mean_of_log(inner) - log(q[1]) - q[1] * log(q[0]) - inner.entropy();
  });
}

template <ParameterKind Kind>
constexpr Value divergence(const Given<Bernoulli<Kind>, 1>& p, const Given<Poisson, 1>& q) {
  return q[0] - xlogy(p.mean(), q[0]) - p.entropy();
}

/// Chi2 is Gamma, as in PyTorch.
template <class P, std::size_t N> constexpr const Given<P, N>& generalized(const Given<P, N>& p) { return p; }
constexpr Given<Gamma, 2> generalized(const Given<Chi2, 1>& p) { return {{p[0] * 0.5, p[0].number(0.5)}}; }

template <class P, class Q>
concept HasDivergence = requires(const P& p, const Q& q) { divergence(generalized(p), generalized(q)); };

/// The formulas of the divergence of a distribution of parameters I from a distribution of parameters J.
template <class P, class Q, class I, class J> struct KlDivergence;
template <class P, class Q, std::size_t... I, std::size_t... J>
struct KlDivergence<P, Q, std::index_sequence<I...>, std::index_sequence<J...>> {
  template <std::size_t> using Each = Value;
  static constexpr bool is_known = HasDivergence<Given<P, sizeof...(I)>, Given<Q, sizeof...(J)>>;
  static constexpr NumberRule rules[sizeof...(I) + sizeof...(J)] = {rule_of<P>(I)..., rule_of<Q>(J)...};

  static constexpr Value kl_divergence(Each<I>... p, Each<J>... q) {
    return divergence(generalized(Given<P, sizeof...(I)>{{p...}}), generalized(Given<Q, sizeof...(J)>{{q...}}));
  }
};

}  // namespace tessera::distributions::formulas

#include <tessera/base/pop_macros.hpp>

#endif
