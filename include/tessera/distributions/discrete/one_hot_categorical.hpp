#ifndef TESSERA_DISTRIBUTIONS_DISCRETE_ONE_HOT_CATEGORICAL_HPP
#define TESSERA_DISTRIBUTIONS_DISCRETE_ONE_HOT_CATEGORICAL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/distributions/discrete/categorical.hpp>

namespace tessera::distributions {

namespace formulas {

template <ParameterKind Kind> struct OneHotLogProb {
  static constexpr const char* function = "log_prob";
  static constexpr Value of(Value x, Value parameter) {
    const Value none = build::equal(x, x.number(0));
    return sum_of_rows(select(none, 0, x * CategoricalLogProbs<Kind>::of(parameter)));
  }
};
template <ParameterKind Kind> struct OneHotVariance {
  static constexpr const char* function = "variance";
  static constexpr Value of(Value parameter) {
    const Value p = CategoricalProbs<Kind>::of(parameter);
    return p * (1.0 - p);
  }
};

}  // namespace formulas

/// Rows of n numbers, of which one is 1 and all others are 0 (torch.distributions.OneHotCategorical). Parameter and
/// communication: as for Categorical. Samples have the element type of log_probs; ts::gumbel_softmax draws rows with
/// gradients.
template <Operand Parameter, ParameterKind Kind> struct OneHotCategorical {
  Categorical<Parameter, Kind> indices;  ///< the distribution of the positions of the ones

  constexpr explicit OneHotCategorical(const Logits<Parameter>& logits) : indices(logits) {}
  constexpr explicit OneHotCategorical(const Probs<Parameter>& probs) : indices(probs) {}

  /// The probabilities and their logarithms, [..., n].
  constexpr auto probs(Here at = Here::current()) const { return indices.probs(at); }
  constexpr auto log_probs(Here at = Here::current()) const { return indices.log_probs(at); }
  constexpr auto mean(Here at = Here::current()) const { return indices.probs(at); }
  constexpr auto variance(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::OneHotVariance<Kind>, false>>(Source::from(at),
                                                                                       indices.parameter);
  }
  /// The most probable row; the first where there are several.
  constexpr auto mode(Here at = Here::current()) const { return row_of(indices.mode(at), log_probs(at), at); }
  /// The logarithms of the probabilities of rows [..., n].
  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::OneHotLogProb<Kind>, true>>(Source::from(at), x,
                                                                                     indices.parameter);
  }
  constexpr auto entropy(Here at = Here::current()) const { return indices.entropy(at); }
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    const auto all = log_probs(at);
    return row_of(categorical<-1, Stream>(all, key, at), all, at);
  }

 private:
  template <class Index, class Like> static constexpr auto row_of(const Index& index, const Like& like, Here at) {
    return cast<typename Like::element>(tessera::equal(iota<-1, std::int32_t>(like, at), unsqueeze<-1>(index, at), at),
                                        at);
  }
};
template <class X> OneHotCategorical(Logits<X>) -> OneHotCategorical<X, ParameterKind::logits>;
template <class X> OneHotCategorical(Probs<X>) -> OneHotCategorical<X, ParameterKind::probs>;

template <class P, class Q, ParameterKind Kind>
constexpr auto kl_divergence(const OneHotCategorical<P, Kind>& p, const OneHotCategorical<Q, Kind>& q,
                             Here at = Here::current()) {
  return kl_divergence(p.indices, q.indices, at);
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
