#ifndef TESSERA_OPS_ATTENTION_ZIGZAG_ORDER_HPP
#define TESSERA_OPS_ATTENTION_ZIGZAG_ORDER_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>

#include <tessera/base/fixed_string.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/data_movement/factors.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/elementwise/select.hpp>
#include <tessera/ops/indexing/sort_rows.hpp>
#include <tessera/ops/shard_map/local_value.hpp>

namespace tessera {

namespace detail {

/// A dim in 2 n chunks, n the devices along the axis, which change places: from natural order to zigzag order, or back.
template <FixedString Axis, int Rank, int D, bool Back> struct ZigzagTag {
  static_assert(Rank < max_rank, "tessera: zigzag_order takes tensors of at most 7 dims");
  template <class X> using result = Typed<typename X::type, Rank>;

  static constexpr Value emit(Value context, Value x) {
    x = split_over(x.at(context.source), Axis.view(), D, Rank);
    const Value chunks = axis_size_of(x, Axis.view()) * x.number(2, DType::i64);
    const Value apart = rearranged(x, true, chunks);
    const int dim = apart.shifted(D, Rank + 1);
    const Value two = x.number(2, DType::i64), last = chunks - x.number(1, DType::i64);
    const Value position = build::iota(apart, dim, DType::i64), half = position / two;
    // Even positions have chunks 0, 1, 2 and so on, odd positions the last chunk, the one before it, and so on.
    const Value from = Back ? build::select(build::less(position + position, chunks), position + position,
                                            last + chunks - position - position)
                            : half + (position - half - half) * (last - half - half);
    return split_over(rearranged(build::gather(apart, dim, from), false, {}), Axis.view(), D, Rank);
  }

 private:
  /// Splits dim D into chunks and their elements, or merges both.
  static constexpr Value rearranged(const Value& x, bool splits, const Value& chunks) {
    Factors f{};
    Value sizes[max_rank]{};
    f.count = Rank + 1;
    for (int d = 0; d < f.count; ++d) {
      const int whole = d > D ? d - 1 : d;
      f.order[d] = static_cast<std::int8_t>(d);
      f.in_dim[d] = static_cast<std::int8_t>(splits ? whole : d);
      f.out_dim[d] = static_cast<std::int8_t>(splits ? d : whole);
    }
    sizes[D] = chunks;
    return rearrange(x, splits ? Rank : Rank + 1, splits ? Rank + 1 : Rank, f, sizes);
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
/// Argument and result are split over the axis in dim D. Errors: not_divisible unless 2 n divides the time; spec_axis
/// for an axis that the mesh lacks. Communication: all_to_alls onto another dim and back, or x is gathered. Source:
/// Megatron-LM's and PyTorch's load balancing of context parallelism.
template <FixedString Axis, int D, TensorArgument X>
  requires(!LocalOperand<X>)
constexpr auto zigzag_order(const X& x, Here at = Here::current()) {
  return call<detail::ZigzagTag<Axis, X::rank, detail::checked_dim<D, X::rank>(), false>>(Source::from(at), x);
}
/// The inverse of zigzag_order.
template <FixedString Axis, int D, TensorArgument X>
  requires(!LocalOperand<X>)
constexpr auto natural_order(const X& x, Here at = Here::current()) {
  return call<detail::ZigzagTag<Axis, X::rank, detail::checked_dim<D, X::rank>(), true>>(Source::from(at), x);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
