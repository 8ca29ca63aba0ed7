#ifndef TESSERA_NN_MLP_HPP
#define TESSERA_NN_MLP_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/nn/attention/attention.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/ops/elementwise.hpp>

namespace tessera::nn {

/// down(gelu(up(x))). Communication: with the hidden features sharded, an all_reduce of the result.
template <Element T = float, bool Bias = true> struct Mlp {
  Linear<T, Bias> up;    ///< [features, hidden]
  Linear<T, Bias> down;  ///< [hidden, features]

  static constexpr std::array field_names{"up", "down"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto hidden = gelu(up(x));  // [B, T, hidden]
    return down(hidden);
  }
};

/// down(silu(gate(x)) * up(x)). Communication: as Mlp. Source: Shazeer, 2002.05202.
template <Element T = float> struct GatedMlp {
  Linear<T, false> gate, up;  ///< [features, hidden]
  Linear<T, false> down;      ///< [hidden, features]

  static constexpr std::array field_names{"gate", "up", "down"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    const auto hidden = silu(gate(x)) * up(x);  // [B, T, hidden]
    return down(hidden);
  }
};

/// The name of the same layer in the literature: silu is also called swish.
template <Element T = float> using SwiGlu = GatedMlp<T>;

/// An MLP for a model of `depth` layers, with initialized parameters.
template <Element T = float, bool Bias = true>
Mlp<T, Bias> mlp(Key key, Extent features, Extent hidden, const ShardingStrategy& strategy, int depth = 1,
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
