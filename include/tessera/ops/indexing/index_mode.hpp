#ifndef TESSERA_OPS_INDEXING_INDEX_MODE_HPP
#define TESSERA_OPS_INDEXING_INDEX_MODE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/gather.hpp>
#include <tessera/ops/indexing/index_put.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/indexing/scatter.hpp>
#include <tessera/ops/indexing/scatter_rule.hpp>

// Lookups and writes with indices that may be outside of their dim. Compositions: indices are moved into the dim, and
// what they would have read or written is left out.

namespace tessera {

/// What an index outside of its dim does, for which functions without a mode throw dim_range: the `mode` of JAX. An
/// index below 0 is outside; JAX counts it from the end.
enum class IndexMode : std::uint8_t {
  clip,  ///< it is moved to the nearest index of the dim ("clip")
  fill,  ///< of a lookup: the element is a value that is given ("fill")
  drop,  ///< of a write: the element is not written ("drop")
};

namespace detail {

/// Whether indices are inside of dim D of x.
template <int Rank, int D> struct IsInsideTag {
  template <class X, class Indices> struct result : Typed<bool, Indices::rank> {
    using Checks = decltype([] { check_row_indices<Indices>(); });
  };
  static constexpr Value of(Value indices, Value extent) {
    return build::logical_and(build::greater_equal(indices, indices.number(0)), build::less(indices, extent));
  }
  static constexpr Value emit(Value context, Value x, Value indices) {
    return of(build::cast(indices.at(context.source), DType::i64), build::extent(x, x.shifted(D, Rank)));
  }
};
/// Indices moved to the nearest one of dim D of x; with `Behind` indices outside are moved to the position after the
/// last element.
template <int Rank, int D, bool Behind> struct MovedIndicesTag {
  template <class X, class Indices> struct result : Typed<std::int64_t, Indices::rank> {
    using Checks = decltype([] { check_row_indices<Indices>(); });
  };
  static constexpr Value emit(Value context, Value x, Value indices) {
    const Value extent = build::extent(x.at(context.source), x.shifted(D, Rank));
    indices = build::cast(indices.at(context.source), DType::i64);
    if (Behind) return build::select(IsInsideTag<Rank, D>::of(indices, extent), indices, extent);
    return build::maximum(build::minimum(indices, extent - extent.number(1)), indices.number(0));
  }
};
template <int D, class X, class Indices> constexpr auto is_inside(const X& x, const Indices& indices, Here at) {
  return call<IsInsideTag<X::rank, checked_dim<D, X::rank>()>>(Source::from(at), x, indices);
}
template <int D, bool Behind = false, class X, class Indices>
constexpr auto moved_indices(const X& x, const Indices& indices, Here at) {
  return call<MovedIndicesTag<X::rank, checked_dim<D, X::rank>(), Behind>>(Source::from(at), x, indices);
}
/// A value for each index, to be broadcast along `Behind` dims after those of the indices.
template <int Behind, class V> constexpr auto along(const V& v, Here at) {
  if constexpr (Behind == 0)
    return v;
  else
    return along<Behind - 1>(unsqueeze<-1>(v, at), at);
}

template <class T> constexpr auto default_fill() {
  if constexpr (is_floating_v<T>)
    return std::numeric_limits<double>::quiet_NaN();
  else if constexpr (std::is_same_v<T, bool>)
    return true;
  else
    return std::is_signed_v<T> ? std::numeric_limits<T>::min() : std::numeric_limits<T>::max();
}
template <IndexMode M> constexpr void check_lookup() {
  static_assert(M != IndexMode::drop, "tessera: IndexMode::drop is for writes; a lookup takes fill or clip");
}
template <IndexMode M> constexpr void check_write() {
  static_assert(M != IndexMode::fill, "tessera: IndexMode::fill is for lookups; a write takes drop or clip");
}

/// A scatter that does not write the elements of indices outside: they go to an additional element after the dim.
template <int Rank, int D, ScatterRule Rule> struct DroppingScatterTag : ScatterTag<Rank, D, Rule> {
  static constexpr Value emit(Value context, Value x, Value indices, Value source) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value extent = build::extent(x, dim), none = extent.number(0);
    const Value room = build::pad_to(x, dim, none, extent + extent.number(1));
    const Value moved = MovedIndicesTag<Rank, D, true>::emit(context, x, indices);
    return build::slice(ScatterTag<Rank, D, Rule>::emit(context, room, moved, source), dim, none, extent);
  }
};
template <IndexMode M, int D, ScatterRule Rule, class X, class Indices, class Elements>
constexpr auto scatter_by(const X& x, const Indices& indices, const Elements& source, Here at) {
  check_write<M>();
  if constexpr (M == IndexMode::clip)
    return scatter<D, Rule>(x, moved_indices<D>(x, indices, at), source, at);
  else
    return call<DroppingScatterTag<X::rank, checked_dim<D, X::rank>(), Rule>>(Source::from(at), x, indices, source);
}

/// Rows, or none of them where the dim that they are added to has no elements.
constexpr Value unless_empty(Value rows, int dim, Value extent) {
  const Value none = extent.number(0);
  if (rows.is_singleton(dim)) rows = build::pad_to(rows, dim, none, extent.number(1));  // no static extent
  const Value any = build::minimum(extent, extent.number(1));
  return build::slice(rows, dim, none, build::extent(rows, dim) * any);
}
/// An index_add that does not add rows of indices outside: zeros are added at an index inside. A dim without elements
/// has none, and is given no rows.
template <int Rank, int D> struct DroppingIndexAddTag : IndexAddTag<Rank, D> {
  static constexpr Value emit(Value context, Value x, Value indices, Value source) {
    x = x.at(context.source);
    source = source.at(context.source);
    indices = one_vector(indices, context);
    const int dim = x.shifted(D, Rank), of_source = source.shifted(D, Rank);
    if (!x.is_singleton(dim)) {
      const Value extent = build::extent(x, dim);
      source = unless_empty(source, of_source, extent);
      indices = unless_empty(indices, 0, extent);
    }
    const Value inside = along_dim(IsInsideTag<Rank, D>::emit(context, x, indices), of_source, source.rank());
    return IndexAddTag<Rank, D>::emit(context, x, MovedIndicesTag<Rank, D, false>::emit(context, x, indices),
                                      build::select(inside, source, source.number(0)));
  }
};

/// `looked_up` where the indices are inside, else the fill.
template <IndexMode M, int D, int Behind, class X, class Indices, class Made, class Fill>
constexpr auto filled(const X& x, const Indices& indices, const Made& looked_up, const Fill& fill, Here at) {
  check_lookup<M>();
  if constexpr (M == IndexMode::clip)
    return looked_up;
  else
    return select(along<Behind>(is_inside<D>(x, indices, at), at), looked_up, fill, at);
}

}  // namespace detail

/// gather with indices that may be outside of dim D (jnp.take_along_axis with a mode): `gather<1,
/// ts::IndexMode::clip>(x, indices)`; `gather<1, ts::IndexMode::fill>(x, indices, 0)` of another fill than JAX's, which
/// is NaN, of integers the least signed or the largest unsigned one. Gradient: as gather; 0 for elements that are
/// filled. Errors: dim_range for a dim without elements, also with `fill`, as jnp.take; jnp.take_along_axis gives 0
/// there, whatever the fill. Communication: as gather.
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices, Operand Fill>
constexpr auto gather(const X& x, const Indices& indices, const Fill& fill, Here at = Here::current()) {
  return detail::filled<M, D, 0>(x, indices, gather<D>(x, detail::moved_indices<D>(x, indices, at), at), fill, at);
}
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices>
constexpr auto gather(const X& x, const Indices& indices, Here at = Here::current()) {
  return gather<D, M>(x, indices, detail::default_fill<typename X::element>(), at);
}
/// embedding with indices that may be outside of the table. Otherwise as gather with a mode; communication as
/// embedding.
///
///     const auto rows = ts::embedding<ts::IndexMode::fill>(table, padded, 0);   // a row of zeros for -1
template <IndexMode M, TensorArgument Table, TensorArgument Indices, Operand Fill>
constexpr auto embedding(const Table& table, const Indices& indices, const Fill& fill, Here at = Here::current()) {
  const auto rows = embedding(table, detail::moved_indices<0>(table, indices, at), at);
  return detail::filled<M, 0, Table::rank - 1>(table, indices, rows, fill, at);
}
template <IndexMode M, TensorArgument Table, TensorArgument Indices>
constexpr auto embedding(const Table& table, const Indices& indices, Here at = Here::current()) {
  return embedding<M>(table, indices, detail::default_fill<typename Table::element>(), at);
}
/// index_select with indices that may be outside of dim D (jnp.take with a mode). Otherwise as gather with a mode;
/// communication as embedding.
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices, Operand Fill>
constexpr auto index_select(const X& x, const Indices& indices, const Fill& fill, Here at = Here::current()) {
  constexpr int behind = X::rank - 1 - detail::checked_dim<D, X::rank>();
  const auto made = index_select<D>(x, detail::moved_indices<D>(x, indices, at), at);
  return detail::filled<M, D, behind>(x, indices, made, fill, at);
}
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices>
constexpr auto index_select(const X& x, const Indices& indices, Here at = Here::current()) {
  return index_select<D, M>(x, indices, detail::default_fill<typename X::element>(), at);
}

/// scatter and scatter_add with indices that may be outside of dim D (x.at[...].set and add with a mode):
/// `scatter<0, ts::IndexMode::drop>(x, indices, source)`. Gradient: 0 for elements that are dropped. Errors besides
/// those of an index, and communication: as scatter and scatter_add.
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto scatter(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  return detail::scatter_by<M, D, ScatterRule{.replaces = true}>(x, indices, source, at);
}
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto scatter_add(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  return detail::scatter_by<M, D, ScatterRule{}>(x, indices, source, at);
}
/// index_copy and index_add with indices that may be outside of dim D. Otherwise as scatter with a mode; communication
/// as index_copy and index_add.
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto index_copy(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  detail::check_write<M>();
  if constexpr (M == IndexMode::clip)
    return index_copy<D>(x, detail::moved_indices<D>(x, indices, at), source, at);
  else
    return call<detail::IndexCopyTag<X::rank, detail::checked_dim<D, X::rank>(), true>>(
        Source::from(at), x, detail::moved_indices<D, true>(x, indices, at), source);
}
template <int D, IndexMode M, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto index_add(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  detail::check_write<M>();
  if constexpr (M == IndexMode::clip)
    return index_add<D>(x, detail::moved_indices<D>(x, indices, at), source, at);
  else
    return call<detail::DroppingIndexAddTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, indices,
                                                                                         source);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
