// Divergences of different families, and modes, against PyTorch 1.13.1 (tests/reference/generate.py). Infinite
// divergences and modes that are NaN: distributions_test.cpp.
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

constexpr auto from = [](const auto& p, const auto&... q) { return std::tuple(kl_divergence(p, q)...); };
constexpr auto modes = [](const auto&... p) { return std::tuple(p.mode()...); };

constexpr reference::Bound exact{.f64 = 64, .f32 = 64};
/// The gradient of digamma is trigamma, of which PyTorch's errors are 2e-9.
constexpr reference::Bound of_trigamma{.f64 = 1e7, .f32 = 64};

/// The gradient of -127 by a width of .018 is a sum of terms of 4439 / .018 / 16 = 15,800, 7 bits that cancel, with
/// exponentials of 8.4, whose rounded arguments cost 3 bits more. f32 has 2^10 ulp of error where a kernel stores them.
constexpr reference::Bound of_narrow{.f64 = 64, .f32 = 2048};

template <class T> void continuous(reference::Cases<T>& cases) {
  const auto four = [&](const char* name, auto f) {
    cases.check(types<Vector<T>, Matrix<T>, Matrix<T>, Vector<T>>, name, f);
  };
  cases.set_bound(of_trigamma);
  four("of_beta", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Beta(a, b), dist::Exponential(c), dist::Gamma(c, d), dist::Normal(c, d),
                dist::Uniform(-c, d + 1.0));
  });
  four("of_gamma", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Gamma(a, b), dist::Exponential(c), dist::Gumbel(c, d), dist::Normal(c, d));
  });
  four("of_chi2", [](const auto& a, const auto&, const auto& c, const auto& d) {
    return from(dist::Chi2(a), dist::Exponential(c), dist::Gamma(c, d), dist::Gumbel(c, d), dist::Normal(c, d),
                dist::Chi2(d));
  });
  cases.set_bound(exact);
  four("of_exponential", [](const auto& a, const auto&, const auto& c, const auto& d) {
    return from(dist::Exponential(a), dist::Gamma(c, d), dist::Gumbel(c, d), dist::Normal(c, d));
  });
  four("of_gumbel", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Gumbel(a, b), dist::Normal(c, d));
  });
  four("of_laplace", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Laplace(a, b), dist::Normal(c, d));
  });
  four("of_normal", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Normal(a, b), dist::Gumbel(c, d), dist::Laplace(c, d));
  });
  four("of_pareto", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Pareto(a, b + 2.0), dist::Exponential(c), dist::Gamma(c, d), dist::Normal(c, d));
  });
  cases.set_bound(of_narrow);
  four("of_uniform", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Uniform(a * 0.25, a * 0.25 + b * 0.0625), dist::Exponential(c), dist::Gamma(c, d),
                dist::Gumbel(c, d), dist::Normal(c, d), dist::Pareto(c * 0.015625, d));
  });
  cases.set_bound(exact);
  four("of_uniform_below_1", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    return from(dist::Uniform(a * 0.125, (a + b) * 0.125), dist::Beta(c, d));
  });
  four("of_half_cauchy", [](const auto& a, const auto&, const auto& c, const auto&) {
    return from(dist::HalfCauchy(a), dist::HalfCauchy(c));
  });
  four("of_transformed", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    const auto made = [](const auto& base) {
      return dist::TransformedDistribution(base, dist::ExpTransform{}, dist::AffineTransform(1.5, 0.5));
    };
    return from(made(dist::Normal(a, b)), made(dist::Normal(c, d)), made(dist::Laplace(c, d)));
  });
  four("of_independent_transformed", [](const auto& a, const auto& b, const auto& c, const auto& d) {
    const auto made = [](const auto& base) {
      return dist::independent<1>(dist::TransformedDistribution(base, dist::SigmoidTransform{}));
    };
    return from(made(dist::Normal(a, b)), made(dist::Normal(c, d)));
  });
  cases.check(types<Vector<T>, Matrix<T>>, "modes_of_two", [](const auto& a, const auto& b) {
    return modes(dist::Normal(a, b), dist::LogNormal(a, b), dist::Laplace(a, b), dist::Gumbel(a, b), dist::Cauchy(a, b),
                 dist::StudentT(b, a, b));
  });
  cases.check(types<Matrix<T>>, "modes_of_one", [](const auto& a) {
    return modes(dist::Exponential(a), dist::HalfNormal(a), dist::HalfCauchy(a), dist::Chi2(a), dist::Poisson(a));
  });
  cases.check(types<Vector<T>, Matrix<T>>, "modes_above_0", [](const auto& a, const auto& b) {
    return modes(dist::Gamma(a, b), dist::Pareto(a, b), dist::Beta(a, b), dist::Weibull(a, b + 1.0));
  });
  cases.check(types<Matrix<T>>, "mode_of_rows", [](const auto& a) {
    return modes(dist::Dirichlet(a), dist::Dirichlet(a * 0.125), dist::independent<1>(dist::Gamma(a, a)));
  });
}

/// Probabilities and logits: `Kind` is dist::Probs or dist::Logits.
template <template <class> class Kind, class T> void discrete(reference::Cases<T>& cases, const std::string& kind) {
  cases.check(types<Vector<T>, Matrix<T>>, "of_bernoulli_" + kind,
              [](const auto& a, const auto& b) { return from(dist::Bernoulli(Kind(a)), dist::Poisson(b)); });
  cases.check(types<Vector<T>, Matrix<T>, Matrix<T>>, "of_binomial_" + kind,
              [](const auto& n, const auto& a, const auto& b) {
                return from(dist::Binomial(n, Kind(a)), dist::Binomial(n, Kind(b)));
              });
  cases.check(types<Vector<T>, Matrix<T>>, "modes_of_counts_" + kind, [](const auto& n, const auto& a) {
    return modes(dist::Binomial(n, Kind(a)), dist::NegativeBinomial(n * 0.5, Kind(a)), dist::Bernoulli(Kind(a)),
                 dist::Geometric(Kind(a)));
  });
  cases.check(types<Matrix<T>>, "modes_of_indices_" + kind,
              [](const auto& a) { return modes(dist::Categorical(Kind(a)), dist::OneHotCategorical(Kind(a))); });
}

template <class T> void all() {
  reference::Cases<T> cases("divergences", exact);
  continuous(cases);
  discrete<dist::Probs>(cases, "probs");
  discrete<dist::Logits>(cases, "logits");
}

TEST(ReferenceDivergences, F64) { all<double>(); }
TEST(ReferenceDivergences, F32) { all<float>(); }

}  // namespace
