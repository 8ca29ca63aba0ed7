#ifndef TESSERA_NN_CONV_HPP
#define TESSERA_NN_CONV_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <tessera/base/dtype.hpp>
#include <tessera/base/error.hpp>
#include <tessera/base/here.hpp>
#include <tessera/base/source.hpp>
#include <tessera/graph/trace/sharded_tensor.hpp>
#include <tessera/mesh/partition_spec.hpp>
#include <tessera/nn/init.hpp>
#include <tessera/nn/mixed.hpp>
#include <tessera/nn/sharding_strategy.hpp>
#include <tessera/ops/contraction/convolution.hpp>
#include <tessera/tensor/random.hpp>

namespace tessera::nn {

namespace detail {

template <int N> constexpr int spatial_dims(const Conv<N>&) { return N; }
template <int N> constexpr int spatial_dims(const ConvTranspose<N>&) { return N; }

template <class X, class W> constexpr auto convolve(const X& x, const W& w, const Conv<1>& options, Here at) {
  return tessera::conv1d(x, w, options, at);
}
template <class X, class W> constexpr auto convolve(const X& x, const W& w, const Conv<2>& options, Here at) {
  return tessera::conv2d(x, w, options, at);
}
template <class X, class W> constexpr auto convolve(const X& x, const W& w, const Conv<3>& options, Here at) {
  return tessera::conv3d(x, w, options, at);
}
template <class X, class W> constexpr auto convolve(const X& x, const W& w, const ConvTranspose<1>& options, Here at) {
  return tessera::conv_transpose1d(x, w, options, at);
}
template <class X, class W> constexpr auto convolve(const X& x, const W& w, const ConvTranspose<2>& options, Here at) {
  return tessera::conv_transpose2d(x, w, options, at);
}
template <class X, class W> constexpr auto convolve(const X& x, const W& w, const ConvTranspose<3>& options, Here at) {
  return tessera::conv_transpose3d(x, w, options, at);
}

}  // namespace detail

/// A convolution of x [batch, spatial..., in] plus a bias [out], with the options of ts::conv1d, ts::conv2d, ts::conv3d
/// and their transposes, as torch.nn.Conv2d:
///
///     constexpr ts::Conv<2> halved{.strides = {2, 2}, .padding = {1, 1}};
///     ts::nn::Conv2d<halved> conv = ts::nn::conv2d<halved>(key, 16, 32, {3, 3}, strategy);
///     const auto y = conv(x);                  // [batch, height, width, 16] to [batch, height / 2, width / 2, 32]
/// The weight is [taps..., in / groups, out], for a transposed convolution [taps..., in, out / groups]. The options are
/// part of the type, so a convolution without padding or groups has no code for them. For an x of bf16 or f16 the
/// weight is rounded to the type of x, the bias is added in f32, and the result is rounded before and after the
/// addition. Errors and communication: as conv2d and conv_transpose2d.
template <auto Options, Element T = float, bool Bias = true> struct Convolution {
  ShardedTensor<T, detail::spatial_dims(Options) + 2> weight;
  ShardedTensor<T, 1> bias;

  static constexpr std::array field_names{"weight", "bias"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    const auto y = Convolution<Options, T, false>{weight}(x, at);
    if constexpr (!TensorOperand<X>)
      return y;
    else if constexpr (detail::is_mixed_v<X, T>)
      return cast<typename X::element>(call<AddTag>(Source::from(at), cast<float>(y, at), bias), at);
    else
      return call<AddTag>(Source::from(at), y, bias);
  }
};

template <auto Options, Element T> struct Convolution<Options, T, false> {
  ShardedTensor<T, detail::spatial_dims(Options) + 2> weight;

  static constexpr std::array field_names{"weight"};
  template <class X> constexpr auto operator()(const X& x, Here at = Here::current()) const {
    constexpr bool is_tensor = TensorOperand<X>;
    static_assert(is_tensor, "tessera: a convolution takes a tensor; call a layer that is given to it: conv(norm(x))");
    if constexpr (is_tensor)
      return detail::convolve(x, detail::as_met_by<X>(weight, at), Options, at);
    else
      return weight;
  }
};

template <Conv<1> Options = Conv<1>{}, Element T = float, bool Bias = true>
using Conv1d = Convolution<Options, T, Bias>;
template <Conv<2> Options = Conv<2>{}, Element T = float, bool Bias = true>
using Conv2d = Convolution<Options, T, Bias>;
template <Conv<3> Options = Conv<3>{}, Element T = float, bool Bias = true>
using Conv3d = Convolution<Options, T, Bias>;
template <ConvTranspose<1> Options = ConvTranspose<1>{}, Element T = float, bool Bias = true>
using ConvTranspose1d = Convolution<Options, T, Bias>;
template <ConvTranspose<2> Options = ConvTranspose<2>{}, Element T = float, bool Bias = true>
using ConvTranspose2d = Convolution<Options, T, Bias>;
template <ConvTranspose<3> Options = ConvTranspose<3>{}, Element T = float, bool Bias = true>
using ConvTranspose3d = Convolution<Options, T, Bias>;

namespace detail {

/// The spec of a matrix [in, out], for weights [taps..., in, out].
constexpr PartitionSpec behind_taps(const PartitionSpec& matrix, int taps) {
  PartitionSpec spec;
  if (matrix.entries.empty()) return spec;
  for (int d = 0; d < taps; ++d) spec.entries.push_back(SpecEntry());
  for (const SpecEntry& entry : matrix.entries) spec.entries.push_back(entry);
  return spec;
}

inline void check_groups(const char* op, Extent features, std::int64_t groups, Here at) {
  if (groups < 1 || features.value % groups != 0)
    fail(errc::not_divisible, "[", op, "] groups: ", features.value, " features are not divisible by ", groups,
         " groups", Source::from(at));
}

/// Weights and bias uniform within 1 / sqrt(fan), torch.nn.Conv2d's kaiming_uniform_ with a = sqrt(5).
template <class Layer, Element T, bool Bias, std::size_t Rank>
Layer convolution(Key key, const Extent (&shape)[Rank], Extent out, init::FanMode mode,
                  const ShardingStrategy& strategy, Role role, Here at) {
  const auto bound = static_cast<computed_t<T>>(1 / std::sqrt(init::detail::fan(shape, mode)));
  const auto [of_weight, of_bias] = split<2>(key);
  auto weight = uniform<T>(of_weight, shape, strategy.mesh,
                           behind_taps(strategy.weight(role), static_cast<int>(Rank) - 2), -bound, bound, at);
  if constexpr (Bias)
    return {weight, uniform<T>(of_bias, {out}, strategy.mesh, strategy.bias(role), -bound, bound, at)};
  else
    return {weight};
}

}  // namespace detail

/// Convolutions with PyTorch's initial values: weights and bias uniform within 1 / sqrt(fan), where fan is the number
/// of taps times in / groups, or, for a transposed convolution, out / groups. The dims `in` and `out` of a weight are
/// sharded like those of a Linear. A window is {3, 3}, or 3 for all spatial dims. Errors: `not_divisible` unless the
/// groups divide both numbers of features.
template <Conv<1> Options = Conv<1>{}, Element T = float, bool Bias = true>
Conv1d<Options, T, Bias> conv1d(Key key, Extent in, Extent out, Extent taps, const ShardingStrategy& strategy,
                                Role role = Role::column, Here at = Here::current()) {
  for (const Extent features : {in, out}) detail::check_groups("conv1d", features, Options.groups, at);
  const Extent shape[] = {taps, in.value / Options.groups, out};
  return detail::convolution<Conv1d<Options, T, Bias>, T, Bias>(key, shape, out, init::FanMode::fan_in, strategy, role,
                                                                at);
}
template <Conv<2> Options = Conv<2>{}, Element T = float, bool Bias = true>
Conv2d<Options, T, Bias> conv2d(Key key, Extent in, Extent out, const Extent (&window)[2],
                                const ShardingStrategy& strategy, Role role = Role::column, Here at = Here::current()) {
  for (const Extent features : {in, out}) detail::check_groups("conv2d", features, Options.groups, at);
  const Extent shape[] = {window[0], window[1], in.value / Options.groups, out};
  return detail::convolution<Conv2d<Options, T, Bias>, T, Bias>(key, shape, out, init::FanMode::fan_in, strategy, role,
                                                                at);
}
template <Conv<2> Options = Conv<2>{}, Element T = float, bool Bias = true>
Conv2d<Options, T, Bias> conv2d(Key key, Extent in, Extent out, Extent window, const ShardingStrategy& strategy,
                                Role role = Role::column, Here at = Here::current()) {
  return conv2d<Options, T, Bias>(key, in, out, {window, window}, strategy, role, at);
}
template <Conv<3> Options = Conv<3>{}, Element T = float, bool Bias = true>
Conv3d<Options, T, Bias> conv3d(Key key, Extent in, Extent out, const Extent (&window)[3],
                                const ShardingStrategy& strategy, Role role = Role::column, Here at = Here::current()) {
  for (const Extent features : {in, out}) detail::check_groups("conv3d", features, Options.groups, at);
  const Extent shape[] = {window[0], window[1], window[2], in.value / Options.groups, out};
  return detail::convolution<Conv3d<Options, T, Bias>, T, Bias>(key, shape, out, init::FanMode::fan_in, strategy, role,
                                                                at);
}
template <Conv<3> Options = Conv<3>{}, Element T = float, bool Bias = true>
Conv3d<Options, T, Bias> conv3d(Key key, Extent in, Extent out, Extent window, const ShardingStrategy& strategy,
                                Role role = Role::column, Here at = Here::current()) {
  return conv3d<Options, T, Bias>(key, in, out, {window, window, window}, strategy, role, at);
}
template <ConvTranspose<1> Options = ConvTranspose<1>{}, Element T = float, bool Bias = true>
ConvTranspose1d<Options, T, Bias> conv_transpose1d(Key key, Extent in, Extent out, Extent taps,
                                                   const ShardingStrategy& strategy, Role role = Role::column,
                                                   Here at = Here::current()) {
  for (const Extent features : {in, out}) detail::check_groups("conv_transpose1d", features, Options.groups, at);
  const Extent shape[] = {taps, in, out.value / Options.groups};
  return detail::convolution<ConvTranspose1d<Options, T, Bias>, T, Bias>(key, shape, out, init::FanMode::fan_out,
                                                                         strategy, role, at);
}
template <ConvTranspose<2> Options = ConvTranspose<2>{}, Element T = float, bool Bias = true>
ConvTranspose2d<Options, T, Bias> conv_transpose2d(Key key, Extent in, Extent out, const Extent (&window)[2],
                                                   const ShardingStrategy& strategy, Role role = Role::column,
                                                   Here at = Here::current()) {
  for (const Extent features : {in, out}) detail::check_groups("conv_transpose2d", features, Options.groups, at);
  const Extent shape[] = {window[0], window[1], in, out.value / Options.groups};
  return detail::convolution<ConvTranspose2d<Options, T, Bias>, T, Bias>(key, shape, out, init::FanMode::fan_out,
                                                                         strategy, role, at);
}
template <ConvTranspose<2> Options = ConvTranspose<2>{}, Element T = float, bool Bias = true>
ConvTranspose2d<Options, T, Bias> conv_transpose2d(Key key, Extent in, Extent out, Extent window,
                                                   const ShardingStrategy& strategy, Role role = Role::column,
                                                   Here at = Here::current()) {
  return conv_transpose2d<Options, T, Bias>(key, in, out, {window, window}, strategy, role, at);
}
template <ConvTranspose<3> Options = ConvTranspose<3>{}, Element T = float, bool Bias = true>
ConvTranspose3d<Options, T, Bias> conv_transpose3d(Key key, Extent in, Extent out, const Extent (&window)[3],
                                                   const ShardingStrategy& strategy, Role role = Role::column,
                                                   Here at = Here::current()) {
  for (const Extent features : {in, out}) detail::check_groups("conv_transpose3d", features, Options.groups, at);
  const Extent shape[] = {window[0], window[1], window[2], in, out.value / Options.groups};
  return detail::convolution<ConvTranspose3d<Options, T, Bias>, T, Bias>(key, shape, out, init::FanMode::fan_out,
                                                                         strategy, role, at);
}
template <ConvTranspose<3> Options = ConvTranspose<3>{}, Element T = float, bool Bias = true>
ConvTranspose3d<Options, T, Bias> conv_transpose3d(Key key, Extent in, Extent out, Extent window,
                                                   const ShardingStrategy& strategy, Role role = Role::column,
                                                   Here at = Here::current()) {
  return conv_transpose3d<Options, T, Bias>(key, in, out, {window, window, window}, strategy, role, at);
}

}  // namespace tessera::nn

#include <tessera/base/pop_macros.hpp>

#endif
