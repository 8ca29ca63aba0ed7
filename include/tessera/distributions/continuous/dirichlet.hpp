#ifndef TESSERA_DISTRIBUTIONS_CONTINUOUS_DIRICHLET_HPP
#define TESSERA_DISTRIBUTIONS_CONTINUOUS_DIRICHLET_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/distributions/continuous/gamma.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

namespace formulas {

struct DirichletMean {
  static constexpr const char* function = "mean";
  static constexpr Value of(Value a) { return a / sum_of_rows(a, true); }
};
struct DirichletVariance {
  static constexpr const char* function = "variance";
  static constexpr Value of(Value a) {
    const Value total = sum_of_rows(a, true), mean = a / total;
    return mean * (1.0 - mean) / (total + 1.0);
  }
};
/// NaN where no concentration is above 1 and one is 1. Of concentrations that are all below 1, the first gets 1, as in
/// PyTorch.
struct DirichletMode {
  static constexpr const char* function = "mode";
  static constexpr Value of(Value a) {
    const Value part = positive_part(a - 1.0), total = sum_of_rows(part, true);
    const Value below = less(build::max_of(a, 1u << (a.rank() - 1), true), 1);
    const Value first = build::equal(build::iota(a, a.rank() - 1, a.dtype()), part.number(0));
    return select(below, build::cast(first, a.dtype()), part / select(below, 1, total));
  }
};
struct DirichletLogProb {
  static constexpr const char* function = "log_prob";
  static constexpr Value of(Value x, Value a) {
    return sum_of_rows(xlogy(a - 1.0, x)) + lgamma(sum_of_rows(a)) - sum_of_rows(lgamma(a));
  }
};
struct DirichletEntropy {
  static constexpr const char* function = "entropy";
  static constexpr Value of(Value a) {
    const Value total = sum_of_rows(a), count = build::cast(build::extent(a, a.rank() - 1), a.dtype());
    return sum_of_rows(lgamma(a)) - lgamma(total) - (count - total) * digamma(total) -
           sum_of_rows((a - 1.0) * digamma(a));
  }
};
struct DirichletDraw {
  static constexpr Value draw(const Draws& draws, Value a) {
    const Value l = log_standard_gamma(draws, a, draws.stream);
    const Value most = build::max_of(build::unary(ops::op_v<ops::StopGradientOp>, l), 1u << (l.rank() - 1), true);
    const Value x = exp(l - most);
    return x / sum_of_rows(x, true);
  }
};
struct DirichletKl {
  static constexpr const char* function = "kl_divergence";
  static constexpr Value of(Value a, Value other) {
    const Value total = sum_of_rows(a, true);
    return lgamma(sum_of_rows(a)) - lgamma(sum_of_rows(other)) - sum_of_rows(lgamma(a) - lgamma(other)) +
           sum_of_rows((a - other) * (digamma(a) - digamma(total)));
  }
};

}  // namespace formulas

/// Rows of n probabilities that add up to 1 (torch.distributions.Dirichlet), of concentrations [..., n] above 0.
/// Gradients of rsample: as for Gamma. Communication: all-reduces of the sums if the last dim is split.
template <TensorOperand Concentration> struct Dirichlet {
  Concentration concentration;

  constexpr explicit Dirichlet(const Concentration& c) : concentration(c) {}

  /// The logarithm of the density at rows x [..., n].
  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::DirichletLogProb, true>>(Source::from(at), x, concentration);
  }
  constexpr auto entropy(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::DirichletEntropy, true>>(Source::from(at), concentration);
  }
  constexpr auto mean(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::DirichletMean, false>>(Source::from(at), concentration);
  }
  constexpr auto mode(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::DirichletMode, false>>(Source::from(at), concentration);
  }
  constexpr auto variance(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::DirichletVariance, false>>(Source::from(at), concentration);
  }
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return drawn<Stream, false>(key, at);
  }
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto rsample(const Key& key, Here at = Here::current()) const {
    return drawn<Stream, true>(key, at);
  }

 private:
  template <std::uint32_t Stream, bool Reparametrized, class Key> constexpr auto drawn(const Key& key, Here at) const {
    constexpr DType type = tessera::detail::drawn_dtype<typed_of<Concentration>>;
    using Tag = tessera::detail::SampleTag<formulas::DirichletDraw, type, Stream, Reparametrized, false, false>;
    return call<Tag>(Source::from(at), tessera::detail::drawn_from(key), concentration);
  }
};

template <class P, class Q>
constexpr auto kl_divergence(const Dirichlet<P>& p, const Dirichlet<Q>& q, Here at = Here::current()) {
  return call<tessera::detail::RowFormulaTag<formulas::DirichletKl, true>>(Source::from(at), p.concentration,
                                                                           q.concentration);
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
