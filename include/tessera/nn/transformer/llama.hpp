#ifndef TESSERA_NN_TRANSFORMER_LLAMA_HPP
#define TESSERA_NN_TRANSFORMER_LLAMA_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/nn/attention/attention_forms.hpp>
#include <tessera/nn/attention/kv_cache.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/normalization/rms_norm.hpp>
#include <tessera/nn/transformer/block.hpp>
#include <tessera/ops/attention/rotary_embedding.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>

// Llama, its attention and its layer.

namespace tessera::nn {

/// Grouped-query attention of x [batch, time, features], with a result of the same shape, and with rotary embeddings in
/// the layout of Hugging Face, which the options `rotary` scale for long contexts. Each head of keys and values serves
/// heads / key_heads consecutive heads of queries.
///
///     attention(x)                           // causal
///     attention(x, layer_dropout(rate, key)) // in training: drops weights after the softmax
///     attention(x, x)                        // to all positions of x
///     attention.cached(x, cache, position)   // positions from `position` on; gives (result, new cache)
/// The functions `causal`, `masked`, `biased`, `windowed` and `keys_and_values` are those of MultiHeadAttention, and
/// take the same arguments. Positions of x and of a memory, each from 0, are rotated; with ts::NoRotary none are.
///
/// `cached` writes the keys and values of x into the cache and attends to all positions up to each token, so results
/// are those of `attention` of all positions at once. The position is a Scalar, so that every step runs the same plan,
/// or an integer tensor of rank 0, such as the index of a ts::fori_loop or a slice of the xs of a ts::scan; then keys
/// and values are copied once more. Positions beyond the context of the cache overwrite its last ones. Communication:
/// with the columns of the weights split by heads, an all_reduce of the result. Errors: shape_mismatch unless key_heads
/// divides heads. Source: Ainslie et al., 2305.13245.
template <Element T = float, class Projection = Linear<T, false>, RotaryOptions Positions = Rotary>
struct GroupedQueryAttention {
  Projection query;       ///< [features, heads * width]
  Projection key, value;  ///< [features, key_heads * width]
  Projection out;         ///< [heads * width, features]
  Dim heads, key_heads;
  Positions rotary;

  static constexpr std::array field_names{"query", "key", "value", "out", "heads", "key_heads", "rotary"};
  template <detail::DropsWeights Drop = detail::NoDropout>
  constexpr auto operator()(const auto& x, const Drop& drop = {}, Here at = Here::current()) const {
    return detail::attend_causally(*this, x, drop, at);
  }
  TESSERA_ATTENTION_FORMS()
  template <class X, class Cache, class Position>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, Here at = Here::current()) const {
    tessera::detail::require_trace("cached", "the layer", Source::from(at), *this, x, cache);
    const tessera::detail::LayerCall call(at, x);
    const auto q = queries(x, position);
    const auto of_x = known(x, position);
    const auto made = detail::cached_attention<true>(q, std::get<0>(of_x), std::get<1>(of_x), cache, position);
    return std::tuple(merged(std::get<0>(made)), std::get<1>(made));
  }

  constexpr auto split(const auto& x, const Dim& count) const {
    return rearrange<"b t (h e) -> b t h e">(x, len<"h">(count));
  }
  constexpr auto merged(const auto& x) const { return out(rearrange<"b t h e -> b t (h e)">(x)); }
  // For the functions that this layer shares with MultiHeadAttention.
  static constexpr bool grouped = true;
  constexpr auto queries(const auto& x, const auto& position) const {  // [B, T, H, E]
    return rotary_embedding(split(query(x), heads), position, rotary);
  }
  constexpr auto queries(const auto& x) const { return queries(x, 0); }
  constexpr auto known(const auto& x, const auto& position) const {  // [B, T, K, E]
    return std::tuple(rotary_embedding(split(key(x), key_heads), position, rotary), split(value(x), key_heads));
  }
  constexpr auto known(const auto& memory) const { return known(memory, 0); }
};

/// A layer of Llama: x + attention(norm(x)), then x + mlp(norm(x)), with RmsNorm, grouped-query attention, rotary
/// embeddings and SwiGLU. `cached` as that of GroupedQueryAttention. Source: Touvron et al., 2302.13971 and 2307.09288.
template <Element T = float, class Projection = Linear<T, false>, RotaryOptions Positions = Rotary>
using LlamaBlock = PreNormBlock<RmsNorm<T>, GroupedQueryAttention<T, Projection, Positions>, SwiGlu<T, Projection>>;

/// The Llama model: an embedding of tokens [batch, time], layers, a norm, and the logits [batch, time, classes] of the
/// next token. `cached` takes the tokens from `position` on, one or several, and returns their logits and the caches
/// with their keys and values; ts::top_k_logits, ts::top_p_logits and ts::categorical draw a token from logits.
///
///     const auto [logits, next] = model.cached(prompt, caches, 0);
///     const auto token = ts::argmax<-1>(ts::slice<1>(logits, ts::extent<1>(prompt) - 1, 1));
template <Element T = float, class Projection = Linear<T, false>, RotaryOptions Positions = Rotary> struct Llama {
  Embedding<T> tokens;
  Stack<LlamaBlock<T, Projection, Positions>> blocks;
  RmsNorm<T> norm;
  Linear<T, false> head;

  static constexpr std::array field_names{"tokens", "blocks", "norm", "head"};
  constexpr auto operator()(const auto& in, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, in);
    return head(norm(blocks(tokens(in))));
  }
  template <class Tokens, class Caches, class Position>
  constexpr auto cached(const Tokens& in, const Caches& caches, const Position& position,
                        Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, in);
    const auto both = nn::cached(blocks, tokens(in), caches, position, at);
    return std::tuple(head(norm(std::get<0>(both))), std::get<1>(both));
  }
};

/// Factories with normal weights, as `linear` and `mlp`, for a model of `depth` layers. Errors: not_divisible unless
/// the number of heads divides the features, and key_heads divides the heads.
template <Element T = float, RotaryOptions Positions = Rotary>
GroupedQueryAttention<T, Linear<T, false>, Positions> grouped_query_attention(
    Key key, Extent features, Dim heads, Dim key_heads, const ShardingStrategy& strategy, int depth = 1,
    double stddev = 0.02, const Positions& rotary = {}, Here at = Here::current()) {
  if (heads.value() < 1 || features.value % heads.value() != 0)
    fail(errc::not_divisible, "[grouped_query_attention] number of heads: ", features.value,
         " features are not divisible by ", heads.value(), " heads", Source::from(at));
  if (key_heads.value() < 1 || heads.value() % key_heads.value() != 0)
    fail(errc::not_divisible, "[grouped_query_attention] number of key heads: ", heads.value(),
         " heads are not divisible by ", key_heads.value(), " key heads", Source::from(at));
  const std::int64_t shared = features.value / heads.value() * key_heads.value();
  const auto [first, second, third, fourth] = split<4>(key);
  return {linear<T, false>(first, features, features, strategy, Role::column, stddev),
          linear<T, false>(second, features, shared, strategy, Role::column, stddev),
          linear<T, false>(third, features, shared, strategy, Role::column, stddev),
          linear<T, false>(fourth, features, features, strategy, Role::row, residual_stddev(stddev, depth)),
          heads,
          key_heads,
          rotary};
}
template <Element T = float, RotaryOptions Positions = Rotary>
LlamaBlock<T, Linear<T, false>, Positions> llama_block(Key key, Extent features, Dim heads, Dim key_heads,
                                                       Extent hidden, const ShardingStrategy& strategy, int depth = 1,
                                                       double stddev = 0.02, const Positions& rotary = {},
                                                       Here at = Here::current()) {
  const auto [first, second] = split<2>(key);
  return {rms_norm<T>(features, strategy),
          grouped_query_attention<T>(first, features, heads, key_heads, strategy, depth, stddev, rotary, at),
          rms_norm<T>(features, strategy), gated_mlp<T>(second, features, hidden, strategy, depth, stddev)};
}

template <Element T = float, RotaryOptions Positions = Rotary>
Llama<T, Linear<T, false>, Positions> llama(Key key, Extent classes, Extent features, Dim heads, Dim key_heads,
                                            Extent hidden, int layers, const ShardingStrategy& strategy,
                                            double stddev = 0.02, const Positions& rotary = {},
                                            Here at = Here::current()) {
  const auto [first, second, third] = split<3>(key);
  const auto block = [&, of_layers = second](int i) {
    return llama_block<T>(fold_in(of_layers, static_cast<std::uint64_t>(i)), features, heads, key_heads, hidden,
                          strategy, layers, stddev, rotary, at);
  };
  return {embedding<T>(first, classes, features, strategy, stddev),
          Stack<LlamaBlock<T, Linear<T, false>, Positions>>(layers, block), rms_norm<T>(features, strategy),
          linear<T, false>(third, features, classes, strategy, Role::head, stddev)};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
