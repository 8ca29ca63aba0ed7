#ifndef TESSERA_OPS_COND_HPP
#define TESSERA_OPS_COND_HPP
#include <tessera/base/push_macros.hpp>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/elementwise/composition.hpp>

namespace tessera {

namespace detail {

/// Replaces the tensors of a structure by what the only step of a repeat returned for them.
struct OnlyStep {
  const Value& made;
  const BodyTrace& body;
  int graph;
  int next = 0;

  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) replace_leaf(leaf, next_value());
  }
  constexpr Value next_value() {
    const Graph& own = made.module->graph(graph);
    const Node type = build::stacked_type(own[own.outputs[static_cast<std::size_t>(next)]]);
    const Value all = build::project(made, next++, type);
    return build::drop_singletons(build::slice(all, 0, made.integer(0, DType::i64), made.integer(1, DType::i64)), 1u);
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// Runs a branch if `runs` is 1; its results are zeros if it is 0.
template <class Like, class Branch> constexpr auto run_branch(const Value& runs, const Branch& branch) {
  BodyTrace body(*runs.module, {.scan = true});
  const Value inside{runs.module, runs.module->current, -1, runs.source};
  auto result = as_carry<Like>(inside, branch());
  GiveLeaves give{body, false};
  for_each_leaf(std::as_const(result), give);
  Growable<bool> computed;  // Scalars that only the branch can compute
  for_each_number(std::as_const(result), [&](const auto& number, std::size_t) {
    const Value own = number.placeholder();
    computed.push_back(number.traced() && own.graph == inside.graph && !is_host_number(own));
    if (computed[computed.size() - 1]) body.give(build::cast(own, DType::f64));
  });
  const Value made = body.close(runs.integer(1, DType::i64), runs.source, runs);
  OnlyStep only{made, body, inside.graph};
  for_each_leaf(result, only);
  for_each_number(result, [&]<class Number>(Number& number, std::size_t k) {
    if (computed[k])
      number = Number(only.next_value());
    else if (number.traced())
      number = Number(body.number_outside(number.placeholder()));
  });
  return result;
}
/// f(carry) if `runs` is 1, else the carry.
template <class Like, class Carry, class F> constexpr Carry run_if(const Value& runs, const F& f, const Carry& carry) {
  Carry init = carry;
  const auto step = [&](const Value& inside, const Carry& carried, BodyTrace&) {
    return std::pair(widened<Carry>(as_carry<Like>(inside, f(carried))), std::tuple());
  };
  return trace_carry<Like>(runs, {.scan = true}, init, step,
                           [&](BodyTrace& body, const Value&, const auto&, const ChangingScalars& scalars) {
                             const Value made = body.close(runs.integer(1, DType::i64), runs.source, runs);
                             Carry last = init;
                             ProjectLeaves project{made, body};
                             for_each_leaf(last, project);
                             scalars.project(made, project.next, last);
                             return last;
                           });
}

/// The value of a condition or an index, which is the same on all devices.
template <class X> constexpr Value lower_shared(const Value& context, const X& x) {
  if constexpr (LocalOperand<X>)
    return x.shared().at(context.source);
  else
    return lower(context, x);
}
/// On each device of a shard_map `yes` where the condition holds, else `no`.
template <class Condition> struct SelectLeaves {
  const Condition& condition;
  const Growable<Value>& no;
  std::size_t next = 0;
  bool in_stack = false;
  template <class Leaf> constexpr void leaf(Leaf& yes) {
    if constexpr (StoredOperand<Leaf>)
      if (in_stack) {
        replace_leaf(yes, of_layers(yes, no[next++]));
        return;
      }
    if constexpr (TensorOperand<Leaf>) {
      const auto own = as_local<Condition>(yes);
      using Own = std::remove_const_t<decltype(own)>;
      yes = Leaf(as_sym(call<SelectTag>(own.value.source, condition, own, Own(no[next++]))));
    }
  }
  constexpr void enter_stack(const auto&) { in_stack = true; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }

 private:
  /// Of all layers, whose dim is in front of those of devices.
  template <class Leaf> constexpr Value of_layers(const Leaf& yes, const Value& otherwise) const {
    const Value layers = here(Condition::of_field(yes, condition.value.source).value);
    const Value holds = here(condition.with_dims_for(Condition::region::all)).at(condition.value.source);
    const unsigned of_devices = ((1u << holds.rank()) - 1) << 1, all = (1u << layers.rank()) - 1;
    return build::select(build::insert_singletons(holds, all & ~of_devices, layers.rank()), layers, otherwise);
  }
};
template <class Result, LocalOperand Condition>
constexpr Result selected(const Condition& condition, const Result& yes, const Result& no) {
  ListTensors list;
  for_each_leaf(no, list);
  Result made = yes;
  SelectLeaves<Condition> select{condition, list.values};
  for_each_leaf(made, select);
  return made;
}

/// f(carry) where the condition holds, else the carry. It may hold Stacks.
template <class Condition, class F, class Carry>
constexpr Carry run_where(const Condition& condition, const F& f, const Carry& carry, Source source) {
  using Like = local_in_t<Condition, Carry>;
  Value context = trace_in(carry);
  if (context.module == nullptr) context = trace_in(condition);  // a carry without tensors
  context = context.at(source);
  if constexpr (LocalOperand<Condition>)
    if (condition.differing() != 0) {  // the loop goes on until the condition holds on no device
      const auto holds = call<CastTag<bool>>(source, condition);
      const auto own = [&](const Carry& carried) {
        const Value inside{context.module, context.module->current, -1, source};
        return selected(holds, widened<Carry>(as_carry<Like>(inside, f(carried))), carried);
      };
      return run_if<Like>(condition.on_any_device().at(source), own, carry);
    }
  return run_if<Like>(build::cast(lower_shared(context, condition), DType::i32), f, carry);
}

/// A branch that is chosen while the function is traced.
template <class Like, class Made, class Branch>
constexpr Made chosen_branch(const char* function, const char* called, Source source, const Branch& branch) {
  const auto result = branch();
  const Value context = trace_in(result);
  if (context.module == nullptr) fail_outside_of_trace(function, called, source);
  return widened<Made>(as_carry<Like>(context.at(source), result));
}

/// A rank-0 tensor, a Scalar or a Dim.
template <class X> constexpr bool is_number() {
  if constexpr (TensorOperand<X>)
    return X::rank == 0;
  else
    return std::is_same_v<X, Scalar> || std::is_same_v<X, Dim>;
}
/// What branches return together: tensors, or tuples, plain structs and Stacks of tensors.
template <class Result> inline constexpr bool is_branch_result_v = !holds_number_v<Result>;

/// The carry that the body of a ts::while_loop returns, where numbers of init may adapt to it.
template <class Like, class Body, class Init> struct ReturnedToLoop {
  using type = void;
};
template <class Like, class Body, class Init>
  requires(holds_literal_v<Init> && std::is_invocable_v<const Body&, const carry_t<Init, Like>&>)
struct ReturnedToLoop<Like, Body, Init> {
  using type = carry_t<std::remove_cvref_t<std::invoke_result_t<const Body&, const carry_t<Init, Like>&>>, Like>;
};

/// A step of a ts::while_loop.
template <class Pred, class Body, class Carry>
constexpr auto run_while(const Pred& pred, const Body& body, const Carry& carry, Source source) {
  using Like = local_in_t<Pred, Carry>;
  constexpr bool is_scalar = is_number<Pred>();
  static_assert(is_scalar, "tessera: the condition of ts::while_loop returns a rank-0 tensor, a Scalar or a Dim; of a "
                           "tensor with dims write whether ts::any<0>(x) or ts::all<0>(x) holds");
  using Result = returned_t<requires(const Carry& carried) { body(carried); }, Body, const Carry>;
  constexpr bool sound = !std::is_same_v<Result, NoResult>;  // else the compiler has reported an error in the body
  using Returned = carry_t<Result, Like>;
  constexpr bool same = sound && join_v<Carry, Returned>;
  if constexpr (sound && !same) {
    using Difference = CarryDifference<Carry, Returned>;
    check_carry<Difference::item, typename Difference::of_init, typename Difference::of_step>();
  }
  using Wider = varying_also_t<joined_t<Carry, Returned>, Pred>;
  if constexpr (is_scalar && same && std::is_same_v<Wider, Carry>)
    return run_where(pred, body, carry, source);
  else if constexpr (is_scalar && same)
    return widened<Wider>(carry);  // the scan then calls this with a carry that varies along these axes
  else
    return carry;  // an error has been reported
}

template <class Pred, class Yes, class No>
constexpr auto cond(const Pred& pred, const Yes& yes, const No& no, Source source) {
  constexpr bool is_constant = std::is_arithmetic_v<Pred>, is_scalar = is_constant || is_number<Pred>();
  static_assert(is_scalar,
                "tessera: the condition of ts::cond is a rank-0 tensor, a Scalar or a Dim; for a choice of each "
                "element, ts::select");
  using YesResult = returned_t<requires { yes(); }, Yes>;
  using NoResults = returned_t<requires { no(); }, No>;
  using Like = local_in_t<Pred, YesResult, NoResults>;
  using Result = carry_t<YesResult, Like>;
  using Other = carry_t<NoResults, Like>;
  constexpr bool sound = !std::is_same_v<Result, NoResult> && !std::is_same_v<Other, NoResult>;
  constexpr bool adapts = adapts_v<YesResult, Other> || adapts_v<NoResults, Result>;
  constexpr bool same = !sound || adapts || join_v<Result, Other>;
  static_assert(same,
                "tessera: the branches of ts::cond return different types; they return tensors of the same element "
                "types and ranks, in the same structure");
  constexpr bool is_flat = !sound || is_branch_result_v<Result>;
  static_assert(is_flat,
                "tessera: the branches of ts::cond return tensors, or a tuple, plain struct or ts::Stack of tensors, "
                "without Dims and Scalars, which a branch can't change; between two models or states "
                "ts::optim::keep_if(condition, after, before) chooses");
  if constexpr (!sound) {
    return NoResult();  // the compiler has reported an error in a branch
  } else if constexpr (adapts && is_scalar && is_flat) {
    // The trace of a constant condition is that of the branches.
    const Value outside = [&] {
      if constexpr (is_constant) {
        const Value of_yes = trace_in(yes());
        return of_yes.module != nullptr ? of_yes : trace_in(no());
      } else {
        return Value(turned(trace_of(pred)));
      }
    }();
    if (outside.module == nullptr) fail_outside_of_trace("cond", "ts::cond", source);
    const auto here_as = [&]<class To>(std::type_identity<To>, const auto& result) {
      return adapted<Like, To>(Value{outside.module, outside.module->current, -1, source}, result);
    };
    return cond(
        pred, [&] { return here_as(std::type_identity<Other>(), yes()); },
        [&] { return here_as(std::type_identity<Result>(), no()); }, source);
  } else if constexpr (is_constant && same && is_flat) {
    using Both = joined_t<Result, Other>;
    return pred != Pred(0) ? chosen_branch<Like, Both>("cond", "ts::cond", source, yes)
                           : chosen_branch<Like, Both>("cond", "ts::cond", source, no);
  } else if constexpr (is_scalar && same && is_flat) {
    using Both = varying_also_t<joined_t<Result, Other>, Pred>;
    Value context = turned(trace_of(pred));
    if (context.module == nullptr)
      fail(errc::unsupported, "[cond] outside of a trace: it is for values inside a traced function");
    context = context.at(source);
    if constexpr (LocalOperand<Pred>)
      if (pred.differing() != 0) {
        const Both made = widened<Both>(as_carry<Like>(context, yes()));
        return selected(call<CastTag<bool>>(source, pred), made, widened<Both>(as_carry<Like>(context, no())));
      }
    const Value holds = build::cast(lower_shared(context, pred), DType::bool_);
    const Value runs = build::cast(holds, DType::i32);
    const Both made = widened<Both>(run_branch<Like>(runs, yes));
    return run_if<Like>(
        runs.integer(1, DType::i32) - runs, [&](const auto&) { return no(); }, made);
  } else {
    return yes();
  }
}

/// switch_case of an index that is known only when the program runs.
template <class Like, class All, class Index, class First, class... Branches, class... Operands>
constexpr All switch_at(const Index& index, const std::tuple<First, Branches...>& branches,
                        const Operands&... operands) {
  const Value context = trace_in(index);
  if (context.module == nullptr)
    fail(errc::unsupported, "[switch_case] outside of a trace: it is for values inside a traced function");
  constexpr auto last = static_cast<int>(sizeof...(Branches));
  const auto is_chosen = [&](const Value& given, int branch) {
    const Value chosen = build::apply<ops::MinimumOp>(build::apply<ops::MaximumOp>(given, given.integer(0, DType::i32)),
                                                      given.integer(last, DType::i32));
    return build::equal(chosen, chosen.integer(branch, DType::i32));
  };
  if constexpr (LocalOperand<Index>)
    if (index.differing() != 0) {
      const Value given = build::cast(lower(context, index), DType::i32);
      All made = widened<All>(as_carry<Like>(context, std::get<0>(branches)(operands...)));
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        ((made = selected(
              typename Index::template with<bool, 0, Index::varying>(is_chosen(given, static_cast<int>(I) + 1)),
              widened<All>(as_carry<Like>(context, std::get<I + 1>(branches)(operands...))), made)),
         ...);
      }(std::index_sequence_for<Branches...>{});
      return made;
    }
  const Value given = build::cast(lower_shared(context, index), DType::i32);
  const auto runs = [&](int branch) { return build::cast(is_chosen(given, branch), DType::i32); };
  All made = widened<All>(run_branch<Like>(runs(0), [&] { return std::get<0>(branches)(operands...); }));
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((made = run_if<Like>(
          runs(static_cast<int>(I) + 1), [&](const auto&) { return std::get<I + 1>(branches)(operands...); }, made)),
     ...);
  }(std::index_sequence_for<Branches...>{});
  return made;
}

}  // namespace detail

/// `pred ? yes(operands...) : no(operands...)`, where only that branch runs: jax.lax.cond. `pred` is a rank-0 tensor, a
/// Scalar, a Dim, or a bool, with which that branch is traced alone; any number but 0 holds. Both branches return
/// tensors of the same element types, ranks and shapes, as a tensor or in a structure, which may have Stacks; a number
/// takes the element type of the other branch. They may
/// capture values of the traced function around them.
///
///     const auto y = ts::cond(step < warm_up, [&](const auto& v) { return v * 0.5; },
///                             [&](const auto& v) { return layers(v); }, x);
///
/// In a ts::vmap where `pred` differs between examples, both branches run for all examples, which select, as in JAX; a
/// branch that no example takes does not run. In a ts::shard_map where it differs between devices, all devices run both
/// branches and select: so collectives in them are safe.
/// Gradient: that of the branch that ran. Communication: that of the branch that runs; a plan counts both branches.
/// Errors: shape_mismatch for branches that return different shapes.
template <class Pred, class Yes, class No>
constexpr auto cond(const Pred& pred, const Yes& yes, const No& no, Here at = Here::current()) {
  return detail::cond(pred, yes, no, Source::from(at));
}
template <class Pred, class Yes, class No, class First, class... Rest>
  requires(!std::is_same_v<First, Here>)
constexpr auto cond(const Pred& pred, const Yes& yes, const No& no, const First& first, const Rest&... rest) {
  const Value context = detail::trace_in(pred);
  return detail::cond(
      pred, [&] { return yes(first, rest...); }, [&] { return no(first, rest...); },
      context.module != nullptr ? context.node().source : Source{});
}

/// `branches[index](operands...)`, where only that branch runs: jax.lax.switch, tf.switch_case. The index is a rank-0
/// tensor of integers, a Scalar, a Dim or an int, with which that branch is traced alone; below 0 the first branch
/// runs, above the last one the last. Otherwise as in ts::cond.
///
///     const auto y = ts::switch_case(layer % 3, std::tuple(attend, convolve, skip), x);   // functions of x
template <class Index, class First, class... Branches, class... Operands>
constexpr auto switch_case(const Index& index, const std::tuple<First, Branches...>& branches,
                           const Operands&... operands) {
  using Like = detail::local_in_t<Index, std::remove_cvref_t<std::invoke_result_t<First, const Operands&...>>,
                                  std::remove_cvref_t<std::invoke_result_t<Branches, const Operands&...>>...>;
  using Result = detail::carry_t<std::remove_cvref_t<std::invoke_result_t<First, const Operands&...>>, Like>;
  constexpr bool is_index = [] {
    if constexpr (TensorOperand<Index>)
      return detail::is_number<Index>() && !is_floating_v<typename Index::element>;
    else
      return std::is_integral_v<Index> || detail::is_number<Index>();
  }();
  static_assert(is_index,
                "tessera: the index of ts::switch_case is a rank-0 tensor of integers, a Scalar, a Dim or an int");
  constexpr bool same =
      (detail::join_v<Result,
                      detail::carry_t<std::remove_cvref_t<std::invoke_result_t<Branches, const Operands&...>>, Like>> &&
       ...);
  static_assert(same,
                "tessera: the branches of ts::switch_case return different types; they return tensors of the same "
                "element types and ranks, in the same structure");
  static_assert(
      detail::is_branch_result_v<Result>,
      "tessera: the branches of ts::switch_case return tensors, or a tuple, plain struct or ts::Stack of tensors, "
      "without Dims and Scalars, which a branch can't change");
  using All = detail::varying_also_t<
      detail::JoinedAll<
          Result, detail::carry_t<std::remove_cvref_t<std::invoke_result_t<Branches, const Operands&...>>, Like>...>,
      Index>;
  constexpr auto last = static_cast<int>(sizeof...(Branches));
  if constexpr (std::is_integral_v<Index>) {
    const int chosen = index < Index(0) ? 0 : index > Index(last) ? last : static_cast<int>(index);
    All made{};
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      ((chosen == static_cast<int>(I)
            ? void(made = detail::chosen_branch<Like, All>("switch_case", "ts::switch_case", Source{},
                                                           [&] { return std::get<I>(branches)(operands...); }))
            : void()),
       ...);
    }(std::index_sequence_for<First, Branches...>{});
    return made;
  } else {
    return detail::switch_at<Like, All>(index, branches, operands...);
  }
}

/// Runs `carry = body(carry)` while `condition(carry)` holds, at most `most` times: jax.lax.while_loop with a bound, so
/// that a plan has a trip count, and the loop a gradient. `condition` returns a rank-0 tensor. The carry is that of
/// ts::scan, so it may hold Stacks, such as the caches of a model that generates until an end token:
///
///     const auto end = ts::while_loop([](const auto& s) { return ts::not_equal(std::get<0>(s), end_token); },
///                                     [&](const auto& s) { ... }, std::tuple(token, 0, caches), 100);
///
/// Steps after the last one cost a test each. In a ts::vmap it runs until the condition holds for no example, and in a
/// ts::shard_map where it differs between devices until it holds on none of them, which is an all_reduce of 4 bytes in
/// each step. Otherwise as in ts::scan and ts::cond.
template <class Condition, class Body, class Init, SizeOperand Most>
constexpr auto while_loop(const Condition& condition, const Body& body, const Init& init, const Most& most,
                          Here at = Here::current()) {
  const Source source = Source::from(at);
  using Like = detail::local_in_t<Init>;
  using Returned = typename detail::ReturnedToLoop<Like, Body, Init>::type;
  if constexpr (!detail::begins_in_a_trace<Init, Most>()) {
    return detail::NoResult();
  } else if constexpr (detail::adapts_v<Init, Returned>) {
    const Value context = detail::trace_in(init);
    const Value of_any = context.module == nullptr ? detail::trace_in(most) : context;
    return while_loop(condition, body, detail::adapted<Like, Returned>(of_any.at(source), init), most, at);
  } else {
    const auto step = [&](const auto& carry) {
      const auto next = [&](const auto& carried) {
        return body(carried);
      };  // a body of other arguments is an error here
      return std::tuple(detail::run_while(condition(carry), next, carry, source), std::tuple());
    };
    return std::get<0>(detail::scan(step, init, most, false, source));
  }
}
/// Without a bound it does not compile.
template <class Condition, class Body, class Init>
constexpr Init while_loop(const Condition&, const Body&, const Init& init) {
  static_assert(std::is_void_v<Init>,
                "tessera: ts::while_loop takes the greatest number of steps as its last argument, "
                "since a plan counts steps, and a gradient keeps their values");
  return init;
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
