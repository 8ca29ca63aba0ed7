#ifndef TESSERA_OPS_SPATIAL_UNFOLD_HPP
#define TESSERA_OPS_SPATIAL_UNFOLD_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>

#include <tessera/ops/contraction/per_dim.hpp>
#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>

namespace tessera {

/// Windows of an image, as torch.nn.Unfold. One number is that of both dims, `{.window = 3}`.
struct Unfold {
  [[no_unique_address]] detail::GivenByName by_name = detail::GivenByName();
  PerDim<2> window{}, strides = 1, padding = 0, dilation = 1;
};

namespace detail {

// The sizes of both are window, strides, padding, dilation, each of height and width; fold has the image's extents too.

template <bool MergesWindows> struct UnfoldTag {
  static constexpr const char* function = MergesWindows ? "unfold" : "conv_general_dilated_patches";
  template <class X, class... Sizes> struct result : Typed<typename X::type, MergesWindows ? 3 : 4> {
    using Checks = decltype([] {
      static_assert(X::rank == 4,
                    "tessera: unfold and conv_general_dilated_patches take a tensor [batch, height, width, features]");
    });
  };
  static constexpr Value emit(Value context, Value x, auto... sizes) {
    const Value all[] = {as_size(sizes)...};
    x = x.at(context.source);
    build::PatchDim dims[2];
    for (int d = 0; d < 2; ++d) dims[d] = {all[d], all[2 + d], all[6 + d], all[4 + d], all[4 + d]};
    x = build::patches(x, x.shifted(1, 4), 2, dims);
    if constexpr (MergesWindows)
      return rearrange(x, 6, 3, RearrangeText("b h k w l c -> b (h w) (c k l)").factors, nullptr);
    else
      return rearrange(x, 6, 4, RearrangeText("b h k w l c -> b h w (c k l)").factors, nullptr);
  }
};

struct FoldTag {
  static constexpr const char* function = "fold";
  template <class X, class... Sizes> struct result : Typed<typename X::type, 4> {
    using Checks = decltype([] {
      static_assert(X::rank == 3 && is_floating_v<typename X::type>,
                    "tessera: fold takes a float, double, bf16 or f16 tensor [batch, windows, features and window]");
    });
  };
  static constexpr Value emit(Value context, Value x, auto... sizes) {
    const Value all[] = {as_size(sizes)...};
    const DType type = x.dtype();
    x = x.at(context.source);
    const Value one = x.integer(1, DType::i64);
    Value count[2];
    build::FoldDim dims[2];
    for (int d = 0; d < 2; ++d) {
      const Value padded = all[8 + d] + all[4 + d] + all[4 + d];
      count[d] = (padded - all[6 + d] * (all[d] - one) - one) / all[2 + d] + one;
      dims[d] = {all[2 + d], all[6 + d], all[4 + d], all[8 + d]};
    }
    constexpr RearrangeText text("b (h w) (c k l) -> b h k w l c");
    Value extents[max_rank]{};
    extents[text.find("h")] = count[0];
    extents[text.find("w")] = count[1];
    extents[text.find("k")] = all[0];
    extents[text.find("l")] = all[1];
    x = build::cast(rearrange(x, 3, 6, text.factors, extents), computed_as(type));
    return build::cast(build::fold_patches(x, x.shifted(1, 6), 2, dims), type);
  }
};

/// Windows of one dim, of which the elements are the last dim.
template <int Rank, int D> struct UnfoldDimTag {
  static constexpr const char* function = "unfold";
  static_assert(Rank < max_rank, "tessera: the windows of a dim are one dim more, of at most 8");
  template <class X, class Size, class Step> using result = Typed<typename X::type, Rank + 1>;
  static constexpr Value emit(Value context, Value x, Value size, Value step) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value zero = x.number(0, DType::i64), one = x.number(1, DType::i64);
    const build::PatchDim window{as_size(size), as_size(step), one, zero, zero};
    const Value made = build::patches(x, dim, 1, &window);
    return build::move_dim(made, dim + 1, made.rank() - 1);
  }
};

template <class Tag, TensorArgument X, class... Extents>
constexpr auto unfold(const X& x, const Unfold& o, Here at, const Extents&... extents) {
  return call<Tag>(Source::from(at), x, Dim(o.window[0]), Dim(o.window[1]), Dim(o.strides[0]), Dim(o.strides[1]),
                   Dim(o.padding[0]), Dim(o.padding[1]), Dim(o.dilation[0]), Dim(o.dilation[1]), Dim(extents)...);
}

}  // namespace detail

/// The windows of images, each as a row (F.unfold, im2col): x [batch, height, width, features] gives [batch, windows,
/// features * window], windows from left to right and then down; in a row the window's height and width come last, as
/// in PyTorch. Padding is zeros. Windows are a view of x, or overlap in memory, until their rows are merged. The
/// gradient is ts::fold. Errors: shape_mismatch for windows larger than the padded image. Communication: split height
/// stays split if the devices divide the number of windows down the image; they exchange the rows that windows of other
/// devices need. Otherwise, and for a split width, x is gathered, since the merged windows of a device are not in a
/// row: ts::conv_general_dilated_patches keeps both dims split.
template <TensorArgument X> constexpr auto unfold(const X& x, const Unfold& options, Here at = Here::current()) {
  return detail::unfold<detail::UnfoldTag<true>>(x, options, at);
}
/// With the options in the order of PyTorch: the window, dilation, padding and strides, `unfold(x, 3, 1, 1)`.
template <TensorArgument X>
constexpr auto unfold(const X& x, const PerDim<2>& window, const PerDim<2>& dilation = 1, const PerDim<2>& padding = 0,
                      const PerDim<2>& strides = 1, Here at = Here::current()) {
  return unfold(x, Unfold{.window = window, .strides = strides, .padding = padding, .dilation = dilation}, at);
}
/// The windows of images in their positions (lax.conv_general_dilated_patches): x [batch, height, width, features]
/// gives [batch, windows down, windows across, features * window], each row as in ts::unfold. Errors: as ts::unfold.
/// Communication: along a split height or width a halo, of the elements that windows of other devices need.
template <TensorArgument X>
constexpr auto conv_general_dilated_patches(const X& x, const Unfold& options, Here at = Here::current()) {
  return detail::unfold<detail::UnfoldTag<false>>(x, options, at);
}
/// The transpose of ts::unfold (F.fold, col2im): rows [batch, windows, features * window] are added into images [batch,
/// height, width, features] of the given extents. bf16 and f16 are added in f32. Errors: shape_mismatch where the
/// number of windows is another one. Communication: as unfold, in the opposite direction: rows near borders are sums of
/// those of two devices.
template <TensorArgument X>
constexpr auto fold(const X& x, const PerDim<2>& extents, const Unfold& options, Here at = Here::current()) {
  return detail::unfold<detail::FoldTag>(x, options, at, extents[0], extents[1]);
}

/// The windows of `size` elements of dim D, one every `step` elements (Tensor.unfold): a dim of n becomes (n - size) /
/// step + 1 windows, and the elements of a window are the last dim. If D is not split, the windows are a view. The
/// gradient adds the windows up. Errors: shape_mismatch for a window longer than the dim, and for a size or a step
/// below 1. Communication: along a split dim a halo, of the elements that windows of other devices need.
///
///     const auto frames = ts::unfold<-1>(signal, 512, 128);   // [batch, time]: [batch, frames, 512]
template <int D, TensorArgument X, SizeOperand Size, SizeOperand Step>
constexpr auto unfold(const X& x, const Size& size, const Step& step, Here at = Here::current()) {
  return call<detail::UnfoldDimTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(size),
                                                                                Dim(step));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
