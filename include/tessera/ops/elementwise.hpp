#ifndef TESSERA_OPS_ELEMENTWISE_HPP
#define TESSERA_OPS_ELEMENTWISE_HPP

#include <source_location>
#include <type_traits>

#include <tessera/graph/expr.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera {

namespace detail {

/// Element type and rank of operands that meet: equal types, or a number, which takes the other's type.
template <class A, class B> struct Promote {
  using type = std::conditional_t<std::is_same_v<typename A::type, Number>, typename B::type, typename A::type>;
  static constexpr bool numbers = std::is_same_v<typename A::type, Number> || std::is_same_v<typename B::type, Number>;
  static_assert(numbers || std::is_same_v<typename A::type, typename B::type>,
                "tessera: the two operands have different element types; convert one of them with ts::cast<T>(x)");
  static constexpr int rank = A::rank > B::rank ? A::rank : B::rank;
};

/// Numbers take the element type of the tensor they meet.
constexpr Value meet(Value x, Value with) {
  return x.rank() == 0 && x.dtype() != with.dtype() ? build::cast(x, with.dtype()) : x;
}
template <class Element> constexpr Value as_element(Value x) {
  if constexpr (std::is_same_v<Element, Number>)
    return x;
  else
    return build::cast(x, dtype_v<Element>);
}

template <Op O> struct Unary {
  template <class A> struct result : A {
    static_assert(!std::is_same_v<typename A::type, bool> || O == Op::logical_not,
                  "tessera: this operation takes numbers; a bool tensor needs ts::cast<float>(x) first");
  };
  static constexpr Value emit(Value context, Value x) { return build::unary(O, x.at(context.source)); }
};

template <Op O> struct Binary {
  template <class A, class B>
  using result =
      Typed<std::conditional_t<build::is_predicate(O), bool, typename Promote<A, B>::type>, Promote<A, B>::rank>;
  static constexpr Value emit(Value context, Value x, Value y) {
    // Number operands are the only ones whose types may differ here.
    const bool x_is_number = x.rank() == 0 && x.dtype() != y.dtype() && is_number(x);
    x = x_is_number ? meet(x, y) : x;
    y = x_is_number ? y : meet(y, x);
    return build::binary(O, x.at(context.source), y);
  }
  static constexpr bool is_number(const Value& v) { return is_host_source(v.node().op); }
};

}  // namespace detail

struct AddTag : detail::Binary<Op::add> {};
struct SubTag : detail::Binary<Op::sub> {};
struct MulTag : detail::Binary<Op::mul> {};
struct DivTag : detail::Binary<Op::div> {};
struct LessTag : detail::Binary<Op::less> {};
struct LessEqualTag : detail::Binary<Op::less_equal> {};
struct GreaterTag : detail::Binary<Op::greater> {};
struct GreaterEqualTag : detail::Binary<Op::greater_equal> {};
struct NegTag : detail::Unary<Op::neg> {};

using Here = std::source_location;

/// Elementwise functions. Shape and sharding of the result are the operand's; no communication.
template <TensorOperand X> constexpr auto abs(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::abs>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto exp(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::exp>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto log(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::log>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto sqrt(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::sqrt>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto rsqrt(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::rsqrt>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto tanh(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::tanh>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto sigmoid(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::sigmoid>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto relu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::relu>>(Source::from(at), x);
}
/// The tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
template <TensorOperand X> constexpr auto gelu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::gelu>>(Source::from(at), x);
}
/// x sigmoid(x).
template <TensorOperand X> constexpr auto silu(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::silu>>(Source::from(at), x);
}
/// -1, 0 or 1.
template <TensorOperand X> constexpr auto sign(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::sign>>(Source::from(at), x);
}
template <TensorOperand X> constexpr auto logical_not(const X& x, Here at = Here::current()) {
  return call<detail::Unary<Op::logical_not>>(Source::from(at), x);
}

/// Elementwise functions of two operands, broadcast against each other: trailing dims aligned, and only dims whose
/// extent 1 is static (from keepdims or ts::unit) repeat. Errors: shape_mismatch.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto pow(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::pow>>(Source::from(at), a, b);
}
/// The smaller, the larger. NaN in either operand gives NaN.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto minimum(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::minimum>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto maximum(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::maximum>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto equal(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::equal>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto not_equal(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::not_equal>>(Source::from(at), a, b);
}
template <TensorOperand A, TensorOperand B>
constexpr auto logical_and(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::logical_and>>(Source::from(at), a, b);
}
template <TensorOperand A, TensorOperand B>
constexpr auto logical_or(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::logical_or>>(Source::from(at), a, b);
}

namespace detail {

struct SelectTag {
  template <class C, class A, class B> struct result {
    static_assert(std::is_same_v<typename C::type, bool>, "tessera: the condition of select is a bool tensor");
    using type = typename Promote<A, B>::type;
    static constexpr int rank = C::rank > Promote<A, B>::rank ? C::rank : Promote<A, B>::rank;
  };
  static constexpr Value emit(Value context, Value condition, Value yes, Value no) {
    const bool first = Binary<Op::add>::is_number(yes) && yes.dtype() != no.dtype();
    yes = first ? meet(yes, no) : yes;
    no = first ? no : meet(no, yes);
    return build::select(condition, yes.at(context.source), no);
  }
};

template <class To> struct CastTag {
  template <class A> using result = Typed<To, A::rank>;
  static constexpr Value emit(Value context, Value x) { return build::cast(x.at(context.source), dtype_v<To>); }
};

}  // namespace detail

/// yes where the condition holds, no elsewhere.
template <TensorOperand C, Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto select(const C& condition, const A& yes, const B& no, Here at = Here::current()) {
  return call<detail::SelectTag>(Source::from(at), condition, yes, no);
}

/// x with another element type. Floating to integer truncates; to bool tests against zero.
template <Element To, TensorOperand X> constexpr auto cast(const X& x, Here at = Here::current()) {
  return call<detail::CastTag<To>>(Source::from(at), x);
}

}  // namespace tessera

#endif
