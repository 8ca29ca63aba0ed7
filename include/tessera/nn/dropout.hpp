#ifndef TESSERA_NN_DROPOUT_HPP
#define TESSERA_NN_DROPOUT_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/settle.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/ops/random/random.hpp>

namespace tessera::nn {

/// torch.nn.Dropout. In training, `drop(x, key)` sets each element of x to 0 with probability `rate` and divides the
/// others by 1 - rate; in evaluation, `drop(x)` returns x. At a rate of 0, `drop(x, key)` is x; at 1 it is zeros, with
/// gradients of zeros. The same key drops the same elements, so give each call its own key (ts::split, ts::fold_in), or
/// each layer its own `Stream`. Errors: `option` for a rate outside of [0, 1]. Communication: none.
///
///     struct Mlp {
///       ts::nn::Linear<> up, down;
///       ts::nn::Dropout<> drop{0.1};
///       constexpr auto operator()(const auto& x, const auto&... key) const {   // model(x, key), model(x)
///         return down(drop(ts::relu(up(x)), key...));
///       }
///     };
template <std::uint32_t Stream = 0> struct Dropout {
  Scalar rate = 0.5;

  static constexpr std::array field_names{"rate"};
  template <class X> constexpr X operator()(const X& x) const { return x; }
  template <class X, class Key> constexpr auto operator()(const X& x, const Key& key, Here at = Here::current()) const {
    return dropout<Stream>(x, rate, key, at);
  }
};

/// Dropout inside of a layer, an argument of its call in training: see layer_dropout.
template <class Rate, class Key> struct LayerDropout {
  Rate rate;
  Key key;

  static constexpr std::array field_names{"rate", "key"};
  template <std::uint32_t Stream> constexpr auto drop(const auto& x) const { return dropout<Stream>(x, rate, key); }
};

namespace detail {

/// A number as a Scalar, so that it can be in a struct that a Stack is called with.
template <class T> constexpr auto as_field(const T& x) {
  if constexpr (std::is_arithmetic_v<T>)
    return Scalar(x);
  else
    return tessera::detail::settle(x);
}

/// The streams of the dropouts in a layer of a transformer, which all have one key.
inline constexpr std::uint32_t dropout_of_attention = 0x54524e53, dropout_of_cross = dropout_of_attention + 1,
                               dropout_of_hidden = dropout_of_attention + 2, dropout_of_mlp = dropout_of_attention + 3,
                               dropout_of_weights = dropout_of_attention + 4;

}  // namespace detail

/// Dropout in a layer, for training: an argument of a call of a recurrent layer, a Block, an EncoderLayer, a
/// DecoderLayer, or a Stack of such layers. Without it the layer drops nothing, as in evaluation. The rate is a number
/// or a Scalar, the key is as in ts::dropout. If the key is a Scalar, which a ts::Key becomes in a traced function,
/// each layer of a Stack drops different elements. If it is a tensor, such as ts::fold_in(key, i) of the index of a
/// loop, all layers drop the same elements.
///
///     layers(x, mask, ts::nn::layer_dropout(0.1, key))   // training
///     layers(x, mask)                                    // evaluation
template <NumberOperand Rate, class Key> constexpr auto layer_dropout(const Rate& rate, const Key& key) {
  using OfRate = decltype(detail::as_field(rate));
  using OfKey = decltype(detail::as_field(key));
  return LayerDropout<OfRate, OfKey>{detail::as_field(rate), detail::as_field(key)};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
