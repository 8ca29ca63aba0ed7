#ifndef TESSERA_OPS_SPATIAL_PAD_MODES_HPP
#define TESSERA_OPS_SPATIAL_PAD_MODES_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>

namespace tessera {

/// What a pad puts beside a dim: of [a, b, c] with two elements on both sides
enum class PadMode : std::uint8_t {
  reflect,    ///< [c, b, a, b, c, b, a]: the edge is not repeated
  symmetric,  ///< [b, a, a, b, c, c, b]: the edge is repeated; PyTorch has no such mode
  replicate,  ///< [a, a, a, b, c, c, c]: numpy's "edge"
  circular,   ///< [b, c, a, b, c, a, b]: numpy's "wrap"
};

namespace detail {

template <int Rank, int D, PadMode Mode> struct PadModeTag {
  template <class X, class... Sizes> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value before, Value after) {
    x = x.at(context.source);
    before = as_size(before);
    after = as_size(after);
    const int dim = x.shifted(D, Rank);
    const Value n = build::extent(x, dim), zero = x.number(0, DType::i64), one = x.number(1, DType::i64);
    const auto part = [&](Value start, Value size) { return build::slice(x, dim, start, size, MadeBy::pad); };
    const auto flipped = [&](Value start, Value size) { return FlipTag<Rank, D>::emit(context, part(start, size)); };
    const auto copies = [&](Value start, Value count) {
      return RepeatTag<Rank, D, true>::emit(context, part(start, one), count);
    };
    const auto joined = [&](Value first, Value last) { return ConcatTag<Rank, D>::emit(context, first, x, last); };
    switch (Mode) {
      case PadMode::reflect:
        return joined(flipped(one, before), flipped(n - one - after, after));
      case PadMode::symmetric:
        return joined(flipped(zero, before), flipped(n - after, after));
      case PadMode::replicate:
        return joined(copies(zero, before), copies(n - one, after));
      case PadMode::circular:
        return joined(part(n - before, before), part(zero, after));
    }
    return x;
  }
};

template <int Rank, int D> struct PadValueTag {
  template <class X, class... Numbers> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value before, Value after, Value value) {
    x = x.at(context.source);
    before = as_size(before);
    const int dim = x.shifted(D, Rank);
    const Value end = before + build::extent(x, dim), padded = build::pad_to(x, dim, before, end + as_size(after));
    const Value row = build::iota(padded, dim, DType::i64);
    const Value inside = build::logical_and(build::greater_equal(row, before), build::less(row, end));
    return build::select(inside, padded, build::cast(value, x.dtype()));
  }
};

}  // namespace detail

/// Adds `before` elements before those along dim D and `after` elements after them, which repeat elements of x:
/// F.pad(mode=...), jnp.pad. Pad two dims by two calls. The gradient adds the cotangents of the copies to the elements.
/// Errors: shape_mismatch where the dim is too short: of a dim of extent n, reflect takes at most n - 1 on each side,
/// symmetric and circular at most n, as PyTorch. Communication: along a split dim as slice and concat.
template <int D, PadMode Mode, TensorArgument X, SizeOperand Before, SizeOperand After>
constexpr auto pad(const X& x, const Before& before, const After& after, Here at = Here::current()) {
  return call<detail::PadModeTag<X::rank, detail::checked_dim<D, X::rank>(), Mode>>(Source::from(at), x, Dim(before),
                                                                                    Dim(after));
}

/// The same with a number as the value of the added elements: F.pad(value=...). Communication: as slice.
template <int D, TensorArgument X, SizeOperand Before, SizeOperand After, class V>
  requires(Operand<V> && !TensorOperand<V>)
constexpr auto pad(const X& x, const Before& before, const After& after, const V& value, Here at = Here::current()) {
  return call<detail::PadValueTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(before),
                                                                               Dim(after), value);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
