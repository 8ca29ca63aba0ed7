#ifndef TESSERA_OPS_REDUCTION_ORDER_STATISTICS_HPP
#define TESSERA_OPS_REDUCTION_ORDER_STATISTICS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/cumulative/cumulative.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/gather.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/sorting/sort.hpp>

namespace tessera {

/// How a quantile between two elements is computed from both.
enum class Interpolation : std::uint8_t { linear, lower, higher, midpoint, nearest };

/// Elements along a dim, and their indices: those that are the k-th smallest, or the most frequent.
template <class Values, class Indices> struct KthValue {
  Values values;
  Indices indices;
};

namespace detail {

/// The elements along a dim by their ranks, from 0 for the smallest on; NaN is last.
struct RankedDim {
  Value x, order, nans;  ///< the operand, what sorts it, and the number of NaNs along the dim
  int dim;
  constexpr RankedDim(Value of, int along)
      : x(of), order(build::argsort(of, along, Order::ascending, DType::i32)),
        nans(build::cast(build::sum_of(build::cast(build::not_equal(of, of), DType::i32), 1u << along, true),
                         DType::i64)),
        dim(along) {}
  /// The number of elements that are not NaN.
  constexpr Value count() const { return build::extent(x, dim) - nans; }
  /// The elements with the given ranks, of which each line has one.
  constexpr Value at(Value rank) const {
    const Value from_zero = build::maximum(rank, rank.number(0));
    return build::drop_singletons(build::gather(x, dim, build::gather(order, dim, from_zero)), 1u << dim);
  }
  /// A rank, or that of the last element, which is NaN where one is.
  constexpr Value unless_nan(Value rank) const {
    return build::select(build::equal(nans, nans.number(0)), rank, rank.number(0) + (build::extent(x, dim) - 1.0));
  }
};

template <int Rank, int D, bool IgnoresNan> struct MedianTag {
  static constexpr const char* function = IgnoresNan ? "nanmedian" : "median";
  template <class A> using result = Typed<typename A::type, Rank - 1>;
  static constexpr Value emit(Value context, Value x) {
    const RankedDim line(x.at(context.source), x.shifted(D, Rank));
    const Value lower = (line.count() - 1.0) / line.nans.number(2);
    return line.at(IgnoresNan ? lower : line.unless_nan(lower));
  }
};

template <int Rank, int D, Interpolation How, bool IgnoresNan> struct QuantileTag {
  static constexpr const char* function = IgnoresNan ? "nanquantile" : "quantile";
  template <class A, class Q> using result = Typed<element_t<floating_type(dtype_v<typename A::type>)>, Rank - 1>;
  static constexpr Value emit(Value context, Value x, Value q) {
    x = build::cast(x.at(context.source), floating_type(x.dtype()));
    q = build::checked_cast(q.at(context.source), DType::f64, NumberRule::quantile);
    const RankedDim line(x, x.shifted(D, Rank));
    const Value most = build::cast(line.count() - 1.0, DType::f64), zero = most.number(0);
    const Value position = build::maximum(build::minimum(q * most, most), zero);
    const auto at = [&](Value rank) {
      const Value whole = build::cast(rank, DType::i64);
      return line.at(IgnoresNan ? whole : line.unless_nan(whole));
    };
    const Value below = build::apply<ops::FloorOp>(position), above = build::apply<ops::CeilOp>(position);
    if (How == Interpolation::lower) return at(below);
    if (How == Interpolation::higher) return at(above);
    if (How == Interpolation::nearest) return at(build::apply<ops::RoundOp>(position));
    const DType type = computed_as(x.dtype());
    const Value low = build::cast(at(below), type), high = build::cast(at(above), type);
    const Value part = build::cast(build::drop_singletons(position - below, 1u << line.dim), type);
    // Equal infinities have no difference.
    const Value way = build::select(build::equal(low, high), low.number(0), high - low);
    const Value between = How == Interpolation::midpoint
                              ? build::select(build::equal(part, part.number(0)), low, low + way * 0.5)
                              : low + way * part;
    return build::cast(build::select(build::equal(low, high), low, between), x.dtype());
  }
};

template <int Rank, int D, class Index> struct RankTag {
  static constexpr int size_operand = 1;
  template <class A, class K> using result = Typed<Index, Rank>;
  static constexpr Value emit(Value context, Value x, Value k) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value order = build::argsort(x, dim, Order::ascending, dtype_v<Index>);
    return build::slice(order, dim, as_size(k) - 1.0, x.number(1, DType::i64));
  }
};

}  // namespace detail

/// The median along dim D, `median<0>(x)`, or without a dim of all elements, the lower of two in the middle as in
/// PyTorch; NaN where any element is. The result lacks the dim, and has the element type of x. The gradient goes to the
/// element that is the median. Errors: dim_range for a dim without elements. Communication: as sort. `nanmedian` leaves
/// NaNs out, and is NaN where all are.
template <int D, TensorArgument X> constexpr auto median(const X& x, Here at = Here::current()) {
  return call<detail::MedianTag<X::rank, detail::checked_dim<D, X::rank>(), false>>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto median(const X& x, Here at = Here::current()) {
  return median<0>(detail::flattened(x, at), at);
}
template <int D, TensorArgument X> constexpr auto nanmedian(const X& x, Here at = Here::current()) {
  return call<detail::MedianTag<X::rank, detail::checked_dim<D, X::rank>(), true>>(Source::from(at), x);
}
template <TensorArgument X> constexpr auto nanmedian(const X& x, Here at = Here::current()) {
  return nanmedian<0>(detail::flattened(x, at), at);
}

/// The q-quantile along dim D, or without a dim of all elements: the element of rank q (n - 1), from 0 for the smallest
/// on, interpolated between its neighbours: `quantile<-1>(x, 0.9)`, `quantile<0, ts::Interpolation::lower>(x, q)`. NaN
/// where any element is; integers give f32. Errors: option for a q outside of [0, 1], of a ts::Scalar when the program
/// runs; dim_range for a dim without elements. Otherwise as median. `nanquantile` leaves NaNs out.
template <int D, Interpolation How = Interpolation::linear, TensorArgument X, NumberOperand Q>
constexpr auto quantile(const X& x, const Q& q, Here at = Here::current()) {
  return call<detail::QuantileTag<X::rank, detail::checked_dim<D, X::rank>(), How, false>>(Source::from(at), x, q);
}
template <Interpolation How = Interpolation::linear, TensorArgument X, NumberOperand Q>
constexpr auto quantile(const X& x, const Q& q, Here at = Here::current()) {
  return quantile<0, How>(detail::flattened(x, at), q, at);
}
template <int D, Interpolation How = Interpolation::linear, TensorArgument X, NumberOperand Q>
constexpr auto nanquantile(const X& x, const Q& q, Here at = Here::current()) {
  return call<detail::QuantileTag<X::rank, detail::checked_dim<D, X::rank>(), How, true>>(Source::from(at), x, q);
}
template <Interpolation How = Interpolation::linear, TensorArgument X, NumberOperand Q>
constexpr auto nanquantile(const X& x, const Q& q, Here at = Here::current()) {
  return nanquantile<0, How>(detail::flattened(x, at), q, at);
}

/// The k-th smallest element along dim D, from k = 1 on, and its index, both without the dim: `auto [values, indices] =
/// kthvalue<-1>(x, 2)`. NaN is the largest value. Errors: shape_mismatch for k below 1 or above the extent.
/// Communication: as sort.
template <int D, Element Index = std::int32_t, TensorArgument X, SizeOperand K>
constexpr auto kthvalue(const X& x, const K& k, Here at = Here::current()) {
  const detail::FunctionCall named("kthvalue", x);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  const auto positions = call<detail::RankTag<X::rank, dim, Index>>(Source::from(at), x, Dim(k));
  const auto values = squeeze<dim>(call<detail::GatherTag<X::rank, dim>>(Source::from(at), x, positions), at);
  const auto indices = squeeze<dim>(positions, at);
  return KthValue<std::remove_const_t<decltype(values)>, std::remove_const_t<decltype(indices)>>{values, indices};
}

/// The most frequent element along dim D, the smallest of those that are equally frequent, and the index of its last
/// occurrence, both without the dim (torch.mode): `auto [values, indices] = mode<-1>(x)`. NaN is equal to no element.
/// The gradient goes to that occurrence. Communication: as sort.
template <int D = -1, TensorArgument X> constexpr auto mode(const X& x, Here at = Here::current()) {
  const detail::FunctionCall named("mode", x);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  // The sorted elements are runs of equal ones; the length of a run so far is largest at the end of the longest run.
  const auto order = argsort<dim>(x, at);
  const auto sorted = gather<dim>(x, order, at);
  const auto position = iota<dim, std::int32_t>(order, at);
  const auto before = gather<dim>(sorted, maximum(call<SubTag>(Source::from(at), position, 1), 0, at), at);
  const auto starts = select(logical_or(equal(position, 0, at), not_equal(sorted, before, at), at), position, 0, at);
  const auto last =
      unsqueeze<dim>(argmax<dim>(call<SubTag>(Source::from(at), position, cummax<dim>(starts, at)), at), at);
  const auto found = gather<dim>(order, last, at);
  const auto values = squeeze<dim>(gather<dim>(x, found, at), at);
  const auto indices = squeeze<dim>(found, at);
  return KthValue<std::remove_const_t<decltype(values)>, std::remove_const_t<decltype(indices)>>{values, indices};
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
