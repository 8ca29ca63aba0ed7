#ifndef TESSERA_NN_NORMALIZATION_INSTANCE_NORM_HPP
#define TESSERA_NN_NORMALIZATION_INSTANCE_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <tuple>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/layer_call.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/normalization/running_statistics.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/reduction/normalization.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera::nn {

/// Normalizes each feature of each image of x [batch, ..., features] over all other dims, then multiplies by gain and
/// adds bias, as torch.nn.InstanceNorm1d, 2d and 3d with affine=True and the features last:
///
///     const auto y = norm(x);                          // normalized by each image, in training and evaluation
///     const auto [y, next] = norm.train(x, running);   // the same, and the next running statistics
///     const auto y = norm(x, running);                 // evaluation: normalized by running statistics
/// Running statistics are track_running_stats=True of PyTorch: (1 - momentum) * running + momentum * (means and
/// unbiased variances, averaged over the images of this batch); they have no gradient. If an image has one element per
/// feature, the variance is 0; PyTorch throws. Errors and communication: as ts::instance_norm; with a split batch,
/// train adds an all_reduce of the statistics. Source: Ulyanov et al., 1607.08022.
template <Element T = float> struct InstanceNorm {
  ShardedTensor<T, 1> gain, bias;
  Scalar epsilon = 1e-5, momentum = 0.1;

  static constexpr std::array field_names{"gain", "bias", "epsilon", "momentum"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    return tessera::instance_norm(x, gain, bias, epsilon, at);
  }
  template <class X>
  constexpr auto operator()(const X& x, const RunningStatistics<T>& running, Here at = Here::current()) const {
    return tessera::batch_norm_inference(x, running.mean, running.variance, gain, bias, epsilon, at);
  }
  template <class X>
  constexpr auto train(const X& x, const RunningStatistics<T>& running, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return std::tuple((*this)(x, at), running.moved(tessera::instance_norm_statistics(x, at), momentum, at));
  }
};

/// An InstanceNorm with a gain of ones and a bias of zeros.
template <Element T = float>
InstanceNorm<T> instance_norm(Extent features, const ShardingStrategy& strategy, double epsilon = 1e-5,
                              double momentum = 0.1) {
  return {ones<T>({features}, strategy.mesh, strategy.vector), zeros<T>({features}, strategy.mesh, strategy.vector),
          epsilon, momentum};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
