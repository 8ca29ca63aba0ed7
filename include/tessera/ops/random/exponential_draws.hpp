#ifndef TESSERA_OPS_RANDOM_EXPONENTIAL_DRAWS_HPP
#define TESSERA_OPS_RANDOM_EXPONENTIAL_DRAWS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/random/random_draws.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/stop_gradient.hpp>

// Draws that are functions of exponential, normal and Gumbel draws. Key, stream and communication: as for uniform_like.

namespace tessera {

/// How many trials of the given probabilities of success it takes to succeed: 1, 2, ... (jax.random.geometric,
/// Tensor.geometric_), in the element type of the probabilities. Infinity for a probability of 0. No gradient.
template <std::uint32_t Stream = 0, TensorArgument P, class Key>
constexpr auto geometric(const P& probability, const Key& key, Here at = Here::current()) {
  const auto fixed = stop_gradient(probability, at);
  const Source source = Source::from(at);
  const auto rate = call<NegTag>(source, log1p(call<NegTag>(source, fixed), at));
  return call<AddTag>(source, floor(call<DivTag>(source, exponential_like<Stream>(fixed, key, at), rate), at), 1.0);
}
/// Draws of the Pareto distribution from 1 on, with the given shapes above 0 (jax.random.pareto): exp(e / shape) for an
/// exponential draw e.
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto pareto(const A& shape, const Key& key, Here at = Here::current()) {
  return exp(call<DivTag>(Source::from(at), exponential_like<Stream>(shape, key, at), shape), at);
}
/// Draws of the Weibull distribution of scale 1, with the given shapes above 0 (jax.random.weibull_min): e^(1 / shape)
/// for an exponential draw e. Multiply by another scale.
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto weibull(const A& shape, const Key& key, Here at = Here::current()) {
  return pow(exponential_like<Stream>(shape, key, at), reciprocal(shape, at), at);
}
/// Draws of the Rayleigh distribution with the given scales (jax.random.rayleigh): scale sqrt(2 e) for an exponential
/// draw e.
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto rayleigh(const A& scale, const Key& key, Here at = Here::current()) {
  const Source source = Source::from(at);
  return call<MulTag>(source, scale, sqrt(call<MulTag>(source, 2.0, exponential_like<Stream>(scale, key, at)), at));
}
/// Draws whose logarithms are normal with the given deviations (jax.random.lognormal): exp(sigma n) for a standard
/// normal draw n.
template <std::uint32_t Stream = 0, TensorArgument A, class Key>
constexpr auto lognormal(const A& sigma, const Key& key, Here at = Here::current()) {
  return exp(call<MulTag>(Source::from(at), sigma, normal_like<Stream>(sigma, key, at)), at);
}

/// softmax((logits + Gumbel noise) / temperature) along the last dim, as torch.nn.functional.gumbel_softmax: a
/// categorical draw that has a gradient. `gumbel_softmax<true>` gives 1 for the largest element and 0 for all others
/// (hard=True), with the gradient of the softmax. Communication: as softmax; hard as argmax too.
///
///     const auto choice = ts::gumbel_softmax<true>(logits, key, 0.5);
template <bool Hard = false, std::uint32_t Stream = 0, TensorArgument Logits, class Key = detail::NoKey,
          NumberOperand Temperature = double>
constexpr auto gumbel_softmax(const Logits& logits, const Key& key = {}, const Temperature& temperature = 1.0,
                              Here at = Here::current()) {
  const Source source = Source::from(at);
  const auto noisy = call<AddTag>(source, logits, gumbel_like<Stream>(logits, key, at));
  const auto soft = softmax<-1>(call<DivTag>(source, noisy, temperature), at);
  if constexpr (Hard) {
    const auto largest = tessera::equal(unsqueeze<-1>(argmax<-1>(soft, at), at), iota<-1, std::int32_t>(soft, at), at);
    const auto hard = cast<typename decltype(soft)::element>(largest, at);
    return call<AddTag>(source, call<SubTag>(source, hard, stop_gradient(soft, at)), soft);
  } else {
    return soft;
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
