#ifndef TESSERA_OPS_INDEXING_ROW_HPP
#define TESSERA_OPS_INDEXING_ROW_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

#include <tessera/ops/data_movement/slice_scatter.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>
#include <tessera/ops/indexing/one_hot.hpp>

// Rows at indices: x[i], whose operator is in graph/trace/expression/operators.hpp, and index_select of a list.

namespace tessera::detail {

template <class X> struct RowOf {
  static constexpr bool has_rows = X::rank > 0;
  static_assert(has_rows, "tessera: a tensor of rank 0 has no rows: x[i] takes a tensor of rank 1 or more");
  static constexpr int rank = has_rows ? X::rank : 1;

  static constexpr auto select(const X& x, const Dim& i, Source at) {
    if constexpr (has_rows)
      return call<SelectIndexTag<rank, 0>>(at, x, i);
    else
      return x;
  }
  template <class I> static constexpr auto dynamic(const X& x, const I& i, Source at) {
    if constexpr (has_rows) {
      const auto index = call<OneIndexTag<rank, 0>>(at, x, i);
      const FunctionCall named("dynamic_index", x, index);
      return call<SqueezeTag<rank, 0>>(at, call<IndexSelectTag>(at, x, index));
    } else {
      return x;
    }
  }
  /// The line of an index that is computed.
  template <class I> static constexpr Source line_of(const I& i) {
    if constexpr (ExprOperand<I>)
      return i.source;
    else
      return detail::line_of(i);
  }
};

/// The elements at a few indices along dim D that are known when the program is planned.
template <int Rank, int D> struct IndexListTag {
  static constexpr const char* function = "index_select";
  template <class X, class... Indices> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x, auto... indices) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value extent = build::extent(x, dim), one = x.integer(1, DType::i64);
    const auto row = [&](Value index) {
      return build::slice(x, dim, from_either_end(as_size(index), extent), one, MadeBy::select);
    };
    if constexpr (sizeof...(indices) == 1)
      return row(indices...);
    else
      return ConcatTag<Rank, D>::emit(context, row(indices)...);
  }
};

}  // namespace tessera::detail

namespace tessera {

/// The elements of x at up to 16 indices along dim D that are known when the program is planned, in their order:
/// `index_select<0>(x, {0, 2})` is x[[0, 2]], rows 0 and 2. A negative index counts from the end. Errors and
/// communication: as select.
template <int D, TensorArgument X, std::size_t N>
constexpr auto index_select(const X& x, const Dim (&indices)[N], Here at = Here::current()) {
  static_assert(N <= 16,
                "tessera: a list of indices has at most 16 of them; write ts::index_select<D>(x, i) with a tensor");
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return call<detail::IndexListTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, indices[I]...);
  }(std::make_index_sequence<N>());
}
/// With one index it does not compile.
template <int D, TensorArgument X, SizeOperand I> constexpr auto index_select(const X& x, const I&) {
  static_assert(std::is_void_v<I>,
                "tessera: ts::index_select<D>(x, indices) takes a vector of indices, or a list of numbers such as "
                "{0, 2}; for the elements at an index, without dim D, write ts::select<D>(x, i), or x[i] for dim 0");
  return x;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
