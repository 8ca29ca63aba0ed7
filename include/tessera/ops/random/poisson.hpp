#ifndef TESSERA_OPS_RANDOM_POISSON_HPP
#define TESSERA_OPS_RANDOM_POISSON_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <tuple>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/elementwise/special.hpp>
#include <tessera/ops/random/keys.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/stop_gradient.hpp>

namespace tessera {

namespace detail {

/// The key of draw i in a loop: of a number the loop itself makes one for each step.
template <std::uint32_t Stream, class Key, class I> constexpr auto key_in_loop(const Key& key, const I& i, Here at) {
  if constexpr (TensorOperand<Key>)
    return fold_in(fold_in(key, Stream, at), i, at);
  else
    return key;
}

/// Poisson draws of rates below 10, by the inverse of the distribution function: how many of its values a uniform draw
/// reaches. The chance of more than 60 is below 1e-26.
template <std::uint32_t Stream, class Rate, class Key>
constexpr auto poisson_by_inversion(const Rate& rate, const Key& key, Here at) {
  const auto chance = uniform_like<2 * Stream>(rate, key, at);
  const auto first = exp(-rate, at);
  const auto step = [&](const auto& i, const auto& carry) {
    const auto& term = std::get<0>(carry);
    const auto& below = std::get<1>(carry);
    const auto next = term * (rate / (cast<double>(i, at) + 1.0));
    return std::tuple(next, below + next, std::get<2>(carry) + cast<double>(chance >= below, at));
  };
  return std::get<2>(fori_loop(0, 60, step, std::tuple(first, first, zeros_like(rate, at)), at));
}

/// Poisson draws of rates from 10 on, by transformed rejection, PTRS. A proposal is accepted with a probability above
/// .8, so all of 24 are rejected with a probability below 1e-16; the draw is the whole part of the rate then.
template <std::uint32_t Stream, class Rate, class Key>
constexpr auto poisson_by_rejection(const Rate& rate, const Key& key, Here at) {
  const auto log_rate = log(rate, at);
  const auto b = sqrt(rate, at) * 2.53 + 0.931;
  const auto a = b * 0.02483 - 0.059;
  const auto log_inverse_alpha = log(1.1328 / (b - 3.4) + 1.1239, at);
  const auto sure = 0.9277 - 3.6224 / (b - 2.0);
  const auto step = [&](const auto& i, const auto& carry) {
    const auto own = key_in_loop<Stream>(key, i, at);
    const auto u = uniform_like<2 * Stream>(rate, own, at) - 0.5;
    const auto v = uniform_like<2 * Stream + 1>(rate, own, at);
    const auto edge = maximum(0.5 - abs(u, at), 1e-300, at);  // 0 at the ends of the uniform draws
    const auto k = floor((2.0 * a / edge + b) * u + rate + 0.43, at);
    const auto possible = logical_and(k >= 0.0, logical_or(edge >= 0.013, v <= edge, at), at);
    const auto log_ratio = log(maximum(v, 1e-300, at), at) + log_inverse_alpha - log(a / (edge * edge) + b, at);
    const auto log_chance = k * log_rate - rate - lgamma(maximum(k, 0.0, at) + 1.0, at);
    const auto taken =
        logical_or(logical_and(edge >= 0.07, v <= sure, at), logical_and(possible, log_ratio <= log_chance, at), at);
    const auto& made = std::get<0>(carry);
    const auto& found = std::get<1>(carry);
    return std::tuple(select(logical_and(taken, logical_not(found, at), at), k, made, at),
                      logical_or(found, taken, at));
  };
  return std::get<0>(fori_loop(0, 24, step, std::tuple(floor(rate, at), rate < 0.0), at));
}

}  // namespace detail

/// Draws of the Poisson distribution with the given rates (torch.poisson, jax.random.poisson), in the element type of
/// the rates: whole numbers of mean and variance `rate`. NaN for a rate below 0. Computed in double, inside of a traced
/// function. No gradient. Costs two loops, of 60 and of 24 steps. Key and stream: as for uniform_like, of which streams
/// 2 Stream and 2 Stream + 1 are used. No communication. Source: Hoermann, Insurance: Mathematics and Economics 12
/// (1993).
template <std::uint32_t Stream = 0, TensorArgument Rate, class Key>
constexpr auto poisson(const Rate& rate, const Key& key, Here at = Here::current()) {
  static_assert(detail::draws_v<Typed<typename Rate::element, Rate::rank>>,
                "tessera: random numbers are drawn for float, double, bf16 and f16 tensors");
  if (trace_of(rate).module == nullptr)
    fail(errc::unsupported, "[poisson] outside of a traced function: call ts::poisson inside a function of ts::compile",
         Source::from(at));
  const detail::LayerCall call(at, rate);
  const detail::FunctionCall named("poisson", rate);
  const auto wide = detail::as_sym(cast<double>(stop_gradient(rate, at), at));
  const auto few = detail::poisson_by_inversion<Stream>(clamp(wide, 0.0, 10.0, at), key, at);
  const auto many = detail::poisson_by_rejection<Stream>(maximum(wide, 10.0, at), key, at);
  const auto drawn = select(wide < 10.0, few, many, at);
  return cast<typename Rate::element>(select(wide >= 0.0, drawn, std::numeric_limits<double>::quiet_NaN(), at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
