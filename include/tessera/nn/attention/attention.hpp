#ifndef TESSERA_NN_ATTENTION_ATTENTION_HPP
#define TESSERA_NN_ATTENTION_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>

namespace tessera::nn {

/// ts::causal_attention as a kernel of Attention.
struct CausalAttention {
  constexpr auto operator()(const auto& q, const auto& k, const auto& v) const { return causal_attention(q, k, v); }
};

/// Multi-head self-attention: x [batch, time, features] to a result of the same shape. Causal; another `Kernel`, a type
/// without members, computes attention in another way, such as a window of keys or context parallelism:
///
///     struct Ring {
///       constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
///         return ts::causal_ring_attention<"context">(q, k, v);            // [batch, time, heads, width] each
///       }
///     };
///     ts::nn::Attention<float, true, Ring> attention;
///
/// One weight computes queries, keys and values. Its columns are ordered (head, q/k/v, width), so that a mesh axis that
/// shards the columns shards heads. Communication: with sharded heads, an all_reduce of the result; with split times
/// the keys and values are gathered. Errors: shape_mismatch unless the number of heads divides the features. Source:
/// Vaswani et al., 1706.03762.
template <Element T = float, bool Bias = true, class Kernel = CausalAttention> struct Attention {
  Linear<T, Bias> qkv;  ///< [features, heads * 3 * width]
  Linear<T, Bias> out;  ///< [heads * width, features]
  Dim heads;

  static constexpr std::array field_names{"qkv", "out", "heads"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto all = rearrange<"b t (h c e) -> b t h c e">(qkv(x), len<"h">(heads), len<"c">(3));
    const auto q = squeeze<3>(slice<3>(all, 0, 1));  // [B, T, H, E]
    const auto k = squeeze<3>(slice<3>(all, 1, 1));
    const auto v = squeeze<3>(slice<3>(all, 2, 1));
    return out(rearrange<"b t h e -> b t (h e)">(Kernel{}(q, k, v)));
  }
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
