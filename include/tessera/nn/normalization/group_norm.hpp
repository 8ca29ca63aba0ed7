#ifndef TESSERA_NN_NORMALIZATION_GROUP_NORM_HPP
#define TESSERA_NN_NORMALIZATION_GROUP_NORM_HPP
#include <tessera/base/push_macros.hpp>

#include <array>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/reduction/normalization.hpp>
#include <tessera/tensor/creation.hpp>

namespace tessera::nn {

/// Normalizes each image of x [batch, ..., features] over all dims and the features of one of `groups` groups, then
/// multiplies by gain and adds bias, as torch.nn.GroupNorm. Errors and communication: as ts::group_norm. Source: Wu,
/// He, 1803.08494.
template <Element T = float> struct GroupNorm {
  ShardedTensor<T, 1> gain, bias;
  Dim groups;
  Scalar epsilon = 1e-5;

  static constexpr std::array field_names{"gain", "bias", "groups", "epsilon"};
  constexpr auto operator()(const auto& x, Here at = Here::current()) const {
    return tessera::group_norm(x, gain, bias, groups, epsilon, at);
  }
};

/// A GroupNorm with a gain of ones and a bias of zeros. Errors: `not_divisible` unless the groups divide the features.
template <Element T = float>
GroupNorm<T> group_norm(Dim groups, Extent features, const ShardingStrategy& strategy, double epsilon = 1e-5,
                        Here at = Here::current()) {
  if (groups.value() < 1 || features.value % groups.value() != 0)
    fail(errc::not_divisible, "[group_norm] groups: ", features.value, " features are not divisible by ",
         groups.value(), " groups", Source::from(at));
  return {ones<T>({features}, strategy.mesh, strategy.vector), zeros<T>({features}, strategy.mesh, strategy.vector),
          groups, epsilon};
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
