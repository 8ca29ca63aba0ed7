#ifndef TESSERA_GRAPH_TRACE_HPP
#define TESSERA_GRAPH_TRACE_HPP

#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include <tessera/base/fixed_string.hpp>
#include <tessera/graph/program.hpp>
#include <tessera/graph/simplify.hpp>
#include <tessera/graph/stack.hpp>

namespace tessera {

namespace detail {

/// Gives every leaf of the arguments its place in the program.
struct BindProgram {
  Module* module;
  int next = 0;
  bool in_stack = false;

  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    Graph& graph = module->main();
    Node node{.value = static_cast<double>(next++)};
    if constexpr (std::is_same_v<Leaf, Dim>) {
      node.op = Op::dim;
      node.dtype = DType::i64;
    } else if constexpr (std::is_same_v<Leaf, Scalar>) {
      node.op = Op::scalar;
      node.dtype = DType::f64;
    } else {
      node.op = Op::argument;
      node.dtype = dtype_v<typename Leaf::element>;
      node.rank = static_cast<std::uint8_t>(Leaf::rank + (in_stack ? 1 : 0));
      node.labels[0] = in_stack ? 1 : 0;
    }
    leaf = Leaf(Value{module, 0, graph.add(node), {}});
  }
  template <class S> constexpr void enter_stack(S& stack) {
    if (in_stack) fail(errc::unsupported, "[stack] nesting: a Stack inside a Stack");
    stack.layers().resize(1);
    in_stack = true;
  }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }
};

/// Lists the nodes of a traced result, leaf by leaf.
struct CollectOutputs {
  Module* module;
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    Value value;
    if constexpr (SymOperand<std::remove_const_t<Leaf>>)
      value = leaf.value;
    else
      value = leaf.placeholder();
    if (value.module == nullptr)
      fail(errc::empty_tensor, "[trace] result: a leaf of the result was not computed by the traced function");
    module->main().outputs.push_back(value.id);
  }
  constexpr void enter_stack(auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// Most nodes of a program whose passes share evaluations: compilers bound the work of one.
inline constexpr int small_program = 256;

/// An argument as the traced function sees it: a tensor is a Sym, a struct is itself, holding placeholders.
template <class A> struct TracedArgument {
  using type = A;
};
template <class T, int R> struct TracedArgument<ShardedTensor<T, R>> {
  using type = Sym<T, R>;
};

/// A result as the caller sees it.
template <class R> struct FinalResult {
  using type = R;
};
template <class T, int R> struct FinalResult<Sym<T, R>> {
  using type = ShardedTensor<T, R>;
};
template <class... Ts> struct FinalResult<std::tuple<Ts...>> {
  using type = std::tuple<typename FinalResult<Ts>::type...>;
};

/// Expressions over placeholders become part of the trace.
template <class R> constexpr auto settle(const R& result) {
  if constexpr (ExprOperand<R>) {
    return Sym<typename R::element, R::rank>(lower(trace_of(result), result));
  } else if constexpr (is_tuple_v<R>) {
    return std::apply([](const auto&... items) { return std::tuple<decltype(settle(items))...>(settle(items)...); },
                      result);
  } else {
    return result;
  }
}

template <class T> struct SymFor;
template <class T, int R> struct SymFor<ShardedTensor<T, R>> {
  using type = Sym<T, R>;
};

template <class F, class Tuple, std::size_t... I>
constexpr auto invoke_traced(Tuple& arguments, std::index_sequence<I...>) {
  if constexpr (!std::is_empty_v<F>) {
    return std::tuple<>();  // Trace says what is wrong
  } else if constexpr (requires { F{}(std::get<I>(arguments)...); }) {
    return settle(F{}(std::get<I>(arguments)...));
  } else {
    static_assert(sizeof...(I) > 99,
                  "tessera: the traced function does not take as many arguments as it is given here, "
                  "or takes other types; or, after an error in the function itself, clang says this as well");
    return std::tuple<>();
  }
}

}  // namespace detail

/// How a function is traced for arguments of these types.
template <class F, class... Args> struct Trace {
  static_assert(std::is_empty_v<F>,
                "tessera: a traced function must not capture anything; pass what it needs as arguments");
  using arguments = std::tuple<typename detail::TracedArgument<Args>::type...>;
  using traced_result =
      decltype(detail::invoke_traced<F>(std::declval<arguments&>(), std::index_sequence_for<Args...>{}));
  using result = typename detail::FinalResult<traced_result>::type;

  /// The program as it is recorded, and how many leaves the arguments have.
  static constexpr std::pair<Module, int> record() {
    std::pair<Module, int> made;
    arguments list{};
    detail::BindProgram bind{&made.first};
    for_each_leaf(list, bind);
    made.second = bind.next;
    auto out = detail::invoke_traced<F>(list, std::index_sequence_for<Args...>{});
    detail::CollectOutputs collect{&made.first};
    for_each_leaf(out, collect);
    return made;
  }
  static constexpr std::pair<Module, int> trace() {
    std::pair<Module, int> made = record();
    simplify(made.first);
    return made;
  }
  /// The same as a constant. A program of many nodes is simplified by an evaluation of its own.
  template <ProgramSize Room> static constexpr FrozenProgram<Room> freeze() {
    std::pair<Module, int> made = record();
    const bool small = made.first.main().size() <= detail::small_program;
    if (small) simplify(made.first);
    return FrozenProgram<Room>(made.first, made.second, small);
  }
};

namespace detail {

/// What a first evaluation has room for: enough for most programs.
inline constexpr ProgramSize first_room{4, small_program, 3 * small_program, 32, 2};

/// The program as it is recorded; simplified where it is small.
template <class T, ProgramSize Room> inline constexpr FrozenProgram<Room> recorded = T::template freeze<Room>();

/// A recorded program, simplified.
template <class T, ProgramSize From, ProgramSize Room>
inline constexpr FrozenProgram<Room> simplified_program = [] {
  const FrozenProgram<From>& from = recorded<T, From>;
  Module made;
  made.graphs = simplified([&](int g) { return from.graph(g); });
  for (int s = 0; s < from.used.specs; ++s) made.specs.push_back(from.specs[s]);
  return FrozenProgram<Room>(made, from.argument_count, true);
}();

template <class T> constexpr const auto& whole_trace() {
  constexpr ProgramSize size = recorded<T, first_room>.used;
  if constexpr (size.fits(first_room))
    return recorded<T, first_room>;
  else
    return recorded<T, size>;
}
template <class T> constexpr const auto& simplified_trace() {
  constexpr const auto& whole = whole_trace<T>();
  if constexpr (whole.simplified) {
    return whole;
  } else {
    constexpr ProgramSize size = simplified_program<T, whole.used, whole.used>.used;
    if constexpr (size.fits(whole.used))
      return simplified_program<T, whole.used, whole.used>;
    else
      return simplified_program<T, whole.used, size>;
  }
}

/// Whether a trace comes to an end.
template <class T>
concept Traceable = requires { typename Constant<recorded<T, first_room>.used.graphs>; };

/// The program of a trace. Where there is none, the compiler says why once, and what would follow from it is left out.
template <class T> struct TracedProgram {
  static_assert(Traceable<T>,
                "tessera: this function can't be traced; where the compiler says that it ran out of steps or "
                "operations, write repeated layers as a ts::Stack, or give clang -fconstexpr-steps=8388608 and g++ "
                "-fconstexpr-ops-limit=268435456");
  static constexpr FrozenProgram<ProgramSize{1, 0, 0, 0, 0}> frozen{};
};
template <Traceable T> struct TracedProgram<T> {
  static constexpr const auto& roomy = simplified_trace<T>();
  static constexpr FrozenProgram<roomy.used> frozen{roomy};
};

}  // namespace detail

/// The program that a function is, for arguments of these types: traced once, by the compiler.
template <class F, class... Args> struct Traced : Trace<F, Args...> {
  using Program = detail::TracedProgram<Trace<F, Args...>>;
  static constexpr const auto& frozen = Program::frozen;
  static constexpr auto graphs = []<std::size_t... G>(std::index_sequence<G...>) {
    return std::array<GraphView, sizeof...(G)>{frozen.graph(static_cast<int>(G))...};
  }(std::make_index_sequence<static_cast<std::size_t>(frozen.used.graphs)>{});

  static constexpr ProgramView program() {
    return {graphs.data(), static_cast<int>(graphs.size()), frozen.specs, frozen.argument_count};
  }
};

}  // namespace tessera

#endif
