#ifndef TESSERA_OPS_CONTRACTION_CONVOLUTION_HPP
#define TESSERA_OPS_CONTRACTION_CONVOLUTION_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>

#include <tessera/base/shape.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/layout/rearrange.hpp>
#include <tessera/ops/layout/shape.hpp>

namespace tessera {

namespace detail {
template <int N> constexpr std::array<std::int64_t, N> all_of(std::int64_t number) {
  std::array<std::int64_t, N> made{};
  for (auto& own : made) own = number;
  return made;
}
}  // namespace detail

/// How windows go over N spatial dims: the step from one to the next, zeros on both sides of the operand, the step from
/// one element of a window to the next. Features fall into `groups`, which don't meet.
template <int N> struct Conv {
  std::array<std::int64_t, N> strides = detail::all_of<N>(1), padding{}, dilation = detail::all_of<N>(1);
  std::int64_t groups = 1;
};

namespace detail {

template <int N> struct ConvTag {
  template <class X, class W, class... Options> struct result : X {
    using Said = decltype([] {
      static_assert(
          X::rank == N + 2 && W::rank == N + 2,
          "tessera: a convolution takes [batch, spatial..., in-features] and weights [spatial..., in-features of "
          "a group, out-features]");
      static_assert(is_floating_v<typename X::type> && std::is_same_v<typename X::type, typename W::type>,
                    "tessera: operand and weights of a convolution have one floating element type");
    });
  };
  template <class... Options> static constexpr Value emit(Value context, Value x, Value w, Options... options) {
    const Value all[] = {as_size(options)...};
    return convolve(x.at(context.source), w, all, all + N, all + 2 * N, all[3 * N]);
  }

 private:
  static constexpr Value convolve(Value x, Value w, const Value* strides, const Value* padding, const Value* dilation,
                                  Value groups) {
    if (x.rank() != N + 2 || w.rank() != N + 2)
      fail(errc::unsupported, "[conv] dims: layers of a Stack and devices of a shard_map: call it on one of them");
    const DType type = x.dtype();
    for (int d = 0; d < N; ++d)
      if (!padding[d].is_number(0))
        x = build::pad_to(x, 1 + d, padding[d], padding[d] + build::extent(x, 1 + d) + padding[d]);
    for (int d = N - 1; d >= 0; --d) x = build::windows(x, 1 + d, build::extent(w, d), strides[d], dilation[d]);
    // Labels: batch 0, windows 1..., elements of a window 4..., in-features 7, out-features 8, groups 9.
    const bool grouped = !groups.is_number(1);
    if (grouped) {
      x = split(x, x.rank() - 1, groups);
      w = split(w, w.rank() - 1, groups);
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
    Value y = rounded_product<void>(build::einsum(x, w, labels), type);
    return grouped ? merge_last(y) : y;
  }
  /// A dim as [groups, rest].
  static constexpr Value split(Value x, int dim, Value groups) {
    Factors f{};
    Value sizes[max_rank]{};
    for (int d = 0; d <= x.rank(); ++d) {
      f.in_dim[f.count] = static_cast<std::int8_t>(d > dim ? d - 1 : d);
      f.order[f.count] = f.out_dim[f.count] = f.count;
      ++f.count;
    }
    sizes[dim] = groups;
    return rearrange(x, x.rank(), x.rank() + 1, f, sizes);
  }
  static constexpr Value merge_last(Value x) {
    Factors f{};
    for (int d = 0; d < x.rank(); ++d) {
      f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
      f.out_dim[d] = static_cast<std::int8_t>(d < x.rank() - 1 ? d : d - 1);
      ++f.count;
    }
    return rearrange(x, x.rank(), x.rank() - 1, f, nullptr);
  }
};

}  // namespace detail

/// Convolutions (cross-correlations, as in the field): x [batch, width, in], w [taps, in / groups, out] give [batch,
/// windows, out], and with two spatial dims x [batch, height, width, in], w [.., .., in / groups, out]: `conv2d(x, w,
/// {.strides = {2, 2}, .padding = {1, 1}})`. Along a spatial dim there are (n + 2 padding - dilation (taps - 1) - 1) /
/// strides + 1 windows.
///
/// Windows are a view of the padded operand that the product packs from: nothing of their size is in memory but in the
/// gradient of x. bf16 as einsum. Errors: shape_mismatch for windows longer than the dim, features that differ, or
/// groups that don't divide. Communication: batch, out-features and groups may be split; over split in-features the
/// result is a partial value; a split spatial dim is gathered.
template <TensorOperand X, TensorOperand W>
constexpr auto conv1d(const X& x, const W& w, const Conv<1>& options = {}, Here at = Here::current()) {
  return call<detail::ConvTag<1>>(Source::from(at), x, w, Dim(options.strides[0]), Dim(options.padding[0]),
                                  Dim(options.dilation[0]), Dim(options.groups));
}
template <TensorOperand X, TensorOperand W>
constexpr auto conv2d(const X& x, const W& w, const Conv<2>& options = {}, Here at = Here::current()) {
  return call<detail::ConvTag<2>>(Source::from(at), x, w, Dim(options.strides[0]), Dim(options.strides[1]),
                                  Dim(options.padding[0]), Dim(options.padding[1]), Dim(options.dilation[0]),
                                  Dim(options.dilation[1]), Dim(options.groups));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
