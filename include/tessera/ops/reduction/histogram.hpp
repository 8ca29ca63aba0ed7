#ifndef TESSERA_OPS_REDUCTION_HISTOGRAM_HPP
#define TESSERA_OPS_REDUCTION_HISTOGRAM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>

// Counts of elements in bins. All pairs of elements and bins are compared in one pass, so that no dim is gathered.

namespace tessera {

namespace detail {

/// The elements of x along a new last dim of bins, and the bins.
struct Bins {
  Value x, bin;
  unsigned counted;  ///< the dims of x
  constexpr Bins(Value of, int rank, Value count)
      : x(build::insert_singletons(of, 1u << of.rank(), of.rank() + 1)),
        bin(of.make({.op = Op::arange, .dtype = DType::i32, .rank = 1}, {as_size(count).id})),
        counted(((1u << of.rank()) - 1) & ~((1u << of.leading(rank)) - 1)) {}
};

template <int Rank> struct BincountTag {
  static constexpr const char* function = "bincount";
  static_assert(Rank < max_rank, "tessera: bincount takes at most 7 dims");
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
  static constexpr Value in_bin(const Bins& bins) {
    const DType type = promote(bins.x.dtype(), DType::i32);
    return build::equal(build::cast(bins.x, type), build::cast(bins.bin, type));
  }
  static constexpr Value emit(Value context, Value x, Value count) {
    const Bins bins(x.at(context.source), Rank, count);
    return build::sum_of(build::cast(in_bin(bins), DType::i32), bins.counted);
  }
  static constexpr Value emit(Value context, Value x, Value count, Value weights) {
    const Bins bins(x.at(context.source), Rank, count);
    const Value weight = build::insert_singletons(weights.at(context.source), 1u << weights.rank(), weights.rank() + 1);
    return build::cast(build::sum_of(build::select(in_bin(bins), weight, weight.number(0)), bins.counted),
                       weights.dtype());
  }
};

template <int Rank> struct HistogramTag {
  static_assert(Rank < max_rank, "tessera: histogram takes at most 7 dims");
  template <class X, class Count, class Low, class High> using result = Typed<std::int32_t, 1>;
  static constexpr Value emit(Value context, Value x, Value count, Value low, Value high) {
    const Bins bins(build::cast(x.at(context.source), DType::f64), Rank, count);
    low = build::cast(low, DType::f64), high = build::cast(high, DType::f64);
    const Value size = build::cast(as_size(count), DType::f64), bin = build::cast(bins.bin, DType::f64);
    const auto edge = [&](Value at) {
      return build::select(build::equal(at, size), high, low + (high - low) * (at / size));
    };
    const Value start = edge(bin), end = edge(bin + 1.0);
    const Value closed = build::binary(Op::logical_and, build::equal(end, high), build::equal(bins.x, high));
    const Value before = build::binary(Op::logical_or, build::less(bins.x, end), closed);
    const Value in = build::binary(Op::logical_and, build::binary(Op::greater_equal, bins.x, start), before);
    return build::sum_of(build::cast(in, DType::i32), bins.counted);
  }
};

}  // namespace detail

/// How often each of the integers 0, ..., count - 1 occurs in x, a vector of `count` i32; other integers are left out,
/// as by jnp.bincount with `length`. With weights, of the shape of x, the sum of the weights of each integer, which has
/// a gradient. Each element is compared with each integer, which suits up to some hundred of them; for more, such as
/// the degrees of many nodes, segment_sum of ones takes time by the elements alone. Errors: shape_mismatch.
/// Communication: an all-reduce of the counts if x is split.
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

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
