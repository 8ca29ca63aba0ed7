#ifndef TESSERA_NN_NORMALIZATION_INSTANCE_NORM_HPP
#define TESSERA_NN_NORMALIZATION_INSTANCE_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/reduction/normalization.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera::nn {

/// Normalizes each feature of each image of x [batch, ..., features] over all other dims, then multiplies by gain and
/// adds bias, as torch.nn.InstanceNorm1d, 2d and 3d with affine=True and the features last. Errors and communication:
/// as ts::instance_norm. Source: Ulyanov et al., 1607.08022.
template <Element T = float> struct InstanceNorm {
  ShardedTensor<T, 1> gain, bias;
  Scalar epsilon = 1e-5;

  static constexpr std::array field_names{"gain", "bias", "epsilon"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    return tessera::instance_norm(x, gain, bias, epsilon, at);
  }
};

/// An InstanceNorm with a gain of ones and a bias of zeros.
template <Element T = float>
InstanceNorm<T> instance_norm(Extent features, const ShardingStrategy& strategy, double epsilon = 1e-5) {
  return {ones<T>({features}, strategy.mesh, strategy.vector), zeros<T>({features}, strategy.mesh, strategy.vector),
          epsilon};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
