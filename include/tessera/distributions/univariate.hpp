#ifndef TESSERA_DISTRIBUTIONS_UNIVARIATE_HPP
#define TESSERA_DISTRIBUTIONS_UNIVARIATE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/distributions/formula.hpp>

namespace tessera::distributions {

/// The members of a distribution of single numbers, which `Self` derives from; `Self::parameters()` is a tuple of its
/// parameters, which `Formulas` computes with. Parameters are floating tensors, numbers, ts::Dims or ts::Scalars, which
/// are broadcast against each other and promoted; at least one is a tensor wherever a member takes no tensor.
///
/// Results have the shape of all parameters and arguments broadcast against each other. They are f32 where the promoted
/// type is bf16 or f16, as those of losses; samples are of the promoted type. Everything has gradients but `sample`.
/// Parameters that are numbers outside of their range are the error `option`; of tensors the results are NaN. No
/// communication.
template <class Self, class Formulas> struct Univariate {
  using formulas = Formulas;

  /// The logarithm of the density at x, or of the probability of x; -infinity outside of the support.
  template <Operand X> constexpr auto log_prob(const X& x, Here at = Here::current()) const {
    return computed<tessera::detail::Quantity::log_prob>(at, x);
  }
  /// The probability of numbers up to x.
  template <Operand X>
    requires requires { &Formulas::cdf; }
  constexpr auto cdf(const X& x, Here at = Here::current()) const {
    return computed<tessera::detail::Quantity::cdf>(at, x);
  }
  /// The inverse of cdf: the quantile of a probability in [0, 1].
  template <Operand P>
    requires requires { &Formulas::icdf; }
  constexpr auto icdf(const P& probability, Here at = Here::current()) const {
    return computed<tessera::detail::Quantity::icdf>(at, probability);
  }
  /// The differential entropy, or the entropy of a discrete distribution, in nats.
  constexpr auto entropy(Here at = Here::current()) const
    requires requires { &Formulas::entropy; }
  {
    return computed<tessera::detail::Quantity::entropy>(at);
  }
  constexpr auto mean(Here at = Here::current()) const
    requires requires { &Formulas::mean; }
  {
    return computed<tessera::detail::Quantity::mean>(at);
  }
  /// Where the density is largest, or the most probable value.
  constexpr auto mode(Here at = Here::current()) const
    requires requires { &Formulas::mode; }
  {
    return computed<tessera::detail::Quantity::mode>(at);
  }
  constexpr auto variance(Here at = Here::current()) const
    requires requires { &Formulas::variance; }
  {
    return computed<tessera::detail::Quantity::variance>(at);
  }
  constexpr auto stddev(Here at = Here::current()) const
    requires requires { &Formulas::variance; }
  {
    return computed<tessera::detail::Quantity::stddev>(at);
  }

  /// Draws without a gradient, in the shape of the parameters. Key and stream: as for ts::uniform_like.
  template <std::uint32_t Stream = 0, class Key>
    requires requires { &Formulas::draw; }
  constexpr auto sample(const Key& key, Here at = Here::current()) const {
    return drawn<Stream, false>(at, key);
  }
  /// The same in the shape of `like`, against which the parameters are broadcast, and split as it is. The elements of
  /// `like` are not read; its element type is promoted with those of the parameters.
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
    requires requires { &Formulas::draw; }
  constexpr auto sample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return drawn<Stream, false>(at, key, like);
  }
  /// Draws with gradients of the parameters (the reparametrization trick), otherwise those of sample.
  template <std::uint32_t Stream = 0, class Key>
    requires(Formulas::has_rsample)
  constexpr auto rsample(const Key& key, Here at = Here::current()) const {
    return drawn<Stream, true>(at, key);
  }
  template <std::uint32_t Stream = 0, TensorArgument Like, class Key>
    requires(Formulas::has_rsample)
  constexpr auto rsample_like(const Like& like, const Key& key, Here at = Here::current()) const {
    return drawn<Stream, true>(at, key, like);
  }

 protected:
  constexpr const Self& self() const { return static_cast<const Self&>(*this); }

  template <tessera::detail::Quantity What, class... X> constexpr auto computed(Here at, const X&... x) const {
    return std::apply(
        [&](const auto&... parameters) {
          static_assert(
              (TensorOperand<X> || ... || false) || (TensorOperand<std::decay_t<decltype(parameters)>> || ...),
              "tessera: the parameters of this distribution are numbers, of which a tensor can't be made: "
              "give a parameter as a tensor, or a tensor to log_prob, cdf or icdf");
          return call<tessera::detail::QuantityTag<Formulas, What>>(Source::from(at), x..., parameters...);
        },
        self().parameters());
  }
  template <std::uint32_t Stream, bool Reparametrized, class Key, class... Like>
  constexpr auto drawn(Here at, const Key& key, const Like&... like) const {
    return std::apply(
        [&](const auto&... parameters) {
          static_assert(sizeof...(Like) != 0 || (TensorOperand<std::decay_t<decltype(parameters)>> || ...),
                        "tessera: the parameters of this distribution are numbers, so its samples have no shape: call "
                        "sample_like(x, key) for samples in the shape of a tensor");
          constexpr DType type =
              tessera::detail::drawn_dtype<typed_of<Like>..., typed_of<std::decay_t<decltype(parameters)>>...>;
          using Tag = tessera::detail::SampleTag<Formulas, type, Stream, Reparametrized, sizeof...(Like) != 0,
                                                 (tessera::detail::has_sharding_v<Like> || ... || false)>;
          return call<Tag>(Source::from(at), tessera::detail::drawn_from(key), like..., parameters...);
        },
        self().parameters());
  }
};

/// The logarithms of odds of probabilities, log(p / (1 - p)), as the parameter of a distribution.
template <Operand X> struct Logits {
  X value;
  constexpr explicit Logits(const X& x) : value(x) {}
};
/// Probabilities as the parameter of a distribution.
template <Operand X> struct Probs {
  X value;
  constexpr explicit Probs(const X& x) : value(x) {}
};
/// Which of the two a distribution has as its parameter.
enum class ParameterKind : std::uint8_t { logits, probs };

}  // namespace tessera::distributions

#include <tessera/base/pop_macros.hpp>

#endif
