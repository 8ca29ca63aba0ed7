#ifndef TESSERA_OPS_REDUCTION_STATISTICS_HPP
#define TESSERA_OPS_REDUCTION_STATISTICS_HPP
#include <tessera/base/push_macros.hpp>

#include <limits>

#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

namespace detail {

/// The square root, with a gradient of 0 where x is 0: a distance of 0 has no direction.
constexpr Value flat_root(Value x) {
  const Value zero = x.number(0), at_zero = build::equal(x, zero);
  return build::select(at_zero, zero, build::sqrt(build::select(at_zero, x.number(1), x)));
}

template <int Rank, bool Root, bool Keep, int... Dims> struct VarianceTag {
  using R = Reduce<ops::SumOp, true, Keep, Dims...>;
  template <class A, class Correction> using result = typename R::template result<A>;
  static constexpr Value emit(Value context, Value x, Value correction) {
    const DType type = floating_type(x.dtype());
    const unsigned set = dim_set<Rank, Dims...>() << x.leading(Rank);
    x = build::cast(x.at(context.source), computed_as(type));
    const Value count = build::cast(build::element_count(x, set), x.dtype());
    const Value off = x - build::sum_of(x, set, true) / count;
    const Value divisor = build::maximum(count - build::cast(correction, x.dtype()), x.number(0));
    const Value variance = build::sum_of(off * off, set, Keep) / divisor;
    return build::cast(Root ? flat_root(variance) : variance, type);
  }
};

template <bool Keep, int... Dims> struct Norm {
  using R = Reduce<ops::SumOp, true, Keep, Dims...>;
  template <class A> using result = typename R::template result<A>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    const DType type = floating_type(x.dtype());
    set <<= x.rank() - rank;
    x = build::cast(x.at(context.source), computed_as(type));
    return build::cast(flat_root(build::sum_of(x * x, set, Keep)), type);
  }
};

template <bool Keep, int... Dims> struct CountNonzero {
  using R = Reduce<ops::SumOp, false, Keep, Dims...>;
  template <class A> using result = typename R::template result<Typed<std::int32_t, A::rank>>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    x = x.at(context.source);
    return R::emit(context, build::cast(build::not_equal(x, x.number(0)), DType::i32), rank, set);
  }
};

template <int Rank, bool Keep, int... Dims> struct PNormTag {
  using R = Reduce<ops::SumOp, true, Keep, Dims...>;
  template <class A, class P> using result = typename R::template result<A>;
  static constexpr Value emit(Value context, Value x, Value p) {
    const DType type = floating_type(x.dtype());
    const unsigned set = dim_set<Rank, Dims...>() << x.leading(Rank);
    x = build::cast(x.at(context.source), computed_as(type));
    const double infinity = std::numeric_limits<double>::infinity();
    const Value size = build::abs(x);
    const auto over = [&](Op op, Value v) { return build::cast(build::reduce(op, v, set, Keep), type); };
    if (p.is_number(1)) return over(Op::sum, size);
    if (p.is_number(2)) return build::cast(flat_root(build::sum_of(x * x, set, Keep)), type);
    if (p.is_number(infinity)) return over(Op::max, size);
    if (p.is_number(-infinity)) return over(Op::min, size);
    if (p.is_number(0)) return over(Op::sum, build::cast(build::not_equal(x, x.number(0)), x.dtype()));
    p = build::cast(p, x.dtype());
    // The gradient of a power of 0 is 0, as in flat_root.
    const auto power = [](Value v, Value by) {
      const Value at_zero = build::equal(v, v.number(0));
      return build::select(at_zero, v.number(0), build::binary(Op::pow, build::select(at_zero, v.number(1), v), by));
    };
    return build::cast(power(build::sum_of(power(size, p), set, Keep), 1.0 / p), type);
  }
};

}  // namespace detail

/// The variance over the named dims (all when none is named), `var<-1>(x)`: the sum of the squares of x less its mean,
/// over the number of elements less the correction, which is 1 as in PyTorch; 0, `var<-1>(x, 0)`, is JAX's default. NaN
/// where no more elements than the correction are. Computed in two passes, so that a large mean loses nothing; bf16 and
/// f16 are computed in f32; integers give f32. `std` is its root, of which the gradient is 0 where it is 0, as in
/// PyTorch. Shapes as for `sum`. Communication: over a sharded dim two all-reduces, of the sums and of the sums of
/// squares.
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto var(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, false, false, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto var(const X& x, KeepDims, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, false, true, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto std(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, true, false, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto std(const X& x, KeepDims, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, true, true, Dims...>>(Source::from(at), x, correction);
}

/// The Euclidean norm over the named dims (all when none is named): the root of the sum of squares. Squares overflow
/// from 1e19 on in f32. The gradient is x over the norm, and 0 where the norm is 0, as in PyTorch. bf16 and f16 are
/// computed in f32; integers give f32. With a p as in `norm<-1>(x, 1)` the p-norm: the sum of |x|^p to the power of 1 /
/// p; the largest |x| of infinity, the smallest of -infinity, the number of nonzero elements of 0. A p of 1, 2, 0 or
/// infinity is a constant, p above 0 may be a ts::Scalar. Shapes and communication as for `sum`.
template <int... Dims, TensorArgument X> constexpr auto norm(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::Norm<false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto norm(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::Norm<true, Dims...>>(x, at);
}

template <int... Dims, TensorArgument X, NumberOperand P>
constexpr auto norm(const X& x, const P& p, Here at = Here::current()) {
  return call<detail::PNormTag<X::rank, false, Dims...>>(Source::from(at), x, p);
}
template <int... Dims, TensorArgument X, NumberOperand P>
constexpr auto norm(const X& x, KeepDims, const P& p, Here at = Here::current()) {
  return call<detail::PNormTag<X::rank, true, Dims...>>(Source::from(at), x, p);
}

/// The number of elements that are not 0, i32; NaN is not 0. No gradient. Otherwise as `sum`.
template <int... Dims, TensorArgument X> constexpr auto count_nonzero(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::CountNonzero<false, Dims...>>(x, at);
}
template <int... Dims, TensorArgument X> constexpr auto count_nonzero(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::CountNonzero<true, Dims...>>(x, at);
}

/// Two statistics of the same elements.
template <class Spread, class Mean> struct SpreadAndMean {
  Spread spread;
  Mean mean;
};
template <class Min, class Max> struct Extremes {
  Min min;
  Max max;
};
/// `auto [variance, mean] = var_mean<-1>(x)`, `auto [deviation, mean] = std_mean<-1>(x)`, `auto [min, max] =
/// aminmax<-1>(x)`: two reductions of one operand, as for var, std, mean, min and max.
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto var_mean(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return SpreadAndMean<decltype(var<Dims...>(x, correction, at)), decltype(mean<Dims...>(x, at))>{
      var<Dims...>(x, correction, at), mean<Dims...>(x, at)};
}
template <int... Dims, TensorArgument X, NumberOperand Correction = int>
constexpr auto std_mean(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return SpreadAndMean<decltype(tessera::std<Dims...>(x, correction, at)), decltype(mean<Dims...>(x, at))>{
      tessera::std<Dims...>(x, correction, at), mean<Dims...>(x, at)};
}
template <int... Dims, TensorArgument X> constexpr auto aminmax(const X& x, Here at = Here::current()) {
  return Extremes<decltype(min<Dims...>(x, at)), decltype(max<Dims...>(x, at))>{min<Dims...>(x, at),
                                                                                max<Dims...>(x, at)};
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
