#ifndef TESSERA_NN_ATTENTION_MULTI_HEAD_ATTENTION_HPP
#define TESSERA_NN_ATTENTION_MULTI_HEAD_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/nn/attention/attention_forms.hpp>
#include <tessera/nn/attention/kv_cache.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
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
///     attention.windowed(x, before, after)   // of position p to those from p - before to p + after
///     attention.cached(x, cache, position)   // causal, with a cache of the positions before, as that of nn::Attention
/// Instead of the memory you can pass its keys and values, `attention.keys_and_values(memory)`, a KvCache that is
/// computed once for all tokens that attend to the memory. `Projection` is the type of the linear layers, such as
/// LoraLinear or your own.
///
/// In training, each of these functions except `windowed` and `cached` takes an nn::layer_dropout as its last argument,
/// which drops attention probabilities, as `dropout` of PyTorch: `attention.causal(x, ts::nn::layer_dropout(0.1,
/// key))`. The probabilities are then stored, see ts::attention_dropout. PyTorch's parameters: the rows of
/// `in_proj_weight` are the transposes of the weights of query, key and value, in this order. Communication: with split
/// columns of these weights, heads are split, and the result is all-reduced. Errors: not_divisible unless the number of
/// heads divides the features. Source: Vaswani et al., 1706.03762.
template <Element T = float, bool Bias = true, class Projection = Linear<T, Bias>> struct MultiHeadAttention {
  Projection query, key, value;  ///< [features, heads * width]
  Projection out;                ///< [heads * width, features]
  Dim heads;

  static constexpr std::array field_names{"query", "key", "value", "out", "heads"};
  template <detail::DropsWeights Drop = detail::NoDropout>
  constexpr auto operator()(const auto& x, const Drop& drop = {}, Here at = Here::current()) const {
    return detail::attend_to_all(*this, x, x, drop, at);
  }
  TESSERA_ATTENTION_FORMS()
  template <class X, class Cache, class Position>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, Here at = Here::current()) const {
    tessera::detail::require_trace("cached", "the layer", Source::from(at), *this, x, cache);
    const tessera::detail::LayerCall call(at, x);
    const auto made = detail::cached_attention<false>(split(query(x)), split(key(x)), split(value(x)), cache, position);
    return std::tuple(merged(std::get<0>(made)), std::get<1>(made));
  }

  constexpr auto split(const auto& x) const { return rearrange<"b t (h e) -> b t h e">(x, len<"h">(heads)); }
  constexpr auto merged(const auto& x) const { return out(rearrange<"b t h e -> b t (h e)">(x)); }
  // For the functions that this layer shares with GroupedQueryAttention.
  static constexpr bool grouped = false;
  constexpr auto queries(const auto& x) const { return split(query(x)); }
  constexpr auto known(const auto& memory) const { return std::tuple(split(key(memory)), split(value(memory))); }
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
