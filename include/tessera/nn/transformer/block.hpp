#ifndef TESSERA_NN_TRANSFORMER_BLOCK_HPP
#define TESSERA_NN_TRANSFORMER_BLOCK_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/nn/attention/attention.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/normalization/layer_norm.hpp>
#include <tessera/nn/normalization/rms_norm.hpp>

namespace tessera::nn {

/// A pre-norm transformer layer: x + attention(norm(x)), then x + mlp(norm(x)).
///
///     block(x)
///     block(x, layer_dropout(rate, key))    // in training: dropout of what is added to x, as resid_pdrop of GPT-2,
///                                           // and of the weights of attention, as attn_pdrop
///     block.cached(x, cache, position)      // positions from `position` on; gives (result, new cache), see Attention
/// A Stack of blocks takes the same arguments; with caches, call `nn::cached(blocks, x, caches, position)`.
template <class Norm, class Attention, class Mlp> struct PreNormBlock {
  Norm attention_norm;
  Attention attention;
  Norm mlp_norm;
  Mlp mlp;

  static constexpr std::array field_names{"attention_norm", "attention", "mlp_norm", "mlp"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto middle = x + attention(attention_norm(x));
    return middle + mlp(mlp_norm(middle));
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const LayerDropout<Rate, Key>& dropout, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto middle = x + dropout.template drop<detail::dropout_of_attention>(attention(attention_norm(x), dropout));
    return middle + dropout.template drop<detail::dropout_of_mlp>(mlp(mlp_norm(middle)));
  }
  template <class X, class Cache, class Position>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, Here at = Here::current()) const {
    tessera::detail::require_trace("cached", "the layer", Source::from(at), *this, x, cache);
    const tessera::detail::LayerCall call(at, x);
    const auto both = attention.cached(attention_norm(x), cache, position);
    const auto middle = x + std::get<0>(both);
    return std::tuple(middle + mlp(mlp_norm(middle)), std::get<1>(both));
  }
};

/// Block is the layer of GPT-2, with a kernel of Attention. GatedBlock is the layer of LLaMA without rotary position
/// embeddings. `Projection` is the type of their linear layers: `Block<float, CausalAttention, LoraLinear<>>`.
template <Element T = float, class Kernel = CausalAttention, class Projection = Linear<T>>
using Block = PreNormBlock<LayerNorm<T>, Attention<T, true, Kernel, Projection>, Mlp<T, true, Gelu, Projection>>;
template <Element T = float, class Projection = Linear<T, false>>
using GatedBlock = PreNormBlock<RmsNorm<T>, Attention<T, false, CausalAttention, Projection>, GatedMlp<T, Projection>>;

/// A Block for a model of `depth` layers, with initialized parameters.
///
///     ts::Stack<ts::nn::Block<>> blocks(depth, [&](int i) {
///       return ts::nn::block(ts::fold_in(key, i), 256, 4, 1024, strategy, depth);
///     });
template <Element T = float, class Kernel = CausalAttention>
Block<T, Kernel> block(Key key, Extent features, Dim heads, Extent hidden, const ShardingStrategy& strategy,
                       int depth = 1, double stddev = 0.02, Here at = Here::current()) {
  const auto [first, second] = split<2>(key);
  return {layer_norm<T>(features, strategy),
          attention<T, true, Kernel>(first, features, heads, strategy, depth, stddev, at),
          layer_norm<T>(features, strategy), mlp<T>(second, features, hidden, strategy, depth, stddev)};
}
template <Element T = float>
GatedBlock<T> gated_block(Key key, Extent features, Dim heads, Extent hidden, const ShardingStrategy& strategy,
                          int depth = 1, double stddev = 0.02, Here at = Here::current()) {
  const auto [first, second] = split<2>(key);
  return {rms_norm<T>(features, strategy), attention<T, false>(first, features, heads, strategy, depth, stddev, at),
          rms_norm<T>(features, strategy), gated_mlp<T>(second, features, hidden, strategy, depth, stddev)};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
