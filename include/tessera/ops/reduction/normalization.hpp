#ifndef TESSERA_OPS_REDUCTION_NORMALIZATION_HPP
#define TESSERA_OPS_REDUCTION_NORMALIZATION_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/ops/contraction/convolution.hpp>
#include <tessera/ops/custom/given_gradient.hpp>
#include <tessera/ops/data_movement/slice_scatter.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/reduction/reduce.hpp>

// Norms of [batch, ..., features] over other dims than the last; layer_norm and rms_norm are in ops/functional.hpp.

namespace tessera {

namespace build {

/// Every sixteenth index of a dim of x, whose mean is the first guess of the mean of x. Not of a dim of one.
constexpr Value sample(Value x, int dim) {
  if (x.is_singleton(dim)) return x;
  const Value step = x.number(16, DType::i64), more = x.number(15, DType::i64);
  return strided_slice(x, dim, x.number(0, DType::i64), (extent(x, dim) + more) / step, step);
}

/// The mean and the biased variance of x along a bit set of dims, with keepdims. The mean is `first + rest`: `first` is
/// the mean of a part of x, which cancels in all results and so needs no gradient. Where the part has a share p of the
/// elements, the variance is at least p / (1 - p) rest^2, so that its difference loses at most the digits of 1 / p:
/// docs/decisions/0085.
struct Moments {
  Value first, rest, variance;
};
constexpr Moments moments(Value x, Value part, unsigned dims) {
  const Value count = cast(element_count(x, dims), x.dtype());
  const Value first = constant_reduce(Op::sum, part, dims) / cast(element_count(part, dims), x.dtype());
  const Value near = x - first, rest = reduce(Op::sum, near, dims, true) / count;
  return {first, rest, reduce(Op::sum, near * near, dims, true) / count - rest * rest};
}

/// x less its mean, over its standard deviation, along a bit set of dims, times gain, plus bias. Forward and backward
/// pass each read their operands twice, for sums and for the result, and store no other value of all elements: what
/// both passes need is computed again. So the difference from the mean is another node in each, and the gradient is
/// given.
constexpr Value normalized(Value x, Value part, unsigned dims, Value gain, Value bias, Value eps) {
  const Moments m = moments(x, part, dims);
  const Value scale = unary(Op::rsqrt, m.variance + cast(eps, x.dtype())),
              count = cast(element_count(x, dims), x.dtype());
  const Value values[] = {x, gain, bias};
  // A gain that is the same for all elements of a mean is multiplied with the scale and with the sums, and so is
  // `rest`, which is at most a few standard deviations.
  if ((extending_dims(gain.node(), x.rank()) & dims) == 0) {
    const auto near = [&](Value v) { return v + -m.first; };
    const Value factor = scale * gain, y = near(x) * factor + (bias - m.rest * factor), g = variable_like(y);
    const Value of_bias = reduce(Op::sum, g, dims, true);
    const Value product = reduce(Op::sum, g * near(read_again(x, m.rest)), dims, true);
    const Value of_gain = (product - m.rest * of_bias) * scale, slope = of_gain * scale / count;
    const Value shift = m.rest * slope - of_bias / count;
    const Value of_x = (g - near(read_again(x, slope)) * slope + shift) * factor;
    const Value gradients[] = {of_x, of_gain, of_bias};
    if (gain.rank() > 0) return with_gradients(y, g, values, gradients);
    const Value only[] = {x}, gradient[] = {of_x};  // the gain is 1, the bias 0
    return with_gradients(y, g, only, gradient);
  }
  const auto centred = [&](Value v) { return v + -m.first - m.rest; };
  const Value y = centred(x) * scale * gain + bias, g = variable_like(y);
  const Value product = g * (centred(read_again(x, m.rest)) * scale);
  const Value shift = reduce(Op::sum, g * gain, dims, true), slope = reduce(Op::sum, product * gain, dims, true);
  const Value of_unit =
      read_again(g, slope) * gain - shift / count - centred(read_again(x, slope)) * (scale * slope / count);
  const Value gradients[] = {of_unit * scale, product, g};
  return with_gradients(y, g, values, gradients);
}

}  // namespace build

namespace detail {

enum class NormOver { batch, instance };

/// The dims of x [batch, ..., features] that a norm reduces, as a bit set.
template <int Rank, NormOver Over> constexpr unsigned normed_dims(const Value& x) {
  const int first = x.leading(Rank) + (Over == NormOver::instance ? 1 : 0);
  return ((1u << (x.rank() - 1)) - 1) & ~((1u << first) - 1);
}

/// What the first guess of the mean is computed from: rows of images. Vectors have a batch only, of which a part would
/// move between devices; all of them are the guess.
template <int Rank> constexpr Value normed_part(Value x) {
  return Rank < 3 ? x : build::sample(x, x.leading(Rank) + 1);
}

/// Checks that a gain and a bias fit the features of x, of which later operations see parts only.
constexpr void check_features(Value x, Value gain, Value bias) {
  for (const Value& v : {gain, bias})
    if (v.rank() > 0) build::same_extents(x, x.rank() - 1, v, v.rank() - 1, 1, build::ExtentsOf::features);
}

template <int Rank, NormOver Over> struct FeatureNormTag {
  static constexpr const char* function = Over == NormOver::batch ? "batch_norm" : "instance_norm";
  static_assert(Rank >= 2, "tessera: a batch or instance norm takes [batch, ..., features]");
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class Gain, class Bias, class Eps> using result = NormResult<X, Gain, Bias>;
  static constexpr Value emit(Value context, Value x, Value gain, Value bias, Value eps) {
    const DType type = x.dtype(), computed = computed_as(type);
    x = x.at(context.source);
    check_features(x, gain, bias);
    const Value part = build::cast(normed_part<Rank>(x), computed);
    x = build::cast(x, computed);
    const unsigned dims = normed_dims<Rank, Over>(x);
    return build::cast(build::normalized(x, part, dims, build::cast(gain, computed), build::cast(bias, computed), eps),
                       type);
  }
};

enum class Moment { mean, unbiased_variance };

/// A moment of each feature; over instances the mean of the moments of all images.
template <int Rank, NormOver Over, Moment Of> struct FeatureMomentTag {
  template <class X> struct result : Typed<loss_t<X>, 1> {
    using Checks = decltype([] {
      static_assert(Over == NormOver::instance || (floating_v<X> && Rank >= 2),
                    "tessera: batch_norm_statistics takes a float, double, bf16 or f16 tensor [batch, ..., features]");
      static_assert(
          Over == NormOver::batch || (floating_v<X> && Rank >= 3),
          "tessera: instance_norm_statistics takes a float, double, bf16 or f16 tensor [batch, ..., features] "
          "with a dim between these two");
    });
  };
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value part = build::cast(normed_part<Rank>(x), computed_as(x.dtype()));
    x = build::cast(x, computed_as(x.dtype()));
    const unsigned dims = normed_dims<Rank, Over>(x);
    const build::Moments m = build::moments(x, part, dims);
    if (Of == Moment::mean) return of_all_images(x, m.first + m.rest, dims);
    const Value count = build::element_count(x, dims), one = x.number(1, DType::i64);
    const Value divisor = build::maximum(count - one, one);
    const Value ratio = build::cast(count, x.dtype()) / build::cast(divisor, x.dtype());
    return of_all_images(x, m.variance * ratio, dims);
  }

 private:
  static constexpr Value of_all_images(Value x, Value moment, unsigned dims) {
    if (Over == NormOver::batch) return build::drop_singletons(moment, dims);
    const unsigned images = 1u << x.leading(Rank);
    const Value count = build::cast(build::element_count(x, images), x.dtype());
    return build::drop_singletons(build::sum_of(moment, images, true) / count, dims | images);
  }
};

template <int Rank> struct GivenNormTag {
  static constexpr const char* function = "batch_norm_inference";
  static constexpr auto leading_dims = ops::LeadingDims::aligned;
  template <class X, class Mean, class Variance, class Gain, class Bias, class Eps>
  using result = NormResult<X, Mean, Variance, Gain, Bias>;
  static constexpr Value emit(Value context, Value x, Value mean, Value variance, Value gain, Value bias, Value eps) {
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    const auto as_x = [&](Value v) { return build::cast(v, x.dtype()); };
    const Value scale = build::rsqrt(as_x(variance) + as_x(eps)) * as_x(gain);
    return build::cast((x - as_x(mean)) * scale + as_x(bias), type);
  }
};

template <int Rank> struct GroupNormTag {
  static constexpr const char* function = "group_norm";
  static constexpr auto leading_dims = ops::LeadingDims::batch;
  static constexpr int batched = 1;
  static_assert(Rank >= 2, "tessera: group_norm takes [batch, ..., features]");
  template <class X, class Gain, class Bias, class Groups, class Eps> using result = NormResult<X, Gain, Bias>;
  static constexpr Value emit(Value context, Value x, Value gain, Value bias, Value groups, Value eps) {
    if (x.rank() != Rank)
      fail(errc::unsupported,
           "[group_norm] field of all layers of a Stack: call group_norm inside the block of the Stack",
           context.source);
    const DType type = x.dtype(), computed = computed_as(type);
    x = x.at(context.source);
    check_features(x, gain, bias);
    const Value size = as_size(groups), part = Rank < 3 ? x : build::sample(x, 1);
    const auto grouped = [&](Value v) { return split_groups(build::cast(v, computed), Rank - 1, size); };
    const unsigned dims = ((1u << (Rank + 1)) - 1) & ~1u & ~(1u << (Rank - 1));
    const auto of_groups = [&](Value v) {
      v = build::cast(v, computed);
      return v.rank() == 0 ? v : split_groups(v, v.rank() - 1, size);
    };
    const Value made = build::normalized(grouped(x), grouped(part), dims, of_groups(gain), of_groups(bias), eps);
    return build::cast(merge_groups(made), type);
  }
};

}  // namespace detail

/// Batch norm of x [batch, ..., features] by the statistics of this batch: (x - mean) / sqrt(variance + eps) * gain +
/// bias, with the mean and the biased variance of each feature over all other dims. Both are sums of differences from
/// the mean of a part of x: as accurate as in two passes if the part has about the mean of x, and its error is never
/// more than 16 times as large (docs/decisions/0085); bf16 and f16 are computed in f32. Errors: shape_mismatch.
/// Communication: over a split batch, all-reduces of sums per feature, so that the statistics are those of the whole
/// batch (PyTorch's SyncBatchNorm); over a split dim 1 of images, also those of every sixteenth row that another
/// device counts. Source: Ioffe, Szegedy, 1502.03167.
template <TensorArgument X, TensorArgument Gain, TensorArgument Bias, NumberOperand Eps = double>
constexpr auto batch_norm(const X& x, const Gain& gain, const Bias& bias, const Eps& eps = 1e-5,
                          Here at = Here::current()) {
  return call<detail::FeatureNormTag<X::rank, detail::NormOver::batch>>(Source::from(at), x, gain, bias, eps);
}
/// Batch norm without gain and bias: affine=False of torch.nn.BatchNorm2d.
template <TensorArgument X, NumberOperand Eps = double>
constexpr auto batch_norm(const X& x, const Eps& eps = 1e-5, Here at = Here::current()) {
  using Norm = detail::FeatureNormTag<X::rank, detail::NormOver::batch>;
  return call<detail::PlainNormTag<Norm, 2>>(Source::from(at), x, eps);
}
/// The statistics of a batch that running statistics average. `mean` and `variance` are vectors of features.
template <class Mean, class Variance> struct BatchStatistics {
  Mean mean;
  Variance variance;
};
namespace detail {
template <NormOver Over, class X> constexpr auto statistics_of(const X& x, Here at) {
  const auto mean = call<FeatureMomentTag<X::rank, Over, Moment::mean>>(Source::from(at), x);
  const auto variance = call<FeatureMomentTag<X::rank, Over, Moment::unbiased_variance>>(Source::from(at), x);
  return BatchStatistics<std::remove_const_t<decltype(mean)>, std::remove_const_t<decltype(variance)>>{mean, variance};
}
}  // namespace detail
/// The mean and the variance of each feature of x [batch, ..., features] over all other dims: `const auto [mean,
/// variance] = ts::batch_norm_statistics(x)`. The variance is unbiased, over one element less than there are, as in
/// PyTorch's running variance, and 0 where there is one. For bf16 and f16 they are f32. Beside a batch_norm of the same
/// x in one program they share its sums and its communication.
template <TensorArgument X> constexpr auto batch_norm_statistics(const X& x, Here at = Here::current()) {
  return detail::statistics_of<detail::NormOver::batch>(x, at);
}
/// Batch norm by given statistics, vectors of features: what evaluation computes.
template <TensorArgument X, TensorArgument Mean, TensorArgument Variance, TensorArgument Gain, TensorArgument Bias,
          NumberOperand Eps = double>
constexpr auto batch_norm_inference(const X& x, const Mean& mean, const Variance& variance, const Gain& gain,
                                    const Bias& bias, const Eps& eps = 1e-5, Here at = Here::current()) {
  return call<detail::GivenNormTag<X::rank>>(Source::from(at), x, mean, variance, gain, bias, eps);
}
/// Instance norm: as batch_norm, with statistics of each image on its own. Source: Ulyanov et al., 1607.08022.
template <TensorArgument X, TensorArgument Gain, TensorArgument Bias, NumberOperand Eps = double>
constexpr auto instance_norm(const X& x, const Gain& gain, const Bias& bias, const Eps& eps = 1e-5,
                             Here at = Here::current()) {
  return call<detail::FeatureNormTag<X::rank, detail::NormOver::instance>>(Source::from(at), x, gain, bias, eps);
}
/// Instance norm without gain and bias, as torch.nn.InstanceNorm2d by default.
template <TensorArgument X, NumberOperand Eps = double>
constexpr auto instance_norm(const X& x, const Eps& eps = 1e-5, Here at = Here::current()) {
  using Norm = detail::FeatureNormTag<X::rank, detail::NormOver::instance>;
  return call<detail::PlainNormTag<Norm, 2>>(Source::from(at), x, eps);
}
/// What the running statistics of instance norm average: the mean and the unbiased variance of each feature of each
/// image of x [batch, ..., features], averaged over the images. Otherwise as batch_norm_statistics, beside an
/// instance_norm of the same x; over a split batch an all_reduce of two vectors of features.
template <TensorArgument X> constexpr auto instance_norm_statistics(const X& x, Here at = Here::current()) {
  return detail::statistics_of<detail::NormOver::instance>(x, at);
}
/// Group norm: statistics of each image over all dims and the features of one of `groups` groups. Errors:
/// shape_mismatch; not_divisible for groups that don't divide the features. Source: Wu, He, 1803.08494.
template <TensorArgument X, TensorArgument Gain, TensorArgument Bias, SizeOperand Groups, NumberOperand Eps = double>
constexpr auto group_norm(const X& x, const Gain& gain, const Bias& bias, const Groups& groups, const Eps& eps = 1e-5,
                          Here at = Here::current()) {
  return call<detail::GroupNormTag<X::rank>>(Source::from(at), x, gain, bias, Dim(groups), eps);
}
/// Group norm without gain and bias: affine=False of torch.nn.GroupNorm.
template <TensorArgument X, SizeOperand Groups, NumberOperand Eps = double>
constexpr auto group_norm(const X& x, const Groups& groups, const Eps& eps = 1e-5, Here at = Here::current()) {
  return call<detail::PlainNormTag<detail::GroupNormTag<X::rank>, 2>>(Source::from(at), x, Dim(groups), eps);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
