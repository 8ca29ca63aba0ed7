// Distributions against PyTorch 1.13.1 (tests/reference/generate.py).
#include <cstdint>
#include <string>
#include <tuple>

#include "../../support/reference.hpp"
#include <gtest/gtest.h>

#include <tessera/distributions/distributions.hpp>

namespace ts = tessera;

namespace {

namespace dist = ts::distributions;
using reference::types;
template <class T> using Vector = ts::ShardedTensor<T, 1>;
template <class T> using Matrix = ts::ShardedTensor<T, 2>;
template <int Rank> using Int = ts::ShardedTensor<std::int32_t, Rank>;

constexpr auto moments = [](const auto& p) { return std::tuple(p.mean(), p.variance(), p.stddev()); };
constexpr auto with_entropy = [](const auto& p) { return std::tuple_cat(std::tuple(p.entropy()), moments(p)); };
constexpr auto with_cdf = [](const auto& p, const auto& x) {
  return std::tuple_cat(std::tuple(p.log_prob(x), p.cdf(x)), with_entropy(p));
};
constexpr auto without_cdf = [](const auto& p, const auto& x) {
  return std::tuple_cat(std::tuple(p.log_prob(x)), with_entropy(p));
};
constexpr auto of_counts = [](const auto& p, const auto& x) {
  return std::tuple_cat(std::tuple(p.log_prob(x)), moments(p));
};
constexpr auto with_kl = [](const auto& results, const auto& p, const auto& q) {
  return std::tuple_cat(results, std::tuple(kl_divergence(p, q)));
};

constexpr reference::Bound exact{.f64 = 64, .f32 = 64};
/// The gradient of digamma is trigamma, of which PyTorch's errors are 2e-9.
constexpr reference::Bound of_trigamma{.f64 = 1e7, .f32 = 64};

template <class T> void continuous(reference::Cases<T>& cases) {
  const auto two = [&](const char* name, auto make, auto quantities) {
    cases.check(types<Matrix<T>, Vector<T>, Matrix<T>, Matrix<T>, Vector<T>>, name,
                [](const auto& x, const auto& a, const auto& b, const auto& c, const auto& d) {
                  const auto p = decltype(make){}(a, b);
                  return with_kl(decltype(quantities){}(p, x), p, decltype(make){}(c, d));
                });
  };
  two(
      "normal", [](const auto& a, const auto& b) { return dist::Normal(a, b); }, with_cdf);
  two(
      "laplace", [](const auto& a, const auto& b) { return dist::Laplace(a, b); }, with_cdf);
  two(
      "gumbel", [](const auto& a, const auto& b) { return dist::Gumbel(a, b); }, with_cdf);
  two(
      "log_normal", [](const auto& a, const auto& b) { return dist::LogNormal(a, b); }, with_cdf);
  two(
      "uniform", [](const auto& a, const auto& b) { return dist::Uniform(a, b); }, with_cdf);
  two(
      "pareto", [](const auto& a, const auto& b) { return dist::Pareto(a, b); }, with_cdf);
  cases.set_bound(of_trigamma);
  two(
      "gamma", [](const auto& a, const auto& b) { return dist::Gamma(a, b); }, without_cdf);
  two(
      "beta", [](const auto& a, const auto& b) { return dist::Beta(a, b); }, without_cdf);
  cases.set_bound(exact);
  two(
      "cauchy", [](const auto& a, const auto& b) { return dist::Cauchy(a, b); },
      [](const auto& p, const auto& x) { return std::tuple(p.log_prob(x), p.cdf(x), p.entropy()); });
  two(
      "independent", [](const auto& a, const auto& b) { return dist::independent<1>(dist::Normal(a, b)); },
      [](const auto& p, const auto& x) { return std::tuple(p.log_prob(x), p.entropy(), p.mean(), p.variance()); });
  const auto one = [&](const char* name, auto make) {
    cases.check(types<Matrix<T>, Vector<T>, Matrix<T>>, name, [](const auto& x, const auto& a, const auto& b) {
      const auto p = decltype(make){}(a);
      return with_kl(with_cdf(p, x), p, decltype(make){}(b));
    });
  };
  one("half_normal", [](const auto& a) { return dist::HalfNormal(a); });
  one("exponential", [](const auto& a) { return dist::Exponential(a); });
  cases.check(types<Matrix<T>, Vector<T>>, "half_cauchy", [](const auto& x, const auto& a) {
    const auto p = dist::HalfCauchy(a);
    return std::tuple(p.log_prob(x), p.cdf(x), p.entropy());
  });
  cases.check(types<Matrix<T>, Vector<T>, Matrix<T>>, "logistic", [](const auto& x, const auto& a, const auto& b) {
    const auto p = dist::Logistic(a, b);
    return std::tuple(p.log_prob(x), p.cdf(x));
  });
  cases.check(types<Matrix<T>, Vector<T>, Matrix<T>>, "weibull",
              [](const auto& x, const auto& a, const auto& b) { return with_cdf(dist::Weibull(a, b), x); });
  cases.set_bound(of_trigamma);
  cases.check(types<Matrix<T>, Vector<T>>, "chi2",
              [](const auto& x, const auto& a) { return without_cdf(dist::Chi2(a), x); });
  cases.check(types<Matrix<T>, Matrix<T>, Vector<T>, Matrix<T>>, "student_t",
              [](const auto& x, const auto& df, const auto& a, const auto& b) {
                return without_cdf(dist::StudentT(df, a, b), x);
              });
  cases.check(types<Matrix<T>, Vector<T>, Matrix<T>>, "dirichlet", [](const auto& x, const auto& a, const auto& b) {
    const auto p = dist::Dirichlet(a);
    return with_kl(std::tuple(p.log_prob(x), p.entropy(), p.mean(), p.variance()), p, dist::Dirichlet(b));
  });
  cases.set_bound(exact);
  cases.check(types<Matrix<T>, Vector<T>, Matrix<T>>, "quantiles", [](const auto& p, const auto& a, const auto& b) {
    // PyTorch's derivative by p of a Laplace quantile is 0 at the median, where it is 2 b.
    const auto q = ts::select(ts::equal(p, 0.5), ts::stop_gradient(p), p);
    return std::tuple(dist::Normal(a, b).icdf(p), dist::LogNormal(a, b).icdf(p), dist::Cauchy(a, b).icdf(p),
                      dist::Laplace(a, b).icdf(q), dist::Gumbel(a, b).icdf(p), dist::Uniform(a - 9.0, b).icdf(p),
                      dist::HalfNormal(b).icdf(p), dist::HalfCauchy(b).icdf(p), dist::Exponential(b).icdf(p),
                      dist::Weibull(b, b).icdf(p), dist::Pareto(b, b).icdf(p));
  });
}

/// Probabilities and logits: `Kind` is dist::Probs or dist::Logits.
template <template <class> class Kind, class T> void discrete(reference::Cases<T>& cases, const std::string& kind) {
  cases.check(types<Int<2>, Matrix<T>, Matrix<T>>, "bernoulli_" + kind,
              [](const auto& x, const auto& a, const auto& b) {
                const auto p = dist::Bernoulli(Kind(a));
                return with_kl(without_cdf(p, x), p, dist::Bernoulli(Kind(b)));
              });
  cases.check(types<Int<2>, Vector<T>, Matrix<T>>, "geometric_" + kind,
              [](const auto& x, const auto& a, const auto& b) {
                const auto p = dist::Geometric(Kind(a));
                return with_kl(without_cdf(p, x), p, dist::Geometric(Kind(b)));
              });
  cases.check(types<Int<2>, Vector<T>, Matrix<T>>, "binomial_" + kind,
              [](const auto& x, const auto& n, const auto& a) { return of_counts(dist::Binomial(n, Kind(a)), x); });
  cases.check(
      types<Int<2>, Vector<T>, Matrix<T>>, "negative_binomial_" + kind,
      [](const auto& x, const auto& n, const auto& a) { return of_counts(dist::NegativeBinomial(n, Kind(a)), x); });
  cases.check(types<Int<1>, Matrix<T>, Matrix<T>>, "categorical_" + kind,
              [](const auto& x, const auto& a, const auto& b) {
                const auto p = dist::Categorical(Kind(a));
                return with_kl(std::tuple(p.log_prob(x), p.entropy(), p.probs()), p, dist::Categorical(Kind(b)));
              });
  cases.check(types<Matrix<T>, Matrix<T>, Matrix<T>>, "one_hot_categorical_" + kind,
              [](const auto& x, const auto& a, const auto& b) {
                const auto p = dist::OneHotCategorical(Kind(a)), q = dist::OneHotCategorical(Kind(b));
                // PyTorch looks for the 1 in x, so its log_prob has no gradient of x.
                const auto rows = ts::stop_gradient(x);
                return with_kl(std::tuple(p.log_prob(rows), p.entropy(), p.mean(), p.variance()), p, q);
              });
}

constexpr auto chain = [](const auto& s, const auto& e, const auto& a, const auto& b) {
  return dist::TransformedDistribution(dist::HalfNormal(s), dist::PowerTransform(e), dist::AffineTransform(a, b),
                                       dist::ExpTransform{});
};

/// Mixtures, and distributions of transformed numbers.
template <class T> void composed(reference::Cases<T>& cases) {
  cases.check(types<Vector<T>, Matrix<T>, Matrix<T>, Matrix<T>>, "mixture",
              [](const auto& x, const auto& w, const auto& a, const auto& b) {
                const auto p = dist::MixtureSameFamily(dist::Categorical(dist::Logits(w)), dist::Normal(a, b));
                return std::tuple(p.log_prob(x), p.cdf(x), p.mean(), p.variance(), p.stddev());
              });
  cases.check(types<Matrix<T>, Vector<T>, Matrix<T>, Matrix<T>>, "mixture_of_rows",
              [](const auto& x, const auto& w, const auto& a, const auto& b) {
                const auto p = dist::MixtureSameFamily(dist::Categorical(dist::Probs(w)),
                                                       dist::independent<1>(dist::Normal(a, b)));
                return std::tuple(p.log_prob(x), p.mean(), p.variance());
              });
  const auto one = [&](const char* name, auto make) {
    cases.check(types<Matrix<T>, Vector<T>, Matrix<T>>, name, [](const auto& x, const auto& a, const auto& b) {
      const auto p = decltype(make){}(a, b);
      return std::tuple(p.log_prob(x), p.cdf(x));
    });
  };
  one("tanh", [](const auto& a, const auto& b) {
    return dist::TransformedDistribution(dist::Normal(a, b), dist::TanhTransform{});
  });
  one("sigmoid", [](const auto& a, const auto& b) {
    return dist::TransformedDistribution(dist::Cauchy(a, b), dist::SigmoidTransform{});
  });
  one("softplus", [](const auto& a, const auto& b) {
    return dist::TransformedDistribution(dist::Laplace(a, b), dist::SoftplusTransform{});
  });
  cases.check(types<Matrix<T>, Vector<T>, Matrix<T>, Vector<T>, Matrix<T>>, "chain",
              [](const auto& x, const auto& s, const auto& e, const auto& a, const auto& b) {
                const auto p = chain(s, e, a, b);
                return std::tuple(p.log_prob(x), p.cdf(x));
              });
  cases.check(types<Matrix<T>, Vector<T>, Matrix<T>>, "transformed_quantiles",
              [](const auto& p, const auto& a, const auto& b) {
                return std::tuple(chain(b, a, a, -b).icdf(p), chain(b, -a, a, b * 0.0625).icdf(p));
              });
}

template <class T> void all() {
  reference::Cases<T> cases("distributions", exact);
  continuous(cases);
  discrete<dist::Probs>(cases, "probs");
  discrete<dist::Logits>(cases, "logits");
  composed(cases);
  cases.check(types<Int<2>, Vector<T>, Matrix<T>>, "poisson", [](const auto& x, const auto& a, const auto& b) {
    const auto p = dist::Poisson(a);
    return with_kl(of_counts(p, x), p, dist::Poisson(b));
  });
}

TEST(ReferenceDistributions, F64) { all<double>(); }
TEST(ReferenceDistributions, F32) { all<float>(); }

}  // namespace
