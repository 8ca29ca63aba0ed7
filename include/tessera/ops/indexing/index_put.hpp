#ifndef TESSERA_OPS_INDEXING_INDEX_PUT_HPP
#define TESSERA_OPS_INDEXING_INDEX_PUT_HPP
#include <tessera/base/push_macros.hpp>

#include <initializer_list>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/ops/indexing/one_hot.hpp>
#include <tessera/ops/indexing/scatter_rows.hpp>

// Rows of a tensor read and written at vectors of indices. Compositions: a vector has the number of the row that goes
// to each index, and rows are looked up there, so that a tensor that is written stays split.

namespace tessera {

namespace detail {

template <class Indices> constexpr void check_row_indices() {
  static_assert(
      std::is_same_v<typename Indices::type, std::int32_t> || std::is_same_v<typename Indices::type, std::int64_t>,
      "tessera: indices must be std::int32_t or std::int64_t; use ts::cast<std::int32_t>(indices)");
}
template <class Indices> constexpr void check_index_vector() {
  check_row_indices<Indices>();
  static_assert(Indices::rank == 1, "tessera: rows are written at a vector of indices");
}
constexpr Value one_vector(Value indices, Value context) {
  if (indices.rank() != 1)
    context.refuse(errc::unsupported,
                   "[index_put] field of all layers of a Stack: write at indices inside the block of the Stack");
  return indices.at(context.source);
}
/// 0, 1, ... along dim D of x: a vector.
constexpr Value counting_along(Value x, int dim) { return build::arange(build::extent(x, dim)); }
/// A vector along dim `dim` of a tensor of the given rank, to be broadcast against it.
constexpr Value along_dim(Value vector, int dim, int rank) {
  const int dims = rank - dim;
  return build::insert_singletons(vector, (1u << dims) - 2, dims);
}

template <class X, class Indices, class Source> struct RowsPutIn : X {
  using Checks = decltype([] {
    check_index_vector<Indices>();
    static_assert(Source::rank == X::rank, "tessera: the source of rows has the rank of what it goes to");
    static_assert(std::is_same_v<typename Source::type, typename X::type>,
                  "tessera: the source of rows has the element type of what it goes to; use ts::cast");
  });
};

/// With `Room` an index may be the extent of the dim: its row is left out.
template <int Rank, int D, bool Room = false> struct IndexCopyTag {
  static constexpr const char* function = "index_copy";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Indices, class Source> using result = RowsPutIn<X, Indices, Source>;
  static constexpr Value emit(Value context, Value x, Value indices, Value source) {
    x = x.at(context.source);
    source = source.at(context.source);
    indices = one_vector(indices, context);
    const int dim = source.shifted(D, Rank);
    for (int d = 0; d < Rank; ++d)
      if (d != D) build::same_extents(x, x.shifted(d, Rank), source, source.shifted(d, Rank), 1, build::ExtentsOf::put);
    build::same_extents(source, dim, indices, 0, 1, build::ExtentsOf::put_rows);
    const Value extent = build::extent(source, dim), count = build::cast(extent, DType::i32);
    // The row that goes to each index; where none does, a row of zeros after those of the source is looked up.
    const Value kept = build::extent(x, dim), zero = kept.number(0);
    const Value all =
        Room ? build::pad_to(counting_along(x, dim), 0, zero, kept + kept.number(1)) : counting_along(x, dim);
    Value row =
        build::scatter(build::broadcast(count, all), 0, indices, counting_along(source, dim), {.replaces = true});
    if (Room) row = build::slice(row, 0, zero, kept);
    const Value table = build::pad_to(source, dim, extent.number(0), extent + extent.number(1));
    const Value rows = build::move_dim(EmbeddingTag::emit(context, build::move_dim(table, dim, 0), row), 0, dim);
    return build::select(build::less(along_dim(row, dim, x.rank()), count), rows, x);
  }
};

/// Whether each index along dim D is one of the indices, to be broadcast along dim D.
template <int Rank, int D> struct IsNamedTag {
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Indices> struct result : Typed<bool, Rank - D> {
    using Checks = decltype([] { check_index_vector<Indices>(); });
  };
  static constexpr Value emit(Value context, Value x, Value indices) {
    indices = one_vector(indices, context);
    const auto filled = [](bool value, Value like) { return build::broadcast(like.number(value, DType::bool_), like); };
    const Value none = filled(false, counting_along(x.at(context.source), x.shifted(D, Rank)));
    return along_dim(build::scatter(none, 0, indices, filled(true, counting_along(indices, 0)), {.replaces = true}), D,
                     Rank);
  }
};

/// Elements below 32 bits are added in 32.
template <int Rank, int D> struct IndexAddTag {
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Indices, class Source> struct result : X {
    using Checks = typename RowsPutIn<X, Indices, Source>::Checks;
    static_assert(!std::is_same_v<typename X::type, bool>, "tessera: index_add does not take bools; use ts::cast");
  };
  static constexpr Value emit(Value context, Value x, Value indices, Value source) {
    indices = one_vector(indices, context);
    const int dim = x.shifted(D, Rank);
    const Value wide = build::move_dim(build::cast(x.at(context.source), summed_as(x.dtype())), dim, 0),
                rows = build::move_dim(build::cast(source.at(context.source), wide.dtype()), dim, 0);
    if (((rows.node().singletons ^ wide.node().singletons) & ~1u) != 0)
      context.refuse(errc::shape_mismatch,
                     "[index_add] dims: a dim has static extent 1 in only one of tensor and source; use "
                     "ts::broadcast_like first");
    const Node made{
        .op = Op::index_add, .dtype = wide.dtype(), .rank = wide.node().rank, .singletons = wide.node().singletons};
    return build::cast(build::move_dim(wide + wide.make(made, {rows.id, indices.id, wide.id}), 0, dim), x.dtype());
  }
};

template <int Rank, class... Indices> constexpr void check_indices() {
  constexpr bool has_mask = (std::is_same_v<typename Indices::type, bool> || ...);
  static_assert(!has_mask, "tessera: a mask is no index: the elements where it holds are ts::masked_select(x, mask, "
                           "size), of which the size is known; to write there, ts::masked_fill(x, mask, number) or "
                           "ts::select(mask, values, x)");
  if constexpr (!has_mask) {
    (check_row_indices<Indices>(), ...);
    static_assert(sizeof...(Indices) >= 2, "tessera: with one tensor of indices use embedding or index_copy");
    static_assert(sizeof...(Indices) <= Rank, "tessera: there are at most as many tensors of indices as dims");
  }
}
/// The index into the merged first dims of x, of one index for each of them; an ops::OutsideIndex where one of them is
/// outside of its dim, of several such dims the first.
template <int Rank> constexpr Value merged_index(Value context, Value x, std::initializer_list<Value> indices) {
  if (x.rank() != Rank)
    context.refuse(errc::unsupported,
                   "[index] field of all layers of a Stack: use indices inside the block of the Stack");
  using ops::OutsideIndex;
  Value merged{}, outside{};  // where all are inside, `outside` is 0
  int dim = 0;
  for (const Value& given : indices) {
    const Value index = build::cast(given.at(context.source), DType::i64), extent = build::extent(x, dim);
    const Value own = build::logical_and(build::greater_equal(index, index.number(0)), build::less(index, extent));
    const auto number = [&](std::int64_t of) { return index.number(static_cast<double>(of)); };
    const auto limited = [&](const Value& v) {
      return build::maximum(build::minimum(v, number(OutsideIndex::range - 1)), number(-OutsideIndex::range));
    };
    const Value position = limited(index) + number(OutsideIndex::range * (1 + 2 * dim));
    const Value wrong = number(OutsideIndex::first) - (position * number(OutsideIndex::range) + limited(extent));
    const Value found = build::select(own, number(0), wrong);
    merged = merged.module == nullptr ? index : merged * extent + index;
    outside = outside.module == nullptr ? found : build::select(build::equal(outside, number(0)), found, outside);
    ++dim;
  }
  return build::select(build::equal(outside, outside.number(0)), merged, outside);
}

template <int Rank> struct IndexTag {
  static constexpr const char* function = "index";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class... Indices> struct result {
    using type = typename X::type;
    static constexpr int own = [] {
      int most = 0;
      ((most = Indices::rank > most ? Indices::rank : most), ...);
      return most;
    }();
    static constexpr int rank = Rank - static_cast<int>(sizeof...(Indices)) + own;
    using Checks = decltype([] {
      check_indices<Rank, Indices...>();
      static_assert(rank <= max_rank, "tessera: a tensor has at most 8 dims");
    });
  };
  static constexpr Value emit(Value context, Value x, auto... indices) {
    x = x.at(context.source);
    return EmbeddingTag::emit(context, MergeTag<Rank, 0, static_cast<int>(sizeof...(indices)) - 1>::emit(context, x),
                              merged_index<Rank>(context, x, {indices...}));
  }
};

template <int Rank, bool Accumulate> struct IndexPutTag {
  static constexpr const char* function = "index_put";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Values, class... Indices> struct result : X {
    using Checks = decltype([] {
      check_indices<Rank, Indices...>();
      (check_index_vector<Indices>(), ...);
      static_assert(Values::rank == Rank - static_cast<int>(sizeof...(Indices)) + 1,
                    "tessera: the values of index_put are [K, row...], for indices [K] and a tensor [M, N, row...]");
      static_assert(std::is_same_v<typename Values::type, typename X::type>,
                    "tessera: the values of index_put have the element type of what they go to; use ts::cast");
    });
  };
  static constexpr Value emit(Value context, Value x, Value values, auto... indices) {
    constexpr int dims = static_cast<int>(sizeof...(indices)), rank = Rank - dims + 1;
    using Put = std::conditional_t<Accumulate, IndexAddTag<rank, 0>, IndexCopyTag<rank, 0>>;
    x = x.at(context.source);
    const Value index = merged_index<Rank>(context, x, {indices...});
    const Value put = Put::emit(context, MergeTag<Rank, 0, dims - 1>::emit(context, x), index, values);
    return [&]<int... I>(std::integer_sequence<int, I...>) {
      return SplitTag<rank, 0, dims>::emit(context, put, build::extent(x, I + 1)...);
    }(std::make_integer_sequence<int, dims - 1>{});
  }
};

}  // namespace detail

/// x with rows along dim D replaced by those of the source (torch.index_copy, x.at[indices].set): row k of the source
/// goes to indices[k]; of several rows at one index the last one stays, on every sharding. The source has the dims of
/// x, with as many rows as indices. Gradients: of x the cotangent of rows that stay, of the source that of the rows
/// where it went. Errors: dim_range for an index outside of the dim, shape_mismatch where another dim differs.
/// Communication: a split vector of indices is gathered; the source as in index_select; x stays split.
///
///     const auto next = ts::index_copy<0>(cache, slots, keys);   // [S, H], [K], [K, H]
template <int D, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto index_copy(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  return call<detail::IndexCopyTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, indices, source);
}

/// x with rows of the source added along dim D (torch.index_add, x.at[indices].add): row k is added at indices[k]. bf16
/// and f16 is added in f32; small integers in i32; integers wrap around. Gradients: of x the cotangent, of the source
/// the cotangent at the indices. Errors as index_copy. Communication: where rows of the source are split, an all-reduce
/// of the sums; a split dim D of x stays split.
template <int D, TensorArgument X, TensorArgument Indices, TensorArgument Elements>
constexpr auto index_add(const X& x, const Indices& indices, const Elements& source, Here at = Here::current()) {
  return call<detail::IndexAddTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, indices, source);
}

/// x with the value in all rows along dim D at the indices, a vector (torch.index_fill). The value is a number or a
/// tensor, broadcast against x. The gradient of x is 0 where it is overwritten. Errors and communication: as
/// index_copy.
template <int D, TensorArgument X, TensorArgument Indices, Operand V>
constexpr auto index_fill(const X& x, const Indices& indices, const V& value, Here at = Here::current()) {
  const detail::FunctionCall named("index_fill", x, indices);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  return masked_fill(x, call<detail::IsNamedTag<X::rank, dim>>(Source::from(at), x, indices), value, at);
}

/// The elements of the flattened x at indices of any shape (torch.take, jnp.take without an axis). The gradient adds to
/// the elements that were taken. Errors: dim_range. Communication: as merge_dims and embedding.
template <TensorArgument X, TensorArgument Indices>
constexpr auto take(const X& x, const Indices& indices, Here at = Here::current()) {
  static_assert(X::rank >= 1, "tessera: take needs a tensor with dims");
  if constexpr (X::rank == 1)
    return embedding(x, indices, at);
  else
    return embedding(merge_dims<0, X::rank - 1>(x, at), indices, at);
}

/// x at one index for each of its first dims: x[i, j] of PyTorch and JAX. The indices are broadcast against each other:
/// x [M, N, row...] and indices [K] give [K, row...]. An index below 0 is outside of its dim. Gradient: as embedding.
/// Errors: dim_range. Communication: as merge_dims and embedding.
///
///     const auto picked = ts::index(logits, ts::iota<0, std::int32_t>(labels), labels);   // [B, V], [B], [B]
template <TensorArgument X, TensorOperand... Indices>
constexpr auto index(const X& x, const std::tuple<Indices...>& indices, Here at = Here::current()) {
  return std::apply([&](const Indices&... i) { return call<detail::IndexTag<X::rank>>(Source::from(at), x, i...); },
                    indices);
}

/// The same, of up to four indices without a tuple.
template <TensorArgument X, TensorOperand I> constexpr auto index(const X& x, const I& i, Here at = Here::current()) {
  return embedding(x, i, at);
}
template <TensorArgument X, TensorOperand I, TensorOperand J>
constexpr auto index(const X& x, const I& i, const J& j, Here at = Here::current()) {
  return call<detail::IndexTag<X::rank>>(Source::from(at), x, i, j);
}
template <TensorArgument X, TensorOperand I, TensorOperand J, TensorOperand K>
constexpr auto index(const X& x, const I& i, const J& j, const K& k, Here at = Here::current()) {
  return call<detail::IndexTag<X::rank>>(Source::from(at), x, i, j, k);
}
template <TensorArgument X, TensorOperand I, TensorOperand J, TensorOperand K, TensorOperand L>
constexpr auto index(const X& x, const I& i, const J& j, const K& k, const L& l, Here at = Here::current()) {
  return call<detail::IndexTag<X::rank>>(Source::from(at), x, i, j, k, l);
}

/// x with values at one index for each of its first dims (torch.index_put, x.at[i, j].set): x [M, N, row...], indices
/// [K] and values [K, row...]. With `Accumulate` values are added, as in index_add; otherwise as index_copy, of which
/// it has the rules, gradients and errors. Communication: as merge_dims and index_copy.
///
///     const auto marked = ts::index_put(board, std::tuple(rows, columns), pieces);   // [M, N], ([K], [K]), [K]
template <bool Accumulate = false, TensorArgument X, TensorOperand... Indices, TensorArgument Elements>
constexpr auto index_put(const X& x, const std::tuple<Indices...>& indices, const Elements& values,
                         Here at = Here::current()) {
  return std::apply(
      [&](const Indices&... i) {
        return call<detail::IndexPutTag<X::rank, Accumulate>>(Source::from(at), x, values, i...);
      },
      indices);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
