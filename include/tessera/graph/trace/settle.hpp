#ifndef TESSERA_GRAPH_TRACE_SETTLE_HPP
#define TESSERA_GRAPH_TRACE_SETTLE_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <tuple>
#include <utility>

#include <tessera/graph/trace/tree.hpp>

namespace tessera::detail {

/// A tensor inside a trace as a Sym: an expression is recorded, a field of a model gives its placeholder.
template <TensorOperand X> constexpr auto as_sym(const X& x) {
  if constexpr (SymOperand<X>)
    return x;
  else
    return Sym<typename X::element, X::rank>(lower(trace_of(x), x));
}

/// Records all expressions in the result of a traced function, through tuples, pairs and arrays.
template <class R> constexpr auto settle(const R& result) {
  if constexpr (ExprOperand<R>) {
    return as_sym(result);
  } else if constexpr (is_tuple_v<R>) {
    return []<template <class...> class Tuple, class... Ts>(const Tuple<Ts...>& tuple) {
      return std::apply([](const auto&... items) { return Tuple<decltype(settle(items))...>(settle(items)...); },
                        tuple);
    }(result);
  } else {
    return result;
  }
}

/// std::apply: calls f with the items of a tuple. Without the further errors that compilers report in std::apply after
/// an error in f.
template <class F, class Tuple> constexpr auto applied(const F& f, const Tuple& arguments) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return f(std::get<I>(arguments)...);
  }(std::make_index_sequence<std::tuple_size_v<Tuple>>());
}

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
