#ifndef TESSERA_OPS_ATTENTION_BAND_ATTENTION_HPP
#define TESSERA_OPS_ATTENTION_BAND_ATTENTION_HPP
#include <tessera/base/push_macros.hpp>

#include <cstdint>
#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/attention/attention.hpp>
#include <tessera/ops/data_movement/creation.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/repeat.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/elementwise/composition.hpp>
#include <tessera/ops/gradient_rows.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera {

namespace detail {

/// Attention of a query at position p to the keys from p - before to p + after.
struct BandAttentionTag : AttentionNodes {
  template <class Q, class K, class V, class... Numbers> struct result : AttentionNodes::result<Q, K, V> {};
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value before, Value after, Value offset) {
    return emit(context, q, k, v, before, after, offset, default_scale(context, q));
  }
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value before, Value after, Value offset,
                              Value scale) {
    const auto whole = [&](Value x) { return build::cast(x.at(context.source), DType::i64); };
    const Value first = whole(offset);
    return make(context, {.banded = true}, q, k, v, scale, first - whole(before), first + whole(after));
  }
};

/// The same with a number added to all scores of a key, bias [batch, keys, heads, 1]: one more column of queries, of
/// ones, and of keys, of the bias. Where the product rounds to 16 bits, several columns add up to the bias, as a large
/// one, such as that of ALiBi at a late position, has more digits.
struct BiasedAttentionTag : AttentionNodes {
  static constexpr auto leading_dims = ops::LeadingDims::mapped;  // a bias may lack a batch dim that queries have
  template <class Q, class K, class V, class Bias, class... Numbers> struct result : AttentionNodes::result<Q, K, V> {};
  static constexpr Value emit(Value context, Value q, Value k, Value v, Value bias, Value before, Value after,
                              Value offset) {
    q = q.at(context.source);
    k = k.at(context.source);
    const Value scale = default_scale(context, q);
    const DType type = q.dtype(), wide = computed_as(type), rounded = build::product_operand(q).dtype();
    const auto with_column = [&](Value x, Value column) {
      const Value like = build::slice(x, 3, x.number(0, DType::i64), x.number(1, DType::i64));
      return ConcatTag<4, 3>::emit(context, x, build::broadcast(column, like));
    };
    Value rest = build::cast(bias.at(context.source), wide) / build::cast(scale, wide);
    for (int column = 0; column < columns_of(rounded); ++column) {
      if (column > 0) {
        // Only the first column has a gradient. What is masked stays so without the rest, which may be infinite.
        const Value sum = build::unary(ops::op_v<ops::StopGradientOp>, rest);
        const Value given = build::cast(build::cast(sum, rounded), wide);
        rest = build::select(build::less(sum, sum.number(-1e29)), sum.number(0), sum - given);
      }
      q = with_column(q, q.number(1)), k = with_column(k, build::cast(rest, type));
    }
    return BandAttentionTag::emit(context, q, k, v, before, after, offset, scale);
  }

 private:
  static constexpr int columns_of(DType type) { return type == DType::bf16 ? 3 : type == DType::f16 ? 2 : 1; }
};

/// The heads of keys or values repeated for the queries of their group.
struct RepeatHeadsTag {
  template <class K, class Q> struct result : K {
    using Checks = decltype([] {
      static_assert(K::rank == 4 && Q::rank == 4,
                    "tessera: attention takes queries, keys and values of rank 4: [batch, time, heads, width]");
    });
  };
  static constexpr Value emit(Value context, Value k, Value q) {
    build::require_heads(q, q.shifted(2, 4), k, k.shifted(2, 4));
    const Value of_keys = build::extent(k, k.shifted(2, 4)), of_queries = build::extent(q, q.shifted(2, 4));
    return RepeatTag<4, 2, true>::emit(context, k,
                                       of_queries / build::maximum(of_keys, of_keys.number(1, of_keys.dtype())));
  }
};

}  // namespace detail

/// No bound of a band of keys: more positions than any dim has.
inline constexpr std::int64_t unlimited = std::int64_t{1} << 48;

/// Attention to a window of keys. Query i is at position p = offset + i of the keys, and attends to the keys from p -
/// before to p + after, both included. The bounds are numbers that may be known only when the program runs; a call with
/// another offset runs the same plan. A query to which no key is left gives 0, as in PyTorch since 2.5, and has no
/// gradient. Tiles of scores outside of the band are not computed. Otherwise as `attention`.
///
///     ts::band_attention(q, k, v, 255, 0)                       // causal, each query to 256 positions
///     ts::band_attention(q, k, v, ts::unlimited, 0, position)   // causal, with a cache of keys and values
///
/// PyTorch: flex_attention with a mask of the same rule. JAX: jax.nn.dot_product_attention with local_window_size.
/// Source: Beltagy et al., 2004.05150.
template <TensorArgument Q, TensorArgument K, TensorArgument V, NumberOperand Before, NumberOperand After,
          NumberOperand Offset = int>
constexpr auto band_attention(const Q& q, const K& k, const V& v, const Before& before, const After& after,
                              const Offset& offset = 0, Here at = Here::current()) {
  return call<detail::BandAttentionTag>(Source::from(at), q, k, v, before, after, offset);
}
template <TensorArgument Q, TensorArgument K, TensorArgument V, NumberOperand Before, NumberOperand After,
          NumberOperand Offset, NumberOperand Scale>
constexpr auto band_attention(const Q& q, const K& k, const V& v, const Before& before, const After& after,
                              const Offset& offset, const Scale& scale, Here at = Here::current()) {
  return call<detail::BandAttentionTag>(Source::from(at), q, k, v, before, after, offset, scale);
}

/// With an offset that is an integer tensor of rank 0, such as the index of a loop over tokens: attention with a mask
/// [time, keys].
template <TensorArgument Q, TensorArgument K, TensorArgument V, NumberOperand Before, NumberOperand After,
          TensorArgument Offset>
constexpr auto band_attention(const Q& q, const K& k, const V& v, const Before& before, const After& after,
                              const Offset& offset, Here at = Here::current()) {
  static_assert(Offset::rank == 0 && std::is_integral_v<typename Offset::element>,
                "tessera: the offset of band_attention is a number, or an integer tensor of rank 0");
  const detail::FunctionCall named("band_attention", q, k, v, offset);
  const auto position = arange<std::int64_t>(extent<1>(q), q, at) + cast<std::int64_t>(offset, at);
  const auto distance = arange<std::int64_t>(extent<1>(k), k, at) - unsqueeze<1>(position, at);
  return attention(q, k, v, logical_and(distance + before >= 0, distance <= after, at), at);
}

/// band_attention with a bias [batch, heads, keys] added to the scores of each key; the batch and the heads of the bias
/// may be singleton dims. A key with a bias below -1e29 is masked, as key_padding_bias makes it; a query whose keys are
/// all masked gives 0. With queries of bf16 or f16 the bias has 22 binary digits or more. The scale is not 0.
/// Gradients: also of the bias. Errors: shape_mismatch. Communication: as attention.
template <TensorArgument Q, TensorArgument K, TensorArgument V, TensorArgument Bias, NumberOperand Before,
          NumberOperand After, NumberOperand Offset = int>
constexpr auto biased_attention(const Q& q, const K& k, const V& v, const Bias& bias, const Before& before,
                                const After& after, const Offset& offset = 0, Here at = Here::current()) {
  const detail::FunctionCall named("biased_attention", q, k, v, bias);
  static_assert(Bias::rank == 3, "tessera: the bias of attention has rank 3: [batch, heads, keys]");
  return call<detail::BiasedAttentionTag>(Source::from(at), q, k, v, rearrange<"b h s -> b s h 1">(bias, at), before,
                                          after, offset);
}
/// For biased_attention: [batch, 1, keys], 0 where the mask [batch, keys] is true and a masked score elsewhere. As in
/// JAX and in F.scaled_dot_product_attention, true takes part; in torch.nn.MultiheadAttention true is masked. No
/// communication.
template <Element T = float, TensorArgument Mask>
constexpr auto key_padding_bias(const Mask& mask, Here at = Here::current()) {
  static_assert(Mask::rank == 2 && std::is_same_v<typename Mask::element, bool>,
                "tessera: a key padding mask is of bool and has rank 2: [batch, keys]");
  return unsqueeze<1>(select(mask, zeros_like(cast<T>(mask, at), at), -1e30, at), at);
}

/// Grouped-query attention: keys and values with fewer heads than queries, of which each serves a group of consecutive
/// heads of queries. repeat_heads(k, q) repeats the heads of keys or values for the operations above. Gradients are
/// summed over a group. Errors: not_divisible unless the heads of keys divide those of queries.
/// Communication: none for heads split alike. Source: Ainslie et al., 2305.13245.
template <TensorArgument K, TensorArgument Q>
constexpr auto repeat_heads(const K& k, const Q& q, Here at = Here::current()) {
  const detail::FunctionCall named("repeat_heads", k, q);
  return call<detail::RepeatHeadsTag>(Source::from(at), k, q);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
