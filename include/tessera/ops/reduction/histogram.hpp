#ifndef TESSERA_OPS_REDUCTION_HISTOGRAM_HPP
#define TESSERA_OPS_REDUCTION_HISTOGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/index_mode.hpp>
#include <tessera/ops/reduction/reduce.hpp>

// Counts of elements in bins: rows of one element each, added into a table of bins.

namespace tessera {

namespace detail {

/// The sum of the weights of each bin, [count], or for leading dims of the weights [leading..., count]. `bins` has the
/// shape of the weights; a bin outside of [0, count) is left out: it is added to an additional last bin, which is cut
/// off. Sums of floating-point weights are f64, since all elements may be in one bin.
template <int Rank> constexpr Value sums_of_bins(Value bins, Value weights, Value count) {
  bins = build::cast(bins, DType::i64);
  count = as_size(count).at(bins.source);
  weights = build::cast(weights, is_floating(weights.dtype()) ? DType::f64 : summed_as(weights.dtype()));
  bins = build::select(IsInsideTag<1, 0>::of(bins, count), bins, count);
  const Value size = count + count.number(1);
  Value table = build::arange(size);
  const int lead = weights.leading(Rank);
  Value sums{};
  if (lead == 0) {
    sums = weights.make({.op = Op::index_add, .dtype = weights.dtype(), .rank = 1}, {weights.id, bins.id, table.id});
  } else {  // a table for each of the leading dims: of its values only the shape is used
    const unsigned own = ((1u << weights.rank()) - 1) & ~((1u << lead) - 1);
    const Value each = build::cast(build::sum_of(weights, own), DType::i32);
    table = build::insert_singletons(each, 1u << lead, lead + 1) + table;
    const auto in_one_dim = [&](Value x) {
      if constexpr (Rank == 0) return build::insert_singletons(x, 1u << lead, lead + 1);
      return Rank == 1 ? x : build::merge_dims(x, lead, lead + Rank - 1);
    };
    sums = build::scatter_add(in_one_dim(weights), lead, in_one_dim(bins), table);
  }
  return build::slice(sums, lead, count.number(0), count);
}
template <int Rank> constexpr Value counts_of_bins(Value bins, Value count) {
  return sums_of_bins<Rank>(bins, build::broadcast(bins.number(1, DType::i32), bins), count);
}

template <int Rank> struct BincountTag {
  static constexpr const char* function = "bincount";
  template <class X, class Count, class... Weights> struct result {
    template <class... W> struct Counted : Typed<std::int32_t, 1> {};
    template <class W> struct Counted<W> : Typed<typename W::type, 1> {};
    using type = typename Counted<Weights...>::type;
    static constexpr int rank = 1;
    using Checks = decltype([] {
      static_assert(is_integer(dtype_v<typename X::type>), "tessera: bincount takes an integer tensor");
      static_assert(((Weights::rank == Rank) && ...), "tessera: the weights of bincount have the shape of the operand");
    });
  };
  static constexpr Value emit(Value context, Value x, Value count) {
    return counts_of_bins<Rank>(x.at(context.source), count);
  }
  static constexpr Value emit(Value context, Value x, Value count, Value weights) {
    x = build::cast(x.at(context.source), DType::i64);
    weights = weights.at(context.source);
    const Value inside = IsInsideTag<1, 0>::of(x, as_size(count));
    const Value counted = build::select(inside, weights, weights.number(0));  // in the shape of both
    return build::cast(sums_of_bins<Rank>(build::broadcast(x, counted), counted, count), weights.dtype());
  }
};

template <int Rank> struct HistogramTag {
  static constexpr const char* function = "histogram";
  template <class X, class Count, class Low, class High> using result = Typed<std::int32_t, 1>;
  static constexpr Value emit(Value context, Value x, Value count, Value low, Value high) {
    x = build::cast(x.at(context.source), DType::f64);
    low = build::cast(low, DType::f64), high = build::cast(high, DType::f64);
    const Value size = build::cast(as_size(count), DType::f64), last = size - size.number(1), zero = size.number(0);
    const auto edge = [&](Value at) {
      return build::select(build::equal(at, size), high, low + (high - low) * (at / size));
    };
    // A quotient is rounded, so that it can be in the bin beside that of the element: the edges decide.
    const Value quotient = build::apply<ops::FloorOp>((x - low) / (high - low) * size);
    Value bin = build::select(build::less(quotient, size), quotient, last);
    bin = build::select(build::less(bin, zero), zero, bin);
    bin = build::select(build::less(x, edge(bin)), bin - 1.0, bin);
    const Value next = bin + 1.0;
    bin = build::select(build::logical_and(build::less(next, size), build::greater_equal(x, edge(next))), next, bin);
    const Value inside = build::logical_and(build::greater_equal(x, low), build::less_equal(x, high));
    return counts_of_bins<Rank>(build::cast(build::select(inside, bin, bin.number(-1)), DType::i64), count);
  }
};

}  // namespace detail

/// How often each of the integers 0, ..., count - 1 occurs in x, a vector of `count` i32; other integers are left out,
/// as by jnp.bincount with `length`. With weights, of the shape of x, the sum of the weights of each integer, which has
/// a gradient; floating-point weights are added in f64 and rounded once. Errors: shape_mismatch. Communication: an
/// all-reduce of the counts if x is split.
///
///     const auto tokens_of_expert = ts::bincount(expert, 8);
template <TensorArgument X, SizeOperand Count>
constexpr auto bincount(const X& x, const Count& count, Here at = Here::current()) {
  return call<detail::BincountTag<X::rank>>(Source::from(at), x, Dim(count));
}
template <TensorArgument X, SizeOperand Count, TensorArgument Weights>
constexpr auto bincount(const X& x, const Count& count, const Weights& weights, Here at = Here::current()) {
  return call<detail::BincountTag<X::rank>>(Source::from(at), x, Dim(count), weights);
}

/// How many elements of x are in each of `bins` equal parts of [low, high], a vector of i32. Bins contain their left
/// edge, the last one both, as in NumPy and torch.histc; elements outside of the range and NaN are left out. Compared
/// in f64. No gradient. Communication: an all-reduce of the counts if x is split.
///
///     const auto counts = ts::histogram(x, 10, 0.0, 1.0);
template <TensorArgument X, SizeOperand Count, NumberOperand Low, NumberOperand High>
constexpr auto histogram(const X& x, const Count& bins, const Low& low, const High& high, Here at = Here::current()) {
  return call<detail::HistogramTag<X::rank>>(Source::from(at), x, Dim(bins), low, high);
}

/// Without a size it does not compile.
template <TensorArgument X> constexpr auto bincount(const X& x) {
  static_assert(std::is_void_v<X>, "tessera: shapes can't depend on values, so as in JAX the size of the result is an "
                                   "argument: ts::bincount(x, count)");
  return x;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
