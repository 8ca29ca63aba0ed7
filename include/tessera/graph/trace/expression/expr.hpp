#ifndef TESSERA_GRAPH_TRACE_EXPRESSION_EXPR_HPP
#define TESSERA_GRAPH_TRACE_EXPRESSION_EXPR_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <tessera/graph/ir/value.hpp>
#include <tessera/graph/trace/captures.hpp>
#include <tessera/graph/trace/expression/operators.hpp>
#include <tessera/graph/trace/operand.hpp>
#include <tessera/graph/trace/sym.hpp>

namespace tessera {

template <class T, int Rank> class ShardedTensor;

namespace detail {
template <std::size_t I, class T> struct HeldOperand {
  T operand;
};
/// The operands of an expression, held by value, so that an expression returned from a function never dangles.
template <class Indices, class... Ts> struct HeldOperands;
template <std::size_t... I, class... Ts> struct HeldOperands<std::index_sequence<I...>, Ts...> : HeldOperand<I, Ts>... {
  template <class F> constexpr decltype(auto) apply(F&& f) const {
    return f(static_cast<const HeldOperand<I, Ts>&>(*this).operand...);
  }
};
template <std::size_t I, class T> constexpr const T& operand_at(const HeldOperand<I, T>& held) { return held.operand; }

template <class T> inline constexpr int node_count = 1;
}  // namespace detail

/// An operation that has not run yet. Assigning it to a tensor, or ts::eval, fuses, plans and runs the whole
/// expression.
template <class Tag, class... Operands> struct Expr : ExprTag, Operators<Expr<Tag, Operands...>> {
  using tag = Tag;
  using result = typename Tag::template result<typed_of<Operands>...>;
  using element = typename result::type;
  static constexpr int rank = result::rank;

  detail::HeldOperands<std::index_sequence_for<Operands...>, Operands...> operands;
  Source source{};

  constexpr explicit Expr(Source at, const Operands&... list) : operands{{list}...}, source(at) {}
  template <class B> constexpr auto operator=(const B&) const&& { detail::no_assignment<B>(); }
};

namespace detail {
template <class Tag, class... Operands>
inline constexpr int node_count<Expr<Tag, Operands...>> = (1 + ... + node_count<Operands>);

/// Operands of which some have a leading dim of the layers of a Stack: all but scalars must have that dim and one rank.
/// Errors: `structure`.
template <std::size_t N> constexpr void check_layers(const Value (&operands)[N], const int (&ranks)[N]) {
  int rank = -1;
  for (std::size_t i = 0; i < N; ++i) {
    if (operands[i].rank() == 0) continue;
    if (operands[i].rank() == ranks[i] || (rank >= 0 && ranks[i] != rank))
      return operands[0].refuse(
          errc::structure,
          "[stack] operands: a field of all layers of a Stack can only be combined with scalars and with "
          "fields of all layers that have the same rank; to run the layers, call the Stack: layers(x); for "
          "another function of each layer, ts::map(f, layers)");
    rank = ranks[i];
  }
}

/// How an operation becomes a node: `Tag::convert`, where it exists, promotes the operands; `Tag::emit` adds the node.
/// `Tag::function`, where it exists, is the function that errors of the nodes name.
template <class E> struct Emission;
template <class Tag, class... Operands> struct Emission<Expr<Tag, Operands...>> {
  template <class... Values> static constexpr void convert(Values&... values) {
    if constexpr (requires { Tag::template convert<typed_of<Operands>...>(values...); })
      Tag::template convert<typed_of<Operands>...>(values...);
  }
  template <class... Values> static constexpr Value emit(Value context, Values... values) {
    if constexpr (sizeof...(values) > 0)
      if (((values.rank() > typed_of<Operands>::rank) || ...)) check_layers({values...}, {typed_of<Operands>::rank...});
    if constexpr (requires { Tag::function; }) {
      // Errors name the outermost function, which the user calls.
      const bool outermost = context.source.inside == nullptr ||
                             (context.module->layer_call.line != 0 && context.module->function == nullptr);
      if (outermost) context.source.inside = Tag::function;
      ((values.source.inside = context.source.inside), ...);
    }
    convert(values...);
    return Tag::emit(context, values...);
  }
};
/// The node of an expression, from values that are given in braces: so they are made in the order written.
template <class E> struct Emitted {
  Value value;
  template <class... Values>
  constexpr explicit Emitted(Value context, Values... values) : value(Emission<E>::emit(context, values...)) {}
};
}  // namespace detail

/// The trace that an operand belongs to; a null module when it belongs to none.
template <Operand X> constexpr Value trace_of(const X& x) {
  if constexpr (SymOperand<X>)
    return here(x.value);
  else if constexpr (StoredOperand<X> || std::same_as<X, Dim> || std::same_as<X, Scalar>)
    return here(x.placeholder());
  else if constexpr (ExprOperand<X>)
    return x.operands.apply([](const auto&... operands) {
      Value found{};
      ((found = found.module == nullptr ? trace_of(operands) : found), ...);
      return found;
    });
  else
    return {};
}

namespace detail {
/// The result of an operation in an outline (Module::outline): a value of the right type that is not recorded.
constexpr Value outlined(const Value& context, DType dtype, int rank) {
  ++context.module->operations;
  const Graph& graph = context.module->graph(context.graph);
  for (int id = graph.size() - 1; id >= 0; --id)  // reusing a node takes a tenth of the constexpr steps of adding one
    if (graph[id].value == -1 && graph[id].is_argument() && graph[id].rank == rank && graph[id].dtype == dtype)
      return context.with(id);
  return context.make(argument_node(-1, dtype, rank), {});
}
}  // namespace detail

/// The node of an operand in the trace that `context` belongs to. Errors: `unsupported` for a tensor with data.
template <Operand X> constexpr Value lower(Value context, const X& x) {
  if constexpr (SymOperand<X>) {
    return here(x.value).at(context.source);
  } else if constexpr (StoredOperand<X>) {
    if (!x.traced()) {
      context.refuse(errc::unsupported, "[trace] captured tensor: a traced function can't use a stored tensor from "
                                        "outside of the function; pass the tensor as an argument");
      return detail::outlined(context, dtype_v<typename X::element>, X::rank);
    }
    if (x.placeholder().graph < 0) {
      context.refuse(errc::unsupported,
                     "[shard_map] field of a struct: no operand of the operation is a local value; write "
                     "ts::local_of(field, x), where x is a local value");
      return detail::outlined(context, dtype_v<typename X::element>, X::rank);
    }
    return here(x.placeholder()).at(context.source);
  } else if constexpr (std::same_as<X, Dim>) {
    return x.traced() ? here(x.placeholder()).at(context.source) : context.integer(x.value(), DType::i64);
  } else if constexpr (std::same_as<X, Scalar>) {
    return x.traced() ? here(x.placeholder()).at(context.source) : context.number(x.value(), DType::f64);
  } else if constexpr (std::is_integral_v<X>) {
    return context.integer(static_cast<std::int64_t>(x), DType::f64);
  } else if constexpr (std::is_arithmetic_v<X>) {
    return context.number(static_cast<double>(x), DType::f64);
  } else {
    const Value own = context.at(x.source);
    return x.operands.apply([&](const auto&... operands) {
      return detail::Emitted<X>{own, lower(own, operands)...}.value;
    });
  }
}

namespace detail {
/// An expression as a tensor: evaluated, or in a trace recorded. Other operands stay.
template <Operand X> constexpr decltype(auto) evaluated(const X& x) {
  if constexpr (ExprOperand<X>)
    return ShardedTensor<typename X::element, X::rank>(x);
  else
    return (x);
}

/// An operation on values inside a shard_map. Defined in ops/shard_map/.
template <class Tag, class... Operands> struct LocalCall;
}  // namespace detail

/// The most operations in an expression of stored tensors, which is one program; of a longer expression, the operands
/// of the operation that exceeds the limit are evaluated first. Subexpressions that occur twice count twice.
inline constexpr int max_expression_nodes = 64;

namespace detail {
/// The function that the user calls, of which expressions that are made are parts; null outside of one.
inline constinit thread_local const char* function_of_expressions = nullptr;
}  // namespace detail

/// Applies an operation: adds a node when an operand is traced, and makes an expression otherwise. `Tag` has the
/// operation's static attributes, its result type and `emit`.
template <class Tag, class... Operands> constexpr auto call(Source source, const Operands&... operands) {
  using Result = typename Tag::template result<typed_of<Operands>...>;
  if constexpr ((LocalOperand<Operands> || ...)) {
    return detail::LocalCall<Tag, Operands...>::make(source, operands...);
  } else if constexpr ((SymOperand<Operands> || ...)) {
    Value context{};
    ((context = context.module == nullptr && SymOperand<Operands> ? trace_of(operands) : context), ...);
    context = context.at(source);
    if (context.module->outline)
      return Sym<typename Result::type, Result::rank>(
          detail::outlined(context, dtype_v<typename Result::type>, Result::rank));
    return Sym<typename Result::type, Result::rank>(
        detail::Emission<Expr<Tag, Operands...>>::emit(context, lower(context, operands)...));
  } else {
    using E = Expr<Tag, Operands...>;
    if (!__builtin_is_constant_evaluated()) source.inside = detail::function_of_expressions;
    if constexpr (detail::node_count<E> <= max_expression_nodes)
      return E(source, operands...);
    else
      return call<Tag>(source, detail::evaluated(operands)...);
  }
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
