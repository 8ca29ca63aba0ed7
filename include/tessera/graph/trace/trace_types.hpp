#ifndef TESSERA_GRAPH_TRACE_TRACE_TYPES_HPP
#define TESSERA_GRAPH_TRACE_TRACE_TYPES_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/settle.hpp>

namespace tessera::detail {

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
  using Said = decltype([] {
    static_assert(is_class, "tessera: a function is traced by its type, which a pointer does not have; wrap it in a "
                            "lambda: [](const auto&... x) { return f(x...); }");
    static_assert(is_empty, "tessera: a traced function must not capture anything; pass what it needs as arguments");
    static_assert(!is_empty || !is_class || std::is_default_constructible_v<F>,
                  "tessera: a traced function must not capture anything; write [] in place of [&] or [=]");
  });
};

/// What a trace that can't be made gives. It converts to anything, so that the first message is the only one.
struct NoResult {
  template <class T> operator T() const;
};
/// What a function gives that takes other arguments than these.
struct NoCall : NoResult {};
/// In place of a function that can't be traced.
struct NoFunction {
  NoResult operator()(...) const;
};
/// A function that takes any arguments besides its own. To call it says no more than is wrong in the function, where a
/// requires-expression adds lines of its own to that.
template <class F> struct AnyCall : F {
  using F::operator();
  NoCall operator()(...) const;
};

/// What is called to learn the type of a result.
template <bool Takes, class F, std::size_t Arguments>
using Callable =
    std::conditional_t<!Takes, NoFunction, std::conditional_t<Arguments == 0 || std::is_final_v<F>, F, AnyCall<F>>>;
/// Says what is wrong with the type of an argument.
template <class A> using ExplainArgument = ExplainPart<typename FaultyPart<typename TracedArgument<A>::type>::type>;

/// What the caller of a function gets that returns a `Given`; says what is wrong with it.
template <class Given> struct ResultOf {
  static constexpr bool is_taken = !std::is_same_v<Given, NoCall>, is_returned = !std::is_void_v<Given>;
  using settled = decltype(settle(std::declval<std::conditional_t<is_returned, Given, NoResult>>()));
  /// Whether there is one.
  static constexpr bool valid = !std::is_base_of_v<NoResult, settled> && Model<settled>;
  using type = typename std::conditional_t<valid, FinalResult<settled>, std::type_identity<NoResult>>::type;
  using Said = decltype([] {
    static_assert(is_taken,
                  "tessera: the traced function does not take as many arguments as it is given here, or takes "
                  "other types");
    static_assert(is_returned, "tessera: the traced function returns nothing; it lacks a return");
    (void)sizeof(ExplainPart<typename FaultyPart<settled>::type>);
  });
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
