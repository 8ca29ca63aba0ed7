#ifndef TESSERA_OPS_SPATIAL_UNFOLD_HPP
#define TESSERA_OPS_SPATIAL_UNFOLD_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>

#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>

namespace tessera {

/// Windows of an image, as torch.nn.Unfold.
struct Unfold {
  std::array<std::int64_t, 2> window{}, strides{1, 1}, padding{0, 0}, dilation{1, 1};
};

namespace detail {

// The sizes of both are window, strides, padding, dilation, each of height and width; fold has the image's extents too.

struct UnfoldTag {
  template <class X, class... Sizes> struct result : Typed<typename X::type, 3> {
    using Checks = decltype([] {
      static_assert(X::rank == 4, "tessera: unfold takes a tensor [batch, height, width, features]");
    });
  };
  static constexpr Value emit(Value context, Value x, auto... sizes) {
    const Value all[] = {as_size(sizes)...};
    x = x.at(context.source);
    const int first = x.shifted(1, 4);
    for (int d = 0; d < 2; ++d) {
      const Value ahead = all[4 + d], end = ahead + build::extent(x, first + d);
      if (!ahead.is_number(0)) x = build::pad_to(x, first + d, ahead, end + ahead);
    }
    for (int d = 1; d >= 0; --d) x = build::windows(x, first + d, all[d], all[2 + d], all[6 + d]);
    return rearrange(x, 6, 3, RearrangeText("b h k w l c -> b (h w) (c k l)").factors, nullptr);
  }
};

struct FoldTag {
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
    Value padded[2], count[2];
    for (int d = 0; d < 2; ++d) {
      padded[d] = all[8 + d] + all[4 + d] + all[4 + d];
      count[d] = (padded[d] - all[6 + d] * (all[d] - one) - one) / all[2 + d] + one;
    }
    constexpr RearrangeText text("b (h w) (c k l) -> b h k w l c");
    Value extents[max_rank]{};
    extents[text.find("h")] = count[0];
    extents[text.find("w")] = count[1];
    extents[text.find("k")] = all[0];
    extents[text.find("l")] = all[1];
    x = build::cast(rearrange(x, 3, 6, text.factors, extents), computed_as(type));
    const int first = x.shifted(1, 6);
    for (int d = 0; d < 2; ++d) {
      x = build::fold(x, first + d, all[2 + d], all[6 + d], padded[d], false);
      if (!all[4 + d].is_number(0)) x = build::slice(x, first + d, all[4 + d], all[8 + d]);
    }
    return build::cast(x, type);
  }
};

template <class Tag, TensorOperand X, class... Extents>
constexpr auto unfold(const X& x, const Unfold& o, Here at, const Extents&... extents) {
  return call<Tag>(Source::from(at), x, Dim(o.window[0]), Dim(o.window[1]), Dim(o.strides[0]), Dim(o.strides[1]),
                   Dim(o.padding[0]), Dim(o.padding[1]), Dim(o.dilation[0]), Dim(o.dilation[1]), Dim(extents)...);
}

}  // namespace detail

/// The windows of images, each as a row (F.unfold, im2col): x [batch, height, width, features] gives [batch, windows,
/// features * window], windows from left to right and then down; in a row the window's height and width come last, as
/// in PyTorch. Padding is zeros. Windows are a view of the padded x until their rows are merged. The gradient is
/// ts::fold. Errors: shape_mismatch for windows larger than the padded image. Communication: split height or width is
/// gathered.
template <TensorOperand X> constexpr auto unfold(const X& x, const Unfold& options, Here at = Here::current()) {
  return detail::unfold<detail::UnfoldTag>(x, options, at);
}
/// The transpose of ts::unfold (F.fold, col2im): rows [batch, windows, features * window] are added into images [batch,
/// height, width, features] of the given extents. bf16 and f16 are added in f32. Errors: shape_mismatch where the
/// number of windows is another one. Communication: split windows are gathered.
template <TensorOperand X>
constexpr auto fold(const X& x, const std::array<std::int64_t, 2>& extents, const Unfold& options,
                    Here at = Here::current()) {
  return detail::unfold<detail::FoldTag>(x, options, at, extents[0], extents[1]);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
