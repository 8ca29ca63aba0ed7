#ifndef TESSERA_OPS_INDEXING_DYNAMIC_SLICE_HPP
#define TESSERA_OPS_INDEXING_DYNAMIC_SLICE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/one_hot.hpp>

// Slices whose start is a tensor or a number that is known only when the program runs. Compositions of lookups.

namespace tessera {

namespace detail {

/// A start as JAX reads it: a negative one counts from the end, and one that leaves too few elements is moved back.
constexpr Value clamped_start(Value start, Value extent, Value size) {
  start = build::cast(start, DType::i64);
  const Value zero = start.number(0);
  const Value from_front = build::select(build::less(start, zero), start + extent, start);
  return build::maximum(build::minimum(from_front, extent - size), zero);
}
/// A start with `rank` more dims of extent 1 behind its dims of devices, if it is a local value of a shard_map.
constexpr Value before_dims(Value start, int rank) {
  if (start.rank() == 0) return start;
  return build::insert_singletons(start, ((1u << rank) - 1) << start.rank(), start.rank() + rank);
}
constexpr Value as_one_index(Value start) {
  return build::insert_singletons(start, 1u << start.rank(), start.rank() + 1);
}
template <class Start> constexpr void check_start() {
  constexpr bool is_integer_start =
      Start::rank == 0 && (is_number_v<typename Start::type> || std::is_integral_v<typename Start::type>);
  static_assert(is_integer_start, "tessera: the start of a dynamic slice is a number or an integer tensor of rank 0");
}

/// The indices of a slice along dim D: a vector.
template <int Rank, int D> struct SliceIndicesTag {
  template <class X, class Start, class Size> struct result : Typed<std::int64_t, 1> {
    using Checks = decltype([] { check_start<Start>(); });
  };
  static constexpr Value emit(Value context, Value x, Value start, Value size) {
    x = x.at(context.source);
    size = as_size(size).at(context.source);
    const Value first = clamped_start(start.at(context.source), build::extent(x, x.shifted(D, Rank)), size);
    if (size.is_number(1)) return as_one_index(first);
    return build::arange(size, DType::i64) + before_dims(first, 1);
  }
};
/// One index along dim D, a vector of static extent 1.
template <int Rank, int D> struct OneIndexTag {
  template <class X, class Start> struct result : Typed<std::int64_t, 1> {
    using Checks = decltype([] { check_start<Start>(); });
  };
  static constexpr Value emit(Value context, Value x, Value start) {
    x = x.at(context.source);
    const Value one = x.number(1, DType::i64);
    const Value first = clamped_start(start.at(context.source), build::extent(x, x.shifted(D, Rank)), one);
    return as_one_index(first);
  }
};

/// For each index along dim D of x, the index of the update that goes there; the extent of the update elsewhere.
template <int Rank, int D> struct UpdateIndicesTag {
  template <class X, class Update, class Start> struct result : Typed<std::int64_t, 1> {
    using Checks = decltype([] { check_start<Start>(); });
  };
  static constexpr Value emit(Value context, Value x, Value update, Value start) {
    x = x.at(context.source);
    const Value extent = build::extent(x, x.shifted(D, Rank)),
                size = build::extent(update.at(context.source), update.shifted(D, Rank));
    const Value first = clamped_start(start.at(context.source), extent, size);
    const Value position = build::arange(extent, DType::i64) - before_dims(first, 1);
    const Value inside =
        build::logical_and(build::greater_equal(position, x.number(0, DType::i64)), build::less(position, size));
    return build::select(inside, position, size);
  }
};
/// Checks that an update along dim D has the other dims of x, and is not longer along D.
constexpr void check_update_shape(Value x, Value update, int rank, int dim) {
  const int of_x = x.leading(rank), of_update = update.leading(rank);
  build::require_room(x, of_x + dim, update, of_update + dim);
  build::same_extents(x, of_x, update, of_update, dim, build::ExtentsOf::update);
  build::same_extents(x, of_x + dim + 1, update, of_update + dim + 1, rank - dim - 1, build::ExtentsOf::update);
}
/// Whether each element of x is overwritten.
template <int Rank, int D> struct IsUpdatedTag {
  static constexpr const char* function = "dynamic_update_slice";
  template <class X, class Update, class Start> using result = Typed<bool, Rank>;
  static constexpr Value emit(Value context, Value x, Value update, Value start) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    check_update_shape(x, update, Rank, D);
    const Value extent = build::extent(x, dim),
                size = build::extent(update.at(context.source), update.shifted(D, Rank));
    const Value first = clamped_start(start.at(context.source), extent, size);
    const Value position = build::iota(x, dim, DType::i64) - before_dims(first, Rank);
    return build::logical_and(build::greater_equal(position, position.number(0)), build::less(position, size));
  }
};

}  // namespace detail

/// `size` elements along dim D from a start that is known only when the program runs (lax.dynamic_slice_in_dim): an
/// integer tensor of rank 0, or a number. A negative start counts from the end; a start that leaves fewer than `size`
/// elements is moved back, so that it is never out of range. A constant size of 1, also that of a dim of static extent
/// 1, gives a dim of static extent 1, as in slice. The gradient is 0 outside of the slice. Errors: dim_range where
/// `size` exceeds the extent. Communication: as index_select; other dims stay split.
///
///     const auto window = ts::dynamic_slice<0>(x, position, 16);
template <int D, TensorArgument X, Operand Start, SizeOperand Size>
constexpr auto dynamic_slice(const X& x, const Start& start, const Size& size, Here at = Here::current()) {
  const detail::FunctionCall named("dynamic_slice", x);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  return index_select<D>(x, call<detail::SliceIndicesTag<X::rank, dim>>(Source::from(at), x, start, Dim(size)), at);
}

/// The elements at one index of dim D, without that dim: x[i] (lax.dynamic_index_in_dim without the dim,
/// Tensor.select). The index is as the start of dynamic_slice. Gradient, errors and communication: as dynamic_slice.
template <int D, TensorArgument X, Operand Index>
constexpr auto dynamic_index(const X& x, const Index& index, Here at = Here::current()) {
  const detail::FunctionCall named("dynamic_index", x);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  return squeeze<dim>(index_select<D>(x, call<detail::OneIndexTag<X::rank, dim>>(Source::from(at), x, index), at), at);
}

/// x with the elements of `update` along dim D from a start on (lax.dynamic_update_slice_in_dim, slice_scatter): the
/// write of a key-value cache. The start is as in dynamic_slice; other dims of the update are those of x. Gradients: of
/// x 0 where it is overwritten, of the update the cotangent there. Errors: shape_mismatch where another dim differs or
/// the update is longer than dim D. Communication: as index_select of the update; x stays split.
///
///     const auto cache = ts::dynamic_update_slice<1>(keys, key, position);   // [B, T, H], [B, 1, H]
template <int D, TensorArgument X, TensorArgument Update, Operand Start>
constexpr auto dynamic_update_slice(const X& x, const Update& update, const Start& start, Here at = Here::current()) {
  static_assert(X::rank == Update::rank, "tessera: the update of a slice has the rank of what it updates");
  static_assert(std::is_same_v<typename X::element, typename Update::element>,
                "tessera: the update of a slice has the element type of what it updates; convert it with ts::cast");
  constexpr int dim = detail::checked_dim<D, X::rank>();
  const Source source = Source::from(at);
  // The row after the last one of the update is looked up for all elements that stay.
  const detail::FunctionCall named("dynamic_update_slice", x);
  const auto is_updated = call<detail::IsUpdatedTag<X::rank, dim>>(source, x, update, start);
  const auto moved = index_select<D>(pad<D>(update, 0, 1, at),
                                     call<detail::UpdateIndicesTag<X::rank, dim>>(source, x, update, start), at);
  return select(is_updated, moved, x, at);
}

/// x with `update` at one index of dim D, which the update lacks (torch.select_scatter, x.at[i].set). Otherwise as
/// dynamic_update_slice.
template <int D, TensorArgument X, TensorArgument Update, Operand Index>
constexpr auto dynamic_update_index(const X& x, const Update& update, const Index& index, Here at = Here::current()) {
  const detail::FunctionCall named("dynamic_update_index", x, update);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  return dynamic_update_slice<D>(x, unsqueeze<dim>(update, at), index, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
