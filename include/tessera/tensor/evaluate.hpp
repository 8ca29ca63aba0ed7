#ifndef TESSERA_TENSOR_EVALUATE_HPP
#define TESSERA_TENSOR_EVALUATE_HPP
#include <tessera/base/push_macros.hpp>

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/base/compiled.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/kernels/cpu.hpp>
#include <tessera/kernels/gemm/contraction_provider.hpp>
#endif
#include <tessera/ops/elementwise.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/tensor/expression_program.hpp>
#include <tessera/tensor/program.hpp>
#include <tessera/tensor/recent_calls.hpp>

namespace tessera {

namespace detail {

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
    collect.leaf(Scalar(x));
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
    ProgramCache& cache = ExpressionPrograms<E>::find(expression);
    if (const PlanLease known = recent.find(arguments)) {
      cache.count_hit();
      return ShardedTensor<T, Rank>(run_plain(*known, arguments.tensors, arguments.numbers));
    }
    CollectLeaves collect;
    collect_expression(expression, collect);
    const PlanLease plan = executable_in(cache, collect.leaves);
    recent.add(arguments, plan);
    return run_into<ShardedTensor<T, Rank>>(*plan, collect.leaves, [] {});
  });
}

/// A plan as text, with what multiplies its matrices on this processor.
TESSERA_ONCE std::string explain_here(const Plan& plan, const CompiledProgram& compiled);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE std::string explain_here(const Plan& plan, const CompiledProgram& compiled) {
  std::string text = tessera::explain(plan, compiled.program, compiled.units);
  if (text.find("einsum") == std::string::npos) return text;
  const bool bf16 = text.find("bf16") != std::string::npos;
  text += concat_text("products by ", kernels::contraction_provider_name(), " kernels");
  if (bf16) text += concat_text(", of bf16 by packed ", kernels::name_of(kernels::cpu_level()));
  text += "\n";
  return text;
}
#endif

}  // namespace detail

/// Runs an expression: fused, partitioned over the mesh of its tensors, with the sharding that follows from theirs.
/// Errors: those of its operations, with the line that wrote it. Communication: see explain(expression).
template <ExprOperand E> ShardedTensor<typename E::element, E::rank> eval(const E& expression) { return expression; }

/// The plan of an expression, without running it, and the same as text.
template <ExprOperand E> Plan plan(const E& expression) {
  return detail::with_line(expression.source, [&] {
    detail::CollectLeaves collect;
    detail::collect_expression(expression, collect);
    return detail::plan_of(*detail::executable_in(detail::ExpressionPrograms<E>::find(expression), collect.leaves));
  });
}
template <ExprOperand E> std::string explain(const E& expression) {
  const Plan& found = plan(expression);
  return detail::explain_here(found, detail::ExpressionPrograms<E>::find(expression).compiled());
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
