#ifndef TESSERA_OPS_INDEXING_SEGMENT_HPP
#define TESSERA_OPS_INDEXING_SEGMENT_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <utility>

#include <tessera/base/dtype.hpp>
#include <tessera/base/monoid.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/reshape.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/index_put.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/indexing/scatter.hpp>
#include <tessera/ops/stop_gradient.hpp>

// Reductions of the rows of each segment, where a vector has the segment of each row.

namespace tessera {

namespace detail {

/// The result of a reduction of no rows: `size` rows like those of x, filled with the identity of R.
template <int Rank, class T, Reduction R> struct EmptySegmentsTag {
  static_assert(Rank >= 1, "tessera: segments are of the rows of a tensor with dims");
  template <class X, class Size> using result = Typed<T, Rank>;
  static constexpr Value emit(Value context, Value x, Value size) {
    x = x.at(context.source);
    const Value identity = is_floating_v<T> ? x.number(monoid_of<R>::template identity<double>())
                                            : x.integer(monoid_of<R>::template identity<T>(), x.dtype());
    return [&]<std::size_t... D>(std::index_sequence<D...>) {
      return BroadcastToTag<0, Rank>::emit(context, identity, size,
                                           build::extent(x, x.shifted(static_cast<int>(D) + 1, Rank))...);
    }(std::make_index_sequence<Rank - 1>());
  }
};

/// A vector as a tensor of a rank, whose other dims have extent 1.
template <int Rank, class X> constexpr auto as_column(const X& x, Here at) {
  if constexpr (X::rank >= Rank)
    return x;
  else
    return as_column<Rank>(unsqueeze<X::rank>(x, at), at);
}

template <Reduction R, class X, class Segments>
constexpr auto segment_reduce(const X& x, const Segments& segments, const Dim& count, Here at) {
  static_assert(Segments::rank == 1, "tessera: the segments are a vector, with the segment of each row");
  const auto empty = call<EmptySegmentsTag<X::rank, typename X::element, R>>(Source::from(at), x, count);
  if constexpr (R == Reduction::sum)
    return index_add<0>(empty, segments, x, at);
  else
    return scatter_reduce<0, R>(empty, broadcast_like(as_column<X::rank>(segments, at), x, at), x, at);
}

}  // namespace detail

/// The sums of the rows of each segment (jax.ops.segment_sum, index_add into zeros): row k of x [n, ...] belongs to the
/// segment segments[k], of `count` segments, in any order. The result is [count, ...]; a segment without rows gives 0.
/// segment_mean divides by the number of rows, at least 1. Errors: dim_range for a segment outside of [0, count).
/// Communication: as index_add; rows that are split give a partial sum.
///
///     const auto received = ts::segment_sum(ts::embedding(nodes, from), to, ts::extent<0>(nodes));   // messages
template <TensorArgument X, TensorArgument Segments, SizeOperand Count>
constexpr auto segment_sum(const X& x, const Segments& segments, const Count& count, Here at = Here::current()) {
  const detail::FunctionCall named("segment_sum", x, segments);
  return detail::segment_reduce<Reduction::sum>(x, segments, Dim(count), at);
}
template <TensorArgument X, TensorArgument Segments, SizeOperand Count>
constexpr auto segment_mean(const X& x, const Segments& segments, const Count& count, Here at = Here::current()) {
  const detail::FunctionCall named("segment_mean", x, segments);
  static_assert(is_floating_v<typename X::element>,
                "tessera: segment_mean takes a floating-point tensor; use ts::cast");
  using T = typename X::element;
  using Sum = computed_t<T>;  // a count of f16 would end at 65504
  const auto ones = ones_like(cast<Sum>(segments, at), at);
  const auto rows = detail::as_column<X::rank>(maximum(segment_sum(ones, segments, count, at), 1, at), at);
  return cast<T>(call<DivTag>(Source::from(at), segment_sum(cast<Sum>(x, at), segments, count, at), rows), at);
}
/// The largest, smallest, or the product of the elements of each segment (jax.ops.segment_max, segment_min,
/// segment_prod); a segment without rows gives the neutral element: -infinity or the lowest integer, infinity or the
/// highest integer, and 1. Errors and communication: as scatter_reduce.
template <TensorArgument X, TensorArgument Segments, SizeOperand Count>
constexpr auto segment_max(const X& x, const Segments& segments, const Count& count, Here at = Here::current()) {
  const detail::FunctionCall named("segment_max", x, segments);
  return detail::segment_reduce<Reduction::max>(x, segments, Dim(count), at);
}
template <TensorArgument X, TensorArgument Segments, SizeOperand Count>
constexpr auto segment_min(const X& x, const Segments& segments, const Count& count, Here at = Here::current()) {
  const detail::FunctionCall named("segment_min", x, segments);
  return detail::segment_reduce<Reduction::min>(x, segments, Dim(count), at);
}
template <TensorArgument X, TensorArgument Segments, SizeOperand Count>
constexpr auto segment_prod(const X& x, const Segments& segments, const Count& count, Here at = Here::current()) {
  const detail::FunctionCall named("segment_prod", x, segments);
  return detail::segment_reduce<Reduction::product>(x, segments, Dim(count), at);
}

/// Softmax over the rows of each segment, as attention of a graph needs: exp(x) / the sums of exp(x) of the segment,
/// in the shape of x. Communication: that of segment_max and segment_sum, an all_reduce of the tables of each; rows
/// that are split stay split.
template <TensorArgument X, TensorArgument Segments, SizeOperand Count>
constexpr auto segment_softmax(const X& x, const Segments& segments, const Count& count, Here at = Here::current()) {
  const detail::FunctionCall named("segment_softmax", x, segments);
  const auto of_rows = [&](const auto& table) { return index_select<0>(table, segments, at); };
  const auto highest = of_rows(segment_max(stop_gradient(x, at), segments, count, at));
  const auto weights = exp(call<SubTag>(Source::from(at), x, highest), at);
  return call<DivTag>(Source::from(at), weights, of_rows(segment_sum(weights, segments, count, at)));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
