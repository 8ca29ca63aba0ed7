#ifndef TESSERA_OPS_RANDOM_BINOMIAL_HPP
#define TESSERA_OPS_RANDOM_BINOMIAL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <tuple>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/ops/random/poisson.hpp>

namespace tessera {

namespace detail {

/// Binomial draws of means below 10 for probabilities of up to one half, by the inverse of the distribution function,
/// as poisson_by_inversion. The chance of more than 60 is below 1e-26.
template <std::uint32_t Stream, class N, class P, class Key>
constexpr auto binomial_by_inversion(const N& n, const P& p, const Key& key, Here at) {
  const auto chance = uniform_like<2 * Stream>(p, key, at);
  const auto odds = p / (1.0 - p);
  const auto first = exp(n * log1p(-p, at), at);
  const auto step = [&](const auto& i, const auto& carry) {
    const auto& term = std::get<0>(carry);
    const auto& below = std::get<1>(carry);
    const auto done = cast<double>(i, at);
    const auto next = term * (maximum(n - done, 0.0, at) / (done + 1.0) * odds);
    return std::tuple(next, below + next, std::get<2>(carry) + cast<double>(chance >= below, at));
  };
  // The probabilities of all values may add up to a little less than a uniform draw.
  return minimum(std::get<2>(fori_loop(0, 60, step, std::tuple(first, first, zeros_like(p, at)), at)), n, at);
}

/// Binomial draws of means from 10 on for probabilities of up to one half, by transformed rejection, BTRS. A proposal
/// is accepted with a probability above .66, so all of 32 are rejected with a probability below 1e-14; the draw is the
/// mode then.
template <std::uint32_t Stream, class N, class P, class Key>
constexpr auto binomial_by_rejection(const N& n, const P& p, const Key& key, Here at) {
  const auto deviation = sqrt(n * p * (1.0 - p), at);
  const auto b = deviation * 2.53 + 1.15;
  const auto a = b * 0.0248 - 0.0873 + p * 0.01;
  const auto alpha = (5.1 / b + 2.83) * deviation;
  const auto sure = 0.92 - 4.2 / b;
  const auto mode = floor((n + 1.0) * p, at);
  const auto log_odds = log(p / (1.0 - p), at);
  const auto log_mode = lgamma(mode + 1.0, at) + lgamma(n - mode + 1.0, at);
  const auto step = [&](const auto& i, const auto& carry) {
    const auto own = key_in_loop<Stream>(key, i, at);
    const auto u = uniform_like<2 * Stream>(p, own, at) - 0.5;
    const auto v = uniform_like<2 * Stream + 1>(p, own, at);
    const auto edge = maximum(0.5 - abs(u, at), 1e-300, at);  // 0 at the ends of the uniform draws
    const auto k = floor((2.0 * a / edge + b) * u + n * p + 0.5, at);
    const auto possible = logical_and(k >= 0.0, k <= n, at);
    const auto inner = clamp(k, 0.0, n, at);
    const auto log_ratio = log(maximum(v, 1e-300, at), at) + log(alpha / (a / (edge * edge) + b), at);
    const auto log_chance =
        log_mode - lgamma(inner + 1.0, at) - lgamma(n - inner + 1.0, at) + (inner - mode) * log_odds;
    const auto taken =
        logical_and(possible, logical_or(logical_and(edge >= 0.07, v <= sure, at), log_ratio <= log_chance, at), at);
    const auto& made = std::get<0>(carry);
    const auto& found = std::get<1>(carry);
    return std::tuple(select(logical_and(taken, logical_not(found, at), at), k, made, at),
                      logical_or(found, taken, at));
  };
  return std::get<0>(fori_loop(0, 32, step, std::tuple(mode, p < 0.0), at));
}

}  // namespace detail

/// How many of `count` trials succeed that each succeed with the given probability (torch.binomial,
/// jax.random.binomial), in the element type of the probabilities. The count is a number or a tensor of whole numbers,
/// which is broadcast against the probabilities. NaN for a count below 0 and a probability outside of [0, 1]. Computed
/// in double, inside of a traced function. No gradient. Costs two loops, of 60 and of 32 steps. Key and stream: as for
/// uniform_like, of which streams 2 Stream and 2 Stream + 1 are used. Errors: shape_mismatch. No communication. Source:
/// Hoermann, Journal of Statistical Computation and Simulation 46 (1993).
template <std::uint32_t Stream = 0, Operand Count, TensorArgument P, class Key>
constexpr auto binomial(const Count& count, const P& probability, const Key& key, Here at = Here::current()) {
  static_assert(detail::draws_v<Typed<typename P::element, P::rank>>,
                "tessera: random numbers are drawn for float, double, bf16 and f16 tensors");
  if (trace_of(probability).module == nullptr)
    fail(errc::unsupported,
         "[binomial] outside of a traced function: call ts::binomial inside a function of ts::compile",
         Source::from(at));
  const detail::LayerCall call(at, probability);
  const detail::FunctionCall named("binomial", probability);
  const auto given = detail::as_sym(cast<double>(stop_gradient(probability, at), at));
  const auto n = [&] {
    if constexpr (TensorOperand<Count>)
      return detail::as_sym(given * 0.0 + cast<double>(stop_gradient(count, at), at));
    else
      return detail::as_sym(given * 0.0 + count);
  }();
  const auto p = detail::as_sym(given + n * 0.0);
  const auto flipped = p > 0.5;
  const auto rarer = select(flipped, 1.0 - p, p, at);
  const auto is_few = n * rarer < 10.0;
  const auto few = detail::binomial_by_inversion<Stream>(n, select(is_few, rarer, 0.0, at), key, at);
  const auto many =
      detail::binomial_by_rejection<Stream>(select(is_few, 20.0, n, at), select(is_few, 0.5, rarer, at), key, at);
  const auto drawn = select(is_few, few, many, at);
  const auto valid = logical_and(n >= 0.0, logical_and(p >= 0.0, p <= 1.0, at), at);
  return cast<typename P::element>(
      select(valid, select(flipped, n - drawn, drawn, at), std::numeric_limits<double>::quiet_NaN(), at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
