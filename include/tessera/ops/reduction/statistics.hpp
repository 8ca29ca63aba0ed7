#ifndef TESSERA_OPS_REDUCTION_STATISTICS_HPP
#define TESSERA_OPS_REDUCTION_STATISTICS_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

namespace detail {

/// The root, with slope 0 where x is 0: a distance of 0 has no direction.
constexpr Value flat_root(Value x) {
  const Value zero = x.number(0), at_zero = build::binary(Op::equal, x, zero);
  return build::select(at_zero, zero, build::unary(Op::sqrt, build::select(at_zero, x.number(1), x)));
}

template <int Rank, bool Root, bool Keep, int... Dims> struct VarianceTag {
  using R = Reduce<ops::SumOp, true, Keep, Dims...>;
  template <class A, class Correction> using result = typename R::template result<A>;
  static constexpr Value emit(Value context, Value x, Value correction) {
    const DType type = floating_type(x.dtype());
    const unsigned set = dim_set<Rank, Dims...>() << x.leading(Rank);
    x = build::cast(x.at(context.source), computed_as(type));
    const Value count = build::cast(build::element_count(x, set), x.dtype());
    const Value off = x - build::reduce(Op::sum, x, set, true) / count;
    const Value divisor = build::binary(Op::maximum, count - build::cast(correction, x.dtype()), x.number(0));
    const Value variance = build::reduce(Op::sum, off * off, set, Keep) / divisor;
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
    return build::cast(flat_root(build::reduce(Op::sum, x * x, set, Keep)), type);
  }
};

template <bool Keep, int... Dims> struct NanSum {
  using R = Reduce<ops::SumOp, false, Keep, Dims...>;
  template <class A> using result = typename R::template result<A>;
  template <int Rank> static constexpr unsigned dims = R::template dims<Rank>;
  static constexpr Value emit(Value context, Value x, int rank, unsigned set) {
    x = x.at(context.source);
    if (is_floating(x.dtype())) x = build::select(build::binary(Op::not_equal, x, x), x.number(0), x);
    return R::emit(context, x, rank, set);
  }
};

}  // namespace detail

/// The variance over the named dims (all when none is named), `var<-1>(x)`: the sum of the squares of x less its mean,
/// over the number of elements less the correction, which is 1 as in PyTorch; 0, `var<-1>(x, 0)`, is JAX's default. NaN
/// where no more elements than the correction are. Computed in two passes, so that a large mean loses nothing; of bf16
/// in f32; of integers f32. `std` is its root, of which the gradient is 0 where it is 0, as in PyTorch. Shapes as of
/// `sum`. Communication: over a sharded dim two all-reduces, of the sums and of the sums of squares.
template <int... Dims, TensorOperand X, NumberOperand Correction = int>
constexpr auto var(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, false, false, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorOperand X, NumberOperand Correction = int>
constexpr auto var(const X& x, KeepDims, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, false, true, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorOperand X, NumberOperand Correction = int>
constexpr auto std(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, true, false, Dims...>>(Source::from(at), x, correction);
}
template <int... Dims, TensorOperand X, NumberOperand Correction = int>
constexpr auto std(const X& x, KeepDims, const Correction& correction = 1, Here at = Here::current()) {
  return call<detail::VarianceTag<X::rank, true, true, Dims...>>(Source::from(at), x, correction);
}

/// The Euclidean norm over the named dims (all when none is named): the root of the sum of squares. Squares overflow
/// from 1e19 on in f32. The gradient is x over the norm, and 0 where the norm is 0, as in PyTorch. Of bf16 it is
/// computed in f32; of integers f32. The other norms are sum(abs(x)) and max(abs(x)). Shapes and communication as of
/// `sum`.
template <int... Dims, TensorOperand X> constexpr auto norm(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::Norm<false, Dims...>>(x, at);
}
template <int... Dims, TensorOperand X> constexpr auto norm(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::Norm<true, Dims...>>(x, at);
}

/// The sum of the elements that are not NaN, whose gradient is 0 where elements are NaN. In all else as `sum`.
template <int... Dims, TensorOperand X> constexpr auto nansum(const X& x, Here at = Here::current()) {
  return detail::reduce_by<detail::NanSum<false, Dims...>>(x, at);
}
template <int... Dims, TensorOperand X> constexpr auto nansum(const X& x, KeepDims, Here at = Here::current()) {
  return detail::reduce_by<detail::NanSum<true, Dims...>>(x, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
