#ifndef TESSERA_OPS_REDUCTION_DISTANCES_HPP
#define TESSERA_OPS_REDUCTION_DISTANCES_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/nonzero.hpp>
#include <tessera/ops/reduction/reduction.hpp>
#include <tessera/ops/reduction/statistics.hpp>

// Distances between rows: differences of all pairs and their norms, in one kernel that stores no differences.

namespace tessera {

namespace detail {

/// The elements above the diagonal of square matrices, row by row.
struct UpperTriangleTag {
  template <class X> using result = Typed<typename X::type, 1>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value above = build::less(build::iota(x, 0, DType::i64), build::iota(x, 1, DType::i64));
    const Value n = build::extent(x, 0), size = n * (n - n.number(1)) / n.number(2);
    return MaskedSelectTag<2>::emit(context, x, above, size, x.number(0));
  }
};

}  // namespace detail

/// The distances of the rows of x [..., N, D] and y [..., M, D], Euclidean or with P = 1 the sums of absolute
/// differences (torch.cdist): [..., N, M]. The gradient at a distance of 0 is 0. Leading dims are broadcast. Errors:
/// shape_mismatch. Communication: where D is split an all-reduce; N and M stay split.
template <int P = 2, TensorOperand X, TensorOperand Y>
constexpr auto cdist(const X& x, const Y& y, Here at = Here::current()) {
  static_assert(X::rank >= 2 && Y::rank >= 2, "tessera: cdist takes rows, tensors of rank 2 or more");
  static_assert(P == 1 || P == 2, "tessera: cdist has the distances of P = 1 and P = 2");
  const auto difference = unsqueeze<-2>(x, at) - unsqueeze<-3>(y, at);
  if constexpr (P == 1)
    return sum<-1>(abs(difference, at), at);
  else
    return norm<-1>(difference, at);
}

/// The distances of each pair of rows of a matrix [N, D], as of cdist (F.pdist): a vector of N (N - 1) / 2, of rows 0
/// and 1, 0 and 2, and so on. Communication: as masked_select.
template <int P = 2, TensorOperand X> constexpr auto pdist(const X& x, Here at = Here::current()) {
  static_assert(X::rank == 2, "tessera: pdist takes a matrix");
  return call<detail::UpperTriangleTag>(Source::from(at), cdist<P>(x, x, at));
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
