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

namespace tessera {

/// How many steps a loop computes in one run of its body: `ts::unroll<4>`.
template <int Steps> struct Unroll {
  static_assert(Steps >= 1, "tessera: ts::unroll takes at least one step at a time");
};
template <int Steps> inline constexpr Unroll<Steps> unroll{};

namespace detail {

/// f of each tensor of xs, which keeps its structure. A plain struct stays one if f keeps ranks (`Keep`), and becomes a
/// tuple otherwise, since its fields have fixed ranks. `Like`: see TensorBeside.
template <class Like, bool Keep = false, class T, class F> constexpr auto map_steps(const T& x, const F& f) {
  constexpr bool is_stack = is_stack_v<T>;
  static_assert(!is_stack, "tessera: a loop over a ts::Stack can't be unrolled; leave ts::unroll out");
  if constexpr (StoredOperand<T> && !std::is_void_v<Like>) {
    return f(Like::of_field(x, x.placeholder().source));
  } else if constexpr (TensorOperand<T>) {
    return f(as_sym(x));
  } else if constexpr (NumberOperand<T> || is_stack || std::is_empty_v<T>) {
    return x;
  } else if constexpr (is_tuple_v<T> || is_array_v<T>) {
    return map_items(x, [&](const auto& item) { return map_steps<Like, Keep>(item, f); });
  } else if constexpr (Keep) {
    return with_fields(x, [&]<class... Fields>(const Fields&... fields) {
      return T{as_field<Fields>(map_steps<Like, true>(fields, f))...};
    });
  } else {
    return with_fields(x, [&](const auto&... fields) {
      return std::tuple<decltype(map_steps<Like>(fields, f))...>{map_steps<Like>(fields, f)...};
    });
  }
}

/// The slices of the tensors of a T, as map_steps leaves them, as what a scan over a T gives to its function.
template <class T, class X> constexpr auto as_step(const X& x) {
  if constexpr (TensorOperand<T> || NumberOperand<T> || std::is_empty_v<T>) {
    return x;
  } else if constexpr (is_array_v<T>) {
    return map_items(x, [](const auto& item) { return as_step<typename T::value_type>(item); });
  } else if constexpr (is_tuple_v<T>) {
    return [&]<template <class...> class Tuple, class... Ts, std::size_t... I>(const Tuple<Ts...>*,
                                                                               std::index_sequence<I...>) {
      return Tuple<decltype(as_step<Ts>(std::get<I>(x)))...>{as_step<Ts>(std::get<I>(x))...};
    }(static_cast<const T*>(nullptr), std::make_index_sequence<std::tuple_size_v<T>>());
  } else {
    return [&]<class... Fields, std::size_t... I>(TypeList<Fields...>, std::index_sequence<I...>) {
      if constexpr (std::is_void_v<example_t<T>>)
        return std::tuple<decltype(as_step<Fields>(std::get<I>(x)))...>{as_step<Fields>(std::get<I>(x))...};
      else
        return example_t<T>{as_field<example_t<Fields>>(as_step<Fields>(std::get<I>(x)))...};
    }(typename FieldsOf<T>::type(), std::make_index_sequence<std::tuple_size_v<X>>());
  }
}

/// Which steps a tensor of xs has in the groups of `Steps`, [groups, Steps, ...], and after these, [rest, ...].
template <int Steps> struct StepGroups {
  static constexpr Value groups(Value extent) { return extent / extent.integer(Steps, extent.dtype()); }
  static constexpr Value grouped(Value extent) { return groups(extent) * extent.integer(Steps, extent.dtype()); }

  template <class X> static constexpr auto of_groups(const X& x) {
    static_assert(X::rank >= 1 && X::rank + device_dims_v<X> < max_rank,
                  "tessera: xs of an unrolled scan are tensors of 1 to 7 dims, the first of which counts steps; in a "
                  "ts::shard_map an axis along which they vary counts as one");
    constexpr int steps = device_dims_v<X>;
    const Value n = build::extent(x.value, steps);
    const Value whole = build::slice(x.value, steps, n.integer(0, n.dtype()), grouped(n));
    Factors f{};
    Value sizes[max_rank]{groups(n), n.integer(Steps, n.dtype())};
    for (int d = 0; d <= X::rank; ++d) {
      f.in_dim[d] = static_cast<std::int8_t>(d > 0 ? d - 1 : 0);
      f.order[d] = f.out_dim[d] = static_cast<std::int8_t>(d);
      ++f.count;
    }
    return with_rank_t<X, X::rank + 1>(rearrange(whole, X::rank, X::rank + 1, f, sizes));
  }
  template <class X> static constexpr auto of_rest(const X& x) {
    constexpr int steps = device_dims_v<X>;
    const Value n = build::extent(x.value, steps);
    return X(build::slice(x.value, steps, grouped(n), n - grouped(n)));
  }
  /// The y of all steps, from those of the groups, [groups, Steps, ...], and of the rest.
  template <class X, class Rest> static constexpr auto joined(const X& grouped, const Rest& rest) {
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
    } else if constexpr (is_array_v<Rest>) {
      Rest made{};
      for (std::size_t i = 0; i < rest.size(); ++i) made[i] = joined(grouped[i], rest[i]);
      return made;
    } else {
      return [&]<template <class...> class Tuple, class... Ts, std::size_t... I>(const Tuple<Ts...>& own,
                                                                                 std::index_sequence<I...>) {
        return Tuple<Ts...>{joined(std::get<I>(grouped), std::get<I>(own))...};
      }(rest, std::make_index_sequence<std::tuple_size_v<Rest>>());
    }
  }
};

/// The y of several steps, along a new leading dim.
template <class Y, std::size_t Steps> constexpr auto stacked_steps(const std::array<Y, Steps>& ys) {
  if constexpr (TensorOperand<Y>) {
    constexpr bool fits = Y::rank + device_dims_v<Y> + 2 <= max_rank;
    static_assert(fits, "tessera: y of an unrolled scan has at most 6 dims; in a ts::shard_map an axis along which it "
                        "varies counts as one");
    constexpr int steps = device_dims_v<Y>;
    std::array<Y, Steps> alike = ys;
    spread_alike(alike);
    Growable<Value> parts, joined;
    for (const Y& y : alike) {
      const Value own = here(value_behind(y));
      parts.push_back(build::insert_singletons(own, 1u << steps, own.rank() + 1));
    }
    while (parts.size() > 1) {  // a concat has up to 16 operands
      joined.clear();
      for (std::size_t first = 0; first < parts.size(); first += 16) {
        Node made = parts[first].node();
        Growable<std::int32_t> ids;
        for (std::size_t i = first; i < first + 16 && i < parts.size(); ++i) ids.push_back(parts[i].id);
        made = {.op = Op::concat,
                .dtype = made.dtype,
                .rank = made.rank,
                .singletons = static_cast<std::uint8_t>(made.singletons & ~(1u << steps)),
                .labels = pack_dim(steps)};
        joined.push_back(ids.size() > 1 ? parts[first].make(made, ids.data(), static_cast<int>(ids.size()))
                                        : parts[first]);
      }
      parts = joined;
    }
    return with_rank_t < Y, fits ? Y::rank + 1 : Y::rank > (parts[0]);
  } else if constexpr (is_array_v<Y>) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      const auto item = [&](std::size_t i) {
        std::array<typename Y::value_type, Steps> own{};
        for (std::size_t k = 0; k < Steps; ++k) own[k] = ys[k][i];
        return stacked_steps(own);
      };
      return std::array<decltype(item(0)), sizeof...(I)>{item(I)...};
    }(std::make_index_sequence<std::tuple_size_v<Y>>());
  } else {
    static_assert(is_tuple_v<Y>, "tessera: y of an unrolled scan is a tensor, or a tuple, pair or array of tensors");
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
      return std::tuple(last, StepGroups<Steps>::joined(ys, rest));
    } else {
      const auto [carry, ys] = scan(group, first, of_groups, false, source);
      const auto [last, rest] = scan(f, carry, of_rest, false, source);
      return std::tuple(last, StepGroups<Steps>::joined(ys, rest));
    }
  };
  if constexpr (SizeOperand<Xs>) {
    const auto group = [&](const auto& carry) {
      return run_group<Like, Steps>(
          carry, [&](const auto& own, int) { return f(own); }, module, reverse, source);
    };
    const Value n = as_size(lower(context, Dim(xs)));
    return both(group, Dim(StepGroups<Steps>::groups(n)), Dim(n - StepGroups<Steps>::grouped(n)));
  } else {
    const auto steps = as_carry<Like>(context, xs);
    const auto group = [&](const auto& carry, const auto& x) {
      const auto call = [&](const auto& own, int k) {
        return f(own, as_step<std::remove_const_t<decltype(steps)>>(map_steps<Like>(x, [&](const auto& all) {
                   using X = std::remove_cvref_t<decltype(all)>;
                   constexpr int dim = device_dims_v<X>;
                   const Value at = all.value.integer(k, DType::i64), one = all.value.integer(1, DType::i64);
                   return with_rank_t<X, X::rank - 1>(
                       build::drop_singletons(build::slice(all.value, dim, at, one), 1u << dim));
                 })));
      };
      return run_group<Like, Steps>(carry, call, module, reverse, source);
    };
    return both(group, map_steps<Like>(steps, [](const auto& x) { return StepGroups<Steps>::of_groups(x); }),
                map_steps<Like, true>(steps, [](const auto& x) { return StepGroups<Steps>::of_rest(x); }));
  }
}

}  // namespace detail

/// ts::scan whose body computes `Steps` steps, as `unroll` of jax.lax.scan: `ts::scan(f, init, xs, ts::unroll<4>)`. The
/// results are those of the scan without it. Kernels of one step can fuse with those of the next one, and the program
/// is longer. Steps after the last whole group run in a second loop, so the number of steps is any. xs are reshaped,
/// and y of both loops joined. Errors, besides those of scan: unsupported where a step draws random numbers with a key
/// that is a number; a Stack in xs and a plain struct as y don't compile. Communication: that of f, once a step.
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
