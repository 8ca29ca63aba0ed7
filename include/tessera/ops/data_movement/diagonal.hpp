#ifndef TESSERA_OPS_DATA_MOVEMENT_DIAGONAL_HPP
#define TESSERA_OPS_DATA_MOVEMENT_DIAGONAL_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduce.hpp>

// Matrices, the last two dims of a tensor, by the positions of their elements.

namespace tessera {

namespace detail {

template <int Rank, bool Lower> struct TriangleTag {
  static_assert(Rank >= 2, "tessera: tril and triu take tensors of rank 2 or more");
  template <class X, class Offset> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value offset) {
    x = x.at(context.source);
    const Value row = build::iota(x, x.rank() - 2, DType::i64), column = build::iota(x, x.rank() - 1, DType::i64);
    const Value kept =
        build::binary(Lower ? Op::less_equal : Op::greater_equal, column, row + build::cast(offset, DType::i64));
    return build::select(kept, x, x.number(0));
  }
};

template <int Rank> struct DiagonalTag {
  static_assert(Rank >= 2, "tessera: diagonal takes tensors of rank 2 or more");
  template <class X> using result = Typed<typename X::type, Rank - 1>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const int row = x.rank() - 2, column = x.rank() - 1;
    const Value on = build::equal(build::iota(x, row, DType::i64), build::iota(x, column, DType::i64));
    const Value found = build::cast(build::sum_of(build::select(on, x, x.number(0)), 1u << column), x.dtype());
    if (x.is_singleton(row)) return found;
    const Value size = build::minimum(build::extent(x, row), build::extent(x, column));
    return build::slice(found, row, x.number(0, DType::i64), size);
  }
};

template <int Rank> struct DiagTag {
  template <class X> using result = Typed<typename X::type, Rank + 1>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const int rank = x.rank();
    const Value across = build::insert_singletons(x, 1u << (rank - 1), rank + 1);
    const Value down = build::insert_singletons(x, 1u << rank, rank + 1);
    const Value on = build::equal(build::iota(down, rank - 1, DType::i64), build::iota(across, rank, DType::i64));
    return build::select(on, across, x.number(0));
  }
};

}  // namespace detail

/// The elements on and below the diagonal, or on and above it, of each matrix, and 0 elsewhere. The offset moves the
/// diagonal to the right where it is positive, to the left where it is negative. Shape and sharding are those of x; no
/// communication. The gradient is that of the elements that are kept.
template <TensorArgument X, NumberOperand Offset = int>
constexpr auto tril(const X& x, const Offset& offset = 0, Here at = Here::current()) {
  return call<detail::TriangleTag<X::rank, true>>(Source::from(at), x, offset);
}
template <TensorArgument X, NumberOperand Offset = int>
constexpr auto triu(const X& x, const Offset& offset = 0, Here at = Here::current()) {
  return call<detail::TriangleTag<X::rank, false>>(Source::from(at), x, offset);
}

/// The main diagonals of matrices: [..., n, m] gives [..., min(n, m)]. Communication: of sharded columns a partial sum.
template <TensorArgument X> constexpr auto diagonal(const X& x, Here at = Here::current()) {
  return call<detail::DiagonalTag<X::rank>>(Source::from(at), x);
}
/// Matrices with the given diagonals and 0 elsewhere, PyTorch's diag_embed: [..., n] gives [..., n, n]. Of a matrix
/// (rank 2) its diagonal, as in PyTorch and NumPy. Communication: a split dim of diagonals is brought together along
/// one dim.
template <TensorArgument X> constexpr auto diag(const X& x, Here at = Here::current()) {
  if constexpr (X::rank == 2)
    return call<detail::DiagonalTag<2>>(Source::from(at), x);
  else
    return call<detail::DiagTag<X::rank>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
