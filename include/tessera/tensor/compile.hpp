#ifndef TESSERA_TENSOR_COMPILE_HPP
#define TESSERA_TENSOR_COMPILE_HPP
#include <tessera/base/push_macros.hpp>

#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/nested_call.hpp>
#include <tessera/kernels/build_info.hpp>
#include <tessera/partition/plan/plan.hpp>
#include <tessera/partition/plan/static_plan.hpp>
#include <tessera/tensor/evaluate.hpp>
#include <tessera/tensor/key.hpp>
#include <tessera/tensor/program/program.hpp>
#include <tessera/tensor/program/recent_calls.hpp>

namespace tessera {

namespace detail {
/// A floating-point argument of a compiled function becomes a Scalar, and so does a Key. An integer could be a Dim or a
/// Scalar, so the caller must write one of them.
template <class A>
inline constexpr bool becomes_scalar_v =
    std::is_floating_point_v<std::remove_cvref_t<A>> || std::is_same_v<std::remove_cvref_t<A>, Key>;
template <class A> constexpr decltype(auto) as_scalar_argument(A&& argument) {
  if constexpr (std::is_floating_point_v<std::remove_cvref_t<A>>)
    return Scalar(static_cast<double>(argument));
  else if constexpr (becomes_scalar_v<A>)
    return Scalar(static_cast<std::int64_t>(argument.seed));
  else
    return std::forward<A>(argument);
}
/// An expression that is passed to a compiled function is evaluated before the call.
template <class A> decltype(auto) as_argument(A&& argument) {
  if constexpr (ExprOperand<std::remove_cvref_t<A>>)
    return eval(argument);
  else
    return as_scalar_argument(std::forward<A>(argument));
}
template <class A> using argument_t = std::remove_cvref_t<decltype(as_argument(std::declval<A>()))>;

/// Reports a result that no one can store.
template <class Result> struct ExplainSymResult {
  static constexpr bool is_stored = !holds_sym_v<Result>;
  using Checks = decltype([] {
    static_assert(is_stored,
                  "tessera: a struct in the result of the traced function has a ts::Sym as a field, which exists only "
                  "while the function is traced; declare the field as a ts::ShardedTensor, to which a Sym converts");
  });
};
}  // namespace detail

/// A function traced by the compiler, planned for the shapes and shardings it is called with, and run.
template <class F> class Compiled {
 public:
  constexpr explicit Compiled(Source source = {}, const PlanOptions& options = {})
      : source_(source), options_(options) {}

  template <class... Args> using traced = Traced<F, detail::argument_t<Args>...>;

  /// Runs the function. In a traced function the call is inlined, like a nested jax.jit: it is differentiated and fused
  /// with the code around it, and the options of the outermost function apply.
  template <class... Args> constexpr auto operator()(Args&&... args) const {
    if constexpr (!(Model<detail::argument_t<Args>> && ...)) {
      // Instantiated here because the compiler's list of nested instantiations is shortest here.
      (void)(sizeof(detail::ExplainField<typename detail::FaultyField<detail::argument_t<Args>>::type>) + ...);
      return detail::NoResult{};
    } else if constexpr ((detail::becomes_scalar_v<Args> || ...)) {
      return (*this)(detail::as_scalar_argument(std::forward<Args>(args))...);
    } else if constexpr ((detail::holds_sym_v<std::remove_cvref_t<Args>> || ...)) {
      return detail::call_in_trace<F>(args...);
    } else {
      // The check of Traced, made here first: compilers list fewer instantiations with an error in the user's function,
      // and none follows from it.
      using Function = detail::Callable<detail::TraceableFunction<F>, F, sizeof...(Args)>;
      constexpr bool sound = requires {
        std::declval<Function>()(std::declval<typename detail::TracedArgument<detail::argument_t<Args>>::type&>()...);
      };
      if constexpr (!sound) {
        return detail::NoResult{};
      } else if constexpr (!traced<Args...>::valid) {
        return detail::NoResult{};  // the declaration above gave the compile error
      } else if constexpr (detail::holds_sym_v<typename traced<Args...>::result>) {
        (void)sizeof(detail::ExplainSymResult<typename traced<Args...>::result>);
        return detail::NoResult{};
      } else {
        // Traces run only during constant evaluation, so a call at run time pays nothing for this branch. The built-in
        // function, since compilers would compile all traced functions for a branch on std::is_constant_evaluated().
        if (__builtin_is_constant_evaluated())
          if ((detail::holds_placeholders(args) || ...))
            return detail::as_final<typename traced<Args...>::result>(detail::call_in_trace<F>(args...));
        return run(std::forward<Args>(args)...);
      }
    }
  }

  /// Runs the function. The first call with new shapes, shardings, Dims or mesh makes a plan; later calls use it.
  /// Arguments passed by std::move are donated (JAX: donate_argnums): results reuse their memory where possible, so
  /// that a training step updates parameters in place. If the call throws before it writes into donated memory, all
  /// arguments are unchanged; if it throws later, all donated tensors are empty.
  template <class... Args> typename traced<Args...>::result run(Args&&... args) const {
    using Result = typename traced<Args...>::result;
    Growable<Leaf> leaves;
    detail::PlanLease plan;
    if constexpr (takes_tensors<Args...> && StoredOperand<Result>) {
      static constinit thread_local detail::RecentCalls<sizeof...(Args)> recent;
      detail::PlainArguments<sizeof...(Args)> arguments;
      (arguments.leaf(args), ...);
      if (asks_nothing()) plan = recent.find(arguments);
      if (plan) {
        detail::cache_of<traced<Args...>>().count_hit();
      } else {
        plan = find<traced<Args...>>(leaves, args...);
        if (asks_nothing()) recent.add(arguments, plan);
      }
      if (detail::is_plain(*plan)) try {
          return Result(detail::run_plain(*plan, arguments.tensors, arguments.numbers, source_));
        } catch (const error& e) {
          detail::rethrow_with_line(e, in_a_call, source_);
        }
    } else {
      plan = find<traced<Args...>>(leaves, args...);
    }
    bool given_up = false;
    const auto give_up_all = [&] {
      (give_up<Args>(args), ...);
      given_up = true;
    };
    try {
      return detail::run_into<Result>(*plan, leaves, give_up_all, source_);
    } catch (...) {
      if (given_up && !detail::overwrote(*plan)) {
        detail::RestoreLeaves restore{leaves};
        (give_back<Args>(args, restore), ...);
      }
      try {
        throw;
      } catch (const error& e) {
        detail::rethrow_with_line(e, in_a_call, source_);
      }
    }
  }

  /// The plan of a call, without running it.
  template <class... Args> Plan plan(const Args&... args) const {
    Growable<Leaf> leaves;
    return detail::plan_of(*find<traced<const Args&...>>(leaves, args...));
  }
  /// The plan as text: kernels, collectives, bytes, source lines, the library that computes matrix products, and the
  /// instructions that the rest is compiled for.
  template <class... Args> std::string explain(const Args&... args) const {
    const CompiledProgram compiled = detail::ProgramCode<traced<const Args&...>>::compiled();
    return detail::explain_here(plan(args...), compiled, build_info());
  }
  /// Statistics of the cached plans for arguments of these types.
  template <class... Args> CacheStatistics cache_statistics() const {
    return detail::cache_of<Traced<F, Args...>>().statistics();
  }
  /// Drops the cached plans for arguments of these types, except plans that are running.
  template <class... Args> void clear_cache() const {
    detail::PlanCache::instance().clear(&detail::cache_of<Traced<F, Args...>>());
  }

 private:
  Source source_;
  PlanOptions options_;

  /// operator() takes a parameter pack, so it cannot record its caller's line: errors without a source line name the
  /// line of ts::compile.
  static constexpr std::string_view in_a_call = ", in a call of the function compiled";

  template <class A> static constexpr bool moved_in = !std::is_reference_v<A> && !std::is_const_v<A> && !ExprOperand<A>;
  /// Whether all arguments of a call are tensors, Dims or Scalars, and none of them is donated.
  template <class... Args>
  static constexpr bool takes_tensors = sizeof...(Args) > 0 &&
                                        ((StoredOperand<std::remove_cvref_t<Args>> ||
                                          NumberOperand<std::remove_cvref_t<Args>>)&&...) &&
                                        !((StoredOperand<std::remove_cvref_t<Args>> && moved_in<Args>) || ...);

  /// RecentCalls compares only arguments, so a function with options doesn't use it.
  bool asks_nothing() const {
    return options_.outputs == nullptr && !options_.forbid_implicit_reshards && options_.explicit_axes.empty() &&
           !options_.deterministic && options_.fuse_steps && options_.sizes == nullptr;
  }

  /// The plan for these arguments, and their leaves.
  template <class T, class... Args> detail::PlanLease find(Growable<Leaf>& leaves, const Args&... args) const {
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
      ++restore.cursor;  // an expression argument is one leaf, its value
    else
      for_each_leaf(argument, restore.passing(!moved_in<A>));
  }
  template <class A> static void add(detail::CollectLeaves& collect, const A& argument) {
    collect.cursor = collect.leaves.size();
    if constexpr (!detail::is_leaf_v<A>) collect.argument.name_of_leaf = detail::name_of_leaf<A>;
    collect.argument.object = &argument;
    for_each_leaf(argument, collect);
    collect.cursor = collect.leaves.size();
    collect.argument = {.position = collect.argument.position + 1};
  }
};

namespace detail {
template <class F> struct PlannedFunction<Compiled<F>> {
  using type = F;
};
}  // namespace detail

/// Compiles a function of tensors, models, Dims and Scalars, as jax.jit does. The function must not capture anything:
/// the C++ compiler traces it once, at compile time. `options` restrict its plans, for example to plans without
/// implicit reshards. Communication: see `compiled.explain(arguments...)` for that of a call.
template <class F> constexpr Compiled<F> compile(F, const PlanOptions& options, Here at = Here::current()) {
  (void)sizeof(detail::ExplainFunction<F>);
  return Compiled<F>(Source::from(at), options);
}
template <class F> constexpr Compiled<F> compile(F, Here at = Here::current()) {
  (void)sizeof(detail::ExplainFunction<F>);
  return Compiled<F>(Source::from(at), PlanOptions{});
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
