#ifndef TESSERA_GRAPH_TRACE_TRACE_HPP
#define TESSERA_GRAPH_TRACE_TRACE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/base/fixed_string.hpp>
#include <tessera/graph/ir/program.hpp>
#include <tessera/graph/trace/stack.hpp>
#include <tessera/graph/trace/trace_types.hpp>
#include <tessera/graph/transform/simplify.hpp>

namespace tessera {

namespace detail {

/// Gives every leaf of the arguments its place in the program.
struct BindProgram {
  Module* module;
  int next = 0;
  bool in_stack = false;

  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    Graph& graph = module->main();
    Node node;
    if constexpr (std::is_same_v<Leaf, Dim>) {
      node = dim_node(next++);
    } else if constexpr (std::is_same_v<Leaf, Scalar>) {
      node = scalar_node(next++);
    } else {
      node = argument_node(next++, dtype_v<typename Leaf::element>, Leaf::rank);
      if (in_stack) node = build::stacked_type(node);
      set_stacked(node, in_stack);
    }
    leaf = Leaf(Value{module, 0, graph.add(node), {}});
  }
  template <class S> constexpr void enter_stack(S& stack) {
    if (in_stack) module->refuse(errc::unsupported, "[stack] nesting: a Stack inside a Stack");
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
      return module->refuse(errc::empty_tensor,
                            "[trace] result: a leaf of the result was not computed by the traced function");
    if constexpr (TensorOperand<std::remove_const_t<Leaf>>)
      if (value.rank() != Leaf::rank + layer_dims)
        module->refuse(errc::structure,
                       "[stack] result: a tensor of all layers is returned outside of its Stack, or one without "
                       "layers in a Stack");
    module->main().outputs.push_back(value.id);
  }
  constexpr void enter_stack(auto&) { layer_dims = 1; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { layer_dims = 0; }
};

/// Most nodes of a program whose passes share evaluations: compilers bound the work of one.
inline constexpr int small_program = 256;

}  // namespace detail

/// How a function is traced for arguments of these types.
template <class F, class... Args> struct Trace {
  using arguments = std::tuple<typename detail::TracedArgument<Args>::type...>;

  /// The program as it is recorded, and how many leaves the arguments have. Of an outline, see Module.
  static constexpr std::pair<Module, int> record() { return record(false, std::index_sequence_for<Args...>()); }
  template <std::size_t... I> static constexpr std::pair<Module, int> record(bool outline, std::index_sequence<I...>) {
    std::pair<Module, int> made;
    made.first.outline = outline;
    arguments list{};
    detail::BindProgram bind{&made.first};
    for_each_leaf(list, bind);
    made.second = bind.next;
    auto out = detail::settle(F{}(std::get<I>(list)...));
    detail::CollectOutputs collect{&made.first};
    for_each_leaf(out, collect);
    return made;
  }
  /// How many operations the function calls.
  static constexpr int outline() { return record(true, std::index_sequence_for<Args...>()).first.operations; }
  static constexpr std::pair<Module, int> trace() {
    std::pair<Module, int> made = record();
    simplify(made.first);
    return made;
  }
  /// The same as a constant. A program of many nodes is simplified by an evaluation of its own.
  template <ProgramSize Room> static constexpr FrozenProgram<Room> freeze() {
    std::pair<Module, int> made = record();
    const bool small = made.first.main().size() <= detail::small_program && made.first.refusal.text == nullptr;
    if (small) simplify(made.first);
    return FrozenProgram<Room>(made.first, made.second, small);
  }
};

namespace detail {

/// Says what to do about an evaluation that ran out of steps.
template <bool Ended> struct ExplainSteps {
  using Said = decltype([] {
    static_assert(Ended, "tessera: this program has more operations than the compiler evaluates by default; write "
                         "repeated layers as a ts::Stack, or give clang -fconstexpr-steps=8388608 and g++ "
                         "-fconstexpr-ops-limit=268435456");
  });
};

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
    (void)sizeof(
        ExplainSteps<requires { typename Constant<simplified_program<T, whole.used, whole.used>.used.nodes>; }>);
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
concept Recordable = requires { typename Constant<T::template freeze<first_room>().used.graphs>; };
/// Whether an outline of it does.
template <class T>
concept Outlined = requires { typename Constant<T::outline()>; };
/// Whether it is a program: no operation refused its operands.
template <class T>
concept Traceable = Recordable<T> && recorded<T, first_room>.refusal.text == nullptr;

template <class T> struct TracedProgram {
  static constexpr const auto& roomy = simplified_trace<T>();
  static constexpr FrozenProgram<roomy.used> frozen{roomy};
};
/// In place of a program that there is none of: what would follow from that is left out.
template <class T, bool Models> struct NoProgram {
  static constexpr auto frozen = [] {
    FrozenProgram<ProgramSize{1, 0, 0, 0, 0}> none;
    if constexpr (Models) {
      Module module;
      BindProgram bind{&module};
      typename T::arguments list{};
      for_each_leaf(list, bind);
      none.argument_count = bind.next;
    }
    return none;
  }();
};

/// What keeps a function from being traced.
enum class TraceFault { none, types, refusal, length, call, operation };

/// Fewer calls of operations than these are never too many.
inline constexpr int few_operations = 128;

template <class T, bool Valid> constexpr TraceFault fault_of() {
  if constexpr (!Valid)
    return TraceFault::types;
  else if constexpr (Traceable<T>)
    return TraceFault::none;
  else if constexpr (Recordable<T>)
    return TraceFault::refusal;
  else if constexpr (!Outlined<T>)
    return TraceFault::call;
  else
    return T::outline() < few_operations ? TraceFault::operation : TraceFault::length;
}
/// The rule that an operation gave, in rows that end between words, and its line. Compilers show a template argument;
/// clang of an array 36 characters.
template <std::size_t Rows> struct Rule {
  char rows[Rows + 1][37]{};
  std::uint32_t line = 0;
};
/// The size of the first row, with the space behind it.
constexpr std::size_t row_size(std::string_view text) {
  return text.size() <= 36 ? text.size() : text.substr(0, 36).rfind(' ') + 1;
}
template <class T, TraceFault Fault> constexpr auto rule_of() {
  if constexpr (Fault == TraceFault::refusal) {
    constexpr Refusal refusal = recorded<T, first_room>.refusal;
    constexpr std::string_view text = refusal.text;
    constexpr std::size_t count = [](std::string_view rest) {
      std::size_t rows = 0;
      for (; !rest.empty(); ++rows) rest.remove_prefix(row_size(rest));
      return rows;
    }(text);
    Rule<count - 1> rule;
    rule.line = refusal.line;
    std::string_view rest = text;
    for (auto& row : rule.rows) {
      for (std::size_t i = 0; i < 36; ++i) row[i] = i < row_size(rest) ? rest[i] : ' ';
      rest.remove_prefix(row_size(rest));
    }
    return rule;
  } else {
    return Rule<0>{};
  }
}
template <Rule Given> inline constexpr bool is_kept = Given.rows[0][0] == '\0';

}  // namespace detail

/// The program that a function is, for arguments of these types: traced once, by the compiler.
///
/// Compilers list what they were instantiating when something turned out to be wrong. What is said of a function is
/// said from here, not from types of its own, so that the list is short; in a lambda, because clang gives up a class of
/// which an assertion failed.
template <class F, class... Args> struct Traced {
  using Recorded = Trace<F, Args...>;
  static constexpr bool takes =
      detail::TraceableFunction<F> && (Model<typename detail::TracedArgument<Args>::type> && ...);
  using Explained = std::integral_constant<std::size_t, (sizeof(detail::ExplainFunction<F>) + ... +
                                                         sizeof(detail::ExplainArgument<Args>))>;
  using Returned = decltype(std::declval<detail::Callable<takes, F, sizeof...(Args)>>()(
      std::declval<typename detail::TracedArgument<Args>::type&>()...));
  // In a function with an error clang finds an int, and an error here the second time.
  static constexpr bool sound = requires {
    std::declval<detail::Callable<takes, F, sizeof...(Args)>>()(
        std::declval<typename detail::TracedArgument<Args>::type&>()...);
  };
  using Result = detail::ResultOf<std::conditional_t<sound, Returned, detail::NoResult>>;
  /// Whether it can be made at all; if not, the compiler has said why.
  static constexpr bool valid = Result::valid;
  using result = typename Result::type;

  static constexpr detail::TraceFault fault = detail::fault_of<Recorded, valid>();
  using ExplainedTrace = decltype([] {
    using enum detail::TraceFault;
    constexpr bool is_constexpr = fault != call, is_known = fault != operation;
    static_assert(detail::is_kept<detail::rule_of<Recorded, fault>()>,
                  "tessera: an operation of the traced function does not take what it is given; the rule stands in "
                  "quotes, and the line of the call after it");
    (void)sizeof(detail::ExplainSteps<fault != length>);
    static_assert(is_constexpr,
                  "tessera: the traced function calls a function that is not constexpr; write constexpr before the "
                  "one that the next error names. Where that is about a limit of steps, write repeated layers as a "
                  "ts::Stack; after an error in the function itself, this only follows from it");
    static_assert(is_known, "tessera: the traced function uses what the compiler can't evaluate, which the next error "
                            "names; tensors from outside are passed as arguments");
    if constexpr (fault == call || fault == operation)
      static_assert(Recorded::record(fault == call, std::index_sequence_for<Args...>()).second >= 0);
  });

  using Program = std::conditional_t<fault == detail::TraceFault::none, detail::TracedProgram<Recorded>,
                                     detail::NoProgram<Recorded, takes>>;
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
