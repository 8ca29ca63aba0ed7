#ifndef TESSERA_NN_ATTENTION_MULTI_HEAD_ATTENTION_HPP
#define TESSERA_NN_ATTENTION_MULTI_HEAD_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/nn/attention/dropped_weights.hpp>
#include <tessera/nn/attention/kv_cache.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/tensor/creation.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::nn {

/// Multi-head attention of x [batch, time, features], with a result of the same shape, as torch.nn.MultiheadAttention
/// with batch_first.
///
///     attention(x)                        // to all positions of x
///     attention.causal(x)                 // to those up to its own
///     attention.causal(x, mask)           // to those of them where mask [batch, time] is true
///     attention(x, memory)                // cross attention, to memory [batch, keys, features]
///     attention.masked(x, memory, mask)   // to the keys where mask [batch, keys] is true; 0 if there is none
///     attention.biased(x, memory, bias)   // with a bias or mask [batch, heads, time, keys] or less, see ts::attention
///     attention.cached(x, cache, position)   // causal, with a cache of the positions before, as that of nn::Attention
/// Instead of the memory you can pass its keys and values, `attention.keys_and_values(memory)`, a KvCache that is
/// computed once for all tokens that attend to the memory. `Projection` is the type of the linear layers, such as
/// LoraLinear or your own.
///
/// In training, each of these functions except `cached` takes an nn::layer_dropout as its last argument, which drops
/// attention probabilities, as `dropout` of PyTorch: `attention.causal(x, ts::nn::layer_dropout(0.1, key))`. The
/// probabilities are then stored, see ts::attention_dropout.
/// PyTorch's parameters: the rows of `in_proj_weight` are the transposes of the weights of query, key and value, in
/// this order. Communication: with split columns of these weights, heads are split, and the result is all-reduced.
/// Errors: not_divisible unless the number of heads divides the features. Source: Vaswani et al., 1706.03762.
template <Element T = float, bool Bias = true, class Projection = Linear<T, Bias>> struct MultiHeadAttention {
  Projection query, key, value;  ///< [features, heads * width]
  Projection out;                ///< [heads * width, features]
  Dim heads;

  static constexpr std::array field_names{"query", "key", "value", "out", "heads"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const { return (*this)(x, x, at); }
  constexpr auto operator()(const auto& x, const auto& memory, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return merged(tessera::attention(split(query(x)), split(key(memory)), split(value(memory))));
  }
  template <class U>
  constexpr auto operator()(const auto& x, const KvCache<U>& memory, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return merged(tessera::attention(split(query(x)), memory.keys, memory.values));
  }
  constexpr auto causal(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return merged(causal_attention(split(query(x)), split(key(x)), split(value(x))));
  }
  constexpr auto causal(const auto& x, const auto& mask, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return merged(
        biased_attention(split(query(x)), split(key(x)), split(value(x)), key_padding_bias<T>(mask), unlimited, 0));
  }
  constexpr auto masked(const auto& x, const auto& memory, const auto& mask, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return merged(biased_attention(split(query(x)), split(key(memory)), split(value(memory)), key_padding_bias<T>(mask),
                                   unlimited, unlimited));
  }
  template <class U>
  constexpr auto masked(const auto& x, const KvCache<U>& memory, const auto& mask, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return merged(
        biased_attention(split(query(x)), memory.keys, memory.values, key_padding_bias<T>(mask), unlimited, unlimited));
  }
  constexpr auto biased(const auto& x, const auto& memory, const auto& bias, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return merged(tessera::attention(split(query(x)), split(key(memory)), split(value(memory)), bias));
  }
  template <class Rate, class Key, std::uint32_t S>
  constexpr auto operator()(const auto& x, const LayerDropout<Rate, Key, S>& drop, Here at = Here::current()) const {
    return (*this)(x, x, drop, at);
  }
  template <class Rate, class Key, std::uint32_t S>
  constexpr auto operator()(const auto& x, const auto& memory, const LayerDropout<Rate, Key, S>& drop,
                            Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return detail::kept_or_dropped(
        drop, [&] { return (*this)(x, memory, at); },
        [&] {
          return merged(
              tessera::attention(split(query(x)), split(key(memory)), split(value(memory)), detail::of_weights(drop)));
        });
  }
  template <class Rate, class Key, std::uint32_t S>
  constexpr auto causal(const auto& x, const LayerDropout<Rate, Key, S>& drop, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return detail::kept_or_dropped(
        drop, [&] { return causal(x, at); },
        [&] {
          return merged(causal_attention(split(query(x)), split(key(x)), split(value(x)), detail::of_weights(drop)));
        });
  }
  template <class Rate, class Key, std::uint32_t S>
  constexpr auto causal(const auto& x, const auto& mask, const LayerDropout<Rate, Key, S>& drop,
                        Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return detail::kept_or_dropped(
        drop, [&] { return causal(x, mask, at); },
        [&] {
          return merged(causal_attention(split(query(x)), split(key(x)), split(value(x)), detail::of_weights(drop),
                                         of_keys(mask)));
        });
  }
  template <class Rate, class Key, std::uint32_t S>
  constexpr auto masked(const auto& x, const auto& memory, const auto& mask, const LayerDropout<Rate, Key, S>& drop,
                        Here at = Here::current()) const {
    return detail::kept_or_dropped(
        drop, [&] { return masked(x, memory, mask, at); }, [&] { return biased(x, memory, of_keys(mask), drop, at); });
  }
  template <class Rate, class Key, std::uint32_t S>
  constexpr auto biased(const auto& x, const auto& memory, const auto& bias, const LayerDropout<Rate, Key, S>& drop,
                        Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return detail::kept_or_dropped(
        drop, [&] { return biased(x, memory, bias, at); },
        [&] {
          return merged(tessera::attention(split(query(x)), split(key(memory)), split(value(memory)),
                                           detail::of_weights(drop), bias));
        });
  }
  template <class X, class Cache, class Position>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, Here at = Here::current()) const {
    tessera::detail::require_trace("cached", "the layer", Source::from(at), *this, x, cache);
    const tessera::detail::LayerCall call(at, x);
    const auto made = detail::cached_attention<false>(split(query(x)), split(key(x)), split(value(x)), cache, position);
    return std::tuple(merged(std::get<0>(made)), std::get<1>(made));
  }
  template <class Memory> constexpr auto keys_and_values(const Memory& memory, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, memory);
    return KvCache<typename Memory::element>{tessera::detail::settle(split(key(memory))),
                                             tessera::detail::settle(split(value(memory)))};
  }

  constexpr auto split(const auto& x) const { return rearrange<"b t (h e) -> b t h e">(x, len<"h">(heads)); }
  constexpr auto merged(const auto& x) const { return out(rearrange<"b t h e -> b t (h e)">(x)); }

 private:
  /// A mask [batch, keys] for all heads and queries.
  static constexpr auto of_keys(const auto& mask) { return unsqueeze<1>(unsqueeze<1>(mask)); }
};

namespace detail {

/// A linear layer with uniform weights in [-limit, limit) and a bias of zeros.
template <Element T, bool Bias>
Linear<T, Bias> uniform_linear(Key key, Extent in, Extent out, const ShardingStrategy& strategy, Role role,
                               double limit) {
  const auto bound = static_cast<computed_t<T>>(limit);
  auto weight = uniform<T>(key, {in, out}, strategy.mesh, strategy.weight(role), -bound, bound);
  if constexpr (Bias)
    return {weight, zeros<T>({out}, strategy.mesh, strategy.bias(role))};
  else
    return {weight};
}

}  // namespace detail

/// With PyTorch's initialisation: weights of query, key and value are those of one Glorot-uniform weight [features,
/// 3 features], out is uniform in [-1 / sqrt(features), 1 / sqrt(features)), biases are zeros. Errors: not_divisible
/// unless the number of heads divides the features.
template <Element T = float, bool Bias = true>
MultiHeadAttention<T, Bias> multi_head_attention(Key key, Extent features, Dim heads, const ShardingStrategy& strategy,
                                                 Here at = Here::current()) {
  if (heads.value() < 1 || features.value % heads.value() != 0)
    fail(errc::not_divisible, "[multi_head_attention] number of heads: ", features.value,
         " features are not divisible by ", heads.value(), " heads", Source::from(at));
  const double n = static_cast<double>(features.value), in = std::sqrt(6 / (4 * n)), last = 1 / std::sqrt(n);
  const auto [first, second, third, fourth] = split<4>(key);
  return {detail::uniform_linear<T, Bias>(first, features, features, strategy, Role::column, in),
          detail::uniform_linear<T, Bias>(second, features, features, strategy, Role::column, in),
          detail::uniform_linear<T, Bias>(third, features, features, strategy, Role::column, in),
          detail::uniform_linear<T, Bias>(fourth, features, features, strategy, Role::row, last), heads};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
