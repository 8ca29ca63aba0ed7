#ifndef TESSERA_DISTRIBUTIONS_MIXTURE_SAME_FAMILY_HPP
#define TESSERA_DISTRIBUTIONS_MIXTURE_SAME_FAMILY_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>

#include <tessera/distributions/discrete/categorical.hpp>
#include <tessera/distributions/independent.hpp>
#include <tessera/ops/functional.hpp>

namespace tessera::distributions {

namespace detail {

/// x with `Dims` dims of extent 1 at the end.
template <int Dims, TensorArgument X> constexpr auto with_dims_at_end(const X& x, Here at) {
  if constexpr (Dims == 0)
    return x;
  else
    return with_dims_at_end<Dims - 1>(unsqueeze<-1>(x, at), at);
}
/// The number of dims of a value.
template <class P> inline constexpr int event_dims = 0;
template <int Dims, class Base> inline constexpr int event_dims<Independent<Dims, Base>> = Dims;
template <class P> constexpr auto parameters_of(const P& p) { return p.parameters(); }
template <int Dims, class Base> constexpr auto parameters_of(const Independent<Dims, Base>& p) {
  return parameters_of(p.base);
}

}  // namespace detail

/// A mixture of distributions of one family (torch.distributions.MixtureSameFamily): `mixture`, a Categorical of
/// parameters [..., k], chooses among k `components`, whose parameters are [..., k], or [..., k, features...] if they
/// are `independent`. Samples have no gradients. Communication: all-reduces along k if that dim is split.
///
///     const auto p = ts::distributions::MixtureSameFamily(
///         ts::distributions::Categorical(ts::distributions::Logits(scores)),        // [batch, k]
///         ts::distributions::Normal(mean, ts::exp(log_std)));                       // [batch, k]
///     const auto loss = -ts::mean(p.log_prob(y));                                   // y: [batch]
template <class Mixture, class Components> struct MixtureSameFamily {
  static_assert(
      requires(const Mixture& m) { m.log_probs(); },
      "tessera: the first argument of MixtureSameFamily is a ts::distributions::Categorical");
  Mixture mixture;
  Components components;

  constexpr MixtureSameFamily(const Mixture& m, const Components& c) : mixture(m), components(c) {}

  /// The logarithm of the density at x [...], or [..., features...] if the components are `independent`.
  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    const auto each = components.log_prob(unsqueeze<component_dim>(x, at), at);
    return logsumexp<-1>(call<AddTag>(Source::from(at), each, mixture.log_probs(at)), at);
  }
  /// The probability of numbers up to x.
  template <TensorArgument X>
    requires requires(const Components& c, const X& x) { c.cdf(x); }
  constexpr auto cdf(const X& x, Here at = Here::current()) const {
    return sum<-1>(mixture.probs(at) * components.cdf(unsqueeze<-1>(x, at), at), at);
  }
  constexpr auto mean(Here at = Here::current()) const { return mean_of(components.mean(at), at); }
  /// The mean of the variances plus the variance of the means.
  constexpr auto variance(Here at = Here::current()) const {
    const auto means = components.mean(at);
    const auto off = means - unsqueeze<component_dim>(mean_of(means, at), at);
    return mean_of(components.variance(at) + off * off, at);
  }
  constexpr auto stddev(Here at = Here::current()) const { return sqrt(variance(at), at); }
  /// Samples of the components that samples of the mixture choose. Key and stream: as for ts::uniform_like.
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    const auto weights = detail::with_dims_at_end<dims>(mixture.log_probs(at), at);
    const auto like =
        std::apply([&](const auto&... p) { return (weights + ... + p); }, detail::parameters_of(components));
    const auto all = components.template sample_like<2 * Stream>(like, key, at);
    const auto chosen = mixture.template sample<2 * Stream + 1>(key, at);
    const auto mask = tessera::equal(iota<-1, std::int32_t>(mixture.log_probs(at), at), unsqueeze<-1>(chosen, at), at);
    return sum<component_dim>(select(detail::with_dims_at_end<dims>(mask, at), all, 0.0, at), at);
  }

 private:
  static constexpr int dims = detail::event_dims<Components>, component_dim = -1 - dims;

  template <TensorArgument X> constexpr auto mean_of(const X& each, Here at) const {
    return sum<component_dim>(detail::with_dims_at_end<dims>(mixture.probs(at), at) * each, at);
  }
};

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
