#ifndef TESSERA_NN_NORMALIZATION_LAYER_NORM_HPP
#define TESSERA_NN_NORMALIZATION_LAYER_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera::nn {

/// Normalizes the last dim of x to mean 0 and variance 1, then multiplies by gain and adds bias: torch.nn.LayerNorm of
/// one dim. Errors and communication: as ts::layer_norm. Source: Ba, Kiros, Hinton, 1607.06450.
template <Element T = float> struct LayerNorm {
  ShardedTensor<T, 1> gain, bias;
  Scalar epsilon = 1e-5;

  static constexpr std::array field_names{"gain", "bias", "epsilon"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    return tessera::layer_norm(x, gain, bias, epsilon, at);
  }
};

/// A LayerNorm with a gain of ones and a bias of zeros.
template <Element T = float>
LayerNorm<T> layer_norm(Extent features, const ShardingStrategy& strategy, double epsilon = 1e-5) {
  return {ones<T>({features}, strategy.mesh, strategy.vector), zeros<T>({features}, strategy.mesh, strategy.vector),
          epsilon};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
