#ifndef TESSERA_NN_ATTENTION_ATTENTION_FORMS_HPP
#define TESSERA_NN_ATTENTION_ATTENTION_FORMS_HPP
#include <tessera/base/push_macros.hpp>

#include <tuple>
#include <type_traits>

#include <tessera/base/here.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/nn/attention/dropped_weights.hpp>
#include <tessera/nn/attention/kv_cache.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>

// The forms of attention that layers with separate projections share: all, causal, masked, biased, windowed.

namespace tessera::nn::detail {

/// In a call of a layer: no dropout.
struct NoDropout {};

/// The last argument of a call of a layer of attention: a dropout, or none.
template <class T>
concept DropsWeights = std::is_same_v<T, NoDropout> || requires(const T& drop) { drop.keeps_weights(); };

/// The attention of queries x to a memory, which a layer projects with `queries(x)` and `known(memory)` and whose
/// result it projects with `merged`: kept(q, k, v), or dropped(q, k, v, ts::attention_dropout). Heads of keys are
/// repeated if the layer is `grouped`.
template <class Layer, class X, class Drop>
constexpr auto attend(const Layer& layer, const X& x, const auto& memory, const Drop& drop, const auto& kept,
                      const auto& dropped, Here at) {
  const tessera::detail::LayerCall call(at, x);
  const auto q = layer.queries(x);
  const auto known = layer.known(memory);
  const auto k = spread<Layer::grouped>(std::get<0>(known), q), v = spread<Layer::grouped>(std::get<1>(known), q);
  const auto without = [&] { return layer.merged(kept(q, k, v)); };
  if constexpr (std::is_same_v<Drop, NoDropout>)
    return without();
  else
    return kept_or_dropped(drop, without, [&] { return layer.merged(dropped(q, k, v, of_weights(drop))); });
}

/// To all keys.
constexpr auto attend_to_all(const auto& layer, const auto& x, const auto& memory, const auto& drop, Here at) {
  const auto kernel = [](const auto&... operands) { return tessera::attention(operands...); };
  return attend(layer, x, memory, drop, kernel, kernel, at);
}
/// Each position of x to those up to its own.
constexpr auto attend_causally(const auto& layer, const auto& x, const auto& drop, Here at) {
  const auto kernel = [](const auto&... operands) { return causal_attention(operands...); };
  return attend(layer, x, x, drop, kernel, kernel, at);
}
/// To the keys where mask [batch, keys] is true, of those up to its own position if Causal.
template <bool Causal>
constexpr auto attend_where(const auto& layer, const auto& x, const auto& memory, const auto& mask, const auto& drop,
                            Here at) {
  const auto kept = [&]<class Q>(const Q& q, const auto& k, const auto& v) {
    return biased_attention(q, k, v, key_padding_bias<typename Q::element>(mask), unlimited, Causal ? 0 : unlimited);
  };
  const auto dropped = [&](const auto&... operands) {
    const auto all = unsqueeze<1>(unsqueeze<1>(mask));  // [B, 1, 1, S]
    if constexpr (Causal)
      return causal_attention(operands..., all);
    else
      return tessera::attention(operands..., all);
  };
  return attend(layer, x, memory, drop, kept, dropped, at);
}
/// To all keys, with a bias or mask for each pair of a query and a key.
constexpr auto attend_with_bias(const auto& layer, const auto& x, const auto& memory, const auto& bias,
                                const auto& drop, Here at) {
  const auto kernel = [&](const auto&... operands) { return tessera::attention(operands..., bias); };
  return attend(layer, x, memory, drop, kernel, kernel, at);
}
/// Each position p of x to those from p - before to p + after.
constexpr auto attend_in_window(const auto& layer, const auto& x, const auto& before, const auto& after, Here at) {
  const auto kernel = [&](const auto& q, const auto& k, const auto& v) {
    return band_attention(q, k, v, before, after);
  };
  return attend(layer, x, x, NoDropout(), kernel, kernel, at);
}

/// The keys and values of a memory, for all calls that attend to it.
template <class Memory> constexpr auto stored_keys_and_values(const auto& layer, const Memory& memory, Here at) {
  const tessera::detail::LayerCall call(at, memory);
  const auto known = layer.known(memory);
  return KvCache<typename Memory::element>{tessera::detail::settle(std::get<0>(known)),
                                           tessera::detail::settle(std::get<1>(known))};
}

}  // namespace tessera::nn::detail

/// The member functions that MultiHeadAttention and GroupedQueryAttention share: attention to a memory, all named forms
/// except `cached`, and the keys and values of a memory. A macro, since a model can't have a base class.
#define TESSERA_ATTENTION_FORMS()                                                                                  \
  template <class Memory, class Drop = tessera::nn::detail::NoDropout>                                             \
    requires(!tessera::nn::detail::DropsWeights<Memory>)                                                           \
  constexpr auto operator()(const auto& x, const Memory& memory, const Drop& drop = {}, Here at = Here::current()) \
      const {                                                                                                      \
    return tessera::nn::detail::attend_to_all(*this, x, memory, drop, at);                                         \
  }                                                                                                                \
  template <tessera::nn::detail::DropsWeights Drop = tessera::nn::detail::NoDropout>                               \
  constexpr auto causal(const auto& x, const Drop& drop = {}, Here at = Here::current()) const {                   \
    return tessera::nn::detail::attend_causally(*this, x, drop, at);                                               \
  }                                                                                                                \
  template <class Mask, class Drop = tessera::nn::detail::NoDropout>                                               \
    requires(!tessera::nn::detail::DropsWeights<Mask>)                                                             \
  constexpr auto causal(const auto& x, const Mask& mask, const Drop& drop = {}, Here at = Here::current()) const { \
    return tessera::nn::detail::attend_where<true>(*this, x, x, mask, drop, at);                                   \
  }                                                                                                                \
  template <class Drop = tessera::nn::detail::NoDropout>                                                           \
  constexpr auto masked(const auto& x, const auto& memory, const auto& mask, const Drop& drop = {},                \
                        Here at = Here::current()) const {                                                         \
    return tessera::nn::detail::attend_where<false>(*this, x, memory, mask, drop, at);                             \
  }                                                                                                                \
  template <class Drop = tessera::nn::detail::NoDropout>                                                           \
  constexpr auto biased(const auto& x, const auto& memory, const auto& bias, const Drop& drop = {},                \
                        Here at = Here::current()) const {                                                         \
    return tessera::nn::detail::attend_with_bias(*this, x, memory, bias, drop, at);                                \
  }                                                                                                                \
  constexpr auto windowed(const auto& x, const auto& before, const auto& after, Here at = Here::current()) const { \
    return tessera::nn::detail::attend_in_window(*this, x, before, after, at);                                     \
  }                                                                                                                \
  template <class Memory> constexpr auto keys_and_values(const Memory& memory, Here at = Here::current()) const {  \
    return tessera::nn::detail::stored_keys_and_values(*this, memory, at);                                         \
  }                                                                                                                \
  template <class U> constexpr auto known(const KvCache<U>& memory) const {                                        \
    return std::tuple(memory.keys, memory.values);                                                                 \
  }

#include <tessera/base/pop_macros.hpp>

#endif
