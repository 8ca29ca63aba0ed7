#ifndef TESSERA_OPS_DATA_MOVEMENT_SLICE_SCATTER_HPP
#define TESSERA_OPS_DATA_MOVEMENT_SLICE_SCATTER_HPP
#include <tessera/base/push_macros.hpp>

#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/window_rows.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>

// Slices with steps, and tensors of which a slice, an index or a diagonal is replaced, at positions that are known when
// the program is planned. dynamic_slice.hpp has those of a position that is known only when it runs.

namespace tessera {

namespace build {

/// `size` elements of a dim from `start` on, `step` apart.
constexpr Value strided_slice(Value x, int dim, Value start, Value size, Value step) {
  const Value one = x.integer(1, DType::i64), end = start + (size - one) * step + one;
  const PatchDim run{one, step, one, one.number(0) - start, end - extent(x, dim)};
  return drop_singletons(patches(x, dim, 1, &run, false, true), 2u << dim);
}

}  // namespace build

namespace detail {

template <int Rank, int D> struct StridedSliceTag {
  static_assert(Rank < max_rank, "tessera: a slice with a step takes at most 7 dims");
  template <class X, class... Sizes> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value start, Value size, Value step) {
    return build::strided_slice(x.at(context.source), x.shifted(D, Rank), as_size(start), as_size(size), as_size(step));
  }
};

/// The elements at one index of a dim, without that dim.
template <int Rank, int D> struct SelectIndexTag {
  template <class X, class Index> using result = Typed<typename X::type, Rank - 1>;
  static constexpr Value emit(Value context, Value x, Value index) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value start = from_either_end(as_size(index), build::extent(x, dim));
    return build::drop_singletons(build::slice(x, dim, start, x.integer(1, DType::i64), MadeBy::select), 1u << dim);
  }
};

template <class X, class Update> constexpr void check_update() {
  static_assert(std::is_same_v<typename Update::type, typename X::type>,
                "tessera: what replaces elements has their element type; use ts::cast");
}

template <int Rank, int D> struct SliceScatterTag {
  static constexpr const char* function = "slice_scatter";
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  template <class X, class Update, class... Sizes> struct result : X {
    using Checks = decltype([] {
      check_update<X, Update>();
      static_assert(Update::rank == X::rank, "tessera: the update of a slice has the rank of what it updates");
    });
  };
  static constexpr Value emit(Value context, Value x, Value update, Value start, Value step) {
    x = x.at(context.source);
    update = update.at(context.source);
    const int dim = x.shifted(D, Rank);
    for (int d = 0; d < Rank; ++d)
      if (d != D)
        build::same_extents(x, x.shifted(d, Rank), update, update.shifted(d, Rank), 1, build::ExtentsOf::update);
    const Value extent = build::extent(x, dim), size = build::extent(update, dim);
    const Value first = from_either_end(as_size(start), extent), by = as_size(step);
    const Value position = build::iota(x, dim, DType::i64) - first;
    Value inside =
        build::logical_and(build::greater_equal(position, position.number(0)), build::less(position, size * by));
    if (!by.is_number(1)) {
      const Value at_step = build::equal(position - position / by * by, position.number(0));
      inside = build::logical_and(inside, at_step);
      return build::select(inside, apart(update, dim, first, by, extent), x);
    }
    return build::select(inside, build::pad_to(update, dim, first, extent), x);
  }

 private:
  /// The elements of the update at their positions in a dim of this extent, with zeros between them. Each is exact in
  /// the type in which it is added.
  static constexpr Value apart(Value update, int dim, Value start, Value step, Value extent) {
    const DType type = update.dtype(), wide = type == DType::bool_ ? DType::i32 : summed_as(type);
    const build::FoldDim run{step, extent.number(1), extent.number(0) - start, extent};
    const Value runs = build::insert_singletons(build::cast(update, wide), 2u << dim, update.rank() + 1);
    return build::cast(build::fold_patches(runs, dim, 1, &run, false, true), type);
  }
};

template <int Rank> struct DiagonalScatterTag {
  static constexpr const char* function = "diagonal_scatter";
  static constexpr auto leading_dims = ops::LeadingDims::extended;
  static_assert(Rank >= 2, "tessera: diagonal_scatter takes tensors of rank 2 or more");
  template <class X, class Update> struct result : X {
    using Checks = decltype([] {
      check_update<X, Update>();
      static_assert(Update::rank == X::rank - 1, "tessera: the diagonals of matrices have one dim less than these");
    });
  };
  static constexpr Value emit(Value context, Value x, Value update) {
    x = x.at(context.source), update = update.at(context.source);
    const int row = x.rank() - 2, column = x.rank() - 1;
    build::require_diagonal(update, row, x, row);
    const Value rows = build::extent(x, row), zero = x.integer(0, DType::i64);
    const Value diagonal = build::pad_to(update, row, zero, rows);
    const Value on = build::equal(build::iota(x, row, DType::i64), build::iota(x, column, DType::i64));
    return build::select(on, build::insert_singletons(diagonal, 1u << column, x.rank()), x);
  }
};

}  // namespace detail

/// `size` elements along dim D from start on, `step` apart: x[start::step] is `slice<0>(x, start, size, step)` with
/// size (extent - start + step - 1) / step. Without a step, as above. The gradient is 0 at the elements between.
/// Errors: shape_mismatch when an element is outside of the dim, and for a size or a step below 1. Communication: along
/// a split dim, which stays split, a halo exchange of the elements that cross borders of shards; x[::2] of a dim that
/// the devices divide evenly into even parts sends nothing.
template <int D, TensorArgument X, SizeOperand Start, SizeOperand Size, SizeOperand Step>
constexpr auto slice(const X& x, const Start& start, const Size& size, const Step& step, Here at = Here::current()) {
  return call<detail::StridedSliceTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(start),
                                                                                   Dim(size), Dim(step));
}

/// The elements at one index of dim D, without that dim: x[i] (Tensor.select, lax.index_in_dim). A negative index
/// counts from the end: `select<0>(x, -1)` is the last row. Errors: shape_mismatch for an index outside of the dim.
/// Communication: as slice of one index.
template <int D, TensorArgument X, SizeOperand Index>
constexpr auto select(const X& x, const Index& index, Here at = Here::current()) {
  return call<detail::SelectIndexTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(index));
}
/// With a tensor as the index it does not compile.
template <int D, TensorArgument X, TensorArgument Index> constexpr auto select(const X& x, const Index&) {
  static_assert(std::is_void_v<Index>,
                "tessera: the index of ts::select<D>(x, i) is a size; with a tensor of rank 0, such as the index of a "
                "loop, write ts::dynamic_index<D>(x, i), and with a vector of indices ts::index_select<D>(x, i)");
  return x;
}

/// x with the update in the elements along dim D from start on, `step` apart (torch.slice_scatter, x.at[a::s].set). A
/// negative start counts from the end. Gradients: of x 0 where it is replaced, of the update the cotangent there.
/// Errors: shape_mismatch where the update leaves the dim, or another dim differs. Communication: the elements of the
/// update that cross borders of shards move to their position, as in pad; x stays split.
///
///     const auto next = ts::slice_scatter<1>(image, row, 3);   // [H, W], [H, 1]
template <int D, TensorArgument X, TensorArgument Update, SizeOperand Start, SizeOperand Step = int>
constexpr auto slice_scatter(const X& x, const Update& update, const Start& start, const Step& step = 1,
                             Here at = Here::current()) {
  return call<detail::SliceScatterTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, update,
                                                                                   Dim(start), Dim(step));
}
/// x with the update at one index of dim D, which the update lacks (torch.select_scatter, x.at[i].set). Otherwise as
/// slice_scatter.
template <int D, TensorArgument X, TensorArgument Update, SizeOperand Index>
constexpr auto select_scatter(const X& x, const Update& update, const Index& index, Here at = Here::current()) {
  const detail::FunctionCall named("select_scatter", x, update);
  constexpr int dim = detail::checked_dim<D, X::rank>();
  return slice_scatter<dim>(x, unsqueeze<dim>(update, at), index, 1, at);
}

/// Matrices with other main diagonals (torch.diagonal_scatter): x [..., n, m], diagonals [..., min(n, m)]. Gradients:
/// of x 0 on the diagonal, of the diagonals the cotangent there. Errors: shape_mismatch for shorter diagonals, and
/// where another dim differs. Communication: as pad of the diagonals; x stays split.
template <TensorArgument X, TensorArgument Diagonals>
constexpr auto diagonal_scatter(const X& x, const Diagonals& diagonals, Here at = Here::current()) {
  return call<detail::DiagonalScatterTag<X::rank>>(Source::from(at), x, diagonals);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
