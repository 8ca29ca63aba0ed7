#ifndef TESSERA_OPS_ATTENTION_RING_ATTENTION_HPP
#define TESSERA_OPS_ATTENTION_RING_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/base/fixed_string.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/attention/attention_rows.hpp>
#include <tessera/ops/constraint.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/custom/custom_gradient.hpp>
#include <tessera/ops/data_movement/factors.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/shard_map/axis_text.hpp>
#include <tessera/ops/shard_map/local_collectives.hpp>
#include <tessera/ops/shard_map/shard_map.hpp>

namespace tessera {

namespace detail {

/// The element type of sums: that of logarithms and gradients of attention.
template <class T> using sum_of_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// The logarithms of attention as [batch, time, heads, 1], and back.
constexpr Value swapped_time_and_heads(const Value& x, bool from_three_dims) {
  Factors f{};
  f.count = 3;
  for (int d = 0; d < 3; ++d) {
    f.in_dim[d] = f.out_dim[d] = static_cast<std::int8_t>(d);
    f.order[d] = static_cast<std::int8_t>(d == 0 ? 0 : 3 - d);
  }
  return rearrange(x, from_three_dims ? 3 : 4, from_three_dims ? 4 : 3, f, nullptr);
}

/// The logarithms that belong to AttentionTag, [batch, time, heads, 1].
template <bool Causal> struct AttentionLogarithmsTag : AttentionNodes {
  template <class Q, class K> using result = Typed<sum_of_t<typename Q::type>, 4>;
  static constexpr Value emit(Value context, Value q, Value k) {
    q = q.at(context.source);
    const Value scale = build::cast(default_scale(context, q), computed_as(q.dtype()));
    return swapped_time_and_heads(logarithms({Causal}, q, k, scale, {}, {}), true);
  }
};

/// The cotangent of queries, keys or values (0, 1, 2) from the output, the logarithms and the cotangent of attention to
/// these keys and others: what these keys contribute.
template <bool Causal, int Of> struct AttentionCotangentTag : AttentionNodes {
  template <class Q, class K, class V, class Out, class Lse, class G>
  using result = Typed<sum_of_t<typename Q::type>, 4>;
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value out, Value lse, Value g) {
    q = build::product_operand(q.at(context.source)), k = build::product_operand(k), v = build::product_operand(v);
    out = build::cast(out, q.dtype()), g = build::cast(g, q.dtype());
    const Value scale = build::cast(default_scale(context, q), computed_as(q.dtype()));
    const std::int32_t operands[]{q.id, k.id, v.id, out.id, swapped_time_and_heads(lse, false).id, g.id, scale.id};
    return ops::attention_cotangent({Causal}, Of, Of == 0 ? q : (Of == 1 ? k : v).at(context.source), operands, 7);
  }
};

/// Attention to some of the keys: the output and the logarithms, by which outputs are merged.
struct PartOfAttention {
  template <bool Causal> static constexpr auto of(const auto& q, const auto& k, const auto& v, Here at) {
    using Sum = sum_of_t<typename std::remove_cvref_t<decltype(q)>::element>;
    const auto lse = call<AttentionLogarithmsTag<Causal>>(Source::from(at), q, k);
    // Finite, so that parts without keys can be merged.
    return std::tuple(cast<Sum>(call<AttentionTag<Causal>>(Source::from(at), q, k, v), at), maximum(lse, -1e30, at));
  }
  /// Attention to the keys of both parts.
  static constexpr auto merged(const auto& a, const auto& b, Here at) {
    const auto& [out, lse] = a;
    const auto& [other, log] = b;
    const auto sum = logaddexp(lse, log, at);
    return std::tuple(out * exp(lse - sum, at) + other * exp(log - sum, at), sum);
  }
  /// The part of attention if the condition is true; otherwise a part without keys.
  static constexpr auto where(const auto& condition, const auto& part, Here at) {
    const auto& [out, lse] = part;
    return std::tuple(out, select(condition, lse, -1e30, at));
  }
};

/// The cotangents of queries, keys and values, as far as these keys contribute.
template <bool Causal>
constexpr auto attention_cotangents(const auto& q, const auto& k, const auto& v, const auto& out, const auto& lse,
                                    const auto& g, Here at) {
  const Source source = Source::from(at);
  return std::tuple(call<AttentionCotangentTag<Causal, 0>>(source, q, k, v, out, lse, g),
                    call<AttentionCotangentTag<Causal, 1>>(source, q, k, v, out, lse, g),
                    call<AttentionCotangentTag<Causal, 2>>(source, q, k, v, out, lse, g));
}

/// The two halves of the times of a device: in zigzag order an early and a late chunk.
constexpr auto time_halves(const auto& x, Here at) {
  return unbind<2, 1>(rearrange<"b (c t) h e -> b c t h e">(x, len<"c">(2), at), at);
}
constexpr auto joined_halves(const auto& early, const auto& late, Here at) {
  return rearrange<"b c t h e -> b (c t) h e">(stack<1>(early, late, at), at);
}

/// Ring attention in each of its parts, as functions of the shards of one device. In hop `hop` a device has the keys
/// and values of the device that many positions before it along the axis.
template <FixedString Axis, bool Causal> struct Ring {
  struct First {
    constexpr auto operator()(const auto& q, const auto& k, const auto& v) const {
      return PartOfAttention::of<Causal>(q, k, v, Here::current());
    }
  };

  struct Hop {
    constexpr auto operator()(const auto& q, const auto& sent_k, const auto& sent_v, const auto& out, const auto& lse,
                              const auto& hop) const {
      constexpr Here at = Here::current();
      const auto k = ppermute<Axis>(sent_k, tessera::Shift(1), at), v = ppermute<Axis>(sent_v, tessera::Shift(1), at);
      if constexpr (!Causal) {
        const auto [next, log] =
            PartOfAttention::merged(std::tuple(out, lse), PartOfAttention::of<false>(q, k, v, at), at);
        return std::tuple(k, v, next, log);
      } else {
        // Keys of a device before this one: all queries see the early half of the keys. Keys of a device after this
        // one: the late queries see all keys. So late queries and early keys always meet, and another pair of halves.
        const auto before = axis_index<Axis>(q, at) >= hop;
        const auto [q0, q1] = time_halves(q, at);
        const auto [k0, k1] = time_halves(k, at);
        const auto [v0, v1] = time_halves(v, at);
        const auto [out0, out1] = time_halves(out, at);
        const auto [lse0, lse1] = time_halves(lse, at);
        const auto always = PartOfAttention::of<false>(q1, k0, v0, at);
        const auto either = PartOfAttention::of<false>(select(before, q0, q1, at), select(before, k0, k1, at),
                                                       select(before, v0, v1, at), at);
        const auto early =
            PartOfAttention::merged(std::tuple(out0, lse0), PartOfAttention::where(before, either, at), at);
        const auto late =
            PartOfAttention::merged(PartOfAttention::merged(std::tuple(out1, lse1), always, at),
                                    PartOfAttention::where(axis_index<Axis>(q, at) < hop, either, at), at);
        return std::tuple(k, v, joined_halves(std::get<0>(early), std::get<0>(late), at),
                          joined_halves(std::get<1>(early), std::get<1>(late), at));
      }
    }
  };

  struct FirstCotangents {
    constexpr auto operator()(const auto& q, const auto& k, const auto& v, const auto& out, const auto& lse,
                              const auto& g) const {
      return attention_cotangents<Causal>(q, k, v, out, lse, g, Here::current());
    }
  };

  struct HopCotangents {
    constexpr auto operator()(const auto& q, const auto& out, const auto& lse, const auto& g, const auto& sent_k,
                              const auto& sent_v, const auto& dq, const auto& sent_dk, const auto& sent_dv,
                              const auto& hop) const {
      constexpr Here at = Here::current();
      const auto k = ppermute<Axis>(sent_k, tessera::Shift(1), at), v = ppermute<Axis>(sent_v, tessera::Shift(1), at);
      const auto dk = ppermute<Axis>(sent_dk, tessera::Shift(1), at),
                 dv = ppermute<Axis>(sent_dv, tessera::Shift(1), at);
      if constexpr (!Causal) {
        const auto [more_dq, more_dk, more_dv] = attention_cotangents<false>(q, k, v, out, lse, g, at);
        return std::tuple(k, v, dq + more_dq, dk + more_dk, dv + more_dv);
      } else {
        const auto before = axis_index<Axis>(q, at) >= hop;
        const auto [q0, q1] = time_halves(q, at);
        const auto [k0, k1] = time_halves(k, at);
        const auto [v0, v1] = time_halves(v, at);
        const auto [out0, out1] = time_halves(out, at);
        const auto [lse0, lse1] = time_halves(lse, at);
        const auto [g0, g1] = time_halves(g, at);
        const auto [dq1, dk0, dv0] = attention_cotangents<false>(q1, k0, v0, out1, lse1, g1, at);
        const auto [either_dq, either_dk, either_dv] = attention_cotangents<false>(
            select(before, q0, q1, at), select(before, k0, k1, at), select(before, v0, v1, at),
            select(before, out0, out1, at), select(before, lse0, lse1, at), select(before, g0, g1, at), at);
        const auto early = [&](const auto& x) { return select(before, x, 0.0, at); };
        const auto late = [&](const auto& x) { return select(before, 0.0, x, at); };
        return std::tuple(k, v, dq + joined_halves(early(either_dq), dq1 + late(either_dq), at),
                          dk + joined_halves(dk0 + early(either_dk), late(either_dk), at),
                          dv + joined_halves(dv0 + early(either_dv), late(either_dv), at));
      }
    }
  };

  struct Home {
    constexpr auto operator()(const auto& dk, const auto& dv) const {
      return std::tuple(ppermute<Axis>(dk, tessera::Shift(1)), ppermute<Axis>(dv, tessera::Shift(1)));
    }
  };

  /// The carry after all hops but the first, each of them the call `mapped(constants..., carry..., hop)`.
  template <class Mapped, class Constants, class Carry>
  static constexpr auto after_hops(const Mapped& mapped, const Constants& constants, const Carry& init,
                                   const Value& context, Here at) {
    const auto step = [mapped, constants](const auto& hop, const auto& carry) {
      return std::apply([&](const auto&... xs) { return mapped(xs..., hop); }, std::tuple_cat(constants, carry));
    };
    return fori_loop(1, Dim(axis_size_of(context, Axis.view())), step, init, at);
  }

  /// The output, and what the gradient needs.
  static constexpr auto forward(const auto& q, const auto& k, const auto& v, Here at) {
    using T = typename std::remove_cvref_t<decltype(q)>::element;
    const auto first = shard_map<with_axis<"{-,@}, {-,@}, {-,@} -> {-,@}, {-,@}", Axis>()>(First{}, at);
    const auto hop =
        shard_map<with_axis<"{-,@}, {-,@}, {-,@}, {-,@}, {-,@}, {} -> {-,@}, {-,@}, {-,@}, {-,@}", Axis>()>(Hop{}, at);
    const auto last =
        after_hops(hop, std::tuple(q), std::tuple_cat(std::tuple(k, v), first(q, k, v)), value_behind(q), at);
    const auto y = cast<T>(std::get<2>(last), at);
    return std::tuple(y, std::tuple(q, k, v, y, std::get<3>(last)));
  }
  static constexpr auto backward(const auto& q, const auto& k, const auto& v, const auto& out, const auto& lse,
                                 const auto& g, Here at) {
    using T = typename std::remove_cvref_t<decltype(q)>::element;
    const auto first = shard_map<with_axis<"{-,@}, {-,@}, {-,@}, {-,@}, {-,@}, {-,@} -> {-,@}, {-,@}, {-,@}", Axis>()>(
        FirstCotangents{}, at);
    const auto hop = shard_map<with_axis<
        "{-,@}, {-,@}, {-,@}, {-,@}, {-,@}, {-,@}, {-,@}, {-,@}, {-,@}, {} -> {-,@}, {-,@}, {-,@}, {-,@}, {-,@}",
        Axis>()>(HopCotangents{}, at);
    const auto home = shard_map<with_axis<"{-,@}, {-,@} -> {-,@}, {-,@}", Axis>()>(Home{}, at);
    const auto last = after_hops(hop, std::tuple(q, out, lse, g),
                                 std::tuple_cat(std::tuple(k, v), first(q, k, v, out, lse, g)), value_behind(q), at);
    const auto at_home = home(std::get<3>(last), std::get<4>(last));
    return std::tuple(cast<T>(std::get<2>(last), at), cast<T>(std::get<0>(at_home), at),
                      cast<T>(std::get<1>(at_home), at));
  }
};

template <FixedString Axis, bool Causal>
constexpr auto ring_attention(const auto& q, const auto& k, const auto& v, Here at) {
  const auto forward = [at](const auto&... x) { return Ring<Axis, Causal>::forward(x..., at); };
  const auto backward = [at](const auto& residuals, const auto& g) {
    return std::apply([&](const auto&... x) { return Ring<Axis, Causal>::backward(x..., g, at); }, residuals);
  };
  return custom_vjp(forward, backward)(q, k, v);
}

}  // namespace detail

/// Context parallelism by a ring: `ts::attention` for queries, keys and values [batch, time, heads, width] whose time
/// is split over the mesh axis. Keys and values travel from device to device, and no device stores those of two devices
/// at a time. Exact; the gradient travels along the ring once more, and stores no scores either. Over other axes all
/// stays as it is.
///
///     const auto y = ts::ring_attention<"context">(q, k, v);
///
/// Call it in a function of ts::compile, outside of a ts::shard_map. For keys of fewer heads see repeat_heads. Errors:
/// not_divisible unless the axis divides the times; spec_axis for an axis that the mesh lacks. Communication, n
/// devices: 2 (n - 1) permutes, of a device's keys and of its values; 4 (n - 1) + 2 for the gradients. Source: Liu et
/// al., 2310.01889.
template <FixedString Axis, TensorArgument Q, TensorArgument K, TensorArgument V>
constexpr auto ring_attention(const Q& q, const K& k, const V& v, Here at = Here::current()) {
  return detail::ring_attention<Axis, false>(q, k, v, at);
}
/// ts::causal_attention along a ring, for times in zigzag order (ts::zigzag_order), in which all devices have equal
/// work. Errors: shape_mismatch unless keys and queries have one shape; not_divisible unless a device has an even
/// number of times; otherwise as ring_attention. Source of the order: Megatron-LM, PyTorch.
template <FixedString Axis, TensorArgument Q, TensorArgument K, TensorArgument V>
constexpr auto causal_ring_attention(const Q& q, const K& k, const V& v, Here at = Here::current()) {
  // Of one shape: with other times the chunks of queries and keys would not be those of one order.
  const auto alike = shard_as(q, k, at);
  return detail::ring_attention<Axis, true>(std::get<0>(alike), std::get<1>(alike), v, at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
