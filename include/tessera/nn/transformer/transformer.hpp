#ifndef TESSERA_NN_TRANSFORMER_TRANSFORMER_HPP
#define TESSERA_NN_TRANSFORMER_TRANSFORMER_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/nn/activation.hpp>
#include <tessera/nn/attention/multi_head_attention.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/mlp.hpp>
#include <tessera/nn/normalization/layer_norm.hpp>
#include <tessera/ops/elementwise.hpp>

// Encoder and decoder layers of the original transformer.

namespace tessera::nn {

/// Where a layer normalises: after the residual addition (torch's norm_first = false) or before each part.
enum class NormPlace : std::uint8_t { post, pre };

namespace detail {
/// x plus a sublayer, normalised before the sublayer or after the sum.
template <NormPlace Place> constexpr auto residual(const auto& x, const auto& norm, const auto& part) {
  if constexpr (Place == NormPlace::pre)
    return x + part(norm(x));
  else
    return norm(x + part(x));
}
}  // namespace detail

/// Two products with relu, or another activation, between them, as in torch.nn.TransformerEncoderLayer.
template <Element T = float, class Activation = Relu, class Projection = Linear<T>>
using FeedForward = Mlp<T, true, Activation, Projection>;

/// torch.nn.TransformerEncoderLayer: self-attention and two products, of x [batch, time, features]:
///
///     layer(x)
///     layer(x, mask)                               // mask [batch, time]: attends to the positions where it is true
///     layer(x, mask, layer_dropout(rate, key))     // in training; also without a mask
/// PyTorch's src_key_padding_mask is the negation of the mask. Dropout is that of PyTorch, for attention probabilities,
/// the result of attention, the hidden features and the second product. `layer_dropout(rate, key, 0)` drops no
/// probabilities, which are then never stored. A Stack of layers takes the same arguments. The activation is a type
/// without members (nn/activation.hpp); PyTorch's activation="gelu" is ExactGelu. `Projection` is the type of the
/// linear layers, such as LoraLinear or your own. Source: Vaswani et al., 1706.03762; pre-norm: Xiong et al.,
/// 2002.04745.
template <Element T = float, NormPlace Place = NormPlace::post, class Activation = Relu, class Projection = Linear<T>>
struct EncoderLayer {
  MultiHeadAttention<T, true, Projection> attention;
  LayerNorm<T> attention_norm;
  FeedForward<T, Activation, Projection> mlp;
  LayerNorm<T> mlp_norm;

  static constexpr std::array field_names{"attention", "attention_norm", "mlp", "mlp_norm"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(x, attention, mlp);
  }
  constexpr auto operator()(const auto& x, const auto& mask, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(
        x, [&](const auto& v) { return attention.masked(v, v, mask); }, mlp);
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const LayerDropout<Rate, Key>& dropout, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return dropped(
        x, [&](const auto& v) { return attention(v, dropout); }, dropout);
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const auto& mask, const LayerDropout<Rate, Key>& dropout,
                            Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return dropped(
        x, [&](const auto& v) { return attention.masked(v, v, mask, dropout); }, dropout);
  }

 private:
  constexpr auto parts(const auto& x, const auto& attend, const auto& feed) const {
    return detail::residual<Place>(detail::residual<Place>(x, attention_norm, attend), mlp_norm, feed);
  }
  constexpr auto dropped(const auto& x, const auto& attend, const auto& dropout) const {
    return parts(
        x, [&](const auto& v) { return dropout.template drop<detail::dropout_of_attention>(attend(v)); },
        [&](const auto& v) { return dropout.template drop<detail::dropout_of_mlp>(mlp(v, dropout)); });
  }
};

/// torch.nn.TransformerDecoderLayer with a causal mask of the target: causal self-attention, attention to memory
/// [batch, keys, features], and two products:
///
///     layer(x, memory)                      // x [batch, time, features]
///     layer(x, memory, memory_mask)         // memory_mask [batch, keys]: attends to the memory where it is true
///     layer(x, memory, memory_mask, mask)   // mask [batch, time]: attends to the positions of x where it is true
/// PyTorch's memory_key_padding_mask and tgt_key_padding_mask are the negations of the masks. If the target is padded
/// at its end, causal attention never reads the padding: only padding at the beginning needs the second mask. In
/// training, each of these calls takes `layer_dropout(rate, key)` as its last argument; dropout, activation and
/// projections are those of EncoderLayer. A Stack of layers takes the same arguments: `layers(x, memory, memory_mask)`.
/// For generation token by token, with a KvCache of the earlier positions of x, as in MultiHeadAttention; the keys and
/// values of the memory are computed once per sequence:
///
///     const auto known = layer.keys_and_values(memory);                       // of a Stack: nn::keys_and_values
///     const auto [y, next] = layer.cached(x, cache, position, known);         // of a Stack: nn::cached
///     const auto [y, next] = layer.cached(x, cache, position, known, memory_mask);
template <Element T = float, NormPlace Place = NormPlace::post, class Activation = Relu, class Projection = Linear<T>>
struct DecoderLayer {
  MultiHeadAttention<T, true, Projection> attention;
  LayerNorm<T> attention_norm;
  MultiHeadAttention<T, true, Projection> cross;
  LayerNorm<T> cross_norm;
  FeedForward<T, Activation, Projection> mlp;
  LayerNorm<T> mlp_norm;

  static constexpr std::array field_names{"attention", "attention_norm", "cross", "cross_norm", "mlp", "mlp_norm"};
  constexpr auto operator()(const auto& x, const auto& memory, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(
        x, [&](const auto& v) { return attention.causal(v); }, [&](const auto& v) { return cross(v, memory); }, mlp);
  }
  constexpr auto operator()(const auto& x, const auto& memory, const auto& memory_mask,
                            Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(
        x, [&](const auto& v) { return attention.causal(v); },
        [&](const auto& v) { return cross.masked(v, memory, memory_mask); }, mlp);
  }
  constexpr auto operator()(const auto& x, const auto& memory, const auto& memory_mask, const auto& mask,
                            Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return parts(
        x, [&](const auto& v) { return attention.causal(v, mask); },
        [&](const auto& v) { return cross.masked(v, memory, memory_mask); }, mlp);
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const auto& memory, const LayerDropout<Rate, Key>& dropout,
                            Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return dropped(
        x, [&](const auto& v) { return attention.causal(v, dropout); },
        [&](const auto& v) { return cross(v, memory, of_cross(dropout)); }, dropout);
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const auto& memory, const auto& memory_mask,
                            const LayerDropout<Rate, Key>& dropout, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return dropped(
        x, [&](const auto& v) { return attention.causal(v, dropout); },
        [&](const auto& v) { return cross.masked(v, memory, memory_mask, of_cross(dropout)); }, dropout);
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const auto& memory, const auto& memory_mask, const auto& mask,
                            const LayerDropout<Rate, Key>& dropout, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return dropped(
        x, [&](const auto& v) { return attention.causal(v, mask, dropout); },
        [&](const auto& v) { return cross.masked(v, memory, memory_mask, of_cross(dropout)); }, dropout);
  }

  template <class Memory> constexpr auto keys_and_values(const Memory& memory, Here at = Here::current()) const {
    return cross.keys_and_values(memory, at);
  }
  template <class X, class Cache, class Position, class Memory>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, const Memory& memory,
                        Here at = Here::current()) const {
    tessera::detail::require_trace("cached", "the layer", Source::from(at), *this, x, cache);
    const tessera::detail::LayerCall call(at, x);
    return decoded(x, cache, position, [&](const auto& v) { return cross(v, memory); });
  }
  template <class X, class Cache, class Position, class Memory>
  constexpr auto cached(const X& x, const Cache& cache, const Position& position, const Memory& memory,
                        const auto& memory_mask, Here at = Here::current()) const {
    tessera::detail::require_trace("cached", "the layer", Source::from(at), *this, x, cache);
    const tessera::detail::LayerCall call(at, x);
    return decoded(x, cache, position, [&](const auto& v) { return cross.masked(v, memory, memory_mask); });
  }

 private:
  constexpr auto parts(const auto& x, const auto& to_target, const auto& to_memory, const auto& feed) const {
    const auto own = detail::residual<Place>(x, attention_norm, to_target);
    return detail::residual<Place>(detail::residual<Place>(own, cross_norm, to_memory), mlp_norm, feed);
  }
  constexpr auto dropped(const auto& x, const auto& to_target, const auto& to_memory, const auto& dropout) const {
    return parts(
        x, [&](const auto& v) { return dropout.template drop<detail::dropout_of_attention>(to_target(v)); },
        [&](const auto& v) { return dropout.template drop<detail::dropout_of_cross>(to_memory(v)); },
        [&](const auto& v) { return dropout.template drop<detail::dropout_of_mlp>(mlp(v, dropout)); });
  }
  /// The dropout of the attention to memory, whose weights have a stream of their own.
  static constexpr auto of_cross(const auto& dropout) {
    return dropout.template with_weights_of<detail::dropout_of_cross_weights>();
  }
  template <class Cache>
  constexpr auto decoded(const auto& x, const Cache& cache, const auto& position, const auto& to_memory) const {
    Cache next = cache;
    const auto to_target = [&](const auto& v) {
      const auto made = attention.cached(v, cache, position);
      next = std::get<1>(made);
      return std::get<0>(made);
    };
    const auto y = parts(x, to_target, to_memory, mlp);
    return std::tuple(y, next);
  }
};

/// Factories with the initial values of PyTorch: attention as `multi_head_attention`; weights of the products uniform
/// in [-1 / sqrt(in), 1 / sqrt(in)), their biases zeros (PyTorch draws them from the same range).
template <Element T = float, class Activation = Relu>
FeedForward<T, Activation> feed_forward(Key key, Extent features, Extent hidden, const ShardingStrategy& strategy) {
  const auto [first, second] = split<2>(key);
  const auto limit = [](Extent in) { return 1 / std::sqrt(static_cast<double>(in.value)); };
  return {detail::uniform_linear<T, true>(first, features, hidden, strategy, Role::column, limit(features)),
          detail::uniform_linear<T, true>(second, hidden, features, strategy, Role::row, limit(hidden))};
}
template <Element T = float, NormPlace Place = NormPlace::post, class Activation = Relu>
EncoderLayer<T, Place, Activation> encoder_layer(Key key, Extent features, Dim heads, Extent hidden,
                                                 const ShardingStrategy& strategy, Here at = Here::current()) {
  const auto [first, second] = split<2>(key);
  return {multi_head_attention<T>(first, features, heads, strategy, at), layer_norm<T>(features, strategy),
          feed_forward<T, Activation>(second, features, hidden, strategy), layer_norm<T>(features, strategy)};
}
template <Element T = float, NormPlace Place = NormPlace::post, class Activation = Relu>
DecoderLayer<T, Place, Activation> decoder_layer(Key key, Extent features, Dim heads, Extent hidden,
                                                 const ShardingStrategy& strategy, Here at = Here::current()) {
  const auto [first, second, third] = split<3>(key);
  return {multi_head_attention<T>(first, features, heads, strategy, at),  layer_norm<T>(features, strategy),
          multi_head_attention<T>(second, features, heads, strategy, at), layer_norm<T>(features, strategy),
          feed_forward<T, Activation>(third, features, hidden, strategy), layer_norm<T>(features, strategy)};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
