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

/// The type that a traced function gets for an argument: a Sym for a tensor; a struct stays, holding placeholders.
template <class A> struct TracedArgument {
  using type = A;
};
template <class T, int R> struct TracedArgument<ShardedTensor<T, R>> {
  using type = Sym<T, R>;
};

/// The type that the caller gets for a result.
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

/// Reports why a function can't be traced by its type, once for all uses.
template <class F> struct ExplainFunction {
  static constexpr bool is_class = std::is_class_v<F>, is_empty = !is_class || std::is_empty_v<F>;
  using Checks = decltype([] {
    static_assert(is_class, "tessera: a pointer to a function can't be traced; wrap the function in a lambda: "
                            "[](const auto&... x) { return f(x...); }");
    static_assert(
        is_empty,
        "tessera: a traced function can't capture variables; pass them as arguments. A function F without state is "
        "no argument: write F{} where it is called");
    static_assert(!is_empty || !is_class || std::is_default_constructible_v<F>,
                  "tessera: a traced function can't capture variables; write [] instead of [&] or [=]");
  });
};

/// The result of a trace that failed. It converts to anything, so that no further errors follow.
struct NoResult {
  template <class T> operator T() const;
  template <class Index> NoResult operator[](const Index&) const;
};
/// In arithmetic it gives itself.
template <class T>
concept WithNoResult = !std::is_same_v<T, NoResult>;
NoResult operator-(const NoResult&);
template <WithNoResult T> NoResult operator+(const NoResult&, const T&);
template <WithNoResult T> NoResult operator+(const T&, const NoResult&);
template <WithNoResult T> NoResult operator-(const NoResult&, const T&);
template <WithNoResult T> NoResult operator-(const T&, const NoResult&);
template <WithNoResult T> NoResult operator*(const NoResult&, const T&);
template <WithNoResult T> NoResult operator*(const T&, const NoResult&);
template <WithNoResult T> NoResult operator/(const NoResult&, const T&);
template <WithNoResult T> NoResult operator/(const T&, const NoResult&);
/// The result of a function called with arguments that it does not take.
struct NoCall : NoResult {};
/// In place of a function that can't be traced.
struct NoFunction {
  NoResult operator()(...) const;
};
/// F with a fallback for arguments that it does not take.
template <class F> struct AnyCall : F {
  using F::operator();
  NoCall operator()(...) const;
};

/// The function to call in order to deduce the type of a result.
template <bool Takes, class F, std::size_t Arguments>
using Callable =
    std::conditional_t<!Takes, NoFunction, std::conditional_t<Arguments == 0 || std::is_final_v<F>, F, AnyCall<F>>>;
/// The type that a call returns; of a call with an error, which the compiler has reported, NoResult.
template <bool Sound, class F, class... Args> struct ReturnedBy {
  using type = NoResult;
};
template <class F, class... Args> struct ReturnedBy<true, F, Args...> {
  using type = decltype(std::declval<F>()(std::declval<Args&>()...));
};
template <bool Sound, class F, class... Args>
using returned_t = std::remove_cvref_t<typename ReturnedBy<Sound, const F&, Args...>::type>;
/// Reports what is wrong with the type of an argument.
template <class A> using ExplainArgument = ExplainField<typename FaultyField<typename TracedArgument<A>::type>::type>;

/// The type that the caller gets for a traced function that returns a `Given`; reports what is wrong with that type.
template <class Given> struct ResultOf {
  static constexpr bool is_taken = !std::is_same_v<Given, NoCall>, is_returned = !std::is_void_v<Given>;
  using settled = decltype(settle(std::declval<std::conditional_t<is_returned, Given, NoResult>>()));
  /// Whether the caller gets a result.
  static constexpr bool valid = !std::is_base_of_v<NoResult, settled> && Model<settled>;
  using type = typename std::conditional_t<valid, FinalResult<settled>, std::type_identity<NoResult>>::type;
  using Checks = decltype([] {
    static_assert(
        is_taken,
        "tessera: the traced function can't be called with these arguments; compare their number and types with "
        "its parameters");
    static_assert(is_returned,
                  "tessera: the traced function returns nothing; add a return statement; after an error in "
                  "the function itself, this only follows from it");
    (void)sizeof(ExplainField<typename FaultyField<settled>::type>);
  });
};

}  // namespace tessera::detail

#include <tessera/base/pop_macros.hpp>

#endif
