#ifndef TESSERA_OPS_DATA_MOVEMENT_REPEAT_HPP
#define TESSERA_OPS_DATA_MOVEMENT_REPEAT_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/data_movement/slicing_rows.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>

namespace tessera {

namespace detail {

/// A dim repeated: the copies one after the other, or each element `count` times.
constexpr Value repeated(Value x, int dim, Value count, bool each_element) {
  const int rank = x.rank() + 1, copies = each_element ? dim + 1 : dim;
  const Value one = build::insert_singletons(x, 1u << copies, rank);
  const Value positions =
      build::insert_singletons(build::arange(as_size(count).at(x.source)), ((1u << rank) - 1) & ~(1u << copies), rank);
  // Only the shape of these is read.
  const Value like = build::less(build::iota(one, copies, DType::i32), positions);
  Factors merge{};
  for (int d = 0; d < rank; ++d) {
    merge.in_dim[d] = merge.order[d] = static_cast<std::int8_t>(d);
    merge.out_dim[d] = static_cast<std::int8_t>(d > dim ? d - 1 : d);
  }
  merge.count = static_cast<std::int8_t>(rank);
  return rearrange(build::broadcast(one, like), rank, rank - 1, merge, nullptr);
}

template <int Rank, int D, bool EachElement> struct RepeatTag {
  static constexpr const char* function = EachElement ? "repeat_interleave" : "tile";
  static_assert(Rank < max_rank, "tessera: repeat takes tensors of at most 7 dims");
  template <class X, class Count> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value count) {
    x = x.at(context.source);
    return repeated(x, x.shifted(D, Rank), count, EachElement);
  }
};

template <int Rank, int D> struct RollTag {
  template <class X, class Shift> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x, Value shift) {
    x = x.at(context.source);
    const int dim = x.shifted(D, Rank);
    const Value n = build::extent(x, dim), zero = x.number(0, DType::i64);
    const Value turn = build::maximum(n, x.number(1, DType::i64));
    const auto rest = [&](Value v) { return v - v / turn * turn; };
    const Value moved = rest(rest(as_size(shift)) + turn);
    return ConcatTag<Rank, D>::emit(context, build::slice(x, dim, n - moved, moved),
                                    build::slice(x, dim, zero, n - moved));
  }
};

template <int Rank, int D> struct FlipTag {
  template <class X> using result = Typed<typename X::type, Rank>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    Node made{.op = ops::op_v<ops::FlipOp>,
              .dtype = x.dtype(),
              .rank = x.node().rank,
              .singletons = x.node().singletons,
              .labels = pack_dim(x.shifted(D, Rank))};
    return x.make(made, {x.id});
  }
};

}  // namespace detail

/// A dim `count` times, one copy after the other: `tile<0>(x, 2)` of [a, b] is [a, b, a, b]. The gradient is the sum
/// over the copies. Errors: shape_mismatch for a negative count. Communication: a split dim D is gathered before it is
/// copied.
template <int D, TensorArgument X, SizeOperand Count>
constexpr auto tile(const X& x, const Count& count, Here at = Here::current()) {
  return call<detail::RepeatTag<X::rank, detail::checked_dim<D, X::rank>(), false>>(Source::from(at), x, Dim(count));
}
/// Each element along a dim `count` times: `repeat_interleave<0>(x, 2)` of [a, b] is [a, a, b, b]. Otherwise as tile,
/// but a split dim D stays split if the devices divide its extent.
template <int D, TensorArgument X, SizeOperand Count>
constexpr auto repeat_interleave(const X& x, const Count& count, Here at = Here::current()) {
  return call<detail::RepeatTag<X::rank, detail::checked_dim<D, X::rank>(), true>>(Source::from(at), x, Dim(count));
}
/// Elements moved along a dim by `shift`, those that leave the end come to the beginning: `roll<0>(x, 1)` of [a, b, c]
/// is [c, a, b]. A negative shift moves to the front, one beyond the extent goes round. Communication: as slice, a
/// halo.
template <int D, TensorArgument X, SizeOperand Shift>
constexpr auto roll(const X& x, const Shift& shift, Here at = Here::current()) {
  return call<detail::RollTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x, Dim(shift));
}
/// Elements along a dim in reverse order. Communication: as gather.
template <int D, TensorArgument X> constexpr auto flip(const X& x, Here at = Here::current()) {
  return call<detail::FlipTag<X::rank, detail::checked_dim<D, X::rank>()>>(Source::from(at), x);
}

/// Several dims in reverse order: `flip<0, 1>(x)`.
template <int D, int Next, int... More, TensorArgument X> constexpr auto flip(const X& x, Here at = Here::current()) {
  return flip<Next, More...>(flip<D>(x, at), at);
}

/// With a dim as an argument they do not compile.
template <TensorArgument X, std::integral Dim> constexpr X flip(const X& x, Dim) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, std::integral Dim, std::size_t Dims> constexpr auto flip(const X& x, const Dim (&)[Dims]) {
  return detail::refuse_dim_argument<Dim>(x);
}
template <TensorArgument X, SizeOperand Shift, std::integral... Dim>
constexpr X roll(const X& x, const Shift&, Dim...) {
  return detail::refuse_dim_argument<Shift>(x);
}
template <TensorArgument X, SizeOperand Count, std::integral... Dim>
constexpr X tile(const X& x, const Count&, Dim...) {
  return detail::refuse_dim_argument<Count>(x);
}
template <TensorArgument X, SizeOperand Count, std::integral... Dim>
constexpr X repeat_interleave(const X& x, const Count&, Dim...) {
  return detail::refuse_dim_argument<Count>(x);
}
template <TensorArgument X, std::integral Size, std::size_t Sizes, std::integral Dim, std::size_t Dims>
constexpr X roll(const X& x, const Size (&)[Sizes], const Dim (&)[Dims]) {
  return detail::refuse_dim_argument<Size>(x);
}
template <TensorArgument X, std::integral Size, std::size_t Sizes> constexpr X tile(const X& x, const Size (&)[Sizes]) {
  return detail::refuse_dim_argument<Size>(x);
}

/// The first two dims turned by 90 degrees `Times` times, from the first dim to the second (torch.rot90, jnp.rot90); a
/// negative count turns back. Communication: as flip.
template <int Times = 1, TensorArgument X> constexpr auto rot90(const X& x, Here at = Here::current()) {
  static_assert(X::rank >= 2, "tessera: rot90 takes tensors of rank 2 or more");
  constexpr int turns = (Times % 4 + 4) % 4;
  if constexpr (turns == 0)
    return x;
  else if constexpr (turns == 1)
    return flip<0>(swapaxes<0, 1>(x, at), at);
  else if constexpr (turns == 2)
    return flip<0>(flip<1>(x, at), at);
  else
    return swapaxes<0, 1>(flip<0>(x, at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
