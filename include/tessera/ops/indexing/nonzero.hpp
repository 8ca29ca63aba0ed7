#ifndef TESSERA_OPS_INDEXING_NONZERO_HPP
#define TESSERA_OPS_INDEXING_NONZERO_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/ops/cumulative/cumulative_rows.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/indexing/embedding.hpp>
#include <tessera/ops/indexing/scatter_rows.hpp>

// The elements for which a condition holds, as many as the program has room for: shapes don't depend on values, so a
// number of elements is given, as in JAX. Compositions of a cumulative sum, which counts, and a scatter or a lookup.

namespace tessera {

namespace detail {

/// x as a vector, in row-major order.
template <int Rank> constexpr Value flattened(Value context, Value x) {
  x = x.at(context.source);
  if (x.rank() != Rank)
    context.refuse(errc::unsupported, "[nonzero] field of all layers of a Stack: use it inside the block of the Stack");
  if constexpr (Rank > 1)
    return MergeTag<Rank, 0, Rank - 1>::emit(context, x);
  else
    return x;
}
constexpr Value is_nonzero(Value x) { return x.dtype() == DType::bool_ ? x : build::not_equal(x, x.number(0)); }
/// Puts each element of a vector into a vector of `size` elements, at its index in `to`; elements with an index
/// outside are left out. Of several elements at one index the last stays. `rest` is the value of indices without an
/// element.
constexpr Value put_at(Value elements, Value to, Value size, Value rest) {
  const Value one = size.number(1), all = build::cast(size, to.dtype());
  const Value room = build::broadcast(rest, build::arange(size + one));  // the last element is for those left out
  const Value made = build::scatter(room, 0, build::minimum(to, all), elements, {.replaces = true});
  return build::slice(made, 0, size.number(0), size);
}

/// The positions of the first `size` elements of a vector of bools that hold, and then `rest`.
constexpr Value positions_of(Value holds, Value size, Value rest, DType type) {
  const Value at = build::cumsum(build::cast(holds, type), 0, {}) - holds.integer(1, type);
  return put_at(build::iota(holds, 0, type), build::select(holds, at, build::cast(size, type)), size, rest);
}

/// The index along dim D of the nonzero elements.
template <int Rank, int D, class Index> constexpr Value nonzero_index(Value context, Value x, Value size, Value rest) {
  constexpr DType type = dtype_v<Index>;
  x = x.at(context.source);
  const Value none = x.integer(-1, type);
  const Value position = positions_of(is_nonzero(flattened<Rank>(context, x)), as_size(size), none, type);
  Value behind = x.integer(1, DType::i64);
  for (int d = D + 1; d < Rank; ++d) behind = behind * build::extent(x, d);
  const auto divisor = [&](Value n) { return build::cast(build::maximum(n, n.number(1)), type); };
  Value index = position / divisor(behind);
  if constexpr (D > 0) {
    const Value extent = divisor(build::extent(x, D));
    index = index - index / extent * extent;
  }
  return build::select(build::less(position, position.number(0)), build::cast(rest, type), index);
}

template <class X> constexpr void check_nonzero() {
  static_assert(X::rank >= 1, "tessera: nonzero takes a tensor with dims");
}

template <int Rank, int D, class Index> struct NonzeroTag {
  static constexpr const char* function = "nonzero";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Size, class Rest> struct result : Typed<Index, 1> {
    using Checks = decltype([] { check_nonzero<X>(); });
  };
  static constexpr Value emit(Value context, Value x, Value size, Value rest) {
    return nonzero_index<Rank, D, Index>(context, x, size, rest);
  }
};
template <int Rank, class Index> struct ArgwhereTag {
  static constexpr const char* function = "argwhere";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Size, class Rest> struct result : Typed<Index, 2> {
    using Checks = decltype([] { check_nonzero<X>(); });
  };
  static constexpr Value emit(Value context, Value x, Value size, Value rest) {
    return [&]<int... D>(std::integer_sequence<int, D...>) {
      const auto column = [](Value index) { return build::insert_singletons(index, 2u, 2); };
      if constexpr (Rank == 1)
        return column(nonzero_index<Rank, 0, Index>(context, x, size, rest));
      else
        return ConcatTag<2, 1>::emit(context, column(nonzero_index<Rank, D, Index>(context, x, size, rest))...);
    }(std::make_integer_sequence<int, Rank>{});
  }
};

template <class X, class Mask> constexpr void check_mask() {
  static_assert(std::is_same_v<typename Mask::type, bool> && Mask::rank <= X::rank,
                "tessera: a mask is a bool tensor that can be broadcast to the tensor that it selects from");
  check_nonzero<X>();
}

/// A mask in the shape of x.
constexpr Value mask_of(Value mask, Value x) {
  if (!same_static_shape(mask.node(), x.node())) return build::checked_broadcast(mask, x, MadeBy::broadcast_like);
  if (x.rank() > 0) build::same_extents(x, 0, mask, 0, x.rank(), build::ExtentsOf::mask);
  return mask;
}

/// The elements of x for which the mask holds.
template <int Rank> struct MaskedSelectTag {
  static constexpr const char* function = "masked_select";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Mask, class Size, class Rest> struct result : Typed<typename X::type, 1> {
    using Checks = decltype([] { check_mask<X, Mask>(); });
  };
  template <class X, class Mask, class Size, class Rest>
  static constexpr void convert(Value& x, Value&, Value&, Value& rest) {
    rest = convert_operand<Rest>(rest, x.dtype());
  }
  static constexpr Value emit(Value context, Value x, Value mask, Value size, Value rest) {
    x = x.at(context.source);
    const Value from = flattened<Rank>(context, x), holds = flattened<Rank>(context, mask_of(mask, x));
    const Value count = build::extent(from, 0), many = as_size(size);
    const Value position = positions_of(holds, many, count, DType::i64);
    const Value table = build::pad_to(from, 0, count.number(0), count + count.number(1));
    return build::select(build::less(position, count), EmbeddingTag::emit(context, table, position), rest);
  }
};

/// Elements of a source where a mask holds, in their order.
template <int Rank> struct MaskedScatterTag {
  static constexpr const char* function = "masked_scatter";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class X, class Mask, class Source> struct result : X {
    using Checks = decltype([] {
      check_mask<X, Mask>();
      static_assert(Source::rank == 1 && std::is_same_v<typename Source::type, typename X::type>,
                    "tessera: the source of masked_scatter is a vector of the element type of the tensor");
    });
  };
  static constexpr Value emit(Value context, Value x, Value mask, Value source) {
    x = x.at(context.source);
    const Value whole = build::broadcast(mask, x);
    const Value holds = flattened<Rank>(context, whole), none = holds.integer(0, DType::i64);
    const Value count = build::cumsum(build::cast(holds, DType::i64), 0, {});
    // A zero before the elements of the source is for elements that stay.
    const Value one = x.integer(1, DType::i64);
    source = source.at(context.source);
    const Value table = build::pad_to(source, 0, one, build::extent(source, 0) + one);
    Value taken = EmbeddingTag::emit(context, table, build::select(holds, count, none));
    if constexpr (Rank > 1)
      taken = [&]<int... I>(std::integer_sequence<int, I...>) {
        return SplitTag<1, 0, Rank>::emit(context, taken, build::extent(x, I + 1)...);
      }(std::make_integer_sequence<int, Rank - 1>{});
    return build::select(whole, taken, x);
  }
};

}  // namespace detail

/// The indices of the first `size` nonzero elements in row-major order, a vector for each dim (jnp.nonzero with a size,
/// torch.nonzero(as_tuple=True)): `const auto [i, j] = ts::nonzero(matrix, 8)`. After the last one the result has
/// `rest`, by default 0 as in JAX; -1 is an index of no element. No gradient. Errors: shape_mismatch for a negative
/// size. Communication: the tensor is brought together as a vector; positions are gathered.
template <Element Index = std::int32_t, TensorArgument X, SizeOperand Size, NumberOperand Rest = int>
constexpr auto nonzero(const X& x, const Size& size, const Rest& rest = 0, Here at = Here::current()) {
  return [&]<int... D>(std::integer_sequence<int, D...>) {
    return std::tuple(call<detail::NonzeroTag<X::rank, D, Index>>(Source::from(at), x, Dim(size), rest)...);
  }(std::make_integer_sequence<int, X::rank>{});
}

/// The same indices as the rows of a matrix [size, rank] (jnp.argwhere with a size, torch.nonzero_static).
template <Element Index = std::int32_t, TensorArgument X, SizeOperand Size, NumberOperand Rest = int>
constexpr auto argwhere(const X& x, const Size& size, const Rest& rest = 0, Here at = Here::current()) {
  return call<detail::ArgwhereTag<X::rank, Index>>(Source::from(at), x, Dim(size), rest);
}

/// The first `size` elements of x for which the mask holds, in row-major order (torch.masked_select, x[mask] of a
/// size); after the last one `rest`. The mask is broadcast to x. The gradient goes to the elements that were taken.
/// Errors and communication: as nonzero and embedding.
template <TensorArgument X, TensorArgument Mask, SizeOperand Size, NumberOperand Rest = int>
constexpr auto masked_select(const X& x, const Mask& mask, const Size& size, const Rest& rest = 0,
                             Here at = Here::current()) {
  return call<detail::MaskedSelectTag<X::rank>>(Source::from(at), x, mask, Dim(size), rest);
}

/// x with the elements for which the mask holds replaced, in row-major order, by those of a vector
/// (torch.masked_scatter). Gradients: of x 0 where it is replaced, of the source the cotangent where each element went.
/// Errors: dim_range for a source with too few elements. Communication: as nonzero and embedding.
template <TensorArgument X, TensorArgument Mask, TensorArgument Elements>
constexpr auto masked_scatter(const X& x, const Mask& mask, const Elements& source, Here at = Here::current()) {
  return call<detail::MaskedScatterTag<X::rank>>(Source::from(at), x, mask, source);
}

/// Without a size it does not compile.
template <TensorArgument X> constexpr auto nonzero(const X& x) {
  static_assert(std::is_void_v<X>, "tessera: shapes can't depend on values, so as in JAX the size of the result is an "
                                   "argument: ts::nonzero(x, size)");
  return x;
}
/// Without a size it does not compile.
template <TensorArgument X> constexpr auto argwhere(const X& x) {
  static_assert(std::is_void_v<X>, "tessera: shapes can't depend on values, so as in JAX the size of the result is an "
                                   "argument: ts::argwhere(x, size)");
  return x;
}
/// Without a size it does not compile.
template <TensorArgument X, TensorArgument Mask> constexpr auto masked_select(const X& x, const Mask&) {
  static_assert(std::is_void_v<X>, "tessera: shapes can't depend on values, so as in JAX the size of the result is an "
                                   "argument: ts::masked_select(x, mask, size)");
  return x;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
