#ifndef TESSERA_OPS_ATTENTION_ULYSSES_ATTENTION_HPP
#define TESSERA_OPS_ATTENTION_ULYSSES_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/fixed_string.hpp>
#include <tessera/ops/constraint.hpp>

namespace tessera {

namespace detail {
template <FixedString Axis, int D, class X> constexpr auto split_along(const X& x, const Here& at) {
  const Value context = trace_of(x).at(Source::from(at));
  if (context.module == nullptr)
    fail(errc::unsupported, "[ulysses_attention] outside of a traced function: call it in a function of ts::compile",
         Source::from(at));
  return Sym<typename X::element, X::rank>(split_over(lower(context, x).at(Source::from(at)), Axis.view(), D, X::rank));
}
}  // namespace detail

/// Context parallelism by all-to-alls (DeepSpeed-Ulysses): queries, keys and values [batch, time, heads, width] arrive
/// with time split over the mesh axis; each device gets all times of its share of the heads, calls `attention` with
/// them, and gives its share of the times back. Exact for every attention that treats heads alike: causal, banded, with
/// a bias of heads or keys. Heads and times need not divide evenly; over other axes all stays as it is.
///
///     const auto y = ts::ulysses_attention<"context">(
///         [](const auto& q, const auto& k, const auto& v) { return ts::causal_attention(q, k, v); }, q, k, v);
///
/// Errors: spec_axis for an axis that the mesh lacks. Communication: 4 all_to_alls, and 4 for the gradients; where q, k
/// and v are products of one value, the planner may gather that value instead. Source: Jacobs et al., 2309.14509.
template <FixedString Axis, class Attention, TensorArgument Q, TensorArgument K, TensorArgument V>
constexpr auto ulysses_attention(const Attention& attention, const Q& q, const K& k, const V& v,
                                 Here at = Here::current()) {
  static_assert(Q::rank == 4 && K::rank == 4 && V::rank == 4,
                "tessera: attention takes queries, keys and values of rank 4: [batch, time, heads, width]");
  static_assert(!LocalOperand<Q> && !LocalOperand<K> && !LocalOperand<V>,
                "tessera: ts::ulysses_attention is called outside of a ts::shard_map");
  return detail::split_along<Axis, 1>(
      attention(detail::split_along<Axis, 2>(q, at), detail::split_along<Axis, 2>(k, at),
                detail::split_along<Axis, 2>(v, at)),
      at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
