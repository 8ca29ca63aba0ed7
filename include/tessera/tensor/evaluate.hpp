#ifndef TESSERA_TENSOR_EVALUATE_HPP
#define TESSERA_TENSOR_EVALUATE_HPP
#include <tessera/base/push_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/base/compiled.hpp>
#if TESSERA_HAS_DEFINITIONS
#include <tessera/kernels/gemm/contraction_provider.hpp>
#endif
#include <tessera/kernels/build_info.hpp>
#include <tessera/ops/elementwise.hpp>
#include <tessera/partition/plan/explain.hpp>
#include <tessera/tensor/program/expression_program.hpp>
#include <tessera/tensor/program/program.hpp>
#include <tessera/tensor/program/recent_calls.hpp>

namespace tessera {

namespace detail {

template <Operand X, class Collect> void collect_expression(const X& x, Collect& collect) {
  if constexpr (ExprOperand<X>)
    x.operands.apply([&](const auto&... operands) { (collect_expression(operands, collect), ...); });
  else if constexpr (std::is_arithmetic_v<X>)
    collect.leaf(Scalar(x));
  else
    collect.leaf(x);
}

/// Rethrows the error that is being handled. If it names no source line, throws the same error with `before` and
/// `source` appended to its message; before them the function of `source`, unless the message names a function.
[[noreturn]] TESSERA_ONCE void rethrow_with_line(const error& e, std::string_view before, Source source);
#if TESSERA_HAS_DEFINITIONS
[[noreturn]] TESSERA_ONCE void rethrow_with_line(const error& e, std::string_view before, Source source) {
  if (source.line == 0 || e.source().line != 0) throw;
  const std::string_view what = e.what(), function = source.function();
  const std::size_t last = std::min(what.rfind(' '), what.size());
  const bool is_named = function.empty() || what.substr(0, last).ends_with(" in") ||
                        (what.starts_with('[') && what.substr(1).starts_with(concat_text(function, "]")));
  fail(e.id(), what, is_named ? "" : " in ", is_named ? "" : function, before, source);
}
#endif

/// Runs f, and adds the line of an expression to its errors: two expressions of equal type on different lines share
/// one program, which therefore cannot know the line.
template <class F> decltype(auto) with_line(Source source, F&& f) {
  try {
    return f();
  } catch (const error& e) {
    rethrow_with_line(e, "", source);
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
      return ShardedTensor<T, Rank>(run_plain(*known, arguments.tensors, arguments.numbers, expression.source));
    }
    CollectLeaves collect;
    collect_expression(expression, collect);
    const PlanLease plan = executable_in(cache, collect.leaves);
    recent.add(arguments, plan);
    return run_into<ShardedTensor<T, Rank>>(
        *plan, collect.leaves, [] {}, expression.source);
  });
}

/// A plan as text, with the library that computes matrix products on this machine, and the instructions of the rest.
TESSERA_ONCE std::string explain_here(const Plan& plan, const CompiledProgram& compiled, const BuildInfo& build);
#if TESSERA_HAS_DEFINITIONS
TESSERA_ONCE std::string explain_here(const Plan& plan, const CompiledProgram& compiled, const BuildInfo& build) {
  std::string text = tessera::explain(plan, compiled.program, compiled.units);
  bool multiplies = false, bf16 = false;
  for (int g = 0; g < compiled.program.graph_count; ++g) {
    const GraphView& graph = compiled.program.graphs[g];
    for (int u = 0; u < compiled.units[g].count; ++u) {
      const Unit& unit = compiled.units[g][u];
      if (unit.kind != UnitKind::contraction) continue;
      multiplies = true;
      const auto precision = static_cast<Precision>(graph[unit.rule_node()].index());
      bf16 = bf16 || precision != Precision::full || graph.operand_node(unit.rule_node(), 0).dtype == DType::bf16;
    }
  }
  if (multiplies) {
    text += concat_text("products by ", kernels::contraction_provider_name(), " kernels");
    if (!kernels::chosen_contraction_provider().load(std::memory_order_acquire))
      text += concat_text(" (", build.variant, " ", build.variant_source, ")");
    if (bf16) text += concat_text(", of bf16 by packed ", build.products);
    text += "\n";
  }
  return text + build.text() + "\n";
}
#endif

}  // namespace detail

/// Runs an expression as one fused program on the mesh of its tensors; the sharding of the result is propagated from
/// theirs. In a traced function, eval records the expression as a part of the program, and returns a value unchanged.
/// Errors: those of the operations, with the line of the expression. Communication: see explain(expression).
template <ExprOperand E> constexpr ShardedTensor<typename E::element, E::rank> eval(const E& expression) {
  return expression;
}
template <TensorOperand X>
  requires(!ExprOperand<X>)
constexpr X eval(const X& x) {
  return x;
}

/// The plan of an expression, and the plan as text. Neither runs the expression.
template <ExprOperand E> Plan plan(const E& expression) {
  return detail::with_line(expression.source, [&] {
    detail::CollectLeaves collect;
    detail::collect_expression(expression, collect);
    return detail::plan_of(*detail::executable_in(detail::ExpressionPrograms<E>::find(expression), collect.leaves));
  });
}
template <ExprOperand E> std::string explain(const E& expression) {
  const Plan& found = plan(expression);
  return detail::explain_here(found, detail::ExpressionPrograms<E>::find(expression).compiled(), build_info());
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
