#ifndef TESSERA_DISTRIBUTIONS_KL_DIVERGENCE_HPP
#define TESSERA_DISTRIBUTIONS_KL_DIVERGENCE_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>

#include <tessera/distributions/univariate.hpp>

namespace tessera::distributions {

/// The Kullback-Leibler divergence of q from p, the mean of log p(x) - log q(x) for samples x of p, in nats, as
/// torch.distributions.kl_divergence, by the formulas that PyTorch has: for two distributions of one family, whose
/// parameters are broadcast against each other. Categorical, OneHotCategorical, Dirichlet and Independent have
/// overloads of their own.
///
///     const auto kl = ts::distributions::kl_divergence(ts::distributions::Normal(mean, deviation),
///                                                      ts::distributions::Normal(0.0, 1.0));
template <class P, class Q>
  requires requires {
    typename P::formulas;
    typename Q::formulas;
  }
constexpr auto kl_divergence(const P& p, const Q& q, Here at = Here::current()) {
  using Formulas = typename P::formulas;
  constexpr bool is_known = std::is_same_v<Formulas, typename Q::formulas> && requires { &Formulas::kl_divergence; };
  static_assert(is_known,
                "tessera: kl_divergence takes two distributions of one family, both of logits or both of "
                "probabilities; HalfCauchy, Logistic, StudentT, Weibull, Binomial and NegativeBinomial have no "
                "closed form here: take the mean of p.log_prob(x) - q.log_prob(x) for samples x of p");
  if constexpr (is_known)
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
