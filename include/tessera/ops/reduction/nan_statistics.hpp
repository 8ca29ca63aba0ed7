#ifndef TESSERA_OPS_REDUCTION_NAN_STATISTICS_HPP
#define TESSERA_OPS_REDUCTION_NAN_STATISTICS_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <limits>
#include <type_traits>

#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/reduction/statistics.hpp>

// Reductions of the elements that are not NaN.

namespace tessera {

namespace detail {

constexpr Value is_nan(Value x) { return build::not_equal(x, x); }
/// x with a number in place of NaN; integers stay.
constexpr Value without_nan(Value x, double number) {
  return is_floating(x.dtype()) ? build::select(is_nan(x), x.number(number), x) : x;
}
/// The initial value of an extreme: infinity for the smallest element.
template <class Extreme> constexpr double least_extreme() {
  const double infinity = std::numeric_limits<double>::infinity();
  return std::is_same_v<Extreme, ops::MaxOp> ? -infinity : infinity;
}

template <bool Keep, int... Dims> struct NanSum {
  using R = Reduce<ops::SumOp, false, Keep, Dims...>;
  template <class A> using result = typename R::template result<A>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    x = x.at(context.source);
    return R::emit(context, without_nan(x, 0), rank, set);
  }
};

template <bool Keep, int... Dims> struct NanMean {
  using R = Reduce<ops::SumOp, true, Keep, Dims...>;
  template <class A> using result = typename R::template result<A>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    const DType type = floating_type(x.dtype());
    set <<= x.rank() - rank;
    x = build::cast(x.at(context.source), computed_as(type));
    const Value zero = x.number(0), nan = is_nan(x);
    const Value count = build::sum_of(build::select(nan, zero, x.number(1)), set, Keep);
    return build::cast(build::sum_of(build::select(nan, zero, x), set, Keep) / count, type);
  }
};

template <bool Keep, int... Dims> struct NanProd {
  using R = Reduce<ops::ProdOp, false, Keep, Dims...>;
  template <class A> using result = typename R::template result<A>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    return R::emit(context, without_nan(x.at(context.source), 1), rank, set);
  }
};

template <class Extreme, bool Keep, int... Dims> struct NanExtreme {
  using R = Reduce<Extreme, false, Keep, Dims...>;
  template <class A> using result = typename R::template result<A>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    x = x.at(context.source);
    const Value found = R::emit(context, without_nan(x, least_extreme<Extreme>()), rank, set);
    if (!is_floating(x.dtype())) return found;
    // NaN where all elements are, and not where there are none.
    set <<= x.rank() - rank;
    const Value numbers = build::select(is_nan(x), x.number(0, DType::i32), x.number(1, DType::i32));
    const Value any = build::max_of(numbers, set, Keep);
    return build::select(build::equal(any, any.number(0)), found.number(std::numeric_limits<double>::quiet_NaN()),
                         found);
  }
};

template <int Rank, bool Root, bool Keep, int... Dims> struct NanVarianceTag {
  using R = Reduce<ops::SumOp, true, Keep, Dims...>;
  template <class A, class Correction> using result = typename R::template result<A>;
  static constexpr Value emit(Value context, Value x, Value correction) {
    const DType type = floating_type(x.dtype());
    const unsigned set = dim_set<Rank, Dims...>() << x.leading(Rank);
    x = build::cast(x.at(context.source), computed_as(type));
    const Value zero = x.number(0), one = x.number(1), nan = is_nan(x);
    const Value count = build::sum_of(build::select(nan, zero, one), set, true);
    // A line of NaNs is divided by 1: 0 / 0 would be NaN in its gradient.
    const Value mean = build::sum_of(build::select(nan, zero, x), set, true) / build::maximum(count, one);
    const Value off = build::select(nan, zero, x - mean);
    const Value divisor = build::maximum(count - build::cast(correction, x.dtype()), zero);
    const Value variance = build::sum_of(off * off, set, true) / divisor;
    const Value made = build::cast(Root ? flat_root(variance) : variance, type);
    return Keep ? made : build::drop_singletons(made, set);
  }
};

/// The position of the first extreme of the elements that are not NaN; -1 where all are.
template <class Extreme, class Index, bool Keep, int... Dims> struct NanArgReduce {
  static constexpr const char* function = std::is_same_v<Extreme, ops::MaxOp> ? "nanargmax" : "nanargmin";
  using R = ArgReduce<Extreme, Index, Keep, Dims...>;
  template <class A> using result = typename R::template result<A>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    x = x.at(context.source);
    set <<= x.rank() - rank;
    const Value most = build::reduce(ops::op_v<Extreme>, without_nan(x, least_extreme<Extreme>()), set, true);
    const Value found = R::first_of(x, build::equal(x, most), set);
    return build::select(build::equal(found, found.number(R::past_all)), found.number(-1), found);
  }
};

}  // namespace detail

/// The sum of the elements that are not NaN, whose gradient is 0 where elements are NaN. Otherwise as `sum`.
template <int... Dims, TensorArgument X> constexpr auto nansum(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanSum<false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto nansum(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanSum<true, Dims...>>(x, at);
}
/// The mean of the elements that are not NaN; NaN where all are. Otherwise as `mean`.
template <int... Dims, TensorArgument X> constexpr auto nanmean(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanMean<false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto nanmean(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanMean<true, Dims...>>(x, at);
}
/// The largest, the smallest of the elements that are not NaN; NaN where all are (jnp.nanmax, jnp.nanmin). The gradient
/// is that of `max` and `min`, 0 where elements are NaN. Otherwise as `max`.
template <int... Dims, TensorArgument X> constexpr auto nanmax(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanExtreme<ops::MaxOp, false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto nanmax(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanExtreme<ops::MaxOp, true, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto nanmin(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanExtreme<ops::MinOp, false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto nanmin(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanExtreme<ops::MinOp, true, Dims...>>(x, at);
}
/// The product of the elements that are not NaN (jnp.nanprod); 1 where all are. Otherwise as `prod`.
template <int... Dims, TensorArgument X> constexpr auto nanprod(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanProd<false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto nanprod(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanProd<true, Dims...>>(x, at);
}
/// The variance of the elements that are not NaN, by their number less the correction, which is 1 as for `var`;
/// jnp.nanvar's default is 0. NaN where no more elements than the correction are. Otherwise as `var` and `std`.
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto nanvar(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::NanVarianceTag<X::rank, false, false, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto nanvar(const X& x, KeepDims, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::NanVarianceTag<X::rank, false, true, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto nanstd(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::NanVarianceTag<X::rank, true, false, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto nanstd(const X& x, KeepDims, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::NanVarianceTag<X::rank, true, true, Dims...>>(Source::from(at), x, correction);
}
/// The index of the largest (smallest) element that is not NaN, along one dim or among all elements; -1 where all are
/// NaN, as for jnp.nanargmax. Otherwise as `argmax`: `nanargmax<-1>(x)`, `nanargmin<0, std::int64_t>(x)`.
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto nanargmax(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanArgReduce<ops::MaxOp, Index, false, D>>(x, at);
}
template <Element Index = std::int32_t, TensorArgument X>
constexpr auto nanargmax(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanArgReduce<ops::MaxOp, Index, false>>(x, at);
}
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto nanargmax(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanArgReduce<ops::MaxOp, Index, true, D>>(x, at);
}
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto nanargmin(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanArgReduce<ops::MinOp, Index, false, D>>(x, at);
}
template <Element Index = std::int32_t, TensorArgument X>
constexpr auto nanargmin(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanArgReduce<ops::MinOp, Index, false>>(x, at);
}
template <int D, Element Index = std::int32_t, TensorArgument X>
constexpr auto nanargmin(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanArgReduce<ops::MinOp, Index, true, D>>(x, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
