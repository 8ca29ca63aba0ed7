#ifndef TESSERA_DISTRIBUTIONS_DISCRETE_CATEGORICAL_HPP
#define TESSERA_DISTRIBUTIONS_DISCRETE_CATEGORICAL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/distributions/univariate.hpp>
#include <tessera/ops/functional.hpp>

namespace tessera::distributions {

namespace formulas {

template <ParameterKind Kind> struct CategoricalProbs {
  static constexpr const char* function = "probs";
  static constexpr Value of(Value parameter) {
    if (Kind == ParameterKind::logits) return build::softmax(parameter, parameter.rank() - 1);
    return parameter / sum_of_rows(parameter, true);
  }
};
template <ParameterKind Kind> struct CategoricalLogProbs {
  static constexpr const char* function = "log_probs";
  static constexpr Value of(Value parameter) {
    if (Kind == ParameterKind::probs) return log(CategoricalProbs<Kind>::of(parameter));
    const int dim = parameter.rank() - 1;
    const Value shifted = build::shifted(parameter, dim);
    return shifted - build::log_sum_exp_of_shifted(shifted, dim);
  }
};
template <ParameterKind Kind> struct CategoricalEntropy {
  static constexpr const char* function = "entropy";
  static constexpr Value of(Value parameter) {
    const Value p = CategoricalProbs<Kind>::of(parameter), none = build::equal(p, p.number(0));
    const Value logarithm = CategoricalLogProbs<Kind>::of(select(none, 1, parameter));
    return -sum_of_rows(p * select(none, 0, Kind == ParameterKind::probs ? log(select(none, 1, p)) : logarithm));
  }
};
/// Infinite where an index of the first distribution has the probability 0 in the second.
template <ParameterKind Kind> struct CategoricalKl {
  static constexpr const char* function = "kl_divergence";
  static constexpr Value of(Value parameter, Value other) {
    const Value p = CategoricalProbs<Kind>::of(parameter), zero = p.number(0), none = build::equal(p, zero);
    const Value impossible = build::equal(CategoricalProbs<Kind>::of(other), zero);
    const Value ratio = CategoricalLogProbs<Kind>::of(parameter) - CategoricalLogProbs<Kind>::of(other);
    const Value term = p * select(either(none, impossible), 0, ratio);
    return sum_of_rows(select(none, 0, select(impossible, ops::infinity, term)));
  }
};

/// x, split as `like`, whose elements are not read.
template <bool Follows> struct SplitAs {
  template <class X, class> using result = X;
  static constexpr Value emit(Value context, Value x, Value like) {
    return Follows ? build::alike(x.at(context.source), build::shape_source(like)) : x;
  }
};

}  // namespace formulas

/// Indices from 0 to n - 1, each with its probability (torch.distributions.Categorical). The parameter is a tensor
/// [..., n] of logits, or of weights that are divided by their sum. Samples are i32, and have no gradients.
/// Communication: as softmax and argmax along the last dim.
///
///     const auto policy = ts::distributions::Categorical(ts::distributions::Logits(scores));
///     const auto action = policy.sample(key);         // [...] i32
///     const auto loss = -ts::mean(policy.log_prob(action) * advantage);
template <Operand Parameter, ParameterKind Kind> struct Categorical {
  Parameter parameter;  ///< logits or probabilities, see Kind

  constexpr explicit Categorical(const Logits<Parameter>& logits) : parameter(logits.value) {}
  constexpr explicit Categorical(const Probs<Parameter>& probs) : parameter(probs.value) {}

  /// The probabilities and their logarithms, [..., n].
  constexpr auto probs(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::CategoricalProbs<Kind>, false>>(Source::from(at), parameter);
  }
  constexpr auto log_probs(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::CategoricalLogProbs<Kind>, false>>(Source::from(at),
                                                                                            parameter);
  }
  /// The logarithm of the probability of each index of x [...]; -infinity for an index out of range.
  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    static_assert(std::is_integral_v<typename X::element>,
                  "tessera: the values of ts::distributions::Categorical are integers; those of OneHotCategorical are "
                  "rows of 0 and 1");
    const auto all = log_probs(at);
    const auto picked = tessera::equal(iota<-1, typename X::element>(all, at), unsqueeze<-1>(x, at), at);
    return max<-1>(tessera::select(picked, all, -ops::infinity, at), at);
  }
  /// -sum(p log p) in nats, where 0 log 0 is 0.
  constexpr auto entropy(Here at = Here::current()) const {
    return call<tessera::detail::RowFormulaTag<formulas::CategoricalEntropy<Kind>, true>>(Source::from(at), parameter);
  }
  /// The most probable index, [...] i32; the first one if there are several.
  constexpr auto mode(Here at = Here::current()) const { return argmax<-1>(parameter, at); }
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return categorical<-1, Stream>(log_probs(at), key, at);
  }
  /// The same in the shape of `like`, against which the dims [...] of the parameter are broadcast, and split as it is.
  /// The elements of `like` are not read.
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    const auto drawn = categorical<-1, Stream>(log_probs(at) + unsqueeze<-1>(zeros_like(like, at), at), key, at);
    if constexpr (std::remove_const_t<decltype(drawn)>::rank == Like::rank)
      return call<formulas::SplitAs<tessera::detail::has_sharding_v<Like>>>(Source::from(at), drawn, like);
    else
      return drawn;
  }
};
template <class X> Categorical(Logits<X>) -> Categorical<X, ParameterKind::logits>;
template <class X> Categorical(Probs<X>) -> Categorical<X, ParameterKind::probs>;

template <class P, class Q, ParameterKind Kind>
constexpr auto kl_divergence(const Categorical<P, Kind>& p, const Categorical<Q, Kind>& q, Here at = Here::current()) {
  return call<tessera::detail::RowFormulaTag<formulas::CategoricalKl<Kind>, true>>(Source::from(at), p.parameter,
                                                                                   q.parameter);
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
