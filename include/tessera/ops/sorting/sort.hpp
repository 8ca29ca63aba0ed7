#ifndef TESSERA_OPS_SORTING_SORT_HPP
#define TESSERA_OPS_SORTING_SORT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/indexing/gather.hpp>

namespace tessera {

namespace detail {

template <int Rank, int D, Order O, class Index> struct ArgsortTag {
  static_assert(std::is_same_v<Index, std::int32_t> || std::is_same_v<Index, std::int64_t>,
                "tessera: the type of indices must be std::int32_t or std::int64_t");
  static constexpr int size_operand = 1;
  template <class A, class... Count> struct result : Typed<Index, Rank> {
    static_assert(require_arithmetic<typename A::type>());
  };
  static constexpr Value emit(Value context, Value x) {
    return build::argsort(x.at(context.source), x.shifted(D, Rank), O, dtype_v<Index>);
  }
  static constexpr Value emit(Value context, Value x, Value count) {
    return build::argsort(x.at(context.source), x.shifted(D, Rank), O, dtype_v<Index>, as_size(count));
  }
};

template <int Rank, int D, Order O> struct SortTag {
  template <class A> struct result : A {
    static_assert(require_arithmetic<typename A::type>());
  };
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    return build::gather(x, dim, build::argsort(x, dim, O, DType::i32));
  }
};

}  // namespace detail

/// The indices that sort dim D, by default the last: `argsort(x)`, `argsort<0, ts::Order::descending,
/// std::int64_t>(x)`. Stable; NaN is the largest value. The result has the shape of x. Communication: as sort.
template <int D = -1, Order O = Order::ascending, Element Index = std::int32_t, TensorArgument X>
constexpr auto argsort(const X& x, Here at = Here::current()) {
  return call<detail::ArgsortTag<X::rank, detail::checked_dim<D, X::rank>(), O, Index>>(Source::from(at), x);
}

/// x sorted along dim D, by default the last: `sort(x)`, `sort<0, ts::Order::descending>(x)`. Stable; NaN is the
/// largest value, so that it comes first in descending order, as in PyTorch and JAX. The gradient goes back to where
/// each element came from. Communication: a split D is made whole, by an all_to_all onto another unsplit dim that its
/// axes divide, otherwise by an all_gather; the result keeps that sharding. None for other split dims.
template <int D = -1, Order O = Order::ascending, TensorArgument X>
constexpr auto sort(const X& x, Here at = Here::current()) {
  const detail::FunctionCall named("sort", x);
  return call<detail::SortTag<X::rank, detail::checked_dim<D, X::rank>(), O>>(Source::from(at), x);
}

/// The largest elements along a dim, and their indices.
template <class Values, class Indices> struct TopK {
  Values values;
  Indices indices;
};

/// The k largest elements along dim D, by default the last, in descending order, and their indices: `auto [values,
/// indices] = topk(x, 5)`. Of equal elements the first comes first; NaN is the largest value. Errors: shape_mismatch
/// for k above the extent. Communication: as sort.
template <int D = -1, Element Index = std::int32_t, TensorArgument X, SizeOperand K>
constexpr auto topk(const X& x, const K& k, Here at = Here::current()) {
  const detail::FunctionCall named("topk", x);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  const auto indices = call<detail::ArgsortTag<X::rank, dim, Order::descending, Index>>(Source::from(at), x, Dim(k));
  const auto values = call<detail::GatherTag<X::rank, dim>>(Source::from(at), x, indices);
  return TopK<std::remove_const_t<decltype(values)>, std::remove_const_t<decltype(indices)>>{values, indices};
}

/// With a dim as an argument they do not compile.
template <TensorArgument X, std::integral Dim> constexpr X argsort(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim> constexpr X sort(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, SizeOperand K, std::integral Dim> constexpr X topk(const X& x, const K&, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
