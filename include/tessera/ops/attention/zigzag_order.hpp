#ifndef TESSERA_OPS_ATTENTION_ZIGZAG_ORDER_HPP
#define TESSERA_OPS_ATTENTION_ZIGZAG_ORDER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/fixed_string.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/shard_map/local_value.hpp>

namespace tessera {

namespace detail {

/// A dim (2 n k), in natural order, as (n 2 k), in zigzag order, or back: with the second half of the n chunks in
/// reverse, n the devices along the axis.
template <FixedString Axis, int Rank, int D, bool Back> struct ZigzagTag {
  static_assert(Rank + 2 <= max_rank, "tessera: zigzag_order takes tensors of at most 6 dims");
  template <class X> using result = Typed<typename X::type, Rank>;

  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const Value devices = axis_size_of(x, Axis.view()), two = x.number(2, DType::i64);
    const Value halves = rearranged(x, true, Back, Back ? devices : two, Back ? two : devices);
    constexpr int dim = D;
    const auto half = [&](int index) {
      return build::slice(halves, halves.shifted(dim, Rank + 2), x.number(index, DType::i64), x.number(1, DType::i64));
    };
    const Value whole = ConcatTag<Rank + 2, dim>::emit(
        context, half(0), FlipTag<Rank + 2, dim + 1>::emit(context, half(1)));
    return split_over(rearranged(whole, false, !Back, {}, {}), Axis.view(), D, Rank);
  }

 private:
  /// Splits the dim into three, or merges three dims, the first two of which change places if `swaps`.
  static constexpr Value rearranged(const Value& x, bool splits, bool swaps, const Value& first, const Value& second) {
    Factors f{};
    Value sizes[max_rank]{};
    const auto shift = [](int d) { return d < D ? 0 : d > D + 2 ? 2 : d - D; };  // of the dims with three in place of one
    f.count = Rank + 2;
    for (int d = 0; d < f.count; ++d) {
      const int from = swaps && d == D ? D + 1 : swaps && d == D + 1 ? D : d;
      f.in_dim[d] = static_cast<std::int8_t>(splits ? d - shift(d) : d);
      f.order[d] = static_cast<std::int8_t>(from);
      f.out_dim[d] = static_cast<std::int8_t>(splits ? d : d - shift(d));
    }
    sizes[D] = first;
    sizes[D + 1] = second;
    return rearrange(x, splits ? Rank : Rank + 2, splits ? Rank + 2 : Rank, f, sizes);
  }
};

}  // namespace detail

/// Dim D, a time, in the order in which causal attention gives each of the n devices along a mesh axis equal work: the
/// time is cut into 2 n chunks, of which device i gets chunks i and 2 n - 1 - i. For ts::causal_ring_attention; what is
/// computed position by position is the same in each order.
///
///     const auto x = ts::zigzag_order<"context", 1>(embedded);          // [batch, time, features]
///     const auto y = ts::natural_order<"context", 1>(blocks(x));
///
/// Errors: shape_mismatch unless 2 n divides the time; spec_axis for an axis that the mesh lacks. Communication: x is
/// gathered along the axis. Source: Megatron-LM's and PyTorch's load balancing of context parallelism.
template <FixedString Axis, int D, TensorOperand X>
  requires(!LocalOperand<X>)
constexpr auto zigzag_order(const X& x, Here at = Here::current()) {
  return call<detail::ZigzagTag<Axis, X::rank, detail::checked_dim<D, X::rank>(), false>>(Source::from(at), x);
}
/// The inverse of zigzag_order.
template <FixedString Axis, int D, TensorOperand X>
  requires(!LocalOperand<X>)
constexpr auto natural_order(const X& x, Here at = Here::current()) {
  return call<detail::ZigzagTag<Axis, X::rank, detail::checked_dim<D, X::rank>(), true>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
