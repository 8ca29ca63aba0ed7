#ifndef TESSERA_OPS_CONTRACTION_EINSUM_HPP
#define TESSERA_OPS_CONTRACTION_EINSUM_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/base/fixed_string.hpp>
#include <tessera/base/shape.hpp>
#include <tessera/graph/trace/function_call.hpp>
#include <tessera/ops/contraction/contraction_rows.hpp>
#include <tessera/ops/contraction/einsum_equation.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/ops/reduction/reduction.hpp>

namespace tessera {

namespace detail {

/// The text of an einsum, such as "bik,kj->bij", parsed into labels at compile time.
struct EinsumText {
  EinsumLabels labels{};
  int rank_a = 0, rank_b = 0, rank_out = 0;
  bool valid = true;

  constexpr explicit EinsumText(std::string_view text) {
    for (int d = 0; d < max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    char names[32]{};
    int known = 0, part = 0;
    for (std::size_t i = 0; i < text.size() && valid; ++i) {
      const char c = text[i];
      if (c == ' ') continue;
      if (c == ',') {
        valid = part == 0;
        part = 1;
        continue;
      }
      if (c == '-') {
        valid = part == 1 && i + 1 < text.size() && text[i + 1] == '>';
        part = 2;
        ++i;
        continue;
      }
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      int label = 0;
      while (label < known && names[label] != c) ++label;
      if (label == known && (part == 2 || known == 32)) valid = false;
      if (label == known && valid) names[known++] = c;
      int& rank = part == 0 ? rank_a : part == 1 ? rank_b : rank_out;
      std::int8_t* own = part == 0 ? labels.a : part == 1 ? labels.b : labels.out;
      for (int d = 0; d < rank; ++d)
        if (own[d] == label) valid = false;  // a label twice in one operand
      if (!letter || rank == max_rank) valid = false;
      if (valid) own[rank++] = static_cast<std::int8_t>(label);
    }
    valid = valid && part == 2;
  }
};

/// The element type of a product: `Out` if given, otherwise that of the operands.
template <class Out, class In> using product_element_t = std::conditional_t<std::is_void_v<Out>, In, Out>;

/// A product of precision P, or as ts::default_matmul_precision and, with `Casts`, ts::autocast set it for f32
/// operands.
template <class Out, Precision P, bool Casts = true>
constexpr Value product_of(const Value& a, const Value& b, const EinsumLabels& labels) {
  const DType given = a.dtype();
  const bool by_default = P == Precision::full && given == DType::f32;
  const DType type = by_default && Casts ? a.module->product_type : given;
  const Precision precision = by_default && type == given ? a.module->matmul_precision : P;
  const Value product = build::einsum(build::cast(a, type), build::cast(b, type), labels, precision);
  if constexpr (std::is_void_v<Out>)
    return build::cast(build::cast(product, type), given);
  else
    return build::cast(product, dtype_v<Out>);
}

/// The equation of a product that sums over the last `Count` dims of the first operand and the first of the second:
/// "abc,bcd->ad" of two of rank 3 with a Count of 2.
template <int Count, int RankA, int RankB> consteval auto tensordot_equation() {
  constexpr int rank = RankA + RankB - 2 * Count, size = RankA + RankB + rank + 4;  // with ',', "->" and the last 0
  char text[size]{};
  int n = 0;
  const auto letter = [&](int label) { text[n++] = static_cast<char>(label < 26 ? 'a' + label : 'A' + label - 26); };
  for (int d = 0; d < RankA; ++d) letter(d);
  text[n++] = ',';
  for (int d = 0; d < RankB; ++d) letter(RankA - Count + d);
  text[n++] = '-', text[n++] = '>';
  for (int d = 0; d < RankA - Count; ++d) letter(d);
  for (int d = Count; d < RankB; ++d) letter(RankA - Count + d);
  return FixedString<size>(text);
}

/// Whether a product can have precision P: lower precisions are for f32 operands only.
template <Precision P, class A>
inline constexpr bool splits_v = P == Precision::full || std::is_same_v<typename A::type, float>;

template <FixedString Text, class Out = void, Precision P = Precision::full, bool Casts = true> struct EinsumTag {
  static constexpr auto leading_dims = ops::LeadingDims::labels;
  static constexpr EinsumText text{Text.view()};
  static_assert(
      text.valid,
      "tessera: an einsum equation is written \"ik,kj->ij\": a letter for each dim of each operand, no letter "
      "twice in the result, and all letters of the result in an operand");
  template <class A, class B> struct result {
    using type = product_element_t<Out, typename A::type>;
    static constexpr int rank = text.rank_out;
    using Checks = decltype([] {
      static_assert(A::rank == text.rank_a,
                    "tessera: the first operand of einsum has a different rank than in the equation");
      static_assert(B::rank == text.rank_b,
                    "tessera: the second operand of einsum has a different rank than in the equation");
      static_assert(std::is_same_v<typename A::type, typename B::type>,
                    "tessera: the operands of einsum must have the same element type; use ts::cast");
      static_assert(splits_v<P, A>, "tessera: a ts::Precision is only for products of float tensors");
      require_arithmetic<typename A::type>();
    });
  };
  static constexpr EinsumLabels labels(int, int) { return text.labels; }
  static constexpr Value product(Value a, Value b, const EinsumLabels& labels) {
    return product_of<Out, P, Casts>(a, b, labels);
  }
  static constexpr Value emit(Value context, Value a, Value b) { return product(a.at(context.source), b, text.labels); }
};

template <class Out = void, Precision P = Precision::full, bool Casts = true> struct MatmulTag {
  static constexpr auto leading_dims = ops::LeadingDims::labels;
  template <class A, class B> struct result {
    using type = product_element_t<Out, typename A::type>;
    static constexpr int rank = A::rank;
    static_assert(require_arithmetic<typename A::type>());
  };
  static constexpr EinsumLabels labels(int rank, int rank_b) {
    EinsumLabels labels{};
    for (int d = 0; d < max_rank; ++d) labels.a[d] = labels.b[d] = labels.out[d] = -1;
    for (int d = 0; d < rank; ++d) labels.a[d] = static_cast<std::int8_t>(d);
    const std::int8_t k = static_cast<std::int8_t>(rank - 1), n = static_cast<std::int8_t>(rank);
    for (int d = 0; d < rank_b - 2; ++d) labels.b[d] = static_cast<std::int8_t>(d);
    labels.b[rank_b - 2] = k;
    labels.b[rank_b - 1] = n;
    for (int d = 0; d < rank - 1; ++d) labels.out[d] = static_cast<std::int8_t>(d);
    labels.out[rank - 1] = n;
    return labels;
  }
  static constexpr Value product(Value a, Value b, const EinsumLabels& labels) {
    return product_of<Out, P, Casts>(a, b, labels);
  }
  static constexpr Value emit(Value context, Value a, Value b) {
    return product(a.at(context.source), b, labels(a.rank(), b.rank()));
  }
};

/// The equation of a product with a vector, or of batches of different ranks: "a,bac->bc" of a vector and matrices.
template <int RankA, int RankB> consteval auto matmul_equation() {
  constexpr std::string_view text = RankA == 1 && RankB == 1 ? "k,k->"
                                    : RankA == 1             ? "k,...kn->...n"
                                    : RankB == 1             ? "...mk,k->...m"
                                                             : "...mk,...kn->...mn";
  constexpr EinsumEquation<2> equation(text, {RankA, RankB});
  return pair_equation<equation.operands[0], equation.operands[1], equation.result>();
}

template <class Out, Precision P, bool Casts = true, class A, class B>
constexpr auto matmul_of(Source source, const A& a, const B& b) {
  constexpr bool have_dims = A::rank >= 1 && B::rank >= 1;
  constexpr bool alike = std::is_same_v<typename A::element, typename B::element>, splits = splits_v<P, typed_of<A>>;
  static_assert(have_dims,
                "tessera: matmul takes tensors of rank 1 or more; a product with a tensor of rank 0 is written with *");
  static_assert(alike, "tessera: the operands of matmul must have the same element type; use ts::cast");
  static_assert(splits, "tessera: a ts::Precision is only for products of float tensors");
  if constexpr (!have_dims || !alike || !splits)
    return a;
  else if constexpr (A::rank >= 2 && (B::rank == 2 || (B::rank > 2 && A::rank == B::rank)))
    return call<MatmulTag<Out, P, Casts>>(source, a, b);
  else
    return call<EinsumTag<matmul_equation<A::rank, B::rank>(), Out, P, Casts>>(source, a, b);
}

// Products of linear algebra and statistics, which ts::autocast leaves in f32.
template <FixedString Text, class A, class B> constexpr auto exact_einsum(const A& a, const B& b, Here at) {
  return call<EinsumTag<Text, void, Precision::full, false>>(Source::from(at), a, b);
}
template <class A, class B> constexpr auto exact_matmul(const A& a, const B& b, Here at) {
  return matmul_of<void, Precision::full, false>(Source::from(at), a, b);
}

}  // namespace detail

namespace detail {

/// The diagonal over two dims, which stands where the first of them was.
template <int Rank, int Row, int Column> struct DiagonalOverTag {
  template <class X> using result = Typed<typename X::type, Rank - 1>;
  static constexpr Value emit(Value context, Value x) {
    x = x.at(context.source);
    const int first = x.rank() - Rank, row = first + Row, column = first + Column;
    // Positions of columns are counted by the rows, so that another number of columns is a shape_mismatch.
    const Value positions = build::insert_singletons(ArangeTag<std::int32_t>::emit(context, x, build::extent(x, row)),
                                                     ((1u << x.rank()) - 1) & ~(1u << column), x.rank());
    const Value on = build::equal(build::iota(x, row, DType::i32), positions);
    return build::cast(build::sum_of(build::select(on, x, x.number(0)), 1u << column), x.dtype());
  }
};

/// A tensor summed over the labels that the result lacks, with its dims in the order of the result.
template <EinsumLetters From, EinsumLetters To, class X> constexpr auto einsum_of_one(const X& x, Here at) {
  constexpr EinsumLetters::Repeat repeat = From.repeat();
  if constexpr (repeat.row >= 0) {
    const auto diagonal = call<DiagonalOverTag<From.rank, repeat.row, repeat.column>>(Source::from(at), x);
    return einsum_of_one<From.without(repeat.column), To>(diagonal, at);
  } else if constexpr (constexpr int summed = From.first_that_lacks(To); summed >= 0) {
    return einsum_of_one<From.without(summed), To>(sum<summed>(x, at), at);
  } else if constexpr (From == To) {
    return x;
  } else {
    return [&]<std::size_t... D>(std::index_sequence<D...>) {
      return transpose<From.find(To.letters[D])...>(x, at);
    }(std::make_index_sequence<To.rank>());
  }
}

/// The products of operands from the left to the right.
template <auto E, int First = 0, EinsumLetters Labels = E.operands[First], class A, class... Rest>
constexpr auto einsum_of_many(Here at, const A& a, const Rest&... rest) {
  if constexpr (Labels.repeat().row >= 0) {
    constexpr EinsumLetters distinct = Labels.distinct();
    return einsum_of_many<E, First, distinct>(at, einsum_of_one<Labels, distinct>(a, at), rest...);
  } else if constexpr (sizeof...(Rest) == 0) {
    return einsum_of_one<Labels, E.result>(a, at);
  } else {
    return [&](const auto& b, const auto&... others) {
      constexpr EinsumLetters given = E.operands[First + 1], next = given.distinct();
      constexpr EinsumLetters kept = E.kept(Labels, next, First + 2);
      constexpr auto text = pair_equation<Labels, next, kept>();
      return einsum_of_many<E, First + 1, kept>(
          at, call<EinsumTag<text>>(Source::from(at), a, einsum_of_one<given, next>(b, at)), others...);
    }(rest...);
  }
}

template <FixedString Text, class... X> constexpr auto einsum_by(Here at, const X&... x) {
  constexpr auto equation = EinsumEquation<sizeof...(X)>(Text.view(), {X::rank...});
  static_assert(
      equation.error != EinsumError::text,
      "tessera: an einsum equation is written \"ik,kj->ij\": a letter for each dim of each operand, no letter "
      "twice in the result, and all letters of the result in an operand");
  static_assert(equation.error != EinsumError::operands,
                "tessera: the equation of einsum has another number of operands than the call");
  static_assert(equation.error != EinsumError::rank,
                "tessera: an operand of einsum has a different rank than in the equation");
  if constexpr (equation.error == EinsumError::none) return einsum_of_many<equation>(at, x...);
}

}  // namespace detail

/// A contraction by labels: `einsum<"bik,kj->bij">(x, w)` sums over the labels that the result lacks. As in
/// torch.einsum, a label twice in an operand takes the diagonal, `einsum<"ii->">(x)` is the trace, `...` stands for all
/// dims that have no letter, the last of them the same in all operands, `einsum<"...ij,...jk->...ik">(a, b)`, and
/// without `->` the result has the labels that occur once, in the order of the alphabet. One to four operands, which
/// are multiplied from the left to the right. Products of bf16 and f16 are summed in f32 and rounded once;
/// `einsum<"ik,kj->ij", float>` of two operands returns the f32 sums. Errors: shape_mismatch where dims with the same
/// label differ. Communication: none for split labels of the result; over a split summed label the result is a partial
/// value.
template <FixedString Text, TensorArgument A, TensorArgument B>
constexpr auto einsum(const A& a, const B& b, Here at = Here::current()) {
  if constexpr (detail::EinsumText(Text.view()).valid)
    return call<detail::EinsumTag<Text>>(Source::from(at), a, b);
  else
    return detail::einsum_by<Text>(at, a, b);
}
template <FixedString Text, TensorArgument A> constexpr auto einsum(const A& a, Here at = Here::current()) {
  return detail::einsum_by<Text>(at, a);
}
template <FixedString Text, TensorArgument A, TensorArgument B, TensorArgument C>
constexpr auto einsum(const A& a, const B& b, const C& c, Here at = Here::current()) {
  return detail::einsum_by<Text>(at, a, b, c);
}
template <FixedString Text, TensorArgument A, TensorArgument B, TensorArgument C, TensorArgument D>
constexpr auto einsum(const A& a, const B& b, const C& c, const D& d, Here at = Here::current()) {
  return detail::einsum_by<Text>(at, a, b, c, d);
}
template <FixedString Text, Element Out, TensorArgument A, TensorArgument B>
constexpr auto einsum(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::EinsumTag<Text, Out>>(Source::from(at), a, b);
}
/// An f32 contraction computed from bf16 products: `einsum<"ik,kj->ij", ts::Precision::bf16_x3>(a, b)`. Precision
/// states the error.
template <FixedString Text, Precision P, TensorArgument A, TensorArgument B>
constexpr auto einsum(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::EinsumTag<Text, void, P>>(Source::from(at), a, b);
}

/// Matrix product: [..., M, K] by [..., K, N] gives [..., M, N]. A vector is a row as first operand and a column as the
/// second, and the result lacks its dim; an operand may lack leading dims (torch.matmul, but leading dims of extent 1
/// are not repeated). Products of bf16 and f16 are summed in f32 and rounded once; `matmul<float>(a, b)` returns the
/// f32 sums. Errors and communication: as einsum.
template <TensorArgument A, TensorArgument B> constexpr auto matmul(const A& a, const B& b, Here at = Here::current()) {
  return detail::matmul_of<void, Precision::full>(Source::from(at), a, b);
}
template <Element Out, TensorArgument A, TensorArgument B>
constexpr auto matmul(const A& a, const B& b, Here at = Here::current()) {
  return detail::matmul_of<Out, Precision::full>(Source::from(at), a, b);
}
template <Precision P, TensorArgument A, TensorArgument B>
constexpr auto matmul(const A& a, const B& b, Here at = Here::current()) {
  return detail::matmul_of<void, P>(Source::from(at), a, b);
}

/// The product that sums over the last `Count` dims of a and the first of b, by default two (torch.tensordot):
/// `tensordot<1>(a, b)` of [I, J, K] and [K, L] is [I, J, L]. Other dims are einsum. Errors and communication: as
/// einsum.
template <int Count = 2, TensorArgument A, TensorArgument B>
constexpr auto tensordot(const A& a, const B& b, Here at = Here::current()) {
  const detail::FunctionCall named("tensordot", a, b);
  constexpr bool fits = Count >= 0 && Count <= A::rank && Count <= B::rank;
  static_assert(fits, "tessera: tensordot sums over as many dims as both operands have, or fewer");
  if constexpr (fits)
    return einsum<detail::tensordot_equation<Count, A::rank, B::rank>()>(a, b, at);
  else
    return a;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
