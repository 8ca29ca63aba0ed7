#ifndef TESSERA_OPS_REDUCTION_NORMALIZATION_HPP
#define TESSERA_OPS_REDUCTION_NORMALIZATION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/ops/contraction/convolution.hpp>
#include <tessera/ops/functional.hpp>

// Norms of [batch, ..., features] over other dims than the last; layer_norm and rms_norm are in ops/functional.hpp.

namespace tessera {

namespace build {

/// x less its mean, over its standard deviation, along a bit set of dims; as in layer_norm a second mean, which has no
/// gradient, corrects the rounding of the first.
constexpr Value normalized(Value x, unsigned dims, Value eps) {
  Value count = x.number(1, DType::i64);
  for (int d = 0; d < x.rank(); ++d)
    if ((dims >> d & 1) != 0) count = count * extent(x, d);
  count = cast(count, x.dtype());
  const Value near = x - reduce(Op::sum, x, dims, true) / count;
  const Value rest = constant_reduce(Op::sum, near, dims) / count;
  const Value variance = reduce(Op::sum, near * near, dims, true) / count - rest * rest;
  return (near - rest) * unary(Op::rsqrt, variance + cast(eps, x.dtype()));
}

}  // namespace build

namespace detail {

enum class NormOver { batch, instance };

template <int Rank, NormOver Over> struct FeatureNormTag {
  static_assert(Rank >= 2, "tessera: a batch or instance norm takes [batch, ..., features]");
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class Gain, class Bias, class Eps> using result = NormResult<X, Gain, Bias>;
  static constexpr Value emit(Value context, Value x, Value gain, Value bias, Value eps) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    const int first = x.leading(Rank) + (Over == NormOver::instance ? 1 : 0);
    const unsigned dims = ((1u << (x.rank() - 1)) - 1) & ~((1u << first) - 1);
    return build::cast(build::normalized(x, dims, eps) * build::cast(gain, x.dtype()) + build::cast(bias, x.dtype()),
                       type);
  }
};

template <int Rank> struct GivenNormTag {
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class Mean, class Variance, class Gain, class Bias, class Eps>
  using result = NormResult<X, Mean, Variance, Gain, Bias>;
  static constexpr Value emit(Value context, Value x, Value mean, Value variance, Value gain, Value bias, Value eps) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    const auto as_x = [&](Value v) { return build::cast(v, x.dtype()); };
    const Value scale = build::unary(Op::rsqrt, as_x(variance) + as_x(eps)) * as_x(gain);
    return build::cast((x - as_x(mean)) * scale + as_x(bias), type);
  }
};

template <int Rank> struct GroupNormTag {
  static_assert(Rank >= 2, "tessera: group_norm takes [batch, ..., features]");
  template <class X, class Gain, class Bias, class Groups, class Eps> using result = NormResult<X, Gain, Bias>;
  static constexpr Value emit(Value context, Value x, Value gain, Value bias, Value groups, Value eps) {
    if (x.rank() != Rank)
      fail(errc::unsupported,
           "[group_norm] dims: layers of a Stack and devices of a shard_map: call it on one of them");
    const DType type = x.dtype();
    x = split_groups(build::cast(x.at(context.source), computed_as(type)), Rank - 1, as_size(groups));
    const unsigned dims = ((1u << (Rank + 1)) - 1) & ~1u & ~(1u << (Rank - 1));
    x = merge_groups(build::normalized(x, dims, eps));
    return build::cast(x * build::cast(gain, x.dtype()) + build::cast(bias, x.dtype()), type);
  }
};

}  // namespace detail

/// Batch norm of x [batch, ..., features] by the statistics of this batch: (x - mean) / sqrt(variance + eps) * gain +
/// bias, with the mean and the biased variance of each feature over all other dims. Computed in two passes, bf16 in
/// f32. Errors: shape_mismatch. Communication: over a split batch, all-reduces of
/// sums per feature, so that the statistics are those of the whole batch (PyTorch's SyncBatchNorm). Source: Ioffe,
/// Szegedy, 1502.03167.
template <TensorOperand X, TensorOperand Gain, TensorOperand Bias, NumberOperand Eps = double>
constexpr auto batch_norm(const X& x, const Gain& gain, const Bias& bias, const Eps& eps = 1e-5,
                          Here at = Here::current()) {
  return call<detail::FeatureNormTag<X::rank, detail::NormOver::batch>>(Source::from(at), x, gain, bias, eps);
}
/// Batch norm by given statistics, vectors of features: what evaluation computes.
template <TensorOperand X, TensorOperand Mean, TensorOperand Variance, TensorOperand Gain, TensorOperand Bias,
          NumberOperand Eps = double>
constexpr auto batch_norm_inference(const X& x, const Mean& mean, const Variance& variance, const Gain& gain,
                                    const Bias& bias, const Eps& eps = 1e-5, Here at = Here::current()) {
  return call<detail::GivenNormTag<X::rank>>(Source::from(at), x, mean, variance, gain, bias, eps);
}
/// Instance norm: as batch_norm, with statistics of each image on its own. Source: Ulyanov et al., 1607.08022.
template <TensorOperand X, TensorOperand Gain, TensorOperand Bias, NumberOperand Eps = double>
constexpr auto instance_norm(const X& x, const Gain& gain, const Bias& bias, const Eps& eps = 1e-5,
                             Here at = Here::current()) {
  return call<detail::FeatureNormTag<X::rank, detail::NormOver::instance>>(Source::from(at), x, gain, bias, eps);
}
/// Group norm: statistics of each image over all dims and the features of one of `groups` groups. Errors:
/// shape_mismatch, also for groups that don't divide the features. Source: Wu, He, 1803.08494.
template <TensorOperand X, TensorOperand Gain, TensorOperand Bias, NumberOperand Eps = double>
constexpr auto group_norm(const X& x, const Gain& gain, const Bias& bias, std::int64_t groups, const Eps& eps = 1e-5,
                          Here at = Here::current()) {
  return call<detail::GroupNormTag<X::rank>>(Source::from(at), x, gain, bias, Dim(groups), eps);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
