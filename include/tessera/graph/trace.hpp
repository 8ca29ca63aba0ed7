#ifndef TESSERA_GRAPH_TRACE_HPP
#define TESSERA_GRAPH_TRACE_HPP

#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include <tessera/base/fixed_string.hpp>
#include <tessera/graph/program.hpp>
#include <tessera/graph/settle.hpp>
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
      node.rank = Leaf::rank;
      if (in_stack) node = build::stacked_type(node);
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
  int layer_dims = 0;  ///< inside a Stack, a tensor holds all layers
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    Value value;
    if constexpr (SymOperand<std::remove_const_t<Leaf>>)
      value = leaf.value;
    else
      value = leaf.placeholder();
    if (value.module == nullptr)
      fail(errc::empty_tensor, "[trace] result: a leaf of the result was not computed by the traced function");
    if constexpr (TensorOperand<std::remove_const_t<Leaf>>)
      if (value.rank() != Leaf::rank + layer_dims)
        fail(errc::structure, "[stack] result: a tensor of all layers is returned outside of its Stack, or one without "
                              "layers in a Stack");
    module->main().outputs.push_back(value.id);
  }
  constexpr void enter_stack(auto&) { layer_dims = 1; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { layer_dims = 0; }
};

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

/// What a trace takes.
struct TraceSize {
  ProgramSize program;
  int arguments = 0;  ///< leaves of them
};

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

  static constexpr std::pair<Module, int> trace() {
    std::pair<Module, int> made;
    arguments list{};
    detail::BindProgram bind{&made.first};
    for_each_leaf(list, bind);
    made.second = bind.next;
    auto out = detail::invoke_traced<F>(list, std::index_sequence_for<Args...>{});
    detail::CollectOutputs collect{&made.first};
    for_each_leaf(out, collect);
    simplify(made.first);
    return made;
  }
  static constexpr detail::TraceSize measure() {
    const auto made = trace();
    return {ProgramSize::of(made.first), made.second};
  }
};

namespace detail {

/// Whether a trace comes to an end.
template <class T>
concept Traceable = requires { typename Constant<T::measure()>; };

/// The program of a trace. Where there is none, the compiler says why once, and what would follow from it is left out.
template <class T> struct TracedProgram {
  static_assert(T::measure().program.graphs > 0, "tessera: this function can't be traced");
  static constexpr TraceSize sizes{{1, 0, 0, 0, 0}, 0};
  static constexpr FrozenProgram<sizes.program> frozen{};
};
template <Traceable T> struct TracedProgram<T> {
  static constexpr TraceSize sizes = T::measure();
  static constexpr FrozenProgram<sizes.program> frozen{T::trace().first};
};

}  // namespace detail

/// The program that a function is, for arguments of these types: traced once, by the compiler.
template <class F, class... Args> struct Traced : Trace<F, Args...> {
  using Program = detail::TracedProgram<Trace<F, Args...>>;
  static constexpr const auto& frozen = Program::frozen;
  static constexpr detail::TraceSize sizes = Program::sizes;
  static constexpr auto graphs = []<std::size_t... G>(std::index_sequence<G...>) {
    return std::array<GraphView, sizeof...(G)>{frozen.graph(static_cast<int>(G))...};
  }(std::make_index_sequence<static_cast<std::size_t>(sizes.program.graphs)>{});

  static constexpr ProgramView program() {
    return {graphs.data(), static_cast<int>(graphs.size()), frozen.specs, sizes.arguments};
  }
};

}  // namespace tessera

#endif
