#ifndef TESSERA_OPS_REDUCTION_DIFFERENCES_HPP
#define TESSERA_OPS_REDUCTION_DIFFERENCES_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/cumulative/cumulative.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>
#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/reduction/reduction.hpp>

// Differences of neighbours along a dim, and integrals of samples.

namespace tessera {

namespace detail {

/// Of each two neighbours along dim D the later one less the earlier one, or with `Mean` half their sum.
template <int Rank, int D, bool Mean> struct NeighboursTag {
  template <class X> struct result {
    using type = std::conditional_t<Mean, element_t<floating_type(dtype_v<typename X::type>)>, typename X::type>;
    static constexpr int rank = Rank;
  };
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    if (Mean) x = build::cast(x, floating_type(x.dtype()));
    const int dim = x.shifted(D, Rank);
    // A dim of static extent 1 cannot become empty, one with the extent 1 can.
    if (x.is_singleton(dim)) x = build::pad_to(x, dim, x.integer(0, DType::i64), x.integer(1, DType::i64));
    const Value n = build::extent(x, dim), none = x.integer(0, DType::i64);
    const Value first = build::minimum(n, x.integer(1, DType::i64));  // an empty dim stays empty
    const Value later = build::slice(x, dim, first, n - first), earlier = build::slice(x, dim, none, n - first);
    if (Mean) return (later + earlier) * 0.5;
    return x.dtype() == dtype_v<bool> ? build::not_equal(later, earlier) : later - earlier;
  }
};

/// x with singleton dims after its own dims.
template <int Count, TensorArgument X> constexpr auto with_singletons(const X& x, Here at) {
  if constexpr (Count == 0)
    return x;
  else
    return with_singletons<Count - 1>(unsqueeze<X::rank>(x, at), at);
}

/// The areas below the lines between neighbours.
template <int D, TensorArgument Y, Operand S> constexpr auto trapezoids(const Y& y, const S& spacing, Here at) {
  constexpr int dim = checked_dim<D, Y::rank>();
  const auto means = call<NeighboursTag<Y::rank, dim, true>>(Source::from(at), y);
  if constexpr (TensorOperand<S>) {
    static_assert(S::rank == 1 || S::rank == Y::rank,
                  "tessera: the points of an integral are a vector, or a tensor of the rank of the samples");
    constexpr int behind = S::rank == 1 ? Y::rank - 1 - dim : 0;
    constexpr int along = S::rank == 1 ? 0 : dim;
    const auto widths = call<NeighboursTag<S::rank, along, false>>(Source::from(at), spacing);
    return call<MulTag>(Source::from(at), means, with_singletons<behind>(widths, at));
  } else {
    return call<MulTag>(Source::from(at), means, spacing);
  }
}

}  // namespace detail

/// The differences of neighbours along dim D, `Times` times over (torch.diff, jnp.diff): of [1, 4, 9] it is [3, 5], and
/// of order 2 it is [2]. The dim becomes shorter by one each time; an empty one stays empty. For bools it says whether
/// neighbours differ; integers wrap around. Communication: along a split dim, as slice.
///
///     const auto steps = ts::diff<0>(positions);
template <int D = -1, int Times = 1, TensorArgument X> constexpr auto diff(const X& x, Here at = Here::current()) {
  static_assert(Times >= 1, "tessera: the order of ts::diff is at least 1");
  const auto once = call<detail::NeighboursTag<X::rank, detail::checked_dim<D, X::rank>(), false>>(Source::from(at), x);
  if constexpr (Times == 1)
    return once;
  else
    return diff<D, Times - 1>(once, at);
}

/// The integral of samples along dim D by the trapezoidal rule (torch.trapezoid, jnp.trapezoid); 0 of fewer than two
/// samples. The second operand is the distance of neighbours, a number, or the points: a vector, or a tensor of the
/// rank of the samples that is broadcast. The result lacks the dim; integers give f32. Errors: shape_mismatch, which
/// names the product of the means and the widths of neighbours. Communication: as slice and sum.
///
///     const auto area = ts::trapezoid<-1>(y, 0.1);
template <int D = -1, TensorArgument Y, Operand S = double>
constexpr auto trapezoid(const Y& y, const S& spacing = 1.0, Here at = Here::current()) {
  const detail::FunctionCall named("trapezoid", y, spacing);
  constexpr int dim = detail::checked_dim<D, Y::rank>();
  return sum<dim>(detail::trapezoids<dim>(y, spacing, at), at);
}
/// The integral up to each sample but the first (torch.cumulative_trapezoid): the dim is shorter by one. Otherwise as
/// trapezoid. Communication: as slice and cumsum.
template <int D = -1, TensorArgument Y, Operand S = double>
constexpr auto cumulative_trapezoid(const Y& y, const S& spacing = 1.0, Here at = Here::current()) {
  const detail::FunctionCall named("cumulative_trapezoid", y, spacing);
  constexpr int dim = detail::checked_dim<D, Y::rank>();
  return cumsum<dim>(detail::trapezoids<dim>(y, spacing, at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
