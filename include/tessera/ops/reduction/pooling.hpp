#ifndef TESSERA_OPS_REDUCTION_POOLING_HPP
#define TESSERA_OPS_REDUCTION_POOLING_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <utility>

#include <tessera/ops/contraction/per_dim.hpp>
#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/custom/given_gradient.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/functional.hpp>

// Pools over N spatial dims of [batch, spatial..., features]: reductions of windows, which are a view of the operand.

namespace tessera {

/// Options of a max pool: the extents of a window, the stride between windows (0: the extent of a window, PyTorch's
/// default), padding with -infinity on both sides, and the distance between the elements of a window. One number is
/// that of all spatial dims, `{.window = 3}`.
template <int N> struct MaxPool {
  [[no_unique_address]] detail::GivenByName by_name = detail::GivenByName();
  PerDim<N> window{}, strides{}, padding{}, dilation = 1;
};
/// Options of an average pool: as for a max pool, with zeros as padding. `count_include_pad`: whether the average
/// counts these zeros, as in PyTorch by default.
template <int N> struct AvgPool {
  [[no_unique_address]] detail::GivenByName by_name = detail::GivenByName();
  PerDim<N> window{}, strides{}, padding{};
  bool count_include_pad = true;
};

/// Options of a power-average pool: as for a max pool, without padding.
template <int N> struct LpPool {
  [[no_unique_address]] detail::GivenByName by_name = detail::GivenByName();
  PerDim<N> window{}, strides{};
};

namespace detail {

template <int N, class X> struct PoolResult : X {
  using Checks = decltype([] {
    static_assert(X::rank == N + 2 && is_floating_v<typename X::type>,
                  "tessera: a pool takes a float, double, bf16 or f16 tensor [batch, spatial..., features]");
  });
};

/// The windows of each spatial dim, with padding on both sides, which is -infinity if `largest`; `dims` gets the dims
/// of their elements.
template <int N>
constexpr Value pool_windows(Value x, int first, const Value* window, const Value* strides, const Value* padding,
                             const Value* dilation, bool largest, unsigned& dims) {
  build::PatchDim windowed[N];
  dims = 0;
  for (int d = 0; d < N; ++d) {
    windowed[d] = {window[d], strides[d], dilation[d], padding[d], padding[d]};
    dims |= 1u << (first + 2 * d + 1);
  }
  return build::patches(x, first, N, windowed, largest);
}

/// The largest element along a bit set of dims, which are dropped; NaN where there is one. The first of equal elements
/// gets the gradient, as in PyTorch; the gradient of a maximum would divide it.
constexpr Value first_largest(Value x, unsigned dims) {
  const Value largest = build::constant_reduce(Op::max, x, dims);
  const Value found = build::logical_or(build::equal(x, largest), build::not_equal(x, x));
  Value position = x.number(0, DType::i32);
  for (int d = 0; d < x.rank(); ++d)
    if ((dims >> d & 1) != 0)
      position = position * build::cast(build::extent(x, d), DType::i32) + build::iota(x, d, DType::i32);
  const Value past = x.number(0x1p31 - 1, DType::i32);
  const Value first = build::reduce(Op::min, build::select(found, position, past), dims, true);
  const Value chosen = build::select(build::equal(position, first), x, x.number(0));
  return build::sum_of(chosen, dims, false);
}

/// The largest of a few elements, as most windows have, is found by elementwise operations of strided slices, which are
/// one pass; a reduction of dims that are that short would spend its time between rows.
constexpr int most_taps = 9;

/// The number of elements of a window, or 0 if it is not known or too large to take them one by one.
template <int N> constexpr int count_taps(const Value* window) {
  int count = 1;
  for (int d = 0; d < N; ++d) {
    int size = most_taps;
    while (size > 0 && !window[d].is_number(size)) --size;
    count *= size;
  }
  return count <= most_taps ? count : 0;
}
/// One element of each window, counted in row-major order.
template <int N> constexpr Value tap_of(Value windows, int first, const Value* window, int tap, unsigned dims) {
  const Value one = windows.number(1, DType::i64);
  for (int d = N - 1; d >= 0; --d) {
    const int size = static_cast<int>(window[d].node().value);
    windows = build::slice(windows, first + 2 * d + 1, windows.number(tap % size, DType::i64), one);
    tap /= size;
  }
  return build::drop_singletons(windows, dims);
}

/// The sum of each window by elementwise operations of its elements, with the gradient of a reduction: a fold. That of
/// the slices would be a sum of pads, which writes more.
template <int N> constexpr Value sum_of_taps(Value windows, int first, const Value* window, int taps, unsigned dims) {
  const DType type = computed_as(windows.dtype());
  const auto element = [&](int tap) { return build::cast(tap_of<N>(windows, first, window, tap, dims), type); };
  Value sum = element(0);
  for (int tap = 1; tap < taps; ++tap) sum = sum + element(tap);
  const Value cotangent = build::variable_like(sum);
  const Value values[] = {build::cast(windows, type)};
  const Value gradients[] = {build::insert_singletons(cotangent, dims, windows.rank())};
  return build::with_gradients(sum, cotangent, values, gradients);
}

template <int N> struct MaxPoolTag {
  static constexpr const char* function = N == 1 ? "max_pool1d" : N == 2 ? "max_pool2d" : "max_pool3d";
  template <class X, class... Options> using result = PoolResult<N, X>;
  static constexpr Value emit(Value context, Value x, auto... options) {
    const Value all[] = {as_size(options)...};
    const DType type = x.dtype();
    unsigned dims = 0;
    const int first = x.shifted(1, N + 2), taps = count_taps<N>(all);
    const Value windows =
        pool_windows<N>(x.at(context.source), first, all, all + N, all + 2 * N, all + 3 * N, true, dims);
    if (taps == 0) return build::cast(first_largest(build::cast(windows, computed_as(type)), dims), type);
    const auto element = [&](int tap) {
      return build::cast(tap_of<N>(windows, first, all, tap, dims), computed_as(type));
    };
    Value most = element(0);
    for (int tap = 1; tap < taps; ++tap) {
      const Value next = element(tap);
      const Value larger = build::logical_or(build::less(most, next), build::not_equal(next, next));
      most = build::select(larger, next, most);
    }
    return build::cast(most, type);
  }
};

template <int N> struct AvgPoolTag {
  static constexpr const char* function = N == 1 ? "avg_pool1d" : N == 2 ? "avg_pool2d" : "avg_pool3d";
  template <class X, class... Options> using result = PoolResult<N, X>;
  static constexpr Value emit(Value context, Value x, auto... options) {
    const Value all[] = {as_size(options)...};
    const DType type = x.dtype();
    const Value *window = all, *strides = all + N, *padding = all + 2 * N, count_pad = all[3 * N];
    x = x.at(context.source);
    const int first = x.shifted(1, N + 2);
    Value ones[N];
    for (auto& one : ones) one = x.number(1, DType::i64);
    unsigned dims = 0;
    const Value windows = pool_windows<N>(x, first, window, strides, padding, ones, false, dims);
    const int taps = count_taps<N>(all);
    const Value sum = taps == 0 ? build::sum_of(build::cast(windows, computed_as(type)), dims, false)
                                : sum_of_taps<N>(windows, first, window, taps, dims);
    Value count = x.number(1, DType::i64);
    for (int d = 0; d < N; ++d) {
      if (padding[d].is_number(0) || count_pad.is_number(1)) {
        count = count * window[d];
        continue;
      }
      const Value zero = x.number(0, DType::i64), counted = padding[d] * count_pad;
      const Value start = build::iota(sum, first + d, DType::i64) * strides[d] - padding[d];
      const Value inside = build::minimum(start + window[d], build::extent(x, first + d) + counted) -
                           build::maximum(start, zero - counted);
      count = count * build::maximum(inside, zero);
    }
    return build::cast(sum / build::cast(count, sum.dtype()), type);
  }
};

/// Index i of a result of extent `size` is made of the indices floor(i n / size) to ceil((i + 1) n / size) of a dim of
/// extent n: their mean, or the largest.
template <int N, bool Max>
inline constexpr const char* adaptive_pool_name = Max      ? N == 1   ? "adaptive_max_pool1d"
                                                             : N == 2 ? "adaptive_max_pool2d"
                                                                      : "adaptive_max_pool3d"
                                                  : N == 1 ? "adaptive_avg_pool1d"
                                                  : N == 2 ? "adaptive_avg_pool2d"
                                                           : "adaptive_avg_pool3d";
template <int N, bool Max> struct AdaptivePoolTag {
  static constexpr const char* function = adaptive_pool_name<N, Max>;
  template <class X, class... Sizes> using result = PoolResult<N, X>;
  static constexpr Value emit(Value context, Value x, auto... sizes) {
    const Value all[] = {as_size(sizes)...};
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    const int first = x.shifted(1, N + 2);
    // The last dim first, so that the first of equal elements is the first in row-major order.
    for (int d = N - 1; d >= 0; --d) x = pooled(x, first + d, all[d]);
    return build::cast(x, type);
  }

 private:
  static constexpr Value pooled(Value x, int dim, Value size) {
    const int rank = x.rank() + 1;
    const Value n = build::extent(x, dim), one = x.number(1, DType::i64);
    x = build::insert_singletons(x, 1u << dim, rank);
    const Value line = build::arange(size.at(x.source));
    const Value i = build::cast(build::insert_singletons(line, ((1u << rank) - 1) & ~(1u << dim), rank), DType::i64);
    const Value j = build::iota(x, dim + 1, DType::i64);
    // j >= floor(i n / size) and j < ceil((i + 1) n / size), without a division
    const Value inside = build::logical_and(build::less(i * n, (j + one) * size), build::less(j * size, (i + one) * n));
    const unsigned dims = 1u << (dim + 1);
    if constexpr (Max) {
      const Value outside = x.number(-std::numeric_limits<double>::infinity());
      return first_largest(build::select(inside, x, outside), dims);
    } else {
      const Value zero = x.number(0);
      return build::sum_of(build::select(inside, x, zero), dims, false) /
             build::sum_of(build::select(inside, x.number(1), zero), dims, false);
    }
  }
};

template <class Tag, int N, TensorArgument X, class Options, class... Last>
constexpr auto pool(const X& x, const Options& o, Here at, const Last&... last) {
  return [&]<std::size_t... D>(std::index_sequence<D...>) {
    return call<Tag>(Source::from(at), x, Dim(o.window[D])..., Dim(o.strides[D] == 0 ? o.window[D] : o.strides[D])...,
                     Dim(o.padding[D])..., Dim(last)...);
  }(std::make_index_sequence<N>());
}

}  // namespace detail

/// The largest element of each window: `max_pool2d(x, {.window = {3, 3}, .strides = {2, 2}, .padding = {1, 1}})` of x
/// [batch, height, width, features]. A spatial dim of extent n has (n + 2 padding - dilation (window - 1) - 1) /
/// strides + 1 windows, rounded down; PyTorch's ceil_mode is not offered. NaN in a window gives NaN. Of equal elements
/// the first gets the gradient, as in PyTorch. A window that has only padding gives -infinity; PyTorch refuses such
/// padding.
///
/// Windows overlap in memory; those of max_pool3d and avg_pool3d have 8 dims, so that the block of a
/// ts::Stack can't have them. Errors: shape_mismatch for windows larger than the padded dim.
/// Communication: none for split batch and features; along split spatial dims the rows that windows of other devices
/// need.
template <TensorArgument X>
constexpr auto max_pool1d(const X& x, const MaxPool<1>& options, Here at = Here::current()) {
  return detail::pool<detail::MaxPoolTag<1>, 1>(x, options, at, options.dilation[0]);
}
template <TensorArgument X>
constexpr auto max_pool2d(const X& x, const MaxPool<2>& options, Here at = Here::current()) {
  return detail::pool<detail::MaxPoolTag<2>, 2>(x, options, at, options.dilation[0], options.dilation[1]);
}
template <TensorArgument X>
constexpr auto max_pool3d(const X& x, const MaxPool<3>& options, Here at = Here::current()) {
  return detail::pool<detail::MaxPoolTag<3>, 3>(x, options, at, options.dilation[0], options.dilation[1],
                                                options.dilation[2]);
}
/// With the options in the order of PyTorch, each one number or {height, width}: `max_pool2d(x, 2)`, `max_pool2d(x, 3,
/// 2, 1)` of windows 3 x 3 with strides of 2 and a padding of 1.
template <TensorArgument X>
constexpr auto max_pool1d(const X& x, const PerDim<1>& window, const PerDim<1>& strides = 0,
                          const PerDim<1>& padding = 0, const PerDim<1>& dilation = 1, Here at = Here::current()) {
  return max_pool1d(x, MaxPool<1>{.window = window, .strides = strides, .padding = padding, .dilation = dilation}, at);
}
template <TensorArgument X>
constexpr auto max_pool2d(const X& x, const PerDim<2>& window, const PerDim<2>& strides = 0,
                          const PerDim<2>& padding = 0, const PerDim<2>& dilation = 1, Here at = Here::current()) {
  return max_pool2d(x, MaxPool<2>{.window = window, .strides = strides, .padding = padding, .dilation = dilation}, at);
}
template <TensorArgument X>
constexpr auto max_pool3d(const X& x, const PerDim<3>& window, const PerDim<3>& strides = 0,
                          const PerDim<3>& padding = 0, const PerDim<3>& dilation = 1, Here at = Here::current()) {
  return max_pool3d(x, MaxPool<3>{.window = window, .strides = strides, .padding = padding, .dilation = dilation}, at);
}

/// The mean of each window, `avg_pool2d(x, {.window = {2, 2}})`. bf16 and f16 are added up in f32. Otherwise as
/// max_pool.
template <TensorArgument X>
constexpr auto avg_pool1d(const X& x, const AvgPool<1>& options, Here at = Here::current()) {
  return detail::pool<detail::AvgPoolTag<1>, 1>(x, options, at, options.count_include_pad ? 1 : 0);
}
template <TensorArgument X>
constexpr auto avg_pool2d(const X& x, const AvgPool<2>& options, Here at = Here::current()) {
  return detail::pool<detail::AvgPoolTag<2>, 2>(x, options, at, options.count_include_pad ? 1 : 0);
}
template <TensorArgument X>
constexpr auto avg_pool3d(const X& x, const AvgPool<3>& options, Here at = Here::current()) {
  return detail::pool<detail::AvgPoolTag<3>, 3>(x, options, at, options.count_include_pad ? 1 : 0);
}
/// With the window, strides and padding in the order of PyTorch: `avg_pool2d(x, 2)`.
template <TensorArgument X>
constexpr auto avg_pool1d(const X& x, const PerDim<1>& window, const PerDim<1>& strides = 0,
                          const PerDim<1>& padding = 0, Here at = Here::current()) {
  return avg_pool1d(x, AvgPool<1>{.window = window, .strides = strides, .padding = padding}, at);
}
template <TensorArgument X>
constexpr auto avg_pool2d(const X& x, const PerDim<2>& window, const PerDim<2>& strides = 0,
                          const PerDim<2>& padding = 0, Here at = Here::current()) {
  return avg_pool2d(x, AvgPool<2>{.window = window, .strides = strides, .padding = padding}, at);
}
template <TensorArgument X>
constexpr auto avg_pool3d(const X& x, const PerDim<3>& window, const PerDim<3>& strides = 0,
                          const PerDim<3>& padding = 0, Here at = Here::current()) {
  return avg_pool3d(x, AvgPool<3>{.window = window, .strides = strides, .padding = padding}, at);
}

namespace detail {
template <int N> struct LpPoolTag {
  static constexpr const char* function = N == 1 ? "lp_pool1d" : N == 2 ? "lp_pool2d" : "lp_pool3d";
  template <class X, class P, class... Options> using result = PoolResult<N, X>;
  static constexpr Value emit(Value context, Value x, Value p, auto... options) {
    const Value all[] = {as_size(options)...};
    const DType type = x.dtype();
    x = build::cast(x.at(context.source), computed_as(type));
    p = build::cast(p, x.dtype());
    Value ones[N], none[N];
    for (int d = 0; d < N; ++d) ones[d] = x.number(1, DType::i64), none[d] = x.number(0, DType::i64);
    unsigned dims = 0;
    const Value windows =
        pool_windows<N>(build::binary(Op::pow, x, p), x.shifted(1, N + 2), all, all + N, none, ones, false, dims);
    return build::cast(build::binary(Op::pow, build::sum_of(windows, dims, false), 1.0 / p), type);
  }
};
template <int N, TensorArgument X, NumberOperand P>
constexpr auto lp_pool(const X& x, const P& p, const LpPool<N>& o, Here at) {
  return [&]<std::size_t... D>(std::index_sequence<D...>) {
    return call<LpPoolTag<N>>(Source::from(at), x, p, Dim(o.window[D])...,
                              Dim(o.strides[D] == 0 ? o.window[D] : o.strides[D])...);
  }(std::make_index_sequence<N>());
}
}  // namespace detail

/// The p-th root of the sum of the p-th powers of each window (F.lp_pool1d, lp_pool2d): `lp_pool2d(x, 2, {.window = {3,
/// 3}})`. As in PyTorch, powers are of x, not of its absolute value, so that an odd p is for positive x; the gradient
/// of a window of zeros is NaN for a p above 1. Otherwise as max_pool.
template <TensorArgument X, NumberOperand P>
constexpr auto lp_pool1d(const X& x, const P& p, const LpPool<1>& options, Here at = Here::current()) {
  return detail::lp_pool<1>(x, p, options, at);
}
template <TensorArgument X, NumberOperand P>
constexpr auto lp_pool2d(const X& x, const P& p, const LpPool<2>& options, Here at = Here::current()) {
  return detail::lp_pool<2>(x, p, options, at);
}
template <TensorArgument X, NumberOperand P>
constexpr auto lp_pool3d(const X& x, const P& p, const LpPool<3>& options, Here at = Here::current()) {
  return detail::lp_pool<3>(x, p, options, at);
}
/// With the window and strides in the order of PyTorch: `lp_pool2d(x, 2, 3)`.
template <TensorArgument X, NumberOperand P>
constexpr auto lp_pool1d(const X& x, const P& p, const PerDim<1>& window, const PerDim<1>& strides = 0,
                         Here at = Here::current()) {
  return lp_pool1d(x, p, LpPool<1>{.window = window, .strides = strides}, at);
}
template <TensorArgument X, NumberOperand P>
constexpr auto lp_pool2d(const X& x, const P& p, const PerDim<2>& window, const PerDim<2>& strides = 0,
                         Here at = Here::current()) {
  return lp_pool2d(x, p, LpPool<2>{.window = window, .strides = strides}, at);
}
template <TensorArgument X, NumberOperand P>
constexpr auto lp_pool3d(const X& x, const P& p, const PerDim<3>& window, const PerDim<3>& strides = 0,
                         Here at = Here::current()) {
  return lp_pool3d(x, p, LpPool<3>{.window = window, .strides = strides}, at);
}

/// Averages to the given extents: index i of a result of extent m is the mean over the indices floor(i n / m) to
/// ceil((i + 1) n / m) of a dim of extent n, as in PyTorch. `adaptive_avg_pool2d(x, {1, 1})` is the mean of each image.
/// Each dim costs n m additions a line. Communication: over a split spatial dim the result is partial.
template <TensorArgument X>
constexpr auto adaptive_avg_pool1d(const X& x, const PerDim<1>& extents, Here at = Here::current()) {
  return call<detail::AdaptivePoolTag<1, false>>(Source::from(at), x, Dim(extents[0]));
}
template <TensorArgument X>
constexpr auto adaptive_avg_pool2d(const X& x, const PerDim<2>& extents, Here at = Here::current()) {
  return call<detail::AdaptivePoolTag<2, false>>(Source::from(at), x, Dim(extents[0]), Dim(extents[1]));
}
template <TensorArgument X>
constexpr auto adaptive_avg_pool3d(const X& x, const PerDim<3>& extents, Here at = Here::current()) {
  return call<detail::AdaptivePoolTag<3, false>>(Source::from(at), x, Dim(extents[0]), Dim(extents[1]),
                                                 Dim(extents[2]));
}

/// The largest elements of the windows of adaptive_avg_pool. Of equal elements the first, in row-major order, gets the
/// gradient, as in PyTorch. Communication: over a split spatial dim all-reduces of the maxima and of their positions,
/// and the result is partial.
template <TensorArgument X>
constexpr auto adaptive_max_pool1d(const X& x, const PerDim<1>& extents, Here at = Here::current()) {
  return call<detail::AdaptivePoolTag<1, true>>(Source::from(at), x, Dim(extents[0]));
}
template <TensorArgument X>
constexpr auto adaptive_max_pool2d(const X& x, const PerDim<2>& extents, Here at = Here::current()) {
  return call<detail::AdaptivePoolTag<2, true>>(Source::from(at), x, Dim(extents[0]), Dim(extents[1]));
}
template <TensorArgument X>
constexpr auto adaptive_max_pool3d(const X& x, const PerDim<3>& extents, Here at = Here::current()) {
  return call<detail::AdaptivePoolTag<3, true>>(Source::from(at), x, Dim(extents[0]), Dim(extents[1]), Dim(extents[2]));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
