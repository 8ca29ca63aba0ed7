#ifndef TESSERA_DISTRIBUTIONS_KL_DIVERGENCE_HPP
#define TESSERA_DISTRIBUTIONS_KL_DIVERGENCE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/distributions/divergences.hpp>
#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

/// The Kullback-Leibler divergence of q from p, the mean of log p(x) - log q(x) for samples x of p, in nats, as
/// torch.distributions.kl_divergence: for two distributions of one family, and for the pairs of families that PyTorch
/// has (docs/distributions.md). Parameters are broadcast against each other. Infinite where samples of p can't be
/// samples of q. Categorical, OneHotCategorical, Dirichlet and Independent have overloads of their own.
///
///     const auto kl = ts::distributions::kl_divergence(ts::distributions::Normal(mean, deviation),
///                                                      ts::distributions::Normal(0.0, 1.0));
template <class P, class Q>
  requires requires {
    typename P::formulas;
    typename Q::formulas;
  }
constexpr auto kl_divergence(const P& p, const Q& q, Here at = Here::current()) {
  using Formulas = formulas::KlDivergence<typename P::formulas, typename Q::formulas,
                                          std::make_index_sequence<std::tuple_size_v<decltype(p.parameters())>>,
                                          std::make_index_sequence<std::tuple_size_v<decltype(q.parameters())>>>;
  static_assert(Formulas::is_known,
                "tessera: the divergence of these two distributions has no closed form here (docs/distributions.md has "
                "those that have; two distributions of one family take both logits, or both probabilities): take the "
                "mean of p.log_prob(x) - q.log_prob(x) for samples x of p");
  if constexpr (Formulas::is_known)
    return std::apply(
        [&](const auto&... parameters) {
          static_assert((TensorOperand<std::decay_t<decltype(parameters)>> || ...),
                        "tessera: all parameters of these distributions are numbers, of which a tensor can't be made");
          return call<tessera::detail::QuantityTag<Formulas, tessera::detail::Quantity::kl_divergence>>(
              Source::from(at), parameters...);
        },
        std::tuple_cat(p.parameters(), q.parameters()));
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
