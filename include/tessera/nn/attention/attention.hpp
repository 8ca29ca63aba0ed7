#ifndef TESSERA_NN_ATTENTION_ATTENTION_HPP
#define TESSERA_NN_ATTENTION_ATTENTION_HPP
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
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/attention/dropped_weights.hpp>
#include <tessera/nn/attention/kv_cache.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>

namespace tessera::nn {

/// ts::causal_attention as a kernel of Attention.
struct CausalAttention {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&... dropout) const {
    return causal_attention(q, k, v, dropout...);
  }
  constexpr auto cached(const auto& q, const auto& k, const auto& v, const auto& cache, const auto& position) const {
    return detail::cached_attention<false>(q, k, v, cache, position);
  }
};

/// Multi-head self-attention of x [batch, time, features], with a result of the same shape. It is causal; another
/// `Kernel`, a type without members, computes another attention, such as a window of keys or context parallelism:
///
///     struct Ring {
///       constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
///         return ts::causal_ring_attention<"context">(q, k, v);            // [batch, time, heads, width] each
///       }
///     };
///     ts::nn::Attention<float, true, Ring> attention;
/// `attention.cached(x, cache, position)` is for generation: x are the new tokens, of which the first has the given
/// position. It returns (result, new cache): it writes keys and values of x into a KvCache and attends to all positions
/// up to each token, so results are those of `attention` of all positions at once. The position is a Scalar, so that
/// every step runs the same plan, or an integer tensor of rank 0, such as the index of a ts::fori_loop; then keys and
/// values are copied once more. Positions beyond the context of the cache overwrite its last ones. For `cached`, your
/// own kernel needs a function such as this one, with a window of 256 keys:
///
///     constexpr auto cached(const auto& q, const auto& k, const auto& v, const auto& cache, const auto& at) const {
///       const auto next = cache.updated(k, v, at);
///       return std::tuple(ts::band_attention(q, next.keys, next.values, 255, 0, at), next);
///     }
///
/// In training, `attention(x, layer_dropout(rate, key))` drops attention probabilities. A kernel of your own then takes
/// a ts::attention_dropout as its fourth argument, or is called with `layer_dropout(rate, key, 0)`; otherwise the error
/// is `unsupported`:
///
///     constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto&... dropout) const {
///       return ts::attention(q, k, v, dropout...);
///     }
///
/// `Projection` is the type of both linear layers, such as LoraLinear or your own, which is called with a tensor.
/// One weight computes queries, keys and values. Its columns are ordered (head, q/k/v, width), so a mesh axis that
/// splits the columns splits heads. Communication: with split heads, an all_reduce of the result; with a split time
/// dim, keys and values are gathered. Errors: not_divisible unless the number of heads divides the features. Source:
/// Vaswani et al., 1706.03762.
template <Element T = float, bool Bias = true, class Kernel = CausalAttention, class Projection = Linear<T, Bias>>
struct Attention {
  Projection qkv;  ///< [features, heads * 3 * width]
  Projection out;  ///< [heads * width, features]
  Dim heads;

  static constexpr std::array field_names{"qkv", "out", "heads"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto all = split(x);
    const auto q = part<0>(all), k = part<1>(all), v = part<2>(all);
    return merged(Kernel{}(q, k, v));
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const LayerDropout<Rate, Key>& drop, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto all = split(x);
    const auto q = part<0>(all), k = part<1>(all), v = part<2>(all);
    const auto dropped = [&] {
      const auto weights = detail::of_weights(drop);
      if constexpr (requires { Kernel{}(q, k, v, weights); }) {
        return merged(Kernel{}(q, k, v, weights));
      } else {
        tessera::detail::trace_in(x).refuse(
            errc::unsupported,
            "[attention] dropout of weights: this kernel of nn::Attention has no operator()(q, k, v, dropout), which "
            "takes a ts::attention_dropout; nn::layer_dropout(rate, key, 0) drops no weights");
        return merged(Kernel{}(q, k, v));
      }
    };
    return detail::kept_or_dropped(
        drop, [&] { return merged(Kernel{}(q, k, v)); }, dropped);
  }
  template <class X, class Cache, class Position>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, Here at = Here::current()) const {
    tessera::detail::require_trace("cached", "the layer", Source::from(at), *this, x, cache);
    const tessera::detail::LayerCall call(at, x);
    const auto all = split(x);
    const auto q = part<0>(all), k = part<1>(all), v = part<2>(all);
    constexpr bool has_cached = requires { Kernel{}.cached(q, k, v, cache, position); };
    static_assert(has_cached, "tessera: this kernel of nn::Attention has no `cached(q, k, v, cache, position)`, which "
                              "attention with a cache calls; nn::CausalAttention has");
    if constexpr (has_cached) {
      const auto made = Kernel{}.cached(q, k, v, cache, position);
      return std::tuple(merged(std::get<0>(made)), std::get<1>(made));
    } else {
      return std::tuple(x, cache);
    }
  }

 private:
  constexpr auto split(const auto& x) const {
    return rearrange<"b t (h c e) -> b t h c e">(qkv(x), len<"h">(heads), len<"c">(3));
  }
  /// Queries, keys or values: [B, T, H, E].
  template <int I> static constexpr auto part(const auto& all) { return squeeze<3>(slice<3>(all, I, 1)); }
  constexpr auto merged(const auto& x) const { return out(rearrange<"b t h e -> b t (h e)">(x)); }
};

/// Standard deviation of weights whose products are added to the residual stream: stddev / sqrt(2 depth), so that the
/// variance of the stream does not grow with `depth`. Source: GPT-2, Radford et al. 2019.
inline double residual_stddev(double stddev, int depth) { return stddev / std::sqrt(2.0 * (depth < 1 ? 1 : depth)); }

/// Attention for a model of `depth` layers. Errors: `not_divisible` unless the number of heads divides the features.
template <Element T = float, bool Bias = true, class Kernel = CausalAttention>
Attention<T, Bias, Kernel> attention(Key key, Extent features, Dim heads, const ShardingStrategy& strategy,
                                     int depth = 1, double stddev = 0.02, Here at = Here::current()) {
  if (heads.value() < 1 || features.value % heads.value() != 0)
    fail(errc::not_divisible, "[attention] number of heads: ", features.value, " features are not divisible by ",
         heads.value(), " heads", Source::from(at));
  const auto [first, second] = split<2>(key);
  return {linear<T, Bias>(first, features, 3 * features.value, strategy, Role::column, stddev),
          linear<T, Bias>(second, features, features, strategy, Role::row, residual_stddev(stddev, depth)), heads};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
