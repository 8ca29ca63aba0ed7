#ifndef TESSERA_OPS_REDUCTION_COVARIANCE_HPP
#define TESSERA_OPS_REDUCTION_COVARIANCE_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/dtype.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise/arithmetic.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/reduction/reduce.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>

namespace tessera {

namespace detail {

/// Sums over the columns of x, divided by the number of columns less the correction.
struct OverObservationsTag {
  template <class P, class...> using result = P;
  static constexpr Value emit(Value context, Value sums, Value x, Value correction) {
    sums = sums.at(context.source);
    const Value count = build::cast(build::extent(x, x.shifted(1, 2)), sums.dtype());
    return sums / build::maximum(count - build::cast(correction, sums.dtype()), sums.number(0));
  }
};

/// Covariances divided by the square roots of the diagonal elements of the same row and of the same column.
struct CorrelationTag {
  template <class C> using result = C;
  static constexpr Value emit(Value context, Value c) {
    c = c.at(context.source);
    const int row = c.rank() - 2, column = c.rank() - 1;
    const Value on = build::equal(build::iota(c, row, DType::i64), build::iota(c, column, DType::i64));
    const Value variances = build::select(on, c, c.number(0));
    const auto deviations = [&](int dim) { return build::sqrt(build::sum_of(variances, 1u << dim, true)); };
    return ClampTag::emit(context, c / deviations(column) / deviations(row), c.number(-1), c.number(1));
  }
};

}  // namespace detail

/// The covariances of the rows of x [variables, observations] (torch.cov, jnp.cov): [variables, variables], symmetric.
/// Sums of products are divided by the number of observations less the correction; NaN where that is 0. Integers give
/// f32; bf16 and f16 are computed in f32, and rounded once. Communication: if observations are split an all-reduce of
/// the means and one of the result.
///
///     const auto c = ts::cov(samples);  // the variances are on the diagonal
template <TensorArgument X, NumberOperand Correction = int>
constexpr auto cov(const X& x, const Correction& correction = 1, Here at = Here::current()) {
  using T = typename X::element;
  static_assert(X::rank == 2, "tessera: cov takes a matrix, a row for each variable; of a vector it is ts::var");
  if constexpr (is_half_v<T>) {
    return cast<T>(cov(cast<float>(x, at), correction, at), at);
  } else {
    const auto off = call<SubTag>(Source::from(at), x, mean<1>(x, keepdims, at));
    return call<detail::OverObservationsTag>(Source::from(at), detail::exact_einsum<"ik,jk->ij">(off, off, at), x,
                                             correction);
  }
}
/// The correlations of the rows of x [variables, observations] (torch.corrcoef, jnp.corrcoef): covariances over both
/// standard deviations, in [-1, 1]; NaN in the row and the column of a variable that is constant. Communication: as
/// cov, and for split columns of the result an all-reduce of the variances.
template <TensorArgument X> constexpr auto corrcoef(const X& x, Here at = Here::current()) {
  using T = typename X::element;
  if constexpr (is_half_v<T>)
    return cast<T>(corrcoef(cast<float>(x, at), at), at);
  else
    return call<detail::CorrelationTag>(Source::from(at), cov(x, 1, at));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
