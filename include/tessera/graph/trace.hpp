#ifndef TESSERA_GRAPH_TRACE_HPP
#define TESSERA_GRAPH_TRACE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
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
template <class First, class Second> struct FinalResult<std::pair<First, Second>> {
  using type = std::pair<typename FinalResult<First>::type, typename FinalResult<Second>::type>;
};
template <class T, std::size_t Size> struct FinalResult<std::array<T, Size>> {
  using type = std::array<typename FinalResult<T>::type, Size>;
};

template <class F>
concept TraceableFunction = std::is_class_v<F> && std::is_empty_v<F> && std::is_default_constructible_v<F>;

/// Says why a function can't be traced by its type, once wherever it is used.
template <class F> struct ExplainFunction {
  static constexpr bool is_class = std::is_class_v<F>, is_empty = !is_class || std::is_empty_v<F>;
  static_assert(is_class, "tessera: a function is traced by its type, which a pointer does not have; wrap it in a "
                          "lambda: [](const auto&... x) { return f(x...); }");
  static_assert(is_empty, "tessera: a traced function must not capture anything; pass what it needs as arguments");
  static_assert(!is_empty || !is_class || std::is_default_constructible_v<F>,
                "tessera: a traced function must not capture anything; write [] in place of [&] or [=]");
};

/// What a trace that can't be made gives. It converts to anything, so that the first message is the only one.
struct NoResult {
  template <class T> operator T() const;
};

/// The result of a function, as it returns it.
template <class F, class... Args> constexpr auto returned_type() {
  if constexpr (requires { F{}(std::declval<Args&>()...); }) {
    using Returned = decltype(F{}(std::declval<Args&>()...));
    static_assert(!std::is_void_v<Returned>, "tessera: the traced function returns nothing; it lacks a return");
    if constexpr (std::is_void_v<Returned>)
      return std::type_identity<NoResult>{};
    else {
      using Settled = decltype(settle(std::declval<Returned>()));
      explain_model<Settled>();
      return std::type_identity<Settled>{};
    }
  } else {
    static_assert(sizeof...(Args) > 99,
                  "tessera: the traced function does not take as many arguments as it is given here, or takes other "
                  "types; after an error in the function itself, this is only what follows from it");
    return std::type_identity<NoResult>{};
  }
}

/// The types of a trace.
template <class F, class... Args> struct TraceTypes {
  using arguments = std::tuple<typename TracedArgument<Args>::type...>;
  using traced_result = typename decltype(returned_type<F, typename TracedArgument<Args>::type...>())::type;
  static constexpr bool valid = !std::is_same_v<traced_result, NoResult> && Model<traced_result>;
  using result = std::conditional_t<valid, typename FinalResult<traced_result>::type, NoResult>;
};
struct NoTypes {
  using result = NoResult;
  static constexpr bool valid = false;
};
template <class F, class... Args> constexpr auto trace_types() {
  if constexpr (TraceableFunction<F> && (Model<typename TracedArgument<Args>::type> && ...)) {
    return std::type_identity<TraceTypes<F, Args...>>{};
  } else {
    (void)sizeof(ExplainFunction<F>);
    (explain_model<typename TracedArgument<Args>::type>(), ...);
    return std::type_identity<NoTypes>{};
  }
}

}  // namespace detail

/// How a function is traced for arguments of these types.
template <class F, class... Args> struct Trace {
  using types = typename decltype(detail::trace_types<F, Args...>())::type;
  /// Whether it can be made at all; if not, the compiler has said why.
  static constexpr bool valid = types::valid;
  using result = typename types::result;

  /// The program as it is recorded, and how many leaves the arguments have.
  static constexpr std::pair<Module, int> record() {
    std::pair<Module, int> made;
    typename types::arguments list{};
    detail::BindProgram bind{&made.first};
    for_each_leaf(list, bind);
    made.second = bind.next;
    auto out = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return detail::settle(F{}(std::get<I>(list)...));
    }(std::index_sequence_for<Args...>());
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

/// Whether a trace comes to an end. A call can be tried: of a variable whose evaluation fails, compilers say so at
/// once.
template <class T>
concept Traceable = requires { typename Constant<T::template freeze<first_room>().used.graphs>; };

/// In place of a program that there is none of: what would follow from that is left out.
struct NoProgram {
  static constexpr FrozenProgram<ProgramSize{1, 0, 0, 0, 0}> frozen{};
};
template <class T> struct TracedProgram {
  static constexpr const auto& roomy = simplified_trace<T>();
  static constexpr FrozenProgram<roomy.used> frozen{roomy};
};
/// Says what to do about a function that can't be traced, then why it can't, in the compiler's words.
template <class T> struct WhatToDo {
  static_assert(std::is_void_v<T>, "tessera: this function can't be traced; the next error says why. Where it names a "
                                   "function that is not constexpr, write constexpr before that function; where it "
                                   "says that steps or operations ran out, write repeated layers as a ts::Stack, or "
                                   "give clang -fconstexpr-steps=8388608 and g++ -fconstexpr-ops-limit=268435456");
};
template <class T> struct Reason {
  static_assert(T::template freeze<first_room>().used.graphs > 0);
};
template <class T> struct UntraceableProgram : WhatToDo<T>, Reason<T>, NoProgram {};
template <class T> constexpr auto program_of() {
  if constexpr (!T::valid)
    return std::type_identity<NoProgram>{};
  else if constexpr (Traceable<T>)
    return std::type_identity<TracedProgram<T>>{};
  else
    return std::type_identity<UntraceableProgram<T>>{};
}

}  // namespace detail

/// The program that a function is, for arguments of these types: traced once, by the compiler.
template <class F, class... Args> struct Traced : Trace<F, Args...> {
  using Program = typename decltype(detail::program_of<Trace<F, Args...>>())::type;
  static constexpr const auto& frozen = Program::frozen;
  static constexpr auto graphs = []<std::size_t... G>(std::index_sequence<G...>) {
    return std::array<GraphView, sizeof...(G)>{frozen.graph(static_cast<int>(G))...};
  }(std::make_index_sequence<static_cast<std::size_t>(frozen.used.graphs)>{});

  static constexpr ProgramView program() {
    return {graphs.data(), static_cast<int>(graphs.size()), frozen.specs, frozen.argument_count, frozen.used.specs};
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
