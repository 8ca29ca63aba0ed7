#ifndef TESSERA_OPS_UNROLL_HPP
#define TESSERA_OPS_UNROLL_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/graph/trace/require_trace.hpp>
#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/rearrange.hpp>
#include <tessera/ops/data_movement/slicing.hpp>
#include <tessera/ops/layers.hpp>

namespace tessera {

/// How many steps a loop computes in one run of its body: `ts::unroll<4>`.
template <int Steps> struct Unroll {
  static_assert(Steps >= 1, "tessera: ts::unroll takes at least one step at a time");
};
template <int Steps> inline constexpr Unroll<Steps> unroll{};

namespace detail {

/// Merges dims 0 and 1 of a value.
constexpr Value merge_first_dims(const Value& x) {
  Factors f{};
  for (int d = 0; d < x.rank(); ++d) {
    f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
    f.out_dim[d] = static_cast<std::int8_t>(d > 0 ? d - 1 : 0);
    ++f.count;
  }
  return rearrange(x, x.rank(), x.rank() - 1, f, nullptr);
}

/// Step k of a group, as what makes the slices of xs: see step_of.
struct StepOfGroup {
  const Growable<Value>& tensors;
  int k;
  std::size_t next = 0;
  constexpr Value operator()(const Value&, int, Storage) {
    const Value& all = tensors[next++];
    const Value at = all.integer(k, DType::i64), one = all.integer(1, DType::i64);
    return build::drop_singletons(build::slice(all, 0, at, one), 1u);
  }
};

/// Divides the tensors of xs into groups of `Steps` and the steps after these, [rest, ...], which replace them.
template <int Steps> struct DivideSteps {
  Source source;
  Growable<Value> groups{};  ///< [groups, Steps, ...]
  bool in_stack = false;

  static constexpr Value count(Value extent) { return extent / extent.integer(Steps, extent.dtype()); }
  static constexpr Value grouped(Value extent) { return count(extent) * extent.integer(Steps, extent.dtype()); }

  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) {
      const int added = in_stack ? 2 : 1;  // a tensor of a Stack has a dim of layers, which its type lacks
      const Value all = in_one_block(here(turned(value_behind(leaf))).at(source));
      const int dim = in_stack ? 0 : all.rank() - Leaf::rank;
      if (Leaf::rank + added < 2 || all.rank() == max_rank)
        all.refuse(errc::capacity,
                   "[scan] unroll: xs of an unrolled scan are tensors of 1 to 7 dims, the first of which counts steps; "
                   "in a ts::shard_map an axis along which they vary counts as one, and in a Stack the layers do");
      if (Leaf::rank + added < 2 || all.rank() == max_rank) return;
      const Value n = build::extent(all, dim);
      const Value front = build::move_dim(build::slice(all, dim, n.integer(0, n.dtype()), grouped(n)), dim, 0);
      Factors f{};
      Value sizes[max_rank]{count(n), n.integer(Steps, n.dtype())};
      for (int d = 0; d <= front.rank(); ++d) {
        f.in_dim[d] = static_cast<std::int8_t>(d > 0 ? d - 1 : 0);
        f.order[d] = f.out_dim[d] = static_cast<std::int8_t>(d);
        ++f.count;
      }
      groups.push_back(rearrange(front, front.rank(), front.rank() + 1, f, sizes));
      replace_leaf(leaf, build::slice(all, dim, grouped(n), n - grouped(n)));
    }
  }
  constexpr void enter_stack(const auto&) { in_stack = true; }
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() { in_stack = false; }
};

/// Joins the tensors of a Stack of results, those of the steps after the groups, behind the results of the groups: for
/// each step of a group, those of all groups.
struct JoinLayers {
  Growable<Growable<Value>> of_groups;
  Source source;
  std::size_t next = 0;

  template <class Leaf> constexpr void leaf(Leaf& leaf) {
    if constexpr (TensorOperand<Leaf>) {
      Growable<Value> parts;
      for (const Growable<Value>& step : of_groups) parts.push_back(in_one_block(step[next].at(source)));
      parts.push_back(in_one_block(here(turned(value_behind(leaf))).at(source)));
      ++next;
      if (has_device_dims(leaf)) {
        const FieldsOfDevices& fields = *parts[0].module->fields;
        unsigned axes = 0;
        for (const Value& part : parts) axes |= fields.differing(part, Leaf::rank, 1);
        for (Value& part : parts) part = fields.spread(part, Leaf::rank, 1, axes);
      }
      const Value rest = parts[parts.size() - 1];
      Growable<Value> both, grouped;
      for (std::size_t k = 0; k + 1 < parts.size(); ++k)
        grouped.push_back(build::insert_singletons(parts[k], 1u << 1, parts[k].rank() + 1));
      both.push_back(merge_first_dims(build::concat_all(grouped, 1)));
      both.push_back(rest);
      replace_leaf(leaf, build::concat_all(both, 0));
    }
  }
  constexpr void enter_stack(const auto&) {}
  constexpr void enter_layer(int) {}
  constexpr void leave_stack() {}
};

/// How the results of an unrolled scan are put together.
struct JoinSteps {
  Source source;
  /// The y of all steps, from those of the groups, [groups, Steps, ...], and of the rest.
  template <class X, class Rest> constexpr auto operator()(const X& grouped, const Rest& rest) const {
    if constexpr (TensorOperand<Rest>) {
      Factors f{};
      for (int d = 0; d < X::rank; ++d) {
        f.in_dim[d] = f.order[d] = static_cast<std::int8_t>(d);
        f.out_dim[d] = static_cast<std::int8_t>(d > 0 ? d - 1 : 0);
        ++f.count;
      }
      std::array<Rest, 2> parts{Rest(rearrange(grouped.value, X::rank, Rest::rank, f, nullptr)), rest};
      spread_alike(parts);
      return Rest(ConcatTag<Rest::rank, 0>::emit(parts[0].value, parts[0].value, parts[1].value));
    } else if constexpr (is_stack_v<Rest>) {  // grouped: a Stack for each step of a group
      JoinLayers join{{}, source};
      const auto list = [&](const auto& step) {
        ListTensors tensors;
        for_each_leaf(step[0], tensors);
        join.of_groups.push_back(tensors.values);
      };
      std::apply([&](const auto&... steps) { (list(steps), ...); }, grouped);
      Rest made = rest;
      for_each_leaf(made[0], join);
      return made;
    } else if constexpr (is_array_v<Rest>) {
      Rest made{};
      for (std::size_t i = 0; i < rest.size(); ++i) made[i] = (*this)(grouped[i], rest[i]);
      return made;
    } else {
      return [&]<template <class...> class Tuple, class... Ts, std::size_t... I>(const Tuple<Ts...>& own,
                                                                                 std::index_sequence<I...>) {
        return Tuple<Ts...>{(*this)(std::get<I>(grouped), std::get<I>(own))...};
      }(rest, std::make_index_sequence<std::tuple_size_v<Rest>>());
    }
  }
};

/// The y of several steps, along a new leading dim; of a plain struct, a tuple of them.
template <class Y, std::size_t Steps> constexpr auto stacked_steps(const std::array<Y, Steps>& ys) {
  if constexpr (TensorOperand<Y>) {
    constexpr bool fits = Y::rank + device_dims_v<Y> + 2 <= max_rank;
    static_assert(fits, "tessera: y of an unrolled scan has at most 6 dims; in a ts::shard_map an axis along which it "
                        "varies counts as one");
    constexpr int steps = device_dims_v<Y>;
    std::array<Y, Steps> alike = ys;
    spread_alike(alike);
    Growable<Value> parts;
    for (const Y& y : alike) {
      const Value own = here(value_behind(y));
      parts.push_back(build::insert_singletons(own, 1u << steps, own.rank() + 1));
    }
    using All = with_rank_t<Y, fits ? Y::rank + 1 : Y::rank>;
    return All(build::concat_all(parts, steps));
  } else if constexpr (is_array_v<Y>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto item = [&](std::size_t i) {
        std::array<typename Y::value_type, Steps> own{};
        for (std::size_t k = 0; k < Steps; ++k) own[k] = ys[k][i];
        return stacked_steps(own);
      };
      return std::array<decltype(item(0)), sizeof...(I)>{item(I)...};
    }(std::make_index_sequence<std::tuple_size_v<Y>>());
  } else if constexpr (!is_tuple_v<Y>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::make_tuple(ys[I]...);
    }(std::make_index_sequence<Steps>());
  } else {
    return [&]<template <class...> class Tuple, class... Ts, std::size_t... I>(const Tuple<Ts...>*,
                                                                               std::index_sequence<I...>) {
      const auto item = [&]<std::size_t At>(std::integral_constant<std::size_t, At>) {
        std::array<std::tuple_element_t<At, Y>, Steps> own{};
        for (std::size_t k = 0; k < Steps; ++k) own[k] = std::get<At>(ys[k]);
        return stacked_steps(own);
      };
      return Tuple<decltype(item(std::integral_constant<std::size_t, I>()))...>{
          item(std::integral_constant<std::size_t, I>())...};
    }(static_cast<const Y*>(nullptr), std::make_index_sequence<std::tuple_size_v<Y>>());
  }
}

/// Equal draws of two steps would be one node, but with a key that is a number steps draw different numbers.
constexpr void refuse_random_numbers(Module& module, Source source) {
  for (std::size_t g = static_cast<std::size_t>(module.current); g < module.graphs.size(); ++g)
    for (int id = 0; id < module.graphs[g].size(); ++id)
      if (const Node& node = module.graphs[g][id];
          node.op != Op::custom_call && row_of(node).unit == UnitKind::random &&
          module.graphs[g].nodes[static_cast<std::size_t>(module.graphs[g].operand(id, 1))].dtype == DType::f64) {
        module.refuse(errc::unsupported,
                      "[scan] unroll: the steps draw random numbers with a key that is a number; use a key that is a "
                      "tensor, such as ts::fold_in(key, i) of the index i of a ts::fori_loop, or leave ts::unroll out",
                      source);
        return;
      }
}

/// A step of the unrolled loop: `Steps` steps of f, where `call(f, carry, k)` is step k.
template <class Like, std::size_t Steps, class Carry, class Call>
constexpr auto run_group(const Carry& init, const Call& call, Module& module, bool reverse, Source source) {
  using Result = std::remove_cvref_t<decltype(call(init, 0))>;
  using Returned = typename ReturnedCarry<Result, Like>::type;
  if constexpr (!join_v<Carry, Returned> || !std::is_same_v<joined_t<Carry, Returned>, Carry>) {
    return call(init, 0);  // the scan reports it, or calls this with a carry that varies along further axes
  } else {
    using Y = carry_t<std::tuple_element_t<1, Result>, Like>;
    const Value inside{&module, module.current, -1, source};
    Carry carry = init;
    std::array<Y, Steps> ys{};
    for (std::size_t i = 0; i < Steps; ++i) {
      const std::size_t k = reverse ? Steps - 1 - i : i;
      const auto result = call(carry, static_cast<int>(k));
      carry = widened<Carry>(as_carry<Like>(inside, std::get<0>(result)));
      ys[k] = as_carry<Like>(inside, std::get<1>(result));
    }
    refuse_random_numbers(module, source);
    return std::tuple(carry, stacked_steps(ys));
  }
}

/// What a step takes its slice of: a size stays a size.
template <class Like, class Xs> struct TakenBy {
  using type = carry_t<Xs, Like>;
};
template <class Like, SizeOperand Xs> struct TakenBy<Like, Xs> {
  using type = Xs;
};
/// The carry that f returns, where numbers of init may adapt to it.
template <class Like, class F, class Init, class Xs> struct UnrolledCarry {
  using type = void;
};
template <class Like, class F, class Init, class Xs>
  requires(holds_literal_v<Init>)
struct UnrolledCarry<Like, F, Init, Xs> {
  using Taken = typename TakenBy<Like, Xs>::type;
  using Result = std::remove_cvref_t<
      std::invoke_result_t<StepCall<Like>, const F&, const carry_t<Init, Like>&, const Taken&, BodyTrace&>>;
  using type = typename ReturnedCarry<Result, Like>::type;
};

template <int Steps, class F, class Init, class Xs>
constexpr auto unrolled_scan(const F& f, const Init& init, const Xs& xs, bool reverse, Source source) {
  using Like = local_in_t<Init, Xs>;
  Value context = trace_in(init);
  if (context.module == nullptr) context = trace_in(xs);
  if (context.module == nullptr) fail_outside_of_trace("scan", "ts::scan", source);
  context = context.at(source);
  Module& module = *context.module;
  using Returned = typename UnrolledCarry<Like, F, Init, Xs>::type;
  const auto both = [&](const auto& group, const auto& of_groups, const auto& of_rest) {
    const auto first = as_carry<Like>(context, adapted<Like, Returned>(context, init));
    if (reverse) {
      const auto [carry, rest] = scan(f, first, of_rest, true, source);
      const auto [last, ys] = scan(group, carry, of_groups, true, source);
      return std::tuple(last, JoinSteps{source}(ys, rest));
    } else {
      const auto [carry, ys] = scan(group, first, of_groups, false, source);
      const auto [last, rest] = scan(f, carry, of_rest, false, source);
      return std::tuple(last, JoinSteps{source}(ys, rest));
    }
  };
  if constexpr (SizeOperand<Xs>) {
    const auto group = [&](const auto& carry) {
      return run_group<Like, Steps>(
          carry, [&](const auto& own, int) { return f(own); }, module, reverse, source);
    };
    const Value n = as_size(lower(context, Dim(xs)));
    return both(group, Dim(DivideSteps<Steps>::count(n)), Dim(n - DivideSteps<Steps>::grouped(n)));
  } else {
    using Taken = carry_t<Xs, Like>;
    Taken rest = as_carry<Like>(context, xs);
    StepsInGroups<Taken> groups{rest, {}};
    DivideSteps<Steps> divide{source};
    for_each_leaf(rest, divide);
    groups.tensors = divide.groups;
    const auto group = [&](const auto& carry, const auto& x) {
      const auto call = [&](const auto& own, int k) {
        StepOfGroup take{x.tensors, k};
        return f(own, step_of<Like>(x.xs, take));
      };
      return run_group<Like, Steps>(carry, call, module, reverse, source);
    };
    return both(group, groups, rest);
  }
}

}  // namespace detail

/// ts::scan whose body computes `Steps` steps, as `unroll` of jax.lax.scan: `ts::scan(f, init, xs, ts::unroll<4>)`. The
/// results are those of the scan without it. Kernels of one step can fuse with those of the next one, and the program
/// is longer. Steps after the last whole group run in a second loop, so the number of steps is any. xs are reshaped,
/// and y of both loops joined; the layers of a Stack in xs are copied into one tensor. Errors, besides those of scan:
/// unsupported where a step draws random numbers with a key that is a number. Communication: that of f, once a step.
template <class F, class Init, class Xs, int Steps>
constexpr auto scan(const F& f, const Init& init, const Xs& xs, Unroll<Steps>, ScanOptions options = {},
                    Here at = Here::current()) {
  if constexpr (Steps == 1)
    return detail::scan(f, init, xs, options.reverse, Source::from(at));
  else
    return detail::unrolled_scan<Steps>(f, init, xs, options.reverse, Source::from(at));
}
/// ts::map whose body computes `Steps` slices.
template <class F, class Xs, int Steps>
constexpr auto map(const F& f, const Xs& xs, Unroll<Steps> steps, Here at = Here::current()) {
  const auto step = [&](const auto&, const auto& x) { return std::tuple(std::tuple(), f(x)); };
  return std::get<1>(scan(step, std::tuple(), xs, steps, {}, at));
}
/// ts::fori_loop whose body computes `Steps` steps.
template <SizeOperand From, SizeOperand To, class F, class Init, int Steps>
constexpr auto fori_loop(const From& from, const To& to, const F& f, const Init& init, Unroll<Steps> steps,
                         Here at = Here::current()) {
  return detail::for_indices(from, to, init, Source::from(at), [&](const auto& indices) {
    const auto step = [&](const auto& carry, const auto& i) { return std::tuple(f(i, carry), std::tuple()); };
    return std::get<0>(scan(step, init, indices, steps, {}, at));
  });
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
