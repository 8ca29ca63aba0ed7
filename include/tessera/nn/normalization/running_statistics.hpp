#ifndef TESSERA_NN_NORMALIZATION_RUNNING_STATISTICS_HPP
#define TESSERA_NN_NORMALIZATION_RUNNING_STATISTICS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/base/here.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/stop_gradient.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera::nn {

/// The mean and the variance of each feature, averaged over past batches. They are not parameters, but a state that a
/// training step takes and returns, so no optimizer changes them.
template <Element T = float> struct RunningStatistics {
  ShardedTensor<T, 1> mean, variance;

  static constexpr std::array field_names{"mean", "variance"};
  /// The statistics after a batch: (1 - momentum) * these + momentum * those of the batch, without a gradient.
  template <class Batch, class Momentum>
  constexpr RunningStatistics moved(const Batch& batch, const Momentum& momentum, Here at) const {
    const auto next = [&](const ShardedTensor<T, 1>& old, const auto& now) {
      return old + (stop_gradient(now, at) - old) * momentum;
    };
    return {next(mean, batch.mean), next(variance, batch.variance)};
  }
};

/// Running statistics before the first batch: means of zero and variances of one.
template <Element T = float>
RunningStatistics<T> running_statistics(Extent features, const ShardingStrategy& strategy) {
  return {zeros<T>({features}, strategy.mesh, strategy.vector), ones<T>({features}, strategy.mesh, strategy.vector)};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
