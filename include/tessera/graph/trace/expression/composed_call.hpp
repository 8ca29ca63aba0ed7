#ifndef TESSERA_GRAPH_TRACE_EXPRESSION_COMPOSED_CALL_HPP
#define TESSERA_GRAPH_TRACE_EXPRESSION_COMPOSED_CALL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <utility>

#include <tessera/base/here.hpp>
#include <tessera/graph/trace/expression/expr.hpp>
#include <tessera/graph/trace/settle.hpp>

namespace tessera::detail {

/// A function of values of a trace as one operation of an expression. X: element types and ranks of its operands.
template <class F, class... X> struct ComposedTag {
  using Made = decltype(as_sym(F{}(Here(), Sym<typename X::type, X::rank>()...)));
  template <class...> using result = Typed<typename Made::element, Made::rank>;

  static constexpr Value emit(Value context, auto... operands) {
    // Without a line of its own, an error gets the line of the expression.
    return as_sym(F{}(Here(), Sym<typename X::type, X::rank>(operands.at(context.source))...)).value;
  }
};

/// f(at, x...) of values of a trace; of stored tensors, an expression. For compositions that need values, such as those
/// that have a loop or state that two values are alike.
template <class F, TensorOperand... X> constexpr auto composed_call(const F& f, Here at, const X&... x) {
  if constexpr ((SymOperand<X> || ...))
    return f(at, x...);
  else
    return call<ComposedTag<F, typed_of<X>...>>(Source::from(at), x...);
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
