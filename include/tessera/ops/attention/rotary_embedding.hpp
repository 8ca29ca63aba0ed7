#ifndef TESSERA_OPS_ATTENTION_ROTARY_EMBEDDING_HPP
#define TESSERA_OPS_ATTENTION_ROTARY_EMBEDDING_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <numbers>
#include <tuple>
#include <type_traits>

#include <tessera/graph/trace/function_call.hpp>
#include <tessera/graph/trace/scalar.hpp>
#include <tessera/ops/attention/positions.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>

// Rotary embeddings, with the scalings by which models extend their context.

namespace tessera {

/// Which elements of a head are the two coordinates of a rotation.
enum class RotaryForm : std::uint8_t {
  half_split,   ///< i and i + width / 2: Llama in Hugging Face's layout, GPT-NeoX
  interleaved,  ///< 2 i and 2 i + 1: RoFormer, Llama in Meta's layout, GPT-J
};

/// Options of rotary_embedding, which a model may have as a field.
struct Rotary {
  Scalar base = 10000.0;  ///< the angle of coordinates i at position p is p base^(-2 i / width)
  Scalar linear = 1.0;    ///< positions are divided by this (position interpolation, Chen et al., 2306.15595)
  /// The factor by which the context grows: base becomes base ntk^(width / (width - 2)) ("NTK-aware" scaling).
  Scalar ntk = 1.0;

  static constexpr std::array field_names{"base", "linear", "ntk"};
};

/// Options of rotary_embedding with the scaling of Llama 3.1: `rope_scaling` of Hugging Face with `rope_type` llama3.
/// A frequency with fewer than low_freq_factor turns in the original context is divided by the factor, one with more
/// than high_freq_factor turns stays, and those between are interpolated. The defaults are those of Llama 3.1. Errors:
/// option for a factor below 1, an original_max_position_embeddings that is not above 0, and a high_freq_factor that is
/// not above low_freq_factor. Source: Grattafiori et al., 2407.21783, and the code of the model.
struct Llama3Rotary {
  Scalar base = 500000.0;  ///< `rope_theta`
  Scalar factor = 8.0;
  Scalar low_freq_factor = 1.0;
  Scalar high_freq_factor = 4.0;
  Scalar original_max_position_embeddings = 8192;

  static constexpr std::array field_names{"base", "factor", "low_freq_factor", "high_freq_factor",
                                          "original_max_position_embeddings"};
};

/// Options of rotary_embedding with dynamic NTK scaling: `rope_type` dynamic. Where the last position is beyond the
/// original context, the base grows with the length: base becomes base (factor length /
/// original_max_position_embeddings
/// - factor + 1)^(width / (width - 2)). Keys in a cache keep the base with which they were rotated. Errors: option for
/// a factor below 1 and an original_max_position_embeddings that is not above 0.
struct DynamicNtkRotary {
  Scalar base = 10000.0;  ///< `rope_theta`
  Scalar factor = 1.0;
  Scalar original_max_position_embeddings = 0;  ///< must be given; Hugging Face's `max_position_embeddings` without it

  static constexpr std::array field_names{"base", "factor", "original_max_position_embeddings"};
};

/// Options of rotary_embedding with the scaling of YaRN: `rope_type` yarn. Frequencies with fewer than beta_slow turns
/// in the original context are divided by the factor, those with more than beta_fast turns stay, and a ramp over the
/// frequencies is between. Queries and keys are multiplied by an attention factor. Errors: option for a factor below 1
/// and an original_max_position_embeddings that is not above 0. Source: Peng et al., 2309.00071.
struct YarnRotary {
  Scalar base = 10000.0;  ///< `rope_theta`
  Scalar factor = 1.0;
  Scalar original_max_position_embeddings = 0;  ///< must be given; Hugging Face's `max_position_embeddings` without it
  Scalar beta_fast = 32.0;
  Scalar beta_slow = 1.0;
  Scalar attention_factor = 0.0;  ///< 0: get(mscale) / get(mscale_all_dim) with get(m) = 0.1 m ln(factor) + 1, or, ...
  Scalar mscale = 0.0;            ///< ... if either of these is 0, as by default, 0.1 ln(factor) + 1
  Scalar mscale_all_dim = 0.0;
  Scalar truncate = true;  ///< whether the ramp begins and ends at whole dims; false in gpt-oss

  static constexpr std::array field_names{"base",      "factor",         "original_max_position_embeddings",
                                          "beta_fast", "beta_slow",      "attention_factor",
                                          "mscale",    "mscale_all_dim", "truncate"};
};

/// No rotation: rotary_embedding returns its operand. For a layer that has rotary options, in a model that encodes
/// positions otherwise.
struct NoRotary {};

namespace detail {

/// The rotations of x [batch, time, heads, width]: coordinates i are a pair, of which there are width / 2.
struct RotaryPairs {
  Value x, offset;  ///< the offset in f64
  Value count;      ///< width / 2 in f64
  Value pair;       ///< of each element of a head: [width]

  template <RotaryForm Form> static constexpr RotaryPairs of(Value x, Value offset) {
    const Value width = build::extent(x, x.shifted(3, 4)),
                element = build::cast(build::arange(width, DType::i64), DType::f64);
    const Value count = build::cast(width, DType::f64) * 0.5, zero = element.number(0);
    return {x, offset, count,
            Form == RotaryForm::interleaved ? build::unary(ops::op_v<ops::FloorOp>, element * 0.5)
                                            : element - build::select(build::less(element, count), zero, count)};
  }
  /// How many positions there are up to the last one of x.
  constexpr Value length() const { return offset + build::cast(build::extent(x, x.shifted(1, 4)), DType::f64); }
  /// The angles of two positions next to each other, base^(-pair / count): [width].
  constexpr Value frequencies(Value base) const { return power(base, pair / count); }
  /// The factor of frequencies if base becomes base grown^(width / (width - 2)).
  constexpr Value ntk(Value grown) const { return power(grown, pair / build::maximum(count - 1.0, count.number(1))); }
  static constexpr Value power(Value of, Value fraction) {
    return build::binary(ops::op_v<ops::PowOp>, of, fraction.number(0) - fraction);
  }
};
/// 0 up to `from`, 1 from `to` on, and linear between.
constexpr Value rotary_ramp(Value x, Value from, Value to) {
  const Value ramp = (x - from) / (to - from);
  return build::minimum(build::maximum(ramp, ramp.number(0)), ramp.number(1));
}

/// The frequencies of each element, [width], from the fields of the options, which are f64.
template <class Options> struct RotaryFrequencies;
template <> struct RotaryFrequencies<Rotary> {
  static constexpr Value of(const RotaryPairs& pairs, Value base, Value linear, Value ntk) {
    return pairs.frequencies(base) * pairs.ntk(ntk) / linear;
  }
};
template <> struct RotaryFrequencies<Llama3Rotary> {
  static constexpr Value of(const RotaryPairs& pairs, Value base, Value factor, Value low, Value high, Value context) {
    factor = build::checked_cast(factor, DType::f64, NumberRule::rotary_factor);
    context = build::checked_cast(context, DType::f64, NumberRule::rotary_context);
    const Value between = build::checked_cast(high - low, DType::f64, NumberRule::rotary_range);
    const Value given = pairs.frequencies(base), turns = given * (context * (0.5 / std::numbers::pi));
    const Value kept = rotary_ramp(turns, low, low + between);
    return given * (kept + (kept.number(1) - kept) / factor);
  }
};
template <> struct RotaryFrequencies<DynamicNtkRotary> {
  static constexpr Value of(const RotaryPairs& pairs, Value base, Value factor, Value context) {
    factor = build::checked_cast(factor, DType::f64, NumberRule::rotary_factor);
    context = build::checked_cast(context, DType::f64, NumberRule::rotary_context);
    const Value length = build::maximum(pairs.length(), context);
    return pairs.frequencies(base) * pairs.ntk(factor * (length / context) - (factor - 1.0));
  }
};
template <> struct RotaryFrequencies<YarnRotary> {
  static constexpr Value of(const RotaryPairs& pairs, Value base, Value factor, Value context, Value fast, Value slow,
                            Value truncate) {
    factor = build::checked_cast(factor, DType::f64, NumberRule::rotary_factor);
    context = build::checked_cast(context, DType::f64, NumberRule::rotary_context);
    // The pair, not rounded, that makes this many turns in the context.
    const auto pair_of = [&](Value turns) {
      return pairs.count * build::log(context / (turns * (2 * std::numbers::pi))) / build::log(base);
    };
    const Value from = pair_of(fast), to = pair_of(slow), zero = from.number(0);
    const Value whole = build::not_equal(truncate, zero);
    const Value first = build::maximum(build::select(whole, build::unary(ops::op_v<ops::FloorOp>, from), from), zero);
    const Value last =
        build::minimum(build::select(whole, build::unary(ops::op_v<ops::CeilOp>, to), to), pairs.count * 2.0 - 1.0);
    const Value end = build::select(build::equal(first, last), last + 0.001, last);
    const Value divided = rotary_ramp(pairs.pair, first, end);
    return pairs.frequencies(base) * (divided / factor + (divided.number(1) - divided));
  }
};

/// The angle by which each element of x [batch, time, heads, width] is rotated: [time, 1, width].
template <RotaryForm Form, class Options> struct RotaryAnglesTag {
  static constexpr const char* function = "rotary_embedding";
  static constexpr auto leading_dims = ops::LeadingDims::mapped;  // an offset may differ between devices
  template <class X, class Offset, class... Fields> struct result : Typed<double, 3> {
    using Checks = decltype([] {
      static_assert(Offset::rank == 0, "tessera: the offset of a rotary_embedding is a number or a tensor of rank 0");
    });
  };
  static constexpr Value emit(Value context, Value x, Value offset, auto... fields) {
    const auto number = [&](Value v) { return build::cast(v.at(context.source), DType::f64); };
    const Value position = PositionsTag::emit(context, x, offset);
    const RotaryPairs pairs = RotaryPairs::of<Form>(x.at(context.source), number(offset));
    return position *
           build::insert_singletons(RotaryFrequencies<Options>::of(pairs, number(fields)...), 1u << 0 | 1u << 1, 3);
  }
};
/// x times the attention factor of YaRN.
struct YarnScaledTag {
  static constexpr const char* function = "rotary_embedding";
  template <class X, class... Fields> using result = Typed<double, 3>;
  static constexpr Value emit(Value context, Value x, Value factor, Value given, Value mscale, Value all) {
    const auto number = [&](Value v) { return build::cast(v.at(context.source), DType::f64); };
    factor = number(factor), given = number(given), mscale = number(mscale), all = number(all);
    const Value zero = factor.number(0), growth = build::log(factor) * 0.1;
    const auto is_given = [&](Value v) { return build::not_equal(v, zero); };
    const Value quotient = (growth * mscale + 1.0) / (growth * all + 1.0);
    const Value own = build::select(build::logical_and(is_given(mscale), is_given(all)), quotient, growth + 1.0);
    return x.at(context.source) * build::select(is_given(given), given, own);
  }
};

template <RotaryForm Form> struct RotaryOf {
  Source source;

  constexpr auto angles(const auto& x, const auto& offset, const Rotary& o) const {
    return call<RotaryAnglesTag<Form, Rotary>>(source, x, offset, o.base, o.linear, o.ntk);
  }
  constexpr auto angles(const auto& x, const auto& offset, const Llama3Rotary& o) const {
    return call<RotaryAnglesTag<Form, Llama3Rotary>>(source, x, offset, o.base, o.factor, o.low_freq_factor,
                                                     o.high_freq_factor, o.original_max_position_embeddings);
  }
  constexpr auto angles(const auto& x, const auto& offset, const DynamicNtkRotary& o) const {
    return call<RotaryAnglesTag<Form, DynamicNtkRotary>>(source, x, offset, o.base, o.factor,
                                                         o.original_max_position_embeddings);
  }
  constexpr auto angles(const auto& x, const auto& offset, const YarnRotary& o) const {
    return call<RotaryAnglesTag<Form, YarnRotary>>(
        source, x, offset, o.base, o.factor, o.original_max_position_embeddings, o.beta_fast, o.beta_slow, o.truncate);
  }
  template <class Options> constexpr auto scaled(const auto& x, const Options& o) const {
    if constexpr (std::is_same_v<Options, YarnRotary>)
      return call<YarnScaledTag>(source, x, o.factor, o.attention_factor, o.mscale, o.mscale_all_dim);
    else
      return x;
  }
};

}  // namespace detail

/// The options of rotary_embedding: how positions become angles.
template <class T>
concept RotaryOptions =
    std::is_same_v<T, Rotary> || std::is_same_v<T, Llama3Rotary> || std::is_same_v<T, DynamicNtkRotary> ||
    std::is_same_v<T, YarnRotary> || std::is_same_v<T, NoRotary>;

/// Rotates pairs of elements of queries or keys x [batch, time, heads, width] by angles that are proportional to the
/// position, `offset` plus the index of the time: products of queries and keys then depend only on the distance. The
/// offset is a number, or a tensor of rank 0, such as the index of a step of a loop. The width is even. The options are
/// a Rotary, or the Llama3Rotary, YarnRotary or DynamicNtkRotary of a model whose context was extended. Angles are
/// computed in f64; an x of bf16 or f16 is rotated in f32. Errors: not_divisible for an odd width; those of the
/// options. Communication: none for split batch, time and heads. Source: Su et al., 2104.09864.
///
///     const auto turned = ts::rotary_embedding(q, position, {.base = 500000.0});
///     const auto longer = ts::rotary_embedding(q, position, ts::Llama3Rotary{.factor = 32.0});
template <RotaryForm Form = RotaryForm::half_split, TensorArgument X, Operand Offset = int,
          RotaryOptions Options = Rotary>
constexpr auto rotary_embedding(const X& x, const Offset& offset = 0, const Options& options = {},
                                Here at = Here::current()) {
  static_assert(X::rank == 4, "tessera: rotary_embedding takes queries or keys of rank 4: [batch, time, heads, width]");
  using T = typename X::element;
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Source source = Source::from(at);
  const detail::FunctionCall named("rotary_embedding", x);
  // (a, b) becomes (a cos - b sin, b cos + a sin): x cos + (-b, a) sin.
  const auto turned = [&] {
    if constexpr (Form == RotaryForm::interleaved) {
      const auto pairs = unbind<2, -1>(split_dim<-1>(x, 2, at), at);
      return merge_dims<3, 4>(stack<4>(call<NegTag>(source, std::get<1>(pairs)), std::get<0>(pairs), at), at);
    } else {
      const auto pairs = unbind<2, -2>(rearrange<"b t h (c e) -> b t h c e">(x, len<"c">(2), at), at);
      return concat<3>(call<NegTag>(source, std::get<1>(pairs)), std::get<0>(pairs), at);
    }
  }();
  const detail::RotaryOf<Form> rotary{source};
  const auto angle = rotary.angles(x, offset, options);
  const auto of_x = call<MulTag>(source, x, cast<Wide>(rotary.scaled(cos(angle, at), options), at));
  const auto of_turned = call<MulTag>(source, turned, cast<Wide>(rotary.scaled(sin(angle, at), options), at));
  return cast<T>(call<AddTag>(source, of_x, of_turned), at);
}
template <RotaryForm Form = RotaryForm::half_split, TensorArgument X, Operand Offset>
constexpr X rotary_embedding(const X& x, const Offset&, const NoRotary&, Here = {}) {
  return x;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
