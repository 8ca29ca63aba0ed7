#ifndef TESSERA_GRAPH_TRACE_NESTED_CALL_HPP
#define TESSERA_GRAPH_TRACE_NESTED_CALL_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/planning.hpp>
#include <tessera/graph/trace/trace.hpp>

TESSERA_PLANNING_BEGIN

namespace tessera::detail {

/// Whether arguments of a call are traced: a Sym by its type, a ShardedTensor in a struct by its value.
struct FindTrace {
  bool by_type = false, by_value = false;
  template <class Leaf> constexpr void leaf(const Leaf& leaf) {
    if constexpr (SymOperand<Leaf>)
      by_type = true;
    else
      by_value = by_value || leaf.traced();
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};
template <class A>
inline constexpr bool holds_sym_v = [] {
  if constexpr (Operand<A>) {
    return SymOperand<A>;
  } else {
    A object{};
    FindTrace found;
    for_each_leaf(object, found);
    return found.by_type;
  }
}();
template <class A> constexpr bool holds_placeholders(const A& argument) {
  if constexpr (Operand<A>) {
    return trace_of(argument).module != nullptr;
  } else {
    FindTrace found;
    for_each_leaf(argument, found);
    return found.by_value;
  }
}

template <class A> constexpr auto as_traced_argument(const A& argument) {
  if constexpr (TensorOperand<A>)
    return as_sym(argument);
  else
    return argument;
}

/// Traces f as part of the program to which its arguments belong. Local values of a shard_map stay local values.
template <class F, class... Args> constexpr auto call_in_trace(const Args&... args) {
  auto arguments = [&] {
    if constexpr ((LocalOperand<Args> || ...))
      return std::tuple<Args...>(args...);
    else
      return std::tuple<decltype(as_traced_argument(args))...>(as_traced_argument(args)...);
  }();
  return []<class... Given>(std::tuple<Given...>& list) {
    if constexpr (!TraceableFunction<F>) {
      (void)sizeof(ExplainFunction<F>);
      return NoResult{};
    } else if constexpr (!ResultOf<decltype(std::declval<Callable<true, F, sizeof...(Given)>>()(
                             std::declval<Given&>()...))>::valid) {
      return NoResult{};  // a static_assert has said why
    } else {
      return settle(std::apply([](auto&... x) { return F{}(x...); }, list));
    }
  }(arguments);
}

/// Converts a traced result to the type that the caller of a compiled function gets: tensors that hold placeholders.
template <class Result, class Traced> constexpr Result as_final(const Traced& traced) {
  if constexpr (is_tuple_v<Traced>)
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return Result(as_final<std::tuple_element_t<I, Result>>(std::get<I>(traced))...);
    }(std::make_index_sequence<std::tuple_size_v<Traced>>{});
  else
    return Result(traced);
}

}  // namespace tessera::detail

TESSERA_PLANNING_END

#include <tessera/base/pop_macros.hpp>

#endif
