#ifndef TESSERA_NN_TRANSFORMER_HPP
#define TESSERA_NN_TRANSFORMER_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstdint>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/nn/attention/multi_head_attention.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/normalization/layer_norm.hpp>
#include <tessera/ops/elementwise.hpp>

// The layers of the first transformer, which encode one sequence and decode another.

namespace tessera::nn {

/// Where a layer normalises: after the residual addition (torch's norm_first = false) or before each part.
enum class NormPlace : std::uint8_t { post, pre };

namespace detail {
/// x plus a part of the layer, normalised in one of both places.
template <NormPlace Place> constexpr auto residual(const auto& x, const auto& norm, const auto& part) {
  if constexpr (Place == NormPlace::pre)
    return x + part(norm(x));
  else
    return norm(x + part(x));
}
}  // namespace detail

/// Two products with relu between them, as in torch.nn.TransformerEncoderLayer.
template <Element T = float> struct FeedForward {
  Linear<T> up;    ///< [features, hidden]
  Linear<T> down;  ///< [hidden, features]

  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return down(relu(up(x)));
  }
};

/// torch.nn.TransformerEncoderLayer without dropout: self-attention and two products, x [batch, time, features] to the
/// same shape; `layer(x, mask)` attends to the positions where mask [batch, time] is true (src_key_padding_mask is its
/// negation). A Stack of them takes the mask too: `layers(x, mask)`. Source: Vaswani et al., 1706.03762; the norm in
/// front: Xiong et al., 2002.04745.
template <Element T = float, NormPlace Place = NormPlace::post> struct EncoderLayer {
  MultiHeadAttention<T> attention;
  LayerNorm<T> attention_norm;
  FeedForward<T> mlp;
  LayerNorm<T> mlp_norm;

  static constexpr std::array field_names{"attention", "attention_norm", "mlp", "mlp_norm"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto middle = detail::residual<Place>(x, attention_norm, attention);
    return detail::residual<Place>(middle, mlp_norm, mlp);
  }
  constexpr auto operator()(const auto& x, const auto& mask, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto middle =
        detail::residual<Place>(x, attention_norm, [&](const auto& v) { return attention.masked(v, v, mask); });
    return detail::residual<Place>(middle, mlp_norm, mlp);
  }
};

/// torch.nn.TransformerDecoderLayer without dropout, with a causal mask of the target: causal self-attention, attention
/// to memory [batch, keys, features], and two products:
///
///     layer(x, memory)                      // x [batch, time, features]
///     layer(x, memory, memory_mask)         // memory_mask [batch, keys]: attends to the memory where it is true
///     layer(x, memory, memory_mask, mask)   // mask [batch, time]: attends to the positions of x where it is true
///
/// PyTorch's memory_key_padding_mask and tgt_key_padding_mask are the negations of the masks. Behind a target that is
/// padded at its end, causal attention sees no padding: only padding in front needs the second mask. A Stack of them
/// takes the same arguments: `layers(x, memory, memory_mask)`.
template <Element T = float, NormPlace Place = NormPlace::post> struct DecoderLayer {
  MultiHeadAttention<T> attention;
  LayerNorm<T> attention_norm;
  MultiHeadAttention<T> cross;
  LayerNorm<T> cross_norm;
  FeedForward<T> mlp;
  LayerNorm<T> mlp_norm;

  static constexpr std::array field_names{"attention", "attention_norm", "cross", "cross_norm", "mlp", "mlp_norm"};
  constexpr auto operator()(const auto& x, const auto& memory, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(
        x, [&](const auto& v) { return attention.causal(v); }, [&](const auto& v) { return cross(v, memory); });
  }
  constexpr auto operator()(const auto& x, const auto& memory, const auto& memory_mask,
                            Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(
        x, [&](const auto& v) { return attention.causal(v); },
        [&](const auto& v) { return cross.masked(v, memory, memory_mask); });
  }
  constexpr auto operator()(const auto& x, const auto& memory, const auto& memory_mask, const auto& mask,
                            Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(
        x, [&](const auto& v) { return attention.causal(v, mask); },
        [&](const auto& v) { return cross.masked(v, memory, memory_mask); });
  }

 private:
  constexpr auto parts(const auto& x, const auto& to_target, const auto& to_memory) const {
    const auto own = detail::residual<Place>(x, attention_norm, to_target);
    return detail::residual<Place>(detail::residual<Place>(own, cross_norm, to_memory), mlp_norm, mlp);
  }
};

/// With the initialisation of these layers in PyTorch: attention as `multi_head_attention`; weights of the products
/// uniform in [-1 / sqrt(in), 1 / sqrt(in)), their biases zeros (PyTorch draws them from the same range).
template <Element T = float>
FeedForward<T> feed_forward(Key key, Extent features, Extent hidden, const ShardingStrategy& strategy) {
  const auto [first, second] = split<2>(key);
  const auto limit = [](Extent in) { return 1 / std::sqrt(static_cast<double>(in.value)); };
  return {detail::uniform_linear<T, true>(first, features, hidden, strategy, Role::column, limit(features)),
          detail::uniform_linear<T, true>(second, hidden, features, strategy, Role::row, limit(hidden))};
}
template <Element T = float, NormPlace Place = NormPlace::post>
EncoderLayer<T, Place> encoder_layer(Key key, Extent features, Dim heads, Extent hidden,
                                     const ShardingStrategy& strategy, Here at = Here::current()) {
  const auto [first, second] = split<2>(key);
  return {multi_head_attention<T>(first, features, heads, strategy, at), layer_norm<T>(features, strategy),
          feed_forward<T>(second, features, hidden, strategy), layer_norm<T>(features, strategy)};
}
template <Element T = float, NormPlace Place = NormPlace::post>
DecoderLayer<T, Place> decoder_layer(Key key, Extent features, Dim heads, Extent hidden,
                                     const ShardingStrategy& strategy, Here at = Here::current()) {
  const auto [first, second, third] = split<3>(key);
  return {multi_head_attention<T>(first, features, heads, strategy, at),
          layer_norm<T>(features, strategy),
          multi_head_attention<T>(second, features, heads, strategy, at),
          layer_norm<T>(features, strategy),
          feed_forward<T>(third, features, hidden, strategy),
          layer_norm<T>(features, strategy)};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
