#ifndef TESSERA_GRAPH_TRACE_TRACE_HPP
#define TESSERA_GRAPH_TRACE_TRACE_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
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

/// Adds an argument node to the program for each leaf of the arguments.
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
      if (in_stack) node = stored_as(Storage::layers, build::stacked_type(node));
    }
    leaf = Leaf(Value{module, 0, graph.add(node), {}});
  }
  template <class S> constexpr void enter_stack(S& stack) {
    if (in_stack) module->refuse(errc::unsupported, "[stack] nesting: a Stack can't contain a Stack");
    stack.layers().resize(1);
    in_stack = true;
  }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }
};

/// Which tensor of a result a message is about.
inline constexpr std::string_view result_places[] = {
    "tensor 0 of the result", "tensor 1 of the result", "tensor 2 of the result", "tensor 3 of the result",
    "tensor 4 of the result", "tensor 5 of the result", "tensor 6 of the result", "tensor 7 of the result"};

/// Lists the nodes of a traced result, leaf by leaf.
struct CollectOutputs {
  Module* module;
  int layer_dims = 0;  ///< 1 inside a Stack, where a tensor has the values of all layers
  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    Value value;
    if constexpr (SymOperand<std::remove_const_t<Leaf>>)
      value = leaf.value;
    else
      value = leaf.placeholder();
    if (value.module == nullptr)
      return module->refuse(
          errc::empty_tensor,
          "[trace] result: a tensor or a number in the result of the traced function was never assigned", {}, place());
    if constexpr (TensorOperand<std::remove_const_t<Leaf>>)
      if (value.rank() != Leaf::rank + layer_dims)
        module->refuse(errc::structure,
                       "[stack] result: a field of all layers is returned outside of its Stack, or a tensor without a "
                       "dim of layers is returned as a field of a Stack",
                       value.node().source, place());
    module->main().outputs.push_back(value.id);
    module->results_in_layers.push_back(layer_dims > 0);
  }
  constexpr void enter_stack(auto&) { layer_dims = 1; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { layer_dims = 0; }

 private:
  constexpr std::string_view place() const {
    const std::size_t before = module->main().outputs.size();
    return before < std::size(result_places) ? result_places[before] : std::string_view();
  }
};

/// A program with an argument node for each leaf of the arguments.
template <class Arguments> struct BoundArguments {
  Module module;
  Arguments list{};
  int leaves = 0;

  constexpr explicit BoundArguments(bool outline) {
    module.outline = outline;
    BindProgram bind{&module};
    for_each_leaf(list, bind);
    leaves = bind.next;
  }
  BoundArguments(const BoundArguments&) = delete;  // the list refers to the module
  BoundArguments& operator=(const BoundArguments&) = delete;
};

/// A call of a traced function, in an initializer: for an error in a constant expression, compilers list each function
/// that led to it, but no initializer.
template <class F, class Arguments, class Indices> struct TracedCall;
template <class F, class Arguments, std::size_t... I> struct TracedCall<F, Arguments, std::index_sequence<I...>> {
  BoundArguments<Arguments> bound;
  bool returns = ((void)settle(F{}(std::get<I>(bound.list)...)), true);
};

/// Programs of up to this many nodes, those of loops counted, are recorded and simplified in one constant expression;
/// compilers limit the steps of each.
inline constexpr int small_program = 256;

/// Whether a function could be recorded, what room its program takes, and whether an operation refused its operands.
struct TracedSize {
  ProgramSize used{};
  bool recorded = false, refused = false;
};

}  // namespace detail

/// Traces a function F for arguments of these types.
template <class F, class... Args> struct Trace {
  using arguments = std::tuple<typename detail::TracedArgument<Args>::type...>;

  /// The recorded program, and the number of leaves of its arguments. `outline`: see Module::outline.
  static constexpr std::pair<Module, int> record() { return record(false, std::index_sequence_for<Args...>()); }
  template <std::size_t... I> static constexpr std::pair<Module, int> record(bool outline, std::index_sequence<I...>) {
    detail::BoundArguments<arguments> bound(outline);
    auto out = detail::settle(F{}(std::get<I>(bound.list)...));
    detail::CollectOutputs collect{&bound.module};
    for_each_leaf(out, collect);
    return {std::move(bound.module), bound.leaves};
  }
  using Call = detail::TracedCall<F, arguments, std::index_sequence_for<Args...>>;
  /// How many operations the function calls.
  static constexpr int outline() { return record(true, std::index_sequence_for<Args...>()).first.operations; }
  static constexpr std::pair<Module, int> trace() {
    std::pair<Module, int> made = record();
    simplify(made.first);
    return made;
  }
  /// The recorded program. If it is small, it is simplified too; a larger one is simplified later, in a constant
  /// expression of its own.
  static constexpr std::pair<Module, int> record_and_simplify(bool& simplified) {
    std::pair<Module, int> made = record();
    simplified = ProgramSize::of(made.first).nodes <= detail::small_program && made.first.refusal.text == nullptr;
    if (simplified) simplify(made.first);
    return made;
  }
  /// What freeze() needs room for.
  static constexpr detail::TracedSize size() {
    bool simplified = false;
    const std::pair<Module, int> made = record_and_simplify(simplified);
    return {ProgramSize::of(made.first), true, made.first.refusal.text != nullptr};
  }
  /// The recorded program as a constant.
  template <ProgramSize Room> static constexpr FrozenProgram<Room> freeze() {
    bool simplified = false;
    const std::pair<Module, int> made = record_and_simplify(simplified);
    return FrozenProgram<Room>(made.first, made.second, simplified);
  }
};

namespace detail {

/// Reports that the compiler's limit on constant expressions was reached, and what to do about it.
template <bool Ended> struct ExplainSteps {
  using Checks = decltype([] {
    static_assert(Ended, "tessera: the program has too many operations for the compiler's limit on constant "
                         "expressions; write repeated layers as a ts::Stack, or raise the limit: "
                         "-fconstexpr-steps=8388608 for clang, -fconstexpr-ops-limit=268435456 for g++");
  });
};

// Recording takes most of what a program costs, so a function is recorded twice: once for its size, which also says
// whether it can be traced, and once into arrays of that size. The first is a default template argument, since for a
// variable whose evaluation fails compilers report an error at once.
template <class T, TracedSize Size = T::size()> constexpr TracedSize size_if_recordable(int) { return Size; }
template <class T> constexpr TracedSize size_if_recordable(long) { return {}; }
template <class T> inline constexpr TracedSize traced_size = size_if_recordable<T>(0);

/// The recorded program; simplified if it is small.
template <class T, ProgramSize Room> inline constexpr FrozenProgram<Room> recorded = T::template freeze<Room>();

/// A recorded program, simplified.
template <class T, ProgramSize From, ProgramSize Room>
inline constexpr FrozenProgram<Room> simplified_program = [] {
  const FrozenProgram<From>& from = recorded<T, From>;
  Module made;
  made.graphs = simplified([&](int g) { return from.graph(g); });
  for (int s = 0; s < from.used.specs; ++s) made.specs.push_back(from.specs[s]);
  for (int k = 0; k < from.output_begin[1]; ++k) made.results_in_layers.push_back(from.results_in_layers[k]);
  return FrozenProgram<Room>(made, from.argument_count, true);
}();

template <class T> constexpr const auto& whole_trace() { return recorded<T, traced_size<T>.used>; }
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

/// Whether tracing F succeeds.
template <class T>
concept Recordable = traced_size<T>.recorded;
/// Whether tracing F as an outline succeeds.
template <class T>
concept Outlined = requires { typename Constant<T::outline()>; };
/// Whether F can be traced: tracing succeeds and no operation refused its operands.
template <class T>
concept Traceable = Recordable<T> && !traced_size<T>.refused;

/// A simplified program in arrays of its size.
template <class T> inline constexpr FrozenProgram<simplified_trace<T>().used> fitted_program{simplified_trace<T>()};
template <class T> constexpr const auto& fitted_trace() {
  if constexpr (whole_trace<T>().simplified)
    return whole_trace<T>();
  else
    return fitted_program<T>;
}

template <class T> struct TracedProgram {
  static constexpr const auto& frozen = fitted_trace<T>();
};
/// An empty program, in place of one that can't be traced, so that no errors follow from the first.
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

/// A function with fewer operations than this does not exceed the compiler's limits because of its length.
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
/// The message of a Refusal and its line, as a template argument, which compilers print. clang prints at most 36
/// characters of an array, so the text is split into rows between words.
template <std::size_t Rows> struct Rule {
  char rows[Rows + 1][37]{};
  std::uint32_t line = 0;
};
/// The message of a Refusal with what is given, in one piece.
template <std::size_t Size> struct JoinedText {
  char letters[Size]{};
  constexpr JoinedText(std::string_view text, std::string_view given) {
    std::size_t at = 0;
    for (const std::string_view part : {text, std::string_view(": "), given})
      for (std::size_t i = 0; i < part.size() && at < Size; ++i) letters[at++] = part[i];
  }
  constexpr std::string_view view() const { return {letters, Size}; }
};
/// How many characters of the text go into the first row, with the space after the last word.
constexpr std::size_t row_size(std::string_view text) {
  return text.size() <= 36 ? text.size() : text.substr(0, 36).rfind(' ') + 1;
}
template <class T, TraceFault Fault> constexpr auto rule_of() {
  if constexpr (Fault == TraceFault::refusal) {
    constexpr Refusal refusal = whole_trace<T>().refusal;
    constexpr std::string_view said = refusal.text, given = refusal.given;
    constexpr std::size_t size = said.size() + (given.empty() ? 0 : 2 + given.size());
    constexpr JoinedText<size> text(said, given);
    constexpr std::size_t count = [](std::string_view rest) {
      std::size_t rows = 0;
      for (; !rest.empty(); ++rows) rest.remove_prefix(row_size(rest));
      return rows;
    }(text.view());
    Rule<count - 1> rule;
    rule.line = refusal.line;
    std::string_view rest = text.view();
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

/// The program of a function for arguments of these types, traced once, by the compiler.
///
/// All errors about a function are reported from this class rather than from helper types, since compilers list what
/// they were instantiating: the list stays short. The assertions are in a lambda, since clang would reject every use of
/// a class whose own assertion failed.
template <class F, class... Args> struct Traced {
  using Recorded = Trace<F, Args...>;
  static constexpr bool takes =
      detail::TraceableFunction<F> && (Model<typename detail::TracedArgument<Args>::type> && ...);
  using Explained = std::integral_constant<std::size_t, (sizeof(detail::ExplainFunction<F>) + ... +
                                                         sizeof(detail::ExplainArgument<Args>))>;
  using Function = detail::Callable<takes, F, sizeof...(Args)>;
  // The call is tried before anything else uses it: after an error in a function, compilers go on with an int, and
  // report errors that follow from it.
  using Result = detail::ResultOf<typename detail::ReturnedBy<requires {
    std::declval<Function>()(std::declval<typename detail::TracedArgument<Args>::type&>()...);
  }, Function, typename detail::TracedArgument<Args>::type...>::type>;
  /// Whether the program exists; if not, a static_assert has said why.
  static constexpr bool valid = Result::valid;
  using result = typename Result::type;

  static constexpr detail::TraceFault fault = detail::fault_of<Recorded, valid>();
  using ExplainedTrace = decltype([] {
    using enum detail::TraceFault;
    constexpr bool is_constexpr = fault != call, is_known = fault != operation;
    static_assert(
        detail::is_kept<detail::rule_of<Recorded, fault>()>,
        "tessera: an operation of the traced function breaks the rule in quotes; the number after the rule is "
        "the line of the call. If there is an error above this one, correct that error first");
    (void)sizeof(detail::ExplainSteps<fault != length>);
    static_assert(is_constexpr,
                  "tessera: the traced function calls a function that is not constexpr; add constexpr to the function "
                  "that the next error names. If the next error is about a limit of steps, write repeated layers as a "
                  "ts::Stack; if there is an error above this one, correct that error first");
    static_assert(
        is_known,
        "tessera: the traced function is not a constant expression, for the reason in the next error; "
        "pass tensors to the function as arguments. If the next error is about a limit of steps, the function "
        "and its gradients have too many operations: raise the limit as docs/build_times.md says");
    if constexpr (fault == call || fault == operation)
      static_assert(
          typename Recorded::Call{detail::BoundArguments<typename Recorded::arguments>(fault == call)}.returns);
  });

  using Program = std::conditional_t<fault == detail::TraceFault::none, detail::TracedProgram<Recorded>,
                                     detail::NoProgram<Recorded, takes>>;
  static constexpr const auto& frozen = Program::frozen;
  static constexpr auto graphs = []<std::size_t... G>(std::index_sequence<G...>) {
    return std::array<GraphView, sizeof...(G)>{frozen.graph(static_cast<int>(G))...};
  }(std::make_index_sequence<static_cast<std::size_t>(frozen.used.graphs)>{});

  static constexpr ProgramView program() {
    return {graphs.data(),     static_cast<int>(graphs.size()), frozen.specs, frozen.argument_count,
            frozen.used.specs, frozen.results_in_layers};
  }
};

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
