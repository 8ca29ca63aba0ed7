#ifndef TESSERA_OPS_ELEMENTWISE_COMPARISON_HPP
#define TESSERA_OPS_ELEMENTWISE_COMPARISON_HPP
#include <tessera/base/push_macros.hpp>

#include <tessera/ops/elementwise/elementwise_operation.hpp>

namespace tessera::build {
constexpr Value logical_not(Value x) { return unary(Op::logical_not, x); }
constexpr Value equal(Value x, Value y) { return binary(Op::equal, x, y); }
constexpr Value not_equal(Value x, Value y) { return binary(Op::not_equal, x, y); }
constexpr Value less(Value x, Value y) { return binary(Op::less, x, y); }
constexpr Value less_equal(Value x, Value y) { return binary(Op::less_equal, x, y); }
constexpr Value greater(Value x, Value y) { return binary(Op::greater, x, y); }
constexpr Value greater_equal(Value x, Value y) { return binary(Op::greater_equal, x, y); }
constexpr Value logical_and(Value x, Value y) { return binary(Op::logical_and, x, y); }
constexpr Value logical_or(Value x, Value y) { return binary(Op::logical_or, x, y); }
}  // namespace tessera::build

namespace tessera::ops {

constexpr bool logical_not(double x) { return x == 0; }
constexpr bool logical_and(double x, double y) { return x != 0 && y != 0; }
constexpr bool logical_or(double x, double y) { return x != 0 || y != 0; }

struct EqualOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "equal";
  static constexpr bool predicate = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x == y; }
};
struct NotEqualOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "not_equal";
  static constexpr bool predicate = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x != y; }
};
struct LessOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "less";
  static constexpr bool predicate = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x < y; }
};
struct LessEqualOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "less_equal";
  static constexpr bool predicate = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x <= y; }
};
struct GreaterOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "greater";
  static constexpr bool predicate = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x > y; }
};
struct GreaterEqualOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "greater_equal";
  static constexpr bool predicate = true, of_integers = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return x >= y; }
};

struct LogicalNotOp : ElementwiseOperation<1> {
  static constexpr std::string_view name = "not";
  static constexpr bool predicate = true;
  static TESSERA_INLINE constexpr auto value(const auto& x) { return logical_not(x); }
};
struct LogicalAndOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "and";
  static constexpr bool predicate = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return logical_and(x, y); }
};
struct LogicalOrOp : ElementwiseOperation<2> {
  static constexpr std::string_view name = "or";
  static constexpr bool predicate = true;
  static TESSERA_INLINE constexpr auto value(const auto& x, const auto& y) { return logical_or(x, y); }
};

using ComparisonOperations = OperationList<EqualOp, NotEqualOp, LessOp, LessEqualOp, GreaterOp, GreaterEqualOp,
                                           LogicalNotOp, LogicalAndOp, LogicalOrOp>;

}  // namespace tessera::ops

namespace tessera {

struct LessTag : detail::Binary<ops::LessOp> {};
struct LessEqualTag : detail::Binary<ops::LessEqualOp> {};
struct GreaterTag : detail::Binary<ops::GreaterOp> {};
struct GreaterEqualTag : detail::Binary<ops::GreaterEqualOp> {};

/// Comparisons of two operands, broadcast and promoted as in `pow`; so are the operators <, <=, >, >=. The result is a
/// bool tensor. Comparisons with NaN are false, but not_equal is true; false orders before true. No gradient. Errors
/// and communication: as pow.
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto equal(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::EqualOp>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto not_equal(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::NotEqualOp>>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto less(const A& a, const B& b, Here at = Here::current()) {
  return call<LessTag>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto less_equal(const A& a, const B& b, Here at = Here::current()) {
  return call<LessEqualTag>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto greater(const A& a, const B& b, Here at = Here::current()) {
  return call<GreaterTag>(Source::from(at), a, b);
}
template <Operand A, Operand B>
  requires(TensorOperand<A> || TensorOperand<B>)
constexpr auto greater_equal(const A& a, const B& b, Here at = Here::current()) {
  return call<GreaterEqualTag>(Source::from(at), a, b);
}
/// Logical functions give bools; every nonzero operand counts as true, NaN too. No gradient. Shapes and communication:
/// as abs, of two operands as pow.
template <TensorArgument X> constexpr auto logical_not(const X& x, Here at = Here::current()) {
  return call<detail::Unary<ops::LogicalNotOp>>(Source::from(at), x);
}
template <TensorArgument A, TensorArgument B>
constexpr auto logical_and(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::LogicalAndOp>>(Source::from(at), a, b);
}
template <TensorArgument A, TensorArgument B>
constexpr auto logical_or(const A& a, const B& b, Here at = Here::current()) {
  return call<detail::Binary<ops::LogicalOrOp>>(Source::from(at), a, b);
}
template <TensorArgument A, TensorArgument B>
constexpr auto logical_xor(const A& a, const B& b, Here at = Here::current()) {
  return not_equal(logical_not(a, at), logical_not(b, at), at);
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
