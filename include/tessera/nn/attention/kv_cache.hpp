#ifndef TESSERA_NN_ATTENTION_KV_CACHE_HPP
#define TESSERA_NN_ATTENTION_KV_CACHE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/attention/band_attention.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>
#include <tessera/tensor/creation.hpp>

// Caches of keys and values, for generation token by token.

namespace tessera::nn {

/// Keys and values of the positions that a layer has seen, each [batch, context, key heads, width]. A plain struct; the
/// caches of a Stack of layers are a Stack<KvCache<>>, see nn::cached.
template <Element T = float> struct KvCache {
  ShardedTensor<T, 4> keys, values;

  static constexpr std::array field_names{"keys", "values"};
  /// The cache with k and v [batch, time, heads, width] written at the positions from `position` on. In a traced
  /// function. Errors: shape_mismatch if their batch, heads or width is not that of the cache.
  constexpr KvCache updated(const auto& k, const auto& v, const auto& position, Here at = Here::current()) const {
    tessera::detail::require_trace("updated", "KvCache::updated", Source::from(at), *this, k, v, position);
    check(keys, k), check(values, v);
    return {tessera::detail::settle(dynamic_update_slice<1>(keys, k, position, at)),
            tessera::detail::settle(dynamic_update_slice<1>(values, v, position, at))};
  }
  /// A cache with the rows of the batch at the given indices, a vector, in their order. Inside a traced function.
  constexpr KvCache rows(const auto& indices, Here at = Here::current()) const {
    tessera::detail::require_trace("rows", "KvCache::rows", Source::from(at), *this, indices);
    return {tessera::detail::settle(index_select<0>(keys, indices, at)),
            tessera::detail::settle(index_select<0>(values, indices, at))};
  }

 private:
  /// New keys or values have the batch, heads and width of the cache.
  template <class Added> static constexpr void check(const ShardedTensor<T, 4>& cache, const Added& added) {
    if constexpr (SymOperand<Added>) {
      const Value y = here(added.value);
      if (!cache.traced() || cache.placeholder().graph < 0 || y.rank() != 4) return;
      const Value x = here(cache.placeholder()).at(Source::from(Here::current()));
      if (x.rank() != 4) return;
      build::same_extents(x, 0, y, 0, 1, build::ExtentsOf::cache);
      build::same_extents(x, 2, y, 2, 2, build::ExtentsOf::cache);
    }
  }
};

/// An empty cache for `context` positions. Heads are sharded as in column weights, the batch as in tokens.
template <Element T = float>
KvCache<T> kv_cache(Extent batch, Extent context, Extent heads, Extent width, const ShardingStrategy& strategy) {
  const auto entry = [](const PartitionSpec& spec, std::size_t d) {
    return d < spec.entries.size() ? spec.entries[d] : SpecEntry{};
  };
  const PartitionSpec spec{entry(strategy.batch, 0), none, entry(strategy.column_weight, 1), none};
  return {zeros<T>({batch, context, heads, width}, strategy.mesh, spec),
          zeros<T>({batch, context, heads, width}, strategy.mesh, spec)};
}
/// Empty caches of a model of `layers` layers, each as kv_cache.
template <Element T = float>
Stack<KvCache<T>> kv_caches(int layers, Extent batch, Extent context, Extent heads, Extent width,
                            const ShardingStrategy& strategy) {
  return Stack<KvCache<T>>(layers, [&](int) { return kv_cache<T>(batch, context, heads, width, strategy); });
}

/// Inside a traced function: the caches of the given rows of the batch, a vector of indices, in their order. Where beam
/// search goes on with the beams `parents`, each of which was a row of the batch, it goes on with their caches:
///
///     const auto [logits, next] = model.cached(tokens, ts::nn::reorder_caches(caches, parents), position);
/// `_reorder_cache` of transformers. Communication: as ts::index_select of a split batch, else none.
template <class Cache, TensorOperand Indices>
constexpr auto reorder_caches(const Stack<Cache>& caches, const Indices& indices, Here at = Here::current()) {
  tessera::detail::require_trace("reorder_caches", "ts::nn::reorder_caches", Source::from(at), caches, indices);
  return map([&](const auto& cache) { return cache.rows(indices, at); }, caches, at);
}

namespace detail {

/// A tensor of all layers of a Stack in a trace.
struct TensorOfLayers {
  Value found{};
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    if constexpr (StoredOperand<Leaf>)
      if (const Value& own = leaf.placeholder(); found.module == nullptr && own.graph >= 0 && own.module != nullptr)
        if (own.rank() == Leaf::rank + 1) found = here(own);
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
/// Checks that a Stack has a cache for each layer.
constexpr void check_number_of_caches(const auto& layers, const auto& caches, Here at) {
  TensorOfLayers of_layers, of_caches;
  for_each_leaf(layers, of_layers);
  for_each_leaf(caches, of_caches);
  if (of_layers.found.module != nullptr && of_caches.found.module != nullptr)
    build::same_extents(of_layers.found.at(Source::from(at)), 0, of_caches.found, 0, 1, build::ExtentsOf::caches);
}

/// Keys or values with the heads of the queries.
template <bool Grouped> constexpr auto spread(const auto& k, const auto& q) {
  if constexpr (Grouped)
    return repeat_heads(k, q);
  else
    return k;
}

/// Causal attention with a cache of the queries q, keys k and values v of the positions from `position` on, each
/// [batch, time, heads, width]: (attention, new cache). Grouped: each head of keys serves a group of heads of queries.
template <bool Grouped, class Q, class Cache, class Position>
constexpr auto cached_attention(const Q& q, const auto& k, const auto& v, const Cache& cache,
                                const Position& position) {
  const Cache next = cache.updated(k, v, position);
  if constexpr (TensorOperand<Position>) {
    // The old keys before the position and the new keys after the context. A band has bounds that are numbers; keys of
    // the cache that are not seen are masked.
    const auto keys = concat<1>(cache.keys, k), values = concat<1>(cache.values, v);
    const Dim context = extent<1>(cache.keys), added = extent<1>(k);
    const auto place = arange<std::int64_t>(context + added);
    const auto past = minimum(cast<std::int64_t>(position), context - added);
    const auto sees = logical_or(place < past, place >= context);
    const auto bias = select(sees, cast<typename Q::element>(zeros_like(place)), -1e30);
    return std::tuple(biased_attention(q, spread<Grouped>(keys, q), spread<Grouped>(values, q),
                                       rearrange<"s -> 1 1 s">(bias), unlimited, 0, context),
                      next);
  } else {
    return std::tuple(
        band_attention(q, spread<Grouped>(next.keys, q), spread<Grouped>(next.values, q), unlimited, 0, position),
        next);
  }
}

}  // namespace detail

/// In a traced function: calls `layer.cached(x, cache, position)` of each layer of a Stack with the cache of that
/// layer, and returns (x, the new caches). For Block, GatedBlock, LlamaBlock, and your own layers with such a function.
/// x [batch, time, features] are the new tokens, and `position` is that of the first: a Scalar or a number, so that
/// every step runs the same plan, or an integer tensor of rank 0, such as the index of a loop.
///
///     const auto [y, next] = ts::nn::cached(blocks, x, caches, position);
/// A layer with cross-attention (DecoderLayer) also takes the keys and values of the memory, which keys_and_values
/// computes once per sequence, and a mask [batch, keys] if some of the memory is padding:
///
///     const auto known = ts::nn::keys_and_values(layers, memory);
///     const auto [y, next] = ts::nn::cached(layers, x, caches, position, known, memory_mask);
/// Errors: `structure` for another number of caches than layers. Communication: that of the layers.
template <class Layer, class X, class Cache, class Position>
constexpr auto cached(const Stack<Layer>& layers, const X& x, const Stack<Cache>& caches, const Position& position,
                      Here at = Here::current()) {
  tessera::detail::require_trace("cached", "ts::nn::cached", Source::from(at), layers, x, caches);
  detail::check_number_of_caches(layers, caches, at);
  const tessera::detail::LayerCall call(at, x);
  const auto step = [&](const auto& in, const auto& own) {
    return std::get<0>(own).cached(in, std::get<1>(own), position);
  };
  return scan(step, x, std::tuple(layers, caches), {}, at);
}
template <class Layer, class X, class Cache, class Position, class Memory>
constexpr auto cached(const Stack<Layer>& layers, const X& x, const Stack<Cache>& caches, const Position& position,
                      const Stack<Memory>& memory, Here at = Here::current()) {
  tessera::detail::require_trace("cached", "ts::nn::cached", Source::from(at), layers, x, caches);
  detail::check_number_of_caches(layers, caches, at);
  detail::check_number_of_caches(layers, memory, at);
  const tessera::detail::LayerCall call(at, x);
  const auto step = [&](const auto& in, const auto& own) {
    return std::get<0>(own).cached(in, std::get<1>(own), position, std::get<2>(own));
  };
  return scan(step, x, std::tuple(layers, caches, memory), {}, at);
}
template <class Layer, class X, class Cache, class Position, class Memory, TensorOperand Mask>
constexpr auto cached(const Stack<Layer>& layers, const X& x, const Stack<Cache>& caches, const Position& position,
                      const Stack<Memory>& memory, const Mask& memory_mask, Here at = Here::current()) {
  tessera::detail::require_trace("cached", "ts::nn::cached", Source::from(at), layers, x, caches);
  detail::check_number_of_caches(layers, caches, at);
  detail::check_number_of_caches(layers, memory, at);
  const tessera::detail::LayerCall call(at, x);
  const auto step = [&](const auto& in, const auto& own) {
    return std::get<0>(own).cached(in, std::get<1>(own), position, std::get<2>(own), memory_mask);
  };
  return scan(step, x, std::tuple(layers, caches, memory), {}, at);
}

/// In a traced function: `layer.keys_and_values(memory)` of each layer of a Stack, for a memory [batch, keys,
/// features], as a Stack<KvCache>. See nn::cached.
template <class Layer, TensorOperand Memory>
constexpr auto keys_and_values(const Stack<Layer>& layers, const Memory& memory, Here at = Here::current()) {
  const tessera::detail::LayerCall call(at, memory);
  tessera::detail::require_trace("keys_and_values", "ts::nn::keys_and_values", Source::from(at), layers, memory);
  return map([&](const auto& layer) { return layer.keys_and_values(memory); }, layers, at);
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
