#ifndef TESSERA_NN_NORMALIZATION_RMS_NORM_HPP
#define TESSERA_NN_NORMALIZATION_RMS_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera::nn {

/// Divides the last dim of x by its root mean square, and multiplies by gain. Errors and communication: as
/// ts::rms_norm. Source: Zhang, Sennrich, 1910.07467.
template <Element T = float> struct RmsNorm {
  ShardedTensor<T, 1> gain;
  Scalar epsilon = 1e-5;

  static constexpr std::array field_names{"gain", "epsilon"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    return tessera::rms_norm(x, gain, epsilon, at);
  }
};

/// An RmsNorm with a gain of ones.
template <Element T = float>
RmsNorm<T> rms_norm(Extent features, const ShardingStrategy& strategy, double epsilon = 1e-5) {
  return {ones<T>({features}, strategy.mesh, strategy.vector), epsilon};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
