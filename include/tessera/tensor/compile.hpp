#ifndef TESSERA_TENSOR_COMPILE_HPP
#define TESSERA_TENSOR_COMPILE_HPP

#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/partition/plan.hpp>
#include <tessera/partition/static_plan.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/program.hpp>
#include <tessera/tensor/recent_calls.hpp>

namespace tessera {

namespace detail {
/// An expression given to a compiled function is computed first. A floating-point number can only be a Scalar; an
/// integer could be a Dim as well, so its caller says which.
template <class A> decltype(auto) as_argument(A&& argument) {
  if constexpr (ExprOperand<std::remove_cvref_t<A>>)
    return eval(argument);
  else if constexpr (std::is_floating_point_v<std::remove_cvref_t<A>>)
    return Scalar(static_cast<double>(argument));
  else
    return std::forward<A>(argument);
}
template <class A> using argument_t = std::remove_cvref_t<decltype(as_argument(std::declval<A>()))>;
}  // namespace detail

/// A function traced by the compiler, planned for the shapes and shardings it is called with, and run.
template <class F> class Compiled {
 public:
  constexpr explicit Compiled(Source source = {}, const PlanOptions& options = {})
      : source_(source), options_(options) {}

  template <class... Args> using traced = Traced<F, detail::argument_t<Args>...>;

  // A call with numbers, and one that can't be traced, for which it is enough that the compiler has said why.
  template <class... Args>
    requires((std::is_floating_point_v<std::remove_cvref_t<Args>> || ...))
  typename traced<Args...>::result operator()(Args&&... args) const {
    return (*this)(as_scalar(std::forward<Args>(args))...);
  }
  template <class... Args>
    requires(!(std::is_floating_point_v<std::remove_cvref_t<Args>> || ...) && !traced<Args...>::valid)
  detail::NoResult operator()(Args&&...) const {
    return {};
  }

  /// Runs the function. The first call with new shapes, shardings, Dims or mesh plans it; later ones find the plan.
  /// Arguments that are moved in give up their memory: results take it over where they can, so that a step of training
  /// updates parameters in place. When the call throws before it has run, they are as they were.
  template <class... Args> typename traced<Args...>::result operator()(Args&&... args) const {
    using Result = typename traced<Args...>::result;
    std::vector<Leaf> leaves;
    runtime::Executable* executable = nullptr;
    if constexpr (takes_tensors<Args...> && StoredOperand<Result>) {
      static constinit thread_local detail::RecentCalls<sizeof...(Args)> recent;
      detail::PlainArguments<sizeof...(Args)> arguments;
      (arguments.leaf(args), ...);
      executable = asks_nothing() ? recent.find(arguments) : nullptr;
      if (executable != nullptr) {
        detail::cache_of<traced<Args...>>().count_hit();
      } else {
        executable = &find<traced<Args...>>(leaves, args...);
        if (asks_nothing()) recent.add(arguments, *executable);
      }
      if (executable->is_plain()) try {
          return Result(detail::run_plain(*executable, arguments.tensors, arguments.numbers));
        } catch (const error& e) {
          detail::rethrow_with_line(e, in_a_call, source_);
        }
    } else {
      executable = &find<traced<Args...>>(leaves, args...);
    }
    (give_up<Args>(args), ...);
    std::vector<Leaf> results;
    try {
      results = detail::run_executable(*executable, leaves);
    } catch (...) {
      detail::RestoreLeaves restore{leaves};
      (give_back<Args>(args, restore), ...);
      try {
        throw;
      } catch (const error& e) {
        detail::rethrow_with_line(e, in_a_call, source_);
      }
    }
    return detail::unflatten<Result>(results);
  }

  /// The plan of a call, without running it.
  template <class... Args> const Plan& plan(const Args&... args) const {
    std::vector<Leaf> leaves;
    return find<traced<const Args&...>>(leaves, args...).plan();
  }
  /// The plan as text: kernels, collectives, bytes, source lines, and what multiplies matrices on this processor.
  template <class... Args> std::string explain(const Args&... args) const {
    const CompiledProgram compiled = detail::ProgramCode<traced<const Args&...>>::compiled();
    return detail::explain_here(plan(args...), compiled);
  }
  /// Of the plans for arguments of these types.
  template <class... Args> CacheStatistics cache_statistics() const {
    return detail::cache_of<Traced<F, Args...>>().statistics();
  }

 private:
  Source source_;
  PlanOptions options_;

  /// A call has no line of its own: errors that know of none say where the function was compiled.
  static constexpr std::string_view in_a_call = ", in a call of the function compiled at ";

  template <class A> static decltype(auto) as_scalar(A&& argument) {
    if constexpr (std::is_floating_point_v<std::remove_cvref_t<A>>)
      return Scalar(static_cast<double>(argument));
    else
      return std::forward<A>(argument);
  }
  template <class A> static constexpr bool moved_in = !std::is_reference_v<A> && !std::is_const_v<A> && !ExprOperand<A>;
  /// Whether the arguments of a call are tensors and numbers, all of them lent.
  template <class... Args>
  static constexpr bool takes_tensors = sizeof...(Args) > 0 &&
                                        ((StoredOperand<std::remove_cvref_t<Args>> ||
                                          NumberOperand<std::remove_cvref_t<Args>>)&&...) &&
                                        !((StoredOperand<std::remove_cvref_t<Args>> && moved_in<Args>) || ...);

  bool asks_nothing() const {
    return options_.outputs == nullptr && !options_.forbid_unasked_reshards && options_.explicit_axes.empty() &&
           !options_.deterministic;
  }

  /// The executable for these arguments, and their leaves.
  template <class T, class... Args> runtime::Executable& find(std::vector<Leaf>& leaves, const Args&... args) const {
    try {
      detail::CollectLeaves collect;
      (add(collect, detail::as_argument(args)), ...);
      leaves = std::move(collect.leaves);
      return detail::executable_for<T>(leaves, options_);
    } catch (const error& e) {
      detail::rethrow_with_line(e, in_a_call, source_);
    }
  }
  template <class A> static void give_up(auto& argument) {
    if constexpr (moved_in<A>) {
      detail::ReleaseLeaves release;
      for_each_leaf(argument, release);
    }
  }
  template <class A> static void give_back(auto& argument, detail::RestoreLeaves& restore) {
    if constexpr (ExprOperand<std::remove_cvref_t<A>>)
      ++restore.cursor;  // one leaf: what it was evaluated to
    else
      for_each_leaf(argument, restore.passing(!moved_in<A>));
  }
  template <class A> static void add(detail::CollectLeaves& collect, const A& argument) {
    collect.cursor = collect.leaves.size();
    for_each_leaf(argument, collect);
    collect.cursor = collect.leaves.size();
  }
};

namespace detail {
template <class F> struct PlannedFunction<Compiled<F>> {
  using type = F;
};
}  // namespace detail

/// Makes a function of tensors, models, Dims and Scalars into a program. The function captures nothing; it is run once,
/// by the C++ compiler, to record what it computes.
/// `options` say what a plan of it must not do.
template <class F> constexpr Compiled<F> compile(F, const PlanOptions& options, Here at = Here::current()) {
  (void)sizeof(detail::ExplainFunction<F>);
  return Compiled<F>(Source::from(at), options);
}
template <class F> constexpr Compiled<F> compile(F f, Here at = Here::current()) {
  return compile(f, PlanOptions{}, at);
}

}  // namespace tessera

#endif
