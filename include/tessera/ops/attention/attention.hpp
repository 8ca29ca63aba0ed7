#ifndef TESSERA_OPS_ATTENTION_ATTENTION_HPP
#define TESSERA_OPS_ATTENTION_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include <tessera/ops/attention/attention_form.hpp>
#include <tessera/ops/contraction/contraction_rows.hpp>
#include <tessera/ops/contraction/einsum.hpp>
#include <tessera/ops/contraction/product_operand.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/functional.hpp>
#include <tessera/ops/random/random.hpp>
#include <tessera/ops/source/extent_rows.hpp>
#include <tessera/ops/source/position_rows.hpp>

namespace tessera {

namespace detail {

/// Checks of types, and the nodes of all forms of attention.
struct AttentionNodes {
  static constexpr auto leading_dims = ops::LeadingDims::batch;
  template <class Q, class K, class V, class Scale = Q> struct result : Q {
    using Checks = decltype([] {
      static_assert(Q::rank == 4 && K::rank == 4 && V::rank == 4,
                    "tessera: attention takes queries, keys and values of rank 4: [batch, time, heads, width]");
      static_assert(is_floating_v<typename Q::type> && std::is_same_v<typename Q::type, typename K::type> &&
                        std::is_same_v<typename Q::type, typename V::type>,
                    "tessera: queries, keys and values of attention must have the same floating element type");
    });
  };
  static constexpr Value default_scale(Value context, Value q) {
    const Value width = build::cast(build::extent(q.at(context.source), 3), DType::f64);
    return build::rsqrt(width);
  }
  /// The output; `lower` and `upper` are null unless the form is banded, and `bias` unless it is biased.
  static constexpr Value make(Value context, AttentionForm form, Value q, Value k, Value v, Value scale, Value lower,
                              Value upper, Value bias = {}) {
    const DType given = q.dtype();
    q = build::product_operand(q.at(context.source)), k = build::product_operand(k), v = build::product_operand(v);
    if (q.rank() != 4)
      q.refuse(errc::unsupported, "[attention] fields of all layers: call attention inside the block of the Stack");
    check_static_dims(q, k.node(), v.node());
    scale = build::cast(scale, computed_as(q.dtype()));
    if (form.banded) lower = build::cast(lower, DType::i64), upper = build::cast(upper, DType::i64);
    if (form.biased && bias.dtype() != DType::bool_) bias = build::cast(bias, computed_as(q.dtype()));
    const Value lse = logarithms(form, q, k, scale, lower, upper, bias);
    form.result = AttentionResult::output;
    const Node made{.op = Op::attention,
                    .dtype = q.dtype(),
                    .rank = 4,
                    .singletons = static_cast<std::uint8_t>(singletons_of(q.node(), {0, 1, 2}) |
                                                            (v.is_singleton(3) ? 1u << 3 : 0u)),
                    .labels = form.pack()};
    return build::cast(with_scalars(made, {q.id, k.id, v.id, lse.id}, q, form, scale, lower, upper, bias), given);
  }
  /// The logarithms of the sums of exponentials of all scores of a query, [batch, heads, time]. With bf16 or f16
  /// operands they, the scale and the gradients are f32.
  static constexpr Value logarithms(AttentionForm form, Value q, Value k, Value scale, Value lower, Value upper,
                                    Value bias = {}) {
    form.result = AttentionResult::logarithms;
    q = build::product_operand(q), k = build::product_operand(k);
    const Node made{.op = Op::attention_lse,
                    .dtype = computed_as(q.dtype()),
                    .rank = 3,
                    .singletons = singletons_of(q.node(), {0, 2, 1}),
                    .labels = form.pack()};
    return with_scalars(made, {q.id, k.id}, q, form, scale, lower, upper, bias);
  }

 private:
  static constexpr std::uint8_t singletons_of(const Node& x, std::initializer_list<int> dims) {
    unsigned singletons = 0, bit = 1;
    for (int d : dims) {
      if (x.is_singleton(d)) singletons |= bit;
      bit <<= 1;
    }
    return static_cast<std::uint8_t>(singletons);
  }
  static constexpr Value with_scalars(const Node& made, std::initializer_list<std::int32_t> tensors, Value like,
                                      const AttentionForm& form, Value scale, Value lower, Value upper, Value bias) {
    std::int32_t operands[8]{};
    int arity = 0;
    for (std::int32_t tensor : tensors) operands[arity++] = tensor;
    if (form.biased) operands[arity++] = bias.id;
    if (form.banded) operands[arity++] = lower.id, operands[arity++] = upper.id;
    operands[arity++] = scale.id;
    return like.make(made, operands, arity);
  }
  static constexpr void check_static_dims(const Value& context, const Node& k, const Node& v) {
    const Node& q = context.node();
    const unsigned shared = 1u << 0 | 1u << 2;
    if (((q.singletons ^ k.singletons) & (shared | 1u << 3)) != 0 ||
        ((k.singletons ^ v.singletons) & (shared | 1u << 1)) != 0)
      context.refuse(errc::unsupported,
                     "[attention] dims of static extent 1: attention does not broadcast; a dim has static extent 1 "
                     "in all of queries, keys and values, or in none of them");
  }
};

template <bool Causal> struct AttentionTag : AttentionNodes {
  static constexpr Value emit(Value context, Value q, Value k, Value v) {
    return emit(context, q, k, v, default_scale(context, q));
  }
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value scale) {
    return make(context, {Causal}, q, k, v, scale, {}, {});
  }
};

/// A bias or mask [..., time, keys] for queries q. If there is one query in every call, as in a step of generation, the
/// dim of queries has static extent 1 in the result, and so in the bias.
constexpr Value of_queries(Value bias, const Value& q) {
  const int times = bias.rank() - 2;
  if (q.rank() != 4 || !q.is_singleton(1) || bias.is_singleton(times)) return bias;
  const Value one = bias.integer(1, DType::i64);
  build::require_queries(bias, times, q, 1);
  return build::slice(bias, times, one - build::extent(bias, times), one, MadeBy::squeeze);
}

/// Attention by products and a softmax, which stores the weights of all pairs of a query and a key: with a bias or a
/// mask, unless that is null, and with weights that `drop` changes.
template <bool Causal, class Drop>
constexpr Value attention_by_products(Value context, Value q, Value k, Value v, Value bias, Value scale,
                                      const Drop& drop) {
  const DType given = q.dtype(), wide = computed_as(given);
  q = build::product_operand(q.at(context.source)), k = build::product_operand(k), v = build::product_operand(v);
  if (q.rank() != 4)
    q.refuse(errc::unsupported, "[attention] fields of all layers: call attention inside the block of the Stack");
  Value scores =
      build::cast(build::einsum(q, k, EinsumText("bthe,bshe->bhts").labels), wide) * build::cast(scale, wide);
  const bool has_bias = bias.module != nullptr;
  if (has_bias) bias = of_queries(bias.at(context.source), q);
  const bool is_mask = has_bias && bias.dtype() == DType::bool_;
  if (has_bias && !is_mask) bias = build::cast(bias, wide), scores = scores + bias;
  const Value none = !has_bias || is_mask ? bias : build::less(bias, bias.number(-1e29));
  const Value after =
      Causal ? build::less(build::iota(scores, 2, DType::i64), build::iota(scores, 3, DType::i64)) : Value{};
  const auto where_seen = [&](Value x, double otherwise) {
    const Value number = x.number(otherwise);
    if (has_bias) x = is_mask ? build::select(none, x, number) : build::select(none, number, x);
    return Causal ? build::select(after, number, x) : x;
  };
  // A query without a key has a softmax of equal scores, which are then 0.
  Value weights = build::softmax(where_seen(scores, -1e30), 3);
  if (has_bias) weights = where_seen(weights, 0);
  weights = drop(weights);
  return build::cast(build::einsum(build::cast(weights, q.dtype()), v, EinsumText("bhts,bshe->bthe").labels), given);
}

/// Attention with a bias or a mask for each pair of a query and a key.
template <bool Causal> struct AttentionWithBiasTag {
  static constexpr const char* function = "attention";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;  // a bias may lack a batch dim that queries have
  template <class Q, class K, class V, class Bias, class... Scale> struct result : AttentionNodes::result<Q, K, V> {
    using BiasChecks = decltype([] {
      static_assert(Bias::rank >= 2 && Bias::rank <= 4 &&
                        (is_floating_v<typename Bias::type> || std::is_same_v<typename Bias::type, bool>),
                    "tessera: the bias of attention is a floating-point tensor, and its mask one of bool, of [batch, "
                    "heads, time, keys], [heads, time, keys] or [time, keys]; a scale is a number");
    });
  };
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value bias) {
    return emit(context, q, k, v, bias, AttentionNodes::default_scale(context, q));
  }
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value bias, Value scale) {
    bias = of_queries(bias.at(context.source), q);
    const auto fits = [&](int dim, bool one) { return bias.is_singleton(dim) || !one; };
    if (q.rank() == 4 && k.rank() == 4 && bias.rank() <= 4) {
      bias = build::insert_singletons(bias, (1u << (4 - bias.rank())) - 1, 4);
      if (fits(0, q.is_singleton(0)) && fits(1, q.is_singleton(2)) && fits(3, k.is_singleton(1)))
        return AttentionNodes::make(context, {.causal = Causal, .biased = true}, q, k, v, scale, {}, {}, bias);
    }
    // A bias of more batches or heads than queries and keys have.
    return attention_by_products<Causal>(context, q, k, v, bias, scale, [](const Value& weights) { return weights; });
  }
};

template <bool Biased, bool Causal, class Q, class K, class V, class... More> struct ResultWithBias {
  using type = AttentionNodes::result<Q, K, V>;
};
template <bool Causal, class Q, class K, class V, class Bias, class... Scale>
struct ResultWithBias<true, Causal, Q, K, V, Bias, Scale...> {
  using type = typename AttentionWithBiasTag<Causal>::template result<Q, K, V, Bias, Scale...>;
};

/// Attention with dropout of its weights, after which come a bias, if it is Biased, and a scale.
template <bool Causal, bool Biased, std::uint32_t Stream> struct DroppedAttentionTag {
  static constexpr const char* function = "attention";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;
  template <class Q, class K, class V, class Rate, class Key, class... More>
  struct result : ResultWithBias<Biased, Causal, Q, K, V, More...>::type {
    using DropChecks = typename DropoutTag<Stream>::template result<Q, Rate, Key>::Checks;
  };
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value rate, Value key, auto... more) {
    const Value given[] = {more..., Value{}, Value{}};
    const Value bias = Biased ? given[0] : Value{}, scale = given[Biased ? 1 : 0];
    return attention_by_products<Causal>(
        context, q, k, v, bias, scale.module == nullptr ? AttentionNodes::default_scale(context, q) : scale,
        [&](const Value& weights) { return DropoutTag<Stream>::emit(context, weights, rate, key); });
  }
};

}  // namespace detail

/// Attention of every query to every key: softmax(scale q k^T) v, for queries [batch, time, heads, width], keys [batch,
/// keys, heads, width] and values [batch, keys, heads, value width]; the result is [batch, time, heads, value width].
/// The scale is 1 / sqrt(width) by default. Without any keys the result is 0.
///
/// One operation, computed by tiles forward and backward: the scores are never in memory as a whole. Only a second
/// derivative stores them. Errors: shape_mismatch. Communication: none for split batch, heads and query times; a split
/// key time is gathered. Source: Vaswani et al., 1706.03762; Dao et al., 2205.14135.
template <TensorArgument Q, TensorArgument K, TensorArgument V>
constexpr auto attention(const Q& q, const K& k, const V& v, Here at = Here::current()) {
  return call<detail::AttentionTag<false>>(Source::from(at), q, k, v);
}
template <TensorArgument Q, TensorArgument K, TensorArgument V, NumberOperand Scale>
constexpr auto attention(const Q& q, const K& k, const V& v, const Scale& scale, Here at = Here::current()) {
  return call<detail::AttentionTag<false>>(Source::from(at), q, k, v, scale);
}

/// Causal attention: query i attends to keys 0 to i. About half of the arithmetic of `attention`.
template <TensorArgument Q, TensorArgument K, TensorArgument V>
constexpr auto causal_attention(const Q& q, const K& k, const V& v, Here at = Here::current()) {
  return call<detail::AttentionTag<true>>(Source::from(at), q, k, v);
}
template <TensorArgument Q, TensorArgument K, TensorArgument V, NumberOperand Scale>
constexpr auto causal_attention(const Q& q, const K& k, const V& v, const Scale& scale, Here at = Here::current()) {
  return call<detail::AttentionTag<true>>(Source::from(at), q, k, v, scale);
}
/// Attention with a bias that is added to the scores, or with a mask of bool that is true for the keys that a query
/// attends to, as attn_mask of F.scaled_dot_product_attention: [batch, heads, time, keys], [heads, time, keys] or
/// [time, keys], with a dim of static extent 1 (ts::unsqueeze) where all batches or heads have the same. A bias below
/// -1e29 masks its key; a query that has no key gives 0. For a bias of each key, the same for all queries, there is
/// also ts::biased_attention. For the keys of a window, ts::band_attention skips the tiles outside of it.
///
///     ts::attention(q, k, v, mask), ts::causal_attention(q, k, v, bias, 1.0)
/// Scores are never in memory as a whole: the bias is added tile by tile, forward and backward. A bias of bf16 or f16
/// is converted to f32 first, in its own shape. Gradients: also of the bias; this one, only where it is wanted, stores
/// scores of all heads, [batch, heads, time, keys], as does a bias of more batches or heads than queries and keys,
/// whose dim has static extent 1. Errors: shape_mismatch. Communication: none for split batch, heads and query times;
/// the bias is split with them.
template <TensorArgument Q, TensorArgument K, TensorArgument V, TensorOperand Bias>
constexpr auto attention(const Q& q, const K& k, const V& v, const Bias& bias, Here at = Here::current()) {
  return call<detail::AttentionWithBiasTag<false>>(Source::from(at), q, k, v, bias);
}
template <TensorArgument Q, TensorArgument K, TensorArgument V, TensorOperand Bias, NumberOperand Scale>
constexpr auto attention(const Q& q, const K& k, const V& v, const Bias& bias, const Scale& scale,
                         Here at = Here::current()) {
  return call<detail::AttentionWithBiasTag<false>>(Source::from(at), q, k, v, bias, scale);
}
template <TensorArgument Q, TensorArgument K, TensorArgument V, TensorOperand Bias>
constexpr auto causal_attention(const Q& q, const K& k, const V& v, const Bias& bias, Here at = Here::current()) {
  return call<detail::AttentionWithBiasTag<true>>(Source::from(at), q, k, v, bias);
}
template <TensorArgument Q, TensorArgument K, TensorArgument V, TensorOperand Bias, NumberOperand Scale>
constexpr auto causal_attention(const Q& q, const K& k, const V& v, const Bias& bias, const Scale& scale,
                                Here at = Here::current()) {
  return call<detail::AttentionWithBiasTag<true>>(Source::from(at), q, k, v, bias, scale);
}

/// Dropout of the weights of attention, for training: see attention_dropout.
template <class Rate, class Key, std::uint32_t Stream> struct AttentionDropout {
  Rate rate;
  Key key;
  Here at;
};
/// An argument of attention and causal_attention after the values, by which each weight, after the softmax, is 0 with
/// probability `rate` and divided by 1 - rate otherwise: dropout_p of F.scaled_dot_product_attention. Rate, key, stream
/// and errors: as ts::dropout. In evaluation leave it out.
///
///     ts::attention(q, k, v, ts::attention_dropout(0.1, key))
///     ts::causal_attention(q, k, v, ts::attention_dropout(0.1, key), bias, 1.0)   // also with a bias, a scale
/// This is products and a softmax, which store the weights: memory of [batch, heads, time,
/// keys] several times, where attention without dropout has none. A weight is dropped by the key and its index, so the
/// results are the same on every mesh. Communication: none for split batch, heads and query times.
template <std::uint32_t Stream = 0, NumberOperand Rate, class Key>
constexpr AttentionDropout<Rate, Key, Stream> attention_dropout(const Rate& rate, const Key& key,
                                                                Here at = Here::current()) {
  return {rate, key, at};
}

namespace detail {
template <bool Causal, class... More, std::uint32_t Stream, class Rate, class Key>
constexpr auto dropped_attention(const auto& q, const auto& k, const auto& v,
                                 const AttentionDropout<Rate, Key, Stream>& drop, const More&... more) {
  constexpr bool is_biased = (TensorOperand<More> || ...);
  return call<DroppedAttentionTag<Causal, is_biased, Stream>>(Source::from(drop.at), q, k, v, drop.rate,
                                                              drawn_from(drop.key), more...);
}
}  // namespace detail

template <TensorArgument Q, TensorArgument K, TensorArgument V, class Rate, class Key, std::uint32_t Stream,
          Operand... BiasAndScale>
constexpr auto attention(const Q& q, const K& k, const V& v, const AttentionDropout<Rate, Key, Stream>& drop,
                         const BiasAndScale&... more) {
  return detail::dropped_attention<false>(q, k, v, drop, more...);
}
template <TensorArgument Q, TensorArgument K, TensorArgument V, class Rate, class Key, std::uint32_t Stream,
          Operand... BiasAndScale>
constexpr auto causal_attention(const Q& q, const K& k, const V& v, const AttentionDropout<Rate, Key, Stream>& drop,
                                const BiasAndScale&... more) {
  return detail::dropped_attention<true>(q, k, v, drop, more...);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
