#ifndef TESSERA_DISTRIBUTIONS_INDEPENDENT_HPP
#define TESSERA_DISTRIBUTIONS_INDEPENDENT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <utility>

#include <tessera/distributions/kl_divergence.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera::distributions {

/// A distribution of tensors of `Dims` dims with independent elements (torch.distributions.Independent): log_prob,
/// entropy and kl_divergence are summed over the last `Dims` dims; other members are those of `base`. Communication: an
/// all-reduce of the sums if one of these dims is split.
template <int Dims, class Base> struct Independent {
  static_assert(Dims >= 1, "tessera: ts::distributions::independent takes the number of dims of a value, at least 1");
  Base base;

  template <TensorArgument X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    return summed(base.log_prob(x, at), at);
  }
  constexpr auto entropy(Here at = Here::current()) const { return summed(base.entropy(at), at); }
  constexpr auto mean(Here at = Here::current()) const { return base.mean(at); }
  constexpr auto mode(Here at = Here::current()) const { return base.mode(at); }
  constexpr auto variance(Here at = Here::current()) const { return base.variance(at); }
  constexpr auto stddev(Here at = Here::current()) const { return base.stddev(at); }
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return base.template sample<Stream>(key, at);
  }
  template <std::uint32_t Stream = 0, class Key>
  constexpr auto rsample(const Key& key, Here at = Here::current()) const {
    return base.template rsample<Stream>(key, at);
  }
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return base.template sample_like<Stream>(like, key, at);
  }
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
  constexpr auto rsample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return base.template rsample_like<Stream>(like, key, at);
  }

  /// Sums over the last dims, which are those of a value.
  template <TensorArgument X> static constexpr auto summed(const X& each, Here at) {
    static_assert(X::rank >= Dims, "tessera: the values of ts::distributions::independent have more dims than the "
                                   "parameters of the distribution");
    return [&]<int... D>(std::integer_sequence<int, D...>) {
      return sum<(D - Dims)...>(each, at);
    }(std::make_integer_sequence<int, Dims>{});
  }
};

///     const auto posterior = ts::distributions::independent<1>(ts::distributions::Normal(mean, deviation));
///     const auto log_prob = posterior.log_prob(z);      // [batch, features] gives [batch]
template <int Dims, class Base> constexpr auto independent(const Base& base) { return Independent<Dims, Base>{base}; }

template <int Dims, class P, class Q>
constexpr auto kl_divergence(const Independent<Dims, P>& p, const Independent<Dims, Q>& q, Here at = Here::current()) {
  return Independent<Dims, P>::summed(kl_divergence(p.base, q.base, at), at);
}

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
