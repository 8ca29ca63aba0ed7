#ifndef TESSERA_OPS_CONTRACTION_CONVOLUTION_HPP
#define TESSERA_OPS_CONTRACTION_CONVOLUTION_HPP
#include <tessera/base/push_macros.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/contraction/per_dim.hpp>
#include <tessera/ops/contraction/product_operand.hpp>
#include <tessera/ops/data_movement/factors.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>

namespace tessera {

/// Options of a convolution over N spatial dims: the stride between windows, zero padding on both sides, the dilation
/// within a window, and the number of groups of features, each convolved on its own. One number is that of all spatial
/// dims, `{.strides = 2}`. `padding_after` is the padding
/// after the last element where it differs from `padding`, which is -1 otherwise. With `same` both follow from the
/// extent n: as many zeros as give ceil(n / stride) windows, of an odd number one more after the last element than
/// before the first ("SAME" of JAX and TensorFlow, padding='same' of PyTorch).
template <int N> struct Conv {
  [[no_unique_address]] detail::GivenByName by_name = detail::GivenByName();
  PerDim<N> strides = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
  PerDim<N> padding_after = -1;
  bool same = false;
};

/// Options of a transposed convolution, the transpose of a convolution with the same strides, padding, dilation and
/// groups. Several input extents of that convolution give the same number of windows: the result has the smallest of
/// these extents, plus `output_padding` at the end.
template <int N> struct ConvTranspose {
  [[no_unique_address]] detail::GivenByName by_name = detail::GivenByName();
  PerDim<N> strides = 1, padding = 0, output_padding = 0, dilation = 1;
  std::int64_t groups = 1;
};

namespace detail {

/// Splits a dim into [groups, features of a group]; `of_group`, where given, is the number of these features.
constexpr Value split_groups(Value x, int dim, Value groups, Value of_group = {}) {
  Factors f{};
  Value sizes[max_rank]{};
  for (int d = 0; d <= x.rank(); ++d) {
    f.in_dim[f.count] = static_cast<std::int8_t>(d > dim ? d - 1 : d);
    f.order[f.count] = f.out_dim[f.count] = f.count;
    ++f.count;
  }
  sizes[dim] = groups;
  if (of_group.module != nullptr) sizes[dim + 1] = of_group;
  return rearrange(x, x.rank(), x.rank() + 1, f, sizes, {.by = MadeBy::convolution});
}
/// Merges dim `dim` with the next dim.
constexpr Value merge_with_next(Value x, int dim) {
  Factors f{};
  for (int d = 0; d < x.rank(); ++d) {
    f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
    f.out_dim[d] = static_cast<std::int8_t>(d <= dim ? d : d - 1);
    ++f.count;
  }
  return rearrange(x, x.rank(), x.rank() - 1, f, nullptr);
}
/// Merges the last dim with the dim of groups before it.
constexpr Value merge_groups(Value x) { return merge_with_next(x, x.rank() - 2); }
/// The labels of a product.
constexpr EinsumLabels labels_of(std::initializer_list<int> a, std::initializer_list<int> b,
                                 std::initializer_list<int> out) {
  EinsumLabels labels{};
  for (int d = 0; d < max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
  const auto write = [](std::int8_t* to, std::initializer_list<int> from) {
    for (const int label : from) *to++ = static_cast<std::int8_t>(label);
  };
  write(labels.a, a), write(labels.b, b), write(labels.out, out);
  return labels;
}

/// In place of the padding of Conv::same.
inline constexpr std::int64_t padding_of_same = -(std::int64_t{1} << 40);

template <int N> struct ConvTag {
  static constexpr const char* function = N == 1 ? "conv1d" : N == 2 ? "conv2d" : "conv3d";
  static constexpr const char* name = N == 1 ? "conv1d" : N == 2 ? "conv2d" : "conv3d";
  static constexpr auto leading_dims = ops::LeadingDims::batch;
  static constexpr int batched = 1;
  static constexpr int grouped_dim = N == 3 ? 4 : -1;  // of weights that differ between devices: a loop has 9 dims
  template <class X, class W, class... Options> struct result : X {
    using Checks = decltype([] {
      static_assert(
          X::rank == N + 2 && W::rank == N + 2,
          "tessera: conv takes an input [batch, spatial..., in-features] and weights [spatial..., in-features per "
          "group, out-features]");
      static_assert(is_floating_v<typename X::type> && std::is_same_v<typename X::type, typename W::type>,
                    "tessera: the input and the weights of conv must have the same floating element type");
    });
  };
  template <class... Options> static constexpr Value emit(Value context, Value x, Value w, Options... options) {
    const Value all[] = {as_size(options)...};
    return build::cast(convolve(build::product_operand(x.at(context.source)), build::product_operand(w), all, all + N,
                                all + 2 * N, all + 3 * N, all[4 * N]),
                       x.dtype());
  }

 private:
  /// The windows of a dim.
  static constexpr build::PatchDim windows(Value extent, Value taps, Value stride, Value dilation, Value before,
                                           Value after) {
    const bool is_constant = before.node().is_constant();
    if (is_constant && !before.is_number(padding_of_same)) return {taps, stride, dilation, before, after};
    const Value zero = taps.number(0), one = taps.number(1);
    // Where only the plan knows the padding, strides that do not count may be as large as they like.
    const Value is_same = build::equal(before, taps.number(padding_of_same));
    const auto if_same = [&](Value size) { return is_constant ? size : build::select(is_same, size, one); };
    const Value apart = if_same(build::maximum(stride, one)), spread = if_same(dilation);
    const Value last = (extent + apart - one) / apart - one;
    const Value all = build::maximum(last * apart + spread * (taps - one) + one - extent, zero);
    const Value first = all / taps.number(2);
    if (is_constant) return {taps, stride, dilation, first, all - first};
    return {taps, stride, dilation, build::select(is_same, first, before), build::select(is_same, all - first, after)};
  }
  static constexpr Value convolve(Value x, Value w, const Value* strides, const Value* padding, const Value* dilation,
                                  const Value* padding_after, Value groups) {
    if (x.rank() != N + 2 || w.rank() != N + 2)
      fail(errc::unsupported, "[conv] field of all layers of a Stack: call conv inside the block of the Stack",
           x.source);
    const DType type = x.dtype();
    build::PatchDim dims[N];
    for (int d = 0; d < N; ++d)
      dims[d] =
          windows(build::extent(x, 1 + d), build::extent(w, d), strides[d], dilation[d], padding[d], padding_after[d]);
    const bool grouped = !groups.is_number(1);
    if constexpr (N == 3)
      if (grouped) return volumes(x, w, dims, groups);
    x = build::patches(x, 1, N, dims);
    // Labels: batch 0, windows 1..., elements of a window 4..., in-features 7, out-features 8, groups 9.
    if (grouped) {
      x = split_groups(x, x.rank() - 1, groups);
      w = split_groups(w, w.rank() - 1, groups);
    }
    EinsumLabels labels{};
    for (int d = 0; d < max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    int a = 0, b = 0, out = 0;
    labels.a[a++] = labels.out[out++] = 0;
    for (int d = 0; d < N; ++d) {
      labels.a[a++] = labels.out[out++] = static_cast<std::int8_t>(1 + d);
      labels.a[a++] = labels.b[b++] = static_cast<std::int8_t>(4 + d);
    }
    if (grouped) labels.a[a++] = labels.out[out++] = 9;
    labels.a[a++] = labels.b[b++] = 7;
    if (grouped) labels.b[b++] = 9;
    labels.b[b++] = labels.out[out++] = 8;
    Value y = build::cast(build::einsum(x, w, labels), type);
    return grouped ? merge_groups(y) : y;
  }
  /// Groups of volumes: their windows would have 9 dims, and a tensor has at most 8. So windows of the depth are made
  /// first, where they count as a batch, [batch * depth, taps of the depth, height, width, in].
  static constexpr Value volumes(Value x, Value w, const build::PatchDim* dims, Value groups) {
    const DType type = x.dtype();
    x = build::patches(x, 1, 1, dims);
    const Value batch = build::extent(x, 0), depth = build::extent(x, 1);
    x = split_groups(build::patches(merge_with_next(x, 0), 2, 2, dims + 1), 6, groups);
    w = split_groups(w, 4, groups);
    const Value y = build::einsum(x, w, labels_of({0, 4, 2, 5, 3, 6, 9, 7}, {4, 5, 6, 7, 9, 8}, {0, 2, 3, 9, 8}));
    return split_groups(merge_groups(build::cast(y, type)), 0, batch, depth);
  }
};

template <int N, class X, class W> constexpr auto conv(const X& x, const W& w, const Conv<N>& options, Here at) {
  return [&]<std::size_t... D>(std::index_sequence<D...>) {
    const auto before = [&](std::size_t d) { return options.same ? padding_of_same : options.padding[d]; };
    const auto after = [&](std::size_t d) {
      return options.same || options.padding_after[d] < 0 ? before(d) : options.padding_after[d];
    };
    return call<ConvTag<N>>(Source::from(at), x, w, Dim(options.strides[D])..., Dim(before(D))...,
                            Dim(options.dilation[D])..., Dim(after(D))..., Dim(options.groups));
  }(std::make_index_sequence<N>());
}

template <int N> struct ConvTransposeTag {
  static constexpr const char* function = N == 1   ? "conv_transpose1d"
                                          : N == 2 ? "conv_transpose2d"
                                                   : "conv_transpose3d";
  static constexpr const char* name = N == 1 ? "conv_transpose1d" : N == 2 ? "conv_transpose2d" : "conv_transpose3d";
  static constexpr auto leading_dims = ops::LeadingDims::batch;
  static constexpr int batched = 1;
  static constexpr int grouped_dim = N == 3 ? 3 : -1;
  template <class X, class W, class... Options> struct result : X {
    using Checks = decltype([] {
      static_assert(X::rank == N + 2 && W::rank == N + 2,
                    "tessera: conv_transpose takes an input [batch, spatial..., in-features] and weights [spatial..., "
                    "in-features, out-features per group]");
      static_assert(is_floating_v<typename X::type> && std::is_same_v<typename X::type, typename W::type>,
                    "tessera: the input and the weights of conv_transpose must have the same floating element type");
    });
  };
  template <class... Options> static constexpr Value emit(Value context, Value x, Value w, Options... options) {
    const Value all[] = {as_size(options)...};
    return build::cast(convolve(build::product_operand(x.at(context.source)), build::product_operand(w), all, all + N,
                                all + 2 * N, all + 3 * N, all[4 * N]),
                       x.dtype());
  }

 private:
  static constexpr Value convolve(Value x, Value w, const Value* strides, const Value* padding,
                                  const Value* output_padding, const Value* dilation, Value groups) {
    if (x.rank() != N + 2 || w.rank() != N + 2)
      fail(errc::unsupported,
           "[conv_transpose] field of all layers of a Stack: call conv_transpose inside the block of the Stack",
           x.source);
    build::same_extents(x, N + 1, w, N, 1, build::ExtentsOf::transposed);
    const DType type = x.dtype();
    build::FoldDim dims[N];
    for (int d = 0; d < N; ++d) {
      const Value taps = build::extent(w, d);
      const bool is_singleton =
          x.is_singleton(1 + d) && taps.is_number(1) && padding[d].is_number(0) && output_padding[d].is_number(0);
      const Value whole = (build::extent(x, 1 + d) - 1) * strides[d] + dilation[d] * (taps - 1) + 1;
      const Value extent = whole + output_padding[d] - padding[d] - padding[d];
      dims[d] = {strides[d], dilation[d], padding[d], extent, is_singleton};
    }
    const bool grouped = !groups.is_number(1);
    if constexpr (N == 3)
      if (grouped) return build::cast(volumes(x, w, dims, groups), type);
    // Labels: batch 0, windows 1..., elements of a window 4..., in-features 7, out-features 8, groups 9.
    if (grouped) {
      x = split_groups(x, x.rank() - 1, groups);
      w = split_groups(w, w.rank() - 2, groups);
    }
    EinsumLabels labels{};
    for (int d = 0; d < max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    int a = 0, b = 0, out = 0;
    labels.a[a++] = labels.out[out++] = 0;
    for (int d = 0; d < N; ++d) {
      labels.a[a++] = labels.out[out++] = static_cast<std::int8_t>(1 + d);
      labels.b[b++] = labels.out[out++] = static_cast<std::int8_t>(4 + d);
    }
    if (grouped) labels.a[a++] = labels.b[b++] = labels.out[out++] = 9;
    labels.a[a++] = labels.b[b++] = 7;
    labels.b[b++] = labels.out[out++] = 8;
    Value y = build::einsum(x, w, labels);
    if (grouped) y = merge_groups(y);
    return build::cast(build::fold_patches(y, 1, N, dims), type);
  }
  /// Groups of volumes: the windows of height and width are added up with the depth as a part of the batch, then those
  /// of the depth.
  static constexpr Value volumes(Value x, Value w, const build::FoldDim* dims, Value groups) {
    const Value batch = build::extent(x, 0), depth = build::extent(x, 1);
    x = split_groups(merge_with_next(x, 0), 3, groups);
    w = split_groups(w, 3, groups);
    const Value windows = build::einsum(x, w, labels_of({0, 2, 3, 9, 7}, {4, 5, 6, 9, 7, 8}, {0, 4, 2, 5, 3, 6, 9, 8}));
    const Value images = build::fold_patches(merge_groups(windows), 2, 2, dims + 1);
    return build::fold_patches(split_groups(images, 0, batch, depth), 1, 1, dims);
  }
};

}  // namespace detail

/// Convolution (cross-correlation, as in PyTorch and JAX): x [batch, width, in] and w [taps, in / groups, out] give
/// [batch, windows, out]; conv2d: x [batch, height, width, in] and w [.., .., in / groups, out], as in `conv2d(x, w,
/// {.strides = {2, 2}, .padding = {1, 1}})`. A spatial dim of extent n has (n + 2 padding - dilation (taps - 1) - 1) /
/// strides + 1 windows.
///
/// Windows overlap in memory, so no im2col buffer exists, except in the gradient of x. bf16 and f16 as
/// in einsum. Errors: shape_mismatch for windows larger than the padded dim and for in-features that don't match;
/// not_divisible for groups that don't divide the features. Communication: none for split batch, out-features and
/// groups; over split in-features the result is partial. Along split spatial dims devices exchange the rows that
/// windows of other devices need, for 3 x 3 windows one row with each neighbour; the gradient of w is then partial.
template <TensorArgument X, TensorArgument W>
constexpr auto conv1d(const X& x, const W& w, const Conv<1>& options = {}, Here at = Here::current()) {
  return detail::conv<1>(x, w, options, at);
}
template <TensorArgument X, TensorArgument W>
constexpr auto conv2d(const X& x, const W& w, const Conv<2>& options = {}, Here at = Here::current()) {
  return detail::conv<2>(x, w, options, at);
}
/// x [batch, depth, height, width, in] and w [.., .., .., in / groups, out]; not for the layers of a Stack. With groups
/// the windows of the depth are copied: x as often as the window is deep.
template <TensorArgument X, TensorArgument W>
constexpr auto conv3d(const X& x, const W& w, const Conv<3>& options = {}, Here at = Here::current()) {
  return detail::conv<3>(x, w, options, at);
}

/// Transposed convolution: x [batch, width, in] and w [taps, in, out / groups] give [batch, (width - 1) strides +
/// dilation (taps - 1) + 1 - 2 padding + output_padding, out]; conv_transpose2d(x, w, {.strides = {2, 2}}) likewise.
/// Each element of x adds w, multiplied by it, to one window of the result. This is the gradient of a convolution with
/// respect to its operand. The weights are PyTorch's with the spatial dims first.
///
/// The windows are in memory before they are added up; for bf16 and f16 they are f32, and their sum is rounded once.
/// Errors: shape_mismatch for in-features that don't match, for a stride or dilation below one, and for padding that
/// leaves no result; not_divisible for groups that don't divide the features. Communication: as conv1d.
template <TensorArgument X, TensorArgument W>
constexpr auto conv_transpose1d(const X& x, const W& w, const ConvTranspose<1>& options = {},
                                Here at = Here::current()) {
  return call<detail::ConvTransposeTag<1>>(Source::from(at), x, w, Dim(options.strides[0]), Dim(options.padding[0]),
                                           Dim(options.output_padding[0]), Dim(options.dilation[0]),
                                           Dim(options.groups));
}
template <TensorArgument X, TensorArgument W>
constexpr auto conv_transpose2d(const X& x, const W& w, const ConvTranspose<2>& options = {},
                                Here at = Here::current()) {
  return call<detail::ConvTransposeTag<2>>(Source::from(at), x, w, Dim(options.strides[0]), Dim(options.strides[1]),
                                           Dim(options.padding[0]), Dim(options.padding[1]),
                                           Dim(options.output_padding[0]), Dim(options.output_padding[1]),
                                           Dim(options.dilation[0]), Dim(options.dilation[1]), Dim(options.groups));
}
/// x [batch, depth, height, width, in] and w [.., .., .., in, out / groups]; not for the layers of a Stack.
template <TensorArgument X, TensorArgument W>
constexpr auto conv_transpose3d(const X& x, const W& w, const ConvTranspose<3>& options = {},
                                Here at = Here::current()) {
  const auto& [by_name, strides, padding, output_padding, dilation, groups] = options;
  return call<detail::ConvTransposeTag<3>>(Source::from(at), x, w, Dim(strides[0]), Dim(strides[1]), Dim(strides[2]),
                                           Dim(padding[0]), Dim(padding[1]), Dim(padding[2]), Dim(output_padding[0]),
                                           Dim(output_padding[1]), Dim(output_padding[2]), Dim(dilation[0]),
                                           Dim(dilation[1]), Dim(dilation[2]), Dim(groups));
}

namespace detail {
template <class Y, class Bias> constexpr auto with_bias(const char* function, const Y& y, const Bias& bias, Here at) {
  static_assert(Bias::rank == 1, "tessera: the bias of a convolution is a vector of its out-features");
  const FunctionCall named(function, y, bias);
  return call<AddTag>(Source::from(at), y, bias);
}
template <class I> constexpr auto refuse_unnamed_options() {
  static_assert(
      std::is_void_v<I>,
      "tessera: the options of a convolution have names: ts::conv2d(x, w, {.strides = 2, .padding = 1}), also "
      "after a bias: ts::conv2d(x, w, bias, {.strides = {2, 1}})");
  return true;
}
/// As of operators.hpp, the assertion is where compilers look when it is used.
struct UnnamedOptions {
  template <std::integral I, std::integral... More>
  constexpr UnnamedOptions(I, More...) noexcept(refuse_unnamed_options<I>()) {}
};
}  // namespace detail

/// Convolutions with a bias, a vector of the out-features, as F.conv2d: `conv2d(x, w, bias, {.strides = 2})`.
template <TensorArgument X, TensorArgument W, TensorOperand Bias>
constexpr auto conv1d(const X& x, const W& w, const Bias& bias, const Conv<1>& options = {},
                      Here at = Here::current()) {
  return detail::with_bias("conv1d", conv1d(x, w, options, at), bias, at);
}
template <TensorArgument X, TensorArgument W, TensorOperand Bias>
constexpr auto conv2d(const X& x, const W& w, const Bias& bias, const Conv<2>& options = {},
                      Here at = Here::current()) {
  return detail::with_bias("conv2d", conv2d(x, w, options, at), bias, at);
}
template <TensorArgument X, TensorArgument W, TensorOperand Bias>
constexpr auto conv3d(const X& x, const W& w, const Bias& bias, const Conv<3>& options = {},
                      Here at = Here::current()) {
  return detail::with_bias("conv3d", conv3d(x, w, options, at), bias, at);
}
template <TensorArgument X, TensorArgument W, TensorOperand Bias>
constexpr auto conv_transpose1d(const X& x, const W& w, const Bias& bias, const ConvTranspose<1>& options = {},
                                Here at = Here::current()) {
  return detail::with_bias("conv_transpose1d", conv_transpose1d(x, w, options, at), bias, at);
}
template <TensorArgument X, TensorArgument W, TensorOperand Bias>
constexpr auto conv_transpose2d(const X& x, const W& w, const Bias& bias, const ConvTranspose<2>& options = {},
                                Here at = Here::current()) {
  return detail::with_bias("conv_transpose2d", conv_transpose2d(x, w, options, at), bias, at);
}
template <TensorArgument X, TensorArgument W, TensorOperand Bias>
constexpr auto conv_transpose3d(const X& x, const W& w, const Bias& bias, const ConvTranspose<3>& options = {},
                                Here at = Here::current()) {
  return detail::with_bias("conv_transpose3d", conv_transpose3d(x, w, options, at), bias, at);
}
/// With options that have no names they do not compile.
template <TensorArgument X, TensorArgument W> constexpr X conv1d(const X& x, const W&, detail::UnnamedOptions) {
  return x;
}
template <TensorArgument X, TensorArgument W> constexpr X conv2d(const X& x, const W&, detail::UnnamedOptions) {
  return x;
}
template <TensorArgument X, TensorArgument W> constexpr X conv3d(const X& x, const W&, detail::UnnamedOptions) {
  return x;
}
template <TensorArgument X, TensorArgument W>
constexpr X conv_transpose1d(const X& x, const W&, detail::UnnamedOptions) {
  return x;
}
template <TensorArgument X, TensorArgument W>
constexpr X conv_transpose2d(const X& x, const W&, detail::UnnamedOptions) {
  return x;
}
template <TensorArgument X, TensorArgument W>
constexpr X conv_transpose3d(const X& x, const W&, detail::UnnamedOptions) {
  return x;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
