#ifndef TESSERA_OPS_ATTENTION_POSITIONS_HPP
#define TESSERA_OPS_ATTENTION_POSITIONS_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include <tessera/graph/trace/scalar.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/data_movement/stack.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/indexing/dynamic_slice.hpp>

// Positions of tokens in attention: rotary embeddings and ALiBi.

namespace tessera {

/// Which elements of a head are the two coordinates of a rotation.
enum class RotaryForm : std::uint8_t {
  half_split,   ///< i and i + width / 2: Llama in Hugging Face's layout, GPT-NeoX
  interleaved,  ///< 2 i and 2 i + 1: RoFormer, Llama in Meta's layout, GPT-J
};

namespace detail {

/// The positions of x [batch, time, heads, width] from an offset on: [time, 1, 1].
struct PositionsTag {
  template <class X, class Offset> using result = Typed<double, 3>;
  static constexpr Value emit(Value context, Value x, Value offset) {
    x = x.at(context.source);
    // A static extent of 1 stays one.
    if (const int time = x.shifted(1, 4); x.is_singleton(time))
      return build::insert_singletons(build::cast(offset.at(context.source), DType::f64), 7, 3);
    const Value at = build::cast(counting(build::extent(x, x.shifted(1, 4))), DType::f64) +
                     build::cast(offset.at(context.source), DType::f64);
    return build::insert_singletons(at, 1u << 1 | 1u << 2, 3);
  }
};
/// The angle by which each element of x [batch, time, heads, width] is rotated: [time, 1, width].
template <RotaryForm Form> struct RotaryAnglesTag {
  template <class X, class Offset, class... Options> struct result : Typed<double, 3> {
    using Checks = decltype([] {
      static_assert(Offset::rank == 0, "tessera: the offset of a rotary_embedding is a number or a tensor of rank 0");
    });
  };
  static constexpr Value emit(Value context, Value x, Value offset, Value base, Value linear, Value ntk) {
    const auto number = [&](Value v) { return build::cast(v.at(context.source), DType::f64); };
    const Value position = PositionsTag::emit(context, x, offset);
    x = x.at(context.source);
    const Value width = build::extent(x, x.shifted(3, 4)), element = build::cast(counting(width), DType::f64);
    const Value pairs = build::cast(width, DType::f64) * 0.5, zero = element.number(0);
    const Value pair = Form == RotaryForm::interleaved
                           ? build::unary(ops::op_v<ops::FloorOp>, element * 0.5)
                           : element - build::select(build::binary(Op::less, element, pairs), zero, pairs);
    // (base^(-1 / pairs) ntk^(-1 / (pairs - 1)))^pair
    const auto power = [&](Value of, Value fraction) {
      return build::binary(ops::op_v<ops::PowOp>, of, zero - fraction);
    };
    const Value most = build::binary(Op::maximum, pairs - 1.0, pairs.number(1));
    const Value frequency = power(number(base), pair / pairs) * power(number(ntk), pair / most);
    return position / number(linear) * build::insert_singletons(frequency, 1u << 0 | 1u << 1, 3);
  }
};

}  // namespace detail

/// Options of rotary_embedding, which a model may have as a field.
struct Rotary {
  Scalar base = 10000.0;  ///< the angle of coordinates i at position p is p base^(-2 i / width)
  Scalar linear = 1.0;    ///< positions are divided by this (position interpolation, Chen et al., 2306.15595)
  /// The factor by which the context grows: base becomes base ntk^(width / (width - 2)) ("NTK-aware" scaling).
  Scalar ntk = 1.0;

  static constexpr std::array field_names{"base", "linear", "ntk"};
};

/// Rotates pairs of elements of queries or keys x [batch, time, heads, width] by angles that are proportional to the
/// position, `offset` plus the index of the time: products of queries and keys then depend on the distance alone. The
/// offset is a number, or a tensor of rank 0, such as the index of a step of a loop. The width is even. Angles are
/// computed in f64; an x of bf16 or f16 is rotated in f32. Errors: shape_mismatch for an odd width. Communication: none
/// for split batch, time and heads. Source: Su et al., 2104.09864.
///
///     const auto turned = ts::rotary_embedding(q, position, {.base = 500000.0});
template <RotaryForm Form = RotaryForm::half_split, TensorArgument X, Operand Offset = int>
constexpr auto rotary_embedding(const X& x, const Offset& offset = 0, const Rotary& options = {},
                                Here at = Here::current()) {
  static_assert(X::rank == 4, "tessera: rotary_embedding takes queries or keys of rank 4: [batch, time, heads, width]");
  using T = typename X::element;
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Source source = Source::from(at);
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
  const auto angle = call<detail::RotaryAnglesTag<Form>>(source, x, offset, options.base, options.linear, options.ntk);
  const auto of_x = call<MulTag>(source, x, cast<Wide>(cos(angle, at), at));
  const auto of_turned = call<MulTag>(source, turned, cast<Wide>(sin(angle, at), at));
  return cast<T>(call<AddTag>(source, of_x, of_turned), at);
}

/// For biased_attention with ALiBi (nn::alibi_slopes): slopes [heads] times the position of each key of k [batch, keys,
/// heads, width], [1, heads, keys]. ALiBi adds slope (key - query); this differs by a number that is the same for all
/// keys of a query, which the softmax cancels. No communication. Source: Press et al., 2108.12409.
template <TensorArgument Slopes, TensorArgument K>
constexpr auto alibi_bias(const Slopes& slopes, const K& k, Here at = Here::current()) {
  static_assert(Slopes::rank == 1 && K::rank == 4,
                "tessera: alibi_bias takes slopes of rank 1, [heads], and keys of rank 4: [batch, keys, heads, width]");
  const auto positions = call<detail::PositionsTag>(Source::from(at), k, 0);  // [S, 1, 1]
  const auto row = cast<typename Slopes::element>(rearrange<"s 1 1 -> 1 1 s">(positions, at), at);
  return call<MulTag>(Source::from(at), rearrange<"h -> 1 h 1">(slopes, at), row);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
