#ifndef TESSERA_NN_NORMALIZATION_BATCH_NORM_HPP
#define TESSERA_NN_NORMALIZATION_BATCH_NORM_HPP
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

/// Batch norm of x [batch, ..., features], as torch.nn.BatchNorm1d, 2d and 3d with the features last:
///
///     const auto [y, next] = norm.train(x, running);   // normalized by this batch; the next running statistics
///     const auto y = norm(x, running);                 // evaluation: normalized by running statistics
///     const auto y = norm(x);                          // normalized by this batch, without running statistics
/// The next running statistics are (1 - momentum) * running + momentum * (mean and unbiased variance of this batch),
/// and have no gradient. If a batch has one element per feature, the variance is 0; PyTorch throws. Errors:
/// shape_mismatch. Communication: train as ts::batch_norm; running statistics add none, and are those of the whole
/// batch also if it is split. Evaluation: none. Source: Ioffe, Szegedy, 1502.03167.
template <Element T = float> struct BatchNorm {
  ShardedTensor<T, 1> gain, bias;
  Scalar epsilon = 1e-5, momentum = 0.1;

  static constexpr std::array field_names{"gain", "bias", "epsilon", "momentum"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    return tessera::batch_norm(x, gain, bias, epsilon, at);
  }
  template <class X>
  constexpr auto operator()(const X& x, const RunningStatistics<T>& running, Here at = Here::current()) const {
    return tessera::batch_norm_inference(x, running.mean, running.variance, gain, bias, epsilon, at);
  }
  template <class X>
  constexpr auto train(const X& x, const RunningStatistics<T>& running, Here at = Here::current()) const {
    const tessera::detail::LayerCall call(at, x);
    return std::tuple((*this)(x, at), running.moved(tessera::batch_norm_statistics(x, at), momentum, at));
  }
};

/// A BatchNorm with a gain of ones and a bias of zeros.
template <Element T = float>
BatchNorm<T> batch_norm(Extent features, const ShardingStrategy& strategy, double epsilon = 1e-5,
                        double momentum = 0.1) {
  return {ones<T>({features}, strategy.mesh, strategy.vector), zeros<T>({features}, strategy.mesh, strategy.vector),
          epsilon, momentum};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
