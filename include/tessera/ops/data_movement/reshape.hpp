#ifndef TESSERA_OPS_DATA_MOVEMENT_RESHAPE_HPP
#define TESSERA_OPS_DATA_MOVEMENT_RESHAPE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <utility>

#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>

// Shapes given by the extents of all dims.

namespace tessera {

namespace detail {

template <int Rank, int Dims> struct ReshapeTag {
  static_assert(Rank >= 1, "tessera: reshape takes a tensor with dims; a scalar broadcasts");
  static_assert(Dims <= max_rank, "tessera: a tensor has at most 8 dims");
  template <class X, class... Sizes> using result = Typed<typename X::type, Dims>;
  static constexpr Value emit(Value context, Value x, auto... given) {
    x = x.at(context.source);
    const int lead = x.leading(Rank);
    Value sizes[] = {as_size(given)...}, total = x.integer(1, DType::i64), product = total;
    for (int d = 0; d < Rank; ++d) total = total * build::extent(x, lead + d);
    int open = 0;
    for (const Value& size : sizes) open += size.is_number(-1) ? 1 : 0;
    if (open > 1) context.refuse(errc::shape_mismatch, "[reshape] -1: only one extent can follow from the others");
    for (const Value& size : sizes) product = product * size;
    // With one size of -1, the product is that of the others, negative.
    const Value others = build::maximum(-product, x.integer(1, DType::i64));
    Factors f{};
    unsigned ones = 0;
    for (int d = 0; d < Dims; ++d) {
      Value& size = sizes[d];
      if (size.is_number(1) && (f.count > 0 || d + 1 < Dims)) {
        ones |= 1u << (lead + d);
        continue;
      }
      const Value extent = build::select(build::less(size, size.number(0)), total / others, size);
      sizes[f.count] = extent;
      f.order[f.count] = f.out_dim[f.count] = f.count;
      ++f.count;
    }
    const int kept = f.count;
    if constexpr (Rank > 1) x = MergeTag<Rank, 0, Rank - 1, MadeBy::reshape>::emit(context, x);
    return build::insert_singletons(rearrange(x, 1, kept, f, sizes, {.by = MadeBy::reshape}), ones, lead + Dims);
  }
};

template <int Rank, int Dims> struct BroadcastToTag {
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  static_assert(Rank <= Dims, "tessera: a tensor can't be broadcast to fewer dims");
  static_assert(Dims <= max_rank, "tessera: a tensor has at most 8 dims");
  template <class X, class... Sizes> using result = Typed<typename X::type, Dims>;
  static constexpr Value emit(Value context, Value x, auto... given) {
    x = x.at(context.source);
    if (x.rank() != Rank)
      context.refuse(errc::unsupported,
                     "[broadcast_to] field of all layers of a Stack: use it inside the block of the Stack");
    const Value operand = x;
    x = build::insert_singletons(x, (1u << (Dims - Rank)) - 1, Dims);
    Value like{};  // of these only the shape is used
    unsigned ones = 0;
    bool same = true;
    int d = 0;
    for (const Value& given_size : {as_size(given)...}) {
      const int dim = d++;
      const bool fresh = dim < Dims - Rank;
      const Value extent = fresh ? x.number(1, DType::i64) : build::extent(operand, dim - (Dims - Rank));
      const bool keeps = given_size.is_number(-1) || given_size == extent;
      if (given_size.is_number(-1) && fresh)
        context.refuse(errc::shape_mismatch, "[broadcast_to] -1: a dim that the operand lacks has no extent to keep");
      if (x.is_singleton(dim) && (keeps || given_size.is_number(1))) continue;
      const bool computed = !given_size.node().is_constant() && !fresh;
      const Value size = keeps      ? extent
                         : computed ? build::select(build::equal(given_size, given_size.number(-1)), extent, given_size)
                                    : given_size;
      same = same && size == extent;
      const Node counted{.op = Op::arange, .dtype = DType::i32, .rank = 1, .labels = pack_maker(MadeBy::broadcast_to)};
      const Value own = build::insert_singletons(x.make(counted, {size.id}), ((1u << Dims) - 1) & ~(1u << dim), Dims);
      like = like.module == nullptr ? own : like + own;
      if (size.is_number(1)) ones |= 1u << dim;  // the broadcast checks that the dim has extent 1
      if (x.is_singleton(dim) || size == extent || size.is_number(1)) continue;
      if constexpr (Dims < max_rank) {
        const Value once = size.number(1, DType::i64), none = size.number(0, DType::i64);
        const Value copies = build::select(build::equal(extent, once), build::maximum(size, none), once);
        x = repeated(x, dim, copies, false);
      }
    }
    if (same) return x;
    x = build::checked_broadcast(x, like, MadeBy::broadcast_to);
    for (int dim = 0; dim < Dims; ++dim)
      if (ones >> dim & 1u) x = build::slice(x, dim, x.number(0, DType::i64), x.number(1, DType::i64));
    return x;
  }
};

template <template <int, int> class Tag, class X, std::size_t Dims>
constexpr auto call_with_sizes(Source source, const X& x, const Dim (&sizes)[Dims]) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return call<Tag<X::rank, static_cast<int>(Dims)>>(source, x, sizes[I]...);
  }(std::make_index_sequence<Dims>{});
}

template <class Size, class X> constexpr X refuse_sizes(const X& x) {
  static_assert(std::is_void_v<Size>, "tessera: the extents of a shape are in braces: ts::reshape(x, {3, 5}) for "
                                      "ts::reshape(x, 3, 5), ts::broadcast_to(x, {3, 5})");
  return x;
}

}  // namespace detail

/// x with its elements in row-major order in another shape (torch.reshape): `reshape(x, {n, -1})`. One extent may be
/// -1, which follows from the others. Errors: shape_mismatch where the numbers of elements differ, and for an extent of
/// 0. Communication: all dims are merged and split again, so a split dim other than the first may be gathered;
/// split_dim and merge_dims name the dims that change, and keep the sharding of all others.
template <TensorArgument X, std::size_t Dims>
constexpr auto reshape(const X& x, const Dim (&sizes)[Dims], Here at = Here::current()) {
  return detail::call_with_sizes<detail::ReshapeTag>(Source::from(at), x, sizes);
}

/// x broadcast to the given extents, trailing dims aligned (torch.broadcast_to, Tensor.expand): dims that x lacks are
/// new, dims of extent 1 are repeated, all others have the extent that is given; -1 keeps an extent. The gradient is
/// summed over the copies. Errors: shape_mismatch for any other extent. Of a tensor of 8 dims only dims of static
/// extent 1 are repeated. No communication. A new dim is split as what reads the result or a constraint needs; where
/// nothing asks for a split, each device has it whole, also if its extent is that of a split dim. Where the extent of a
/// dim is known only when the program is planned, as 4 of a stored tensor, the dim is copied before it is broadcast; -1
/// or ts::extent<D>(x) saves the copy.
///
///     const auto rows = ts::broadcast_to(bias, {ts::extent<0>(x), 4});   // [4] gives [N, 4]
template <TensorArgument X, std::size_t Dims>
constexpr auto broadcast_to(const X& x, const Dim (&sizes)[Dims], Here at = Here::current()) {
  return detail::call_with_sizes<detail::BroadcastToTag>(Source::from(at), x, sizes);
}

/// With sizes that are not in braces they do not compile.
template <TensorArgument X, SizeOperand First, SizeOperand... Sizes>
constexpr X reshape(const X& x, const First&, const Sizes&...) {
  return detail::refuse_sizes<First>(x);
}
template <TensorArgument X, SizeOperand First, SizeOperand... Sizes>
constexpr X broadcast_to(const X& x, const First&, const Sizes&...) {
  return detail::refuse_sizes<First>(x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
