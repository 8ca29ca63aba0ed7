#ifndef TESSERA_NN_MLP_HPP
#define TESSERA_NN_MLP_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/nn/activation.hpp>
#include <tessera/nn/attention/attention.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera::nn {

/// down(gelu(up(x))), or with another activation (nn/activation.hpp). In training, `mlp(x, layer_dropout(rate, key))`
/// drops hidden features, as torch.nn.TransformerEncoderLayer does. `Projection` is the type of both linear layers,
/// such as LoraLinear or your own. Communication: with split hidden features, an all_reduce of the result.
template <Element T = float, bool Bias = true, class Activation = Gelu, class Projection = Linear<T, Bias>> struct Mlp {
  Projection up;    ///< [features, hidden]
  Projection down;  ///< [hidden, features]

  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto hidden = Activation{}(up(x));  // [B, T, hidden]
    return down(hidden);
  }
  template <class Rate, class Key>
  constexpr auto operator()(const auto& x, const LayerDropout<Rate, Key>& dropout, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto hidden = Activation{}(up(x));
    return down(dropout.template drop<detail::dropout_of_hidden>(hidden));
  }
};

/// down(silu(gate(x)) * up(x)). Communication: as Mlp. Source: Shazeer, 2002.05202.
template <Element T = float, class Projection = Linear<T, false>> struct GatedMlp {
  Projection gate, up;  ///< [features, hidden]
  Projection down;      ///< [hidden, features]

  static constexpr std::array field_names{"gate", "up", "down"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto hidden = silu(gate(x)) * up(x);  // [B, T, hidden]
    return down(hidden);
  }
};

/// The usual name of GatedMlp in the literature; silu is also called swish.
template <Element T = float, class Projection = Linear<T, false>> using SwiGlu = GatedMlp<T, Projection>;

/// An MLP for a model of `depth` layers, with initialized parameters.
template <Element T = float, bool Bias = true, class Activation = Gelu>
Mlp<T, Bias, Activation> mlp(Key key, Extent features, Extent hidden, const ShardingStrategy& strategy, int depth = 1,
                             double stddev = 0.02) {
  const auto [first, second] = split<2>(key);
  return {linear<T, Bias>(first, features, hidden, strategy, Role::column, stddev),
          linear<T, Bias>(second, hidden, features, strategy, Role::row, residual_stddev(stddev, depth))};
}
template <Element T = float>
GatedMlp<T> gated_mlp(Key key, Extent features, Extent hidden, const ShardingStrategy& strategy, int depth = 1,
                      double stddev = 0.02) {
  const auto [first, second, third] = split<3>(key);
  return {linear<T, false>(first, features, hidden, strategy, Role::column, stddev),
          linear<T, false>(second, features, hidden, strategy, Role::column, stddev),
          linear<T, false>(third, hidden, features, strategy, Role::row, residual_stddev(stddev, depth))};
}

/// The factory of a SwiGlu, which is a GatedMlp.
template <Element T = float>
SwiGlu<T> swi_glu(Key key, Extent features, Extent hidden, const ShardingStrategy& strategy, int depth = 1,
                  double stddev = 0.02) {
  return gated_mlp<T>(key, features, hidden, strategy, depth, stddev);
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
