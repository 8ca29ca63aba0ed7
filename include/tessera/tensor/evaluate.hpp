#ifndef TESSERA_TENSOR_EVALUATE_HPP
#define TESSERA_TENSOR_EVALUATE_HPP

#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/kernels/contraction_provider.hpp>
#include <tessera/kernels/cpu.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/partition/explain.hpp>
#include <tessera/tensor/program.hpp>
#include <tessera/tensor/recent_calls.hpp>

namespace tessera {

namespace detail {

/// Leaves of an expression type, in order; a number is a Scalar, so that its value is no part of the program.
template <class X> struct ExpressionLeaves {
  using type = std::tuple<X>;
};
template <class X>
  requires std::is_arithmetic_v<X>
struct ExpressionLeaves<X> {
  using type = std::tuple<Scalar>;
};
template <class Tag, class... Operands> struct ExpressionLeaves<Expr<Tag, Operands...>> {
  using type = decltype(std::tuple_cat(std::declval<typename ExpressionLeaves<Operands>::type>()...));
};

/// Emits an expression type on values for its leaves.
template <class X> struct ExpressionEmitter {
  static constexpr Value emit(Value, const Value* leaves, int& next) { return leaves[next++]; }
};
template <class Tag, class... Operands> struct ExpressionEmitter<Expr<Tag, Operands...>> {
  static constexpr Value emit(Value context, const Value* leaves, int& next) {
    const Value operands[] = {ExpressionEmitter<Operands>::emit(context, leaves, next)...};
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Emission<Expr<Tag, Operands...>>::emit(context, operands[I]...);
    }(std::index_sequence_for<Operands...>{});
  }
};

/// The traced function that an expression type is.
template <class E> struct ExpressionFunction {
  template <class... Leaves> constexpr auto operator()(const Leaves&... list) const {
    const Value leaves[] = {trace_of(list)...};
    int next = 0;
    return Sym<typename E::element, E::rank>(ExpressionEmitter<E>::emit(leaves[0], leaves, next));
  }
};
template <class E, class Tuple> struct TracedExpressionOf;
template <class E, class... Leaves> struct TracedExpressionOf<E, std::tuple<Leaves...>> {
  using type = Traced<ExpressionFunction<E>, Leaves...>;
};
template <class E> using TracedExpression = typename TracedExpressionOf<E, typename ExpressionLeaves<E>::type>::type;

template <Operand X, class Collect> void collect_expression(const X& x, Collect& collect);
template <class Collect, class... Ts> void collect_pack(const Pack<Ts...>& pack, Collect& collect) {
  if constexpr (sizeof...(Ts) > 0) {
    collect_expression(pack.head, collect);
    collect_pack(pack.tail, collect);
  }
}
template <Operand X, class Collect> void collect_expression(const X& x, Collect& collect) {
  if constexpr (ExprOperand<X>)
    collect_pack(x.operands, collect);
  else if constexpr (std::is_arithmetic_v<X>)
    collect.leaf(Scalar(static_cast<double>(x)));
  else
    collect.leaf(x);
}

/// Throws the error once more, with a line where it names none.
[[noreturn]] inline void rethrow_with_line(const error& e, std::string_view before, Source source) {
  const std::string_view what = e.what();
  if (source.line == 0 || what.find(" at ") != std::string_view::npos) throw;
  throw error(e.id(), concat_text(what, before, source.text()));
}

/// What the program of an expression can't know is the line that wrote it.
template <class F> decltype(auto) with_line(Source source, F&& f) {
  try {
    return f();
  } catch (const error& e) {
    rethrow_with_line(e, " at ", source);
  }
}

template <class T, int Rank> template <class E> ShardedTensor<T, Rank> Evaluate<T, Rank>::run(const E& expression) {
  return with_line(expression.source, [&] {
    constexpr std::size_t leaves = std::tuple_size_v<typename ExpressionLeaves<E>::type>;
    static constinit thread_local RecentCalls<leaves> recent;
    PlainArguments<leaves> arguments;
    collect_expression(expression, arguments);
    if (runtime::Executable* const known = recent.find(arguments)) {
      cache_of<TracedExpression<E>>().count_hit();
      return ShardedTensor<T, Rank>(run_plain(*known, arguments.tensors, arguments.numbers));
    }
    CollectLeaves collect;
    collect_expression(expression, collect);
    runtime::Executable& executable = executable_for<TracedExpression<E>>(collect.leaves);
    recent.add(arguments, executable);
    std::vector<Leaf> results = run_executable(executable, collect.leaves);
    return unflatten<ShardedTensor<T, Rank>>(results);
  });
}

/// A plan as text, with what multiplies its matrices on this processor.
inline std::string explain_here(const Plan& plan, const CompiledProgram& compiled) {
  std::string text = tessera::explain(plan, compiled.program, compiled.units);
  if (text.find("einsum") == std::string::npos) return text;
  const bool bf16 = text.find("bf16") != std::string::npos;
  text += concat_text("products by ", kernels::contraction_provider_name(), " kernels");
  if (bf16) text += concat_text(", of bf16 by packed ", kernels::name_of(kernels::cpu_level()));
  text += "\n";
  return text;
}

}  // namespace detail

/// Runs an expression: fused, partitioned over the mesh of its tensors, with the sharding that follows from theirs.
/// Errors: those of its operations, with the line that wrote it. Communication: see explain(expression).
template <ExprOperand E> ShardedTensor<typename E::element, E::rank> eval(const E& expression) { return expression; }

/// The plan of an expression, without running it, and the same as text.
template <ExprOperand E> const Plan& plan(const E& expression) {
  return detail::with_line(expression.source, [&]() -> const Plan& {
    detail::CollectLeaves collect;
    detail::collect_expression(expression, collect);
    return detail::executable_for<detail::TracedExpression<E>>(collect.leaves).plan();
  });
}
template <ExprOperand E> std::string explain(const E& expression) {
  const CompiledProgram compiled = detail::ProgramCode<detail::TracedExpression<E>>::compiled();
  return detail::explain_here(plan(expression), compiled);
}

}  // namespace tessera

#endif
