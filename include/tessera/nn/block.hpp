#ifndef TESSERA_NN_BLOCK_HPP
#define TESSERA_NN_BLOCK_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/nn/attention/attention.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/normalization/layer_norm.hpp>
#include <tessera/nn/normalization/rms_norm.hpp>

namespace tessera::nn {

/// A pre-norm transformer layer: x + attention(norm(x)), then x + mlp(norm(x)).
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
};

/// Block is the layer of GPT-2, with a kernel of Attention; GatedBlock that of LLaMA without rotary position
/// embeddings.
template <Element T = float, class Kernel = CausalAttention>
using Block = PreNormBlock<LayerNorm<T>, Attention<T, true, Kernel>, Mlp<T>>;
template <Element T = float> using GatedBlock = PreNormBlock<RmsNorm<T>, Attention<T, false>, GatedMlp<T>>;

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
