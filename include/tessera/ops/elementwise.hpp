#ifndef TESSERA_OPS_ELEMENTWISE_HPP
#define TESSERA_OPS_ELEMENTWISE_HPP

#include <source_location>
#include <type_traits>

#include <tessera/graph/expr.hpp>
#include <tessera/ops/rows.hpp>

namespace tessera {

namespace detail {

template <class A, class B> constexpr DType promoted() { return promote(dtype_v<A>, dtype_v<B>); }
template <class A, NumberKind Kind> constexpr DType promoted_with(Number<Kind>) { return promote(dtype_v<A>, Kind); }

/// Element type and rank of operands that meet. One of them is a tensor.
template <class A, class B> struct Promote {
  static constexpr DType dtype = [] {
    if constexpr (is_number_v<typename A::type>)
      return promoted_with<typename B::type>(typename A::type{});
    else if constexpr (is_number_v<typename B::type>)
      return promoted_with<typename A::type>(typename B::type{});
    else
      return promoted<typename A::type, typename B::type>();
  }();
  using type = element_t<dtype>;
  static constexpr int rank = A::rank > B::rank ? A::rank : B::rank;
};

/// An operand in the type that it meets the others in.
template <class Typed> constexpr Value convert_operand(Value x, DType type) {
  const bool is_whole = std::is_same_v<typename Typed::type, Number<NumberKind::integer>>;
  if (is_whole && !is_floating(type) && x.dtype() != type) return build::checked_cast(x, type, NumberRule::of_its_type);
  return build::cast(x, type);
}

/// Functions that have no integer results: of integers and bools they are computed in f32.
constexpr bool is_fractional(Op op) {
  return op == Op::div || (op >= Op::exp && op <= Op::sigmoid) || op == Op::gelu || op == Op::silu;
}

template <Op O> struct Unary {
  template <class A> struct result : A {
    using type = std::conditional_t<is_fractional(O), element_t<floating_type(dtype_v<typename A::type>)>,
                                    std::conditional_t<O == Op::logical_not, bool, typename A::type>>;
    using Said = decltype([] {
      static_assert(!std::is_same_v<typename A::type, bool> || O == Op::logical_not || is_fractional(O),
                    "tessera: this operation takes numbers; a bool tensor needs ts::cast<float>(x) first");
    });
  };
  template <class A> static constexpr void convert(Value& x) {
    if constexpr (is_fractional(O)) x = build::cast(x, floating_type(x.dtype()));
  }
  static constexpr Value emit(Value context, Value x) { return build::unary(O, x.at(context.source)); }
};

template <Op O> struct Binary {
  template <class A, class B>
  static constexpr DType meets_in = is_fractional(O) ? floating_type(Promote<A, B>::dtype) : Promote<A, B>::dtype;
  template <class A, class B> struct result {
    using type = std::conditional_t<build::is_predicate(O), bool, element_t<meets_in<A, B>>>;
    static constexpr int rank = Promote<A, B>::rank;
    using Said = decltype([] {
      static_assert(meets_in<A, B> != DType::bool_ || (O != Op::sub && O != Op::pow),
                    "tessera: this operation takes numbers; a bool tensor needs ts::cast<float>(x) first");
    });
  };
  template <class A, class B> static constexpr void convert(Value& x, Value& y) {
    x = convert_operand<A>(x, meets_in<A, B>);
    y = convert_operand<B>(y, meets_in<A, B>);
  }
  static constexpr Value emit(Value context, Value x, Value y) { return build::binary(O, x.at(context.source), y); }
};

}  // namespace detail

struct AddTag : detail::Binary<Op::add> {};
struct SubTag : detail::Binary<Op::sub> {};
struct MulTag : detail::Binary<Op::mul> {};
struct DivTag : detail::Binary<Op::div> {};
struct TruncateDivTag : detail::Binary<Op::div> {
  template <class A, class B> struct result : detail::Promote<A, B> {
    using Said = decltype([] {
      static_assert(is_integer(detail::Promote<A, B>::dtype),
                    "tessera: truncate_div is of integers; floating tensors divide by /");
    });
  };
  template <class A, class B> static constexpr void convert(Value& x, Value& y) {
    x = detail::convert_operand<A>(x, detail::Promote<A, B>::dtype);
    y = detail::convert_operand<B>(y, detail::Promote<A, B>::dtype);
  }
};
struct LessTag : detail::Binary<Op::less> {};
struct LessEqualTag : detail::Binary<Op::less_equal> {};
struct GreaterTag : detail::Binary<Op::greater> {};
struct GreaterEqualTag : detail::Binary<Op::greater_equal> {};
struct NegTag : detail::Unary<Op::neg> {};

using Here = std::source_location;

/// Elementwise functions. Shape and sharding of the result are the operand's; no communication. Those without integer
/// results give f32 for integers.
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
/// extent 1 is static (from keepdims or ts::unit) repeat. Element types that differ are promoted: see `promote`.
/// Errors: shape_mismatch; dtype_mismatch for an integer that is no value of the tensor's integer type.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto pow(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<Op::pow>>(Source::from(at), a, b);
}
/// The quotient of integers without its fraction, as `/` of C++ integers. Division by zero gives 0.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto truncate_div(const A& a, const B& b, Here at = Here::current()) {
  return call<TruncateDivTag>(Source::from(at), a, b);
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
    using type = typename Promote<A, B>::type;
    static constexpr int rank = C::rank > Promote<A, B>::rank ? C::rank : Promote<A, B>::rank;
    using Said = decltype([] {
      static_assert(std::is_same_v<typename C::type, bool>, "tessera: the condition of select is a bool tensor");
    });
  };
  template <class C, class A, class B> static constexpr void convert(Value&, Value& yes, Value& no) {
    yes = convert_operand<A>(yes, Promote<A, B>::dtype);
    no = convert_operand<B>(no, Promote<A, B>::dtype);
  }
  static constexpr Value emit(Value context, Value condition, Value yes, Value no) {
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
