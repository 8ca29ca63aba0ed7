#ifndef TESSERA_NN_LLAMA_HPP
#define TESSERA_NN_LLAMA_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/nn/embedding.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/normalization/rms_norm.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/attention/positions.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/tensor/creation.hpp>

// Llama and its layer, with caches of keys and values for generation.

namespace tessera::nn {

/// Keys and values of the positions that a layer has seen: [batch, context, key heads, width]. A plain struct; for a
/// model of several layers a Stack<KvCache<>> is scanned over together with that of the layers.
template <Element T = float> struct KvCache {
  ShardedTensor<T, 4> keys, values;

  static constexpr std::array field_names{"keys", "values"};
};

/// An empty cache for `context` positions. Its heads are sharded as column weights shard theirs, its batch as tokens.
template <Element T = float>
KvCache<T> kv_cache(Extent batch, Extent context, Extent heads, Extent width, const ShardingStrategy& strategy) {
  const auto entry = [](const PartitionSpec& spec, std::size_t d) {
    return d < spec.entries.size() ? spec.entries[d] : SpecEntry{};
  };
  const PartitionSpec spec{entry(strategy.batch, 0), none, entry(strategy.column_weight, 1), none};
  return {zeros<T>({batch, context, heads, width}, strategy.mesh, spec),
          zeros<T>({batch, context, heads, width}, strategy.mesh, spec)};
}

/// Causal grouped-query self-attention with rotary embeddings in the layout of Hugging Face: x [batch, time, features]
/// to a result of the same shape. Each head of keys and values serves heads / key_heads consecutive heads of queries.
///
///     attention(x)                           // positions 0, 1, ...
///     attention.cached(x, cache, position)   // positions from `position` on; gives (result, new cache)
///
/// `cached` writes the keys and values of x into the cache and attends to all before them there: the results are those
/// of `attention` of all positions at once. The position is a Scalar, so that every step runs the same plan, or an
/// integer tensor of rank 0, such as the index of a ts::fori_loop or a slice of the xs of a ts::scan; then keys and
/// values are copied once more. Positions behind the context of the cache overwrite its last ones. Communication: with
/// the columns of the weights sharded along heads, an all_reduce of the result. Errors: shape_mismatch unless key_heads
/// divides heads. Source: Ainslie et al., 2305.13245.
template <Element T = float> struct GroupedQueryAttention {
  Linear<T, false> query;       ///< [features, heads * width]
  Linear<T, false> key, value;  ///< [features, key_heads * width]
  Linear<T, false> out;         ///< [heads * width, features]
  Dim heads, key_heads;
  Rotary rotary;

  static constexpr std::array field_names{"query", "key", "value", "out", "heads", "key_heads", "rotary"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto q = rotary_embedding(split(query(x), heads), 0, rotary);    // [B, T, H, E]
    const auto k = rotary_embedding(split(key(x), key_heads), 0, rotary);  // [B, T, K, E]
    const auto v = split(value(x), key_heads);
    return merged(causal_attention(q, repeat_heads(k, q), repeat_heads(v, q)));
  }
  template <class X, class Cache, class Position>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto q = rotary_embedding(split(query(x), heads), position, rotary);
    const auto k = rotary_embedding(split(key(x), key_heads), position, rotary);
    const auto v = split(value(x), key_heads);
    const auto keys = dynamic_update_slice<1>(cache.keys, k, position);
    const auto values = dynamic_update_slice<1>(cache.values, v, position);
    if constexpr (TensorOperand<Position>) {
      return std::tuple(merged(seen_at(q, k, v, cache, position)), Cache{keys, values});
    } else {
      const auto seen = band_attention(q, repeat_heads(keys, q), repeat_heads(values, q), unlimited, 0, position);
      return std::tuple(merged(seen), Cache{keys, values});
    }
  }

  /// Attention from a position that is a tensor, to the old keys before it and the new ones behind the context. A band
  /// has bounds that are numbers; keys of the cache that are not seen are masked.
  static constexpr auto seen_at(const auto& q, const auto& k, const auto& v, const auto& cache, const auto& position) {
    const auto keys = concat<1>(cache.keys, k), values = concat<1>(cache.values, v);
    const Dim context = extent<1>(cache.keys), added = extent<1>(k);
    const auto place = arange<std::int64_t>(context + added);
    const auto past = minimum(cast<std::int64_t>(position), context - added);
    const auto sees = logical_or(place < past, place >= context);
    const auto bias = select(sees, cast<T>(zeros_like(place)), -1e30);
    return biased_attention(q, repeat_heads(keys, q), repeat_heads(values, q), rearrange<"s -> 1 1 s">(bias), unlimited,
                            0, context);
  }

  constexpr auto split(const auto& x, const Dim& count) const {
    return rearrange<"b t (h e) -> b t h e">(x, len<"h">(count));
  }
  constexpr auto merged(const auto& x) const { return out(rearrange<"b t h e -> b t (h e)">(x)); }
};

/// A layer of Llama: x + attention(norm(x)), then x + mlp(norm(x)), with RmsNorm, grouped-query attention, rotary
/// embeddings and SwiGLU. `cached` as that of GroupedQueryAttention. Source: Touvron et al., 2302.13971 and 2307.09288.
template <Element T = float> struct LlamaBlock {
  RmsNorm<T> attention_norm;
  GroupedQueryAttention<T> attention;
  RmsNorm<T> mlp_norm;
  SwiGlu<T> mlp;

  static constexpr std::array field_names{"attention_norm", "attention", "mlp_norm", "mlp"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto middle = x + attention(attention_norm(x));
    return middle + mlp(mlp_norm(middle));
  }
  template <class X, class Cache, class Position>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto both = attention.cached(attention_norm(x), cache, position);
    const auto middle = x + std::get<0>(both);
    return std::tuple(middle + mlp(mlp_norm(middle)), std::get<1>(both));
  }
};

/// The model: rows of a table for tokens [batch, time], layers, a norm, and the logits [batch, time, classes] of the
/// next token. `cached` gives the logits of the tokens from `position` on, of any number of them, and the caches with
/// their keys and values; ts::top_k_logits, ts::top_p_logits and ts::categorical draw a token from logits.
///
///     const auto [logits, next] = model.cached(prompt, caches, 0);
///     const auto token = ts::argmax<-1>(ts::slice<1>(logits, ts::extent<1>(prompt) - 1, 1));
template <Element T = float> struct Llama {
  Embedding<T> tokens;
  Stack<LlamaBlock<T>> blocks;
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
    const auto layer = [&](const auto& x, const auto& both) {
      return std::get<0>(both).cached(x, std::get<1>(both), position);
    };
    const auto both = scan(layer, tokens(in), std::tuple(blocks, caches));
    return std::tuple(head(norm(std::get<0>(both))), std::get<1>(both));
  }
};

/// With normal weights, as `linear` and `mlp` for a model of `depth` layers. Errors: not_divisible unless the number of
/// heads divides the features, and key_heads the heads.
template <Element T = float>
GroupedQueryAttention<T> grouped_query_attention(Key key, Extent features, Dim heads, Dim key_heads,
                                                 const ShardingStrategy& strategy, int depth = 1, double stddev = 0.02,
                                                 const Rotary& rotary = {}, Here at = Here::current()) {
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
template <Element T = float>
LlamaBlock<T> llama_block(Key key, Extent features, Dim heads, Dim key_heads, Extent hidden,
                          const ShardingStrategy& strategy, int depth = 1, double stddev = 0.02,
                          const Rotary& rotary = {}, Here at = Here::current()) {
  const auto [first, second] = split<2>(key);
  return {rms_norm<T>(features, strategy),
          grouped_query_attention<T>(first, features, heads, key_heads, strategy, depth, stddev, rotary, at),
          rms_norm<T>(features, strategy), gated_mlp<T>(second, features, hidden, strategy, depth, stddev)};
}

template <Element T = float>
Llama<T> llama(Key key, Extent classes, Extent features, Dim heads, Dim key_heads, Extent hidden, int layers,
               const ShardingStrategy& strategy, double stddev = 0.02, const Rotary& rotary = {},
               Here at = Here::current()) {
  const auto [first, second, third] = split<3>(key);
  const auto block = [&, of_layers = second](int i) {
    return llama_block<T>(fold_in(of_layers, static_cast<std::uint64_t>(i)), features, heads, key_heads, hidden,
                          strategy, layers, stddev, rotary, at);
  };
  return {embedding<T>(first, classes, features, strategy, stddev), Stack<LlamaBlock<T>>(layers, block),
          rms_norm<T>(features, strategy), linear<T, false>(third, features, classes, strategy, Role::head, stddev)};
}
/// Empty caches of a model of `layers` layers, each as kv_cache.
template <Element T = float>
Stack<KvCache<T>> kv_caches(int layers, Extent batch, Extent context, Extent heads, Extent width,
                            const ShardingStrategy& strategy) {
  return Stack<KvCache<T>>(layers, [&](int) { return kv_cache<T>(batch, context, heads, width, strategy); });
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
