#ifndef TESSERA_OPS_VMAP_VMAP_HPP
#define TESSERA_OPS_VMAP_VMAP_HPP
#include <tessera/base/push_macros.hpp>

#include <array>
#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include <tessera/ops/control_flow.hpp>
#include <tessera/ops/data_movement/shape.hpp>
#include <tessera/ops/layers.hpp>
#include <tessera/ops/vmap/batch_graph.hpp>
#include <tessera/ops/vmap/example_collectives.hpp>

namespace tessera {

/// For ts::vmap: an argument that all examples share.
inline constexpr int not_mapped = -100;

namespace detail {

/// Which dim of a tensor becomes dim d when dim `from` moves to `to`.
constexpr int dim_before_move(int d, int from, int to) {
  if (d == to) return from;
  const int other = d - (d > to ? 1 : 0);
  return other + (other >= from ? 1 : 0);
}

/// Moves a dim of a tensor, or of each tensor of a tuple, pair or array.
template <int From, int To, class X> constexpr auto move_dim(const X& x) {
  if constexpr (is_tuple_v<X> || is_array_v<X>) {
    return map_items(x, [](const auto& item) { return move_dim<From, To>(item); });
  } else if constexpr (TensorOperand<X>) {
    constexpr int from = From < 0 ? From + X::rank : From, to = To < 0 ? To + X::rank : To;
    constexpr bool fits = from >= 0 && from < X::rank && to >= 0 && to < X::rank;
    static_assert(fits, "tessera: an axis of ts::vmap is not a dim of the tensor");
    if constexpr (from == to || !fits)
      return as_sym(x);
    else
      return [&]<std::size_t... D>(std::index_sequence<D...>) {
        return transpose<dim_before_move(static_cast<int>(D), from, to)...>(x);
      }(std::make_index_sequence<static_cast<std::size_t>(X::rank)>());
  } else {
    constexpr bool is_first = From == To;
    static_assert(is_first, "tessera: the tensors of a struct are mapped along dim 0 by ts::vmap");
    return x;
  }
}

/// The arguments of one example: slices of those that are mapped, the others whole.
template <std::size_t I, int... In, class Slices, class... Xs>
constexpr const auto& example_argument(const Slices& slices, const std::tuple<Xs...>& all) {
  constexpr int axes[] = {In...};
  if constexpr (axes[I] == not_mapped) {
    return std::get<I>(all);
  } else {
    constexpr std::size_t before = [] {
      std::size_t count = 0;
      for (std::size_t k = 0; k < I; ++k) count += axes[k] != not_mapped ? 1 : 0;
      return count;
    }();
    return std::get<before>(slices);
  }
}
template <class> inline constexpr int first_dim = 0;
/// Whether all of a structure are local values of a shard_map.
template <class T> inline constexpr bool is_local_v = LocalOperand<T>;
template <template <class...> class Tuple, class... Ts>
  requires(is_tuple_v<Tuple<Ts...>>)
inline constexpr bool is_local_v<Tuple<Ts...>> = (is_local_v<Ts> && ...);
template <class T, std::size_t Size> inline constexpr bool is_local_v<std::array<T, Size>> = is_local_v<T>;
template <int In, class X> constexpr auto mapped_argument(const X& x) {
  if constexpr (In == not_mapped)
    return std::tuple();
  else
    return std::tuple<decltype(move_dim<In, 0>(x))>(move_dim<In, 0>(x));
}

/// The index of the example as an argument of the function of a vmap that is being traced, for its collectives.
constexpr void name_axis(BodyTrace& body, const Value& inside, const Name& axis) {
  Module& module = *inside.module;
  const Value first{&module, module.open.back().around, body.operands()[0], inside.source};
  const Value count = build::extent(first, 0);
  const Value index = body.slice(build::arange(count), Storage::block);
  module.open.back().axis = axis;
  module.open.back().index_of_example = index.id;
}

/// The arguments of a graph that computes one example, as they are for all examples; `body` has traced it and has
/// ended.
constexpr Growable<Batched> batched_arguments(const BodyTrace& body, const Value& around) {
  Growable<Batched> arguments;
  Value first{};
  for (std::size_t i = 0; i < body.operands().size(); ++i) {
    Value outer = around.with(body.operands()[i]);
    const bool is_slice = body.is_slice(static_cast<int>(i));
    if (is_slice) outer = in_one_block(outer);
    // Along a dim of static extent 1 there is one example, which broadcasts.
    const bool differs = is_slice && !outer.is_singleton(0);
    if (differs && first.module == nullptr)
      first = outer;
    else if (differs)
      build::same_extents(first, 0, outer, 0, 1, build::ExtentsOf::examples);
    if (is_slice && !differs) outer = build::drop_singletons(outer, 1);
    arguments.push_back({outer.id, static_cast<std::int8_t>(differs ? 0 : -1)});
  }
  return arguments;
}

/// Traces f of one example, and makes its operations for all examples. The results have a leading dim of examples.
template <class F, class Xs>
constexpr auto map_batched(const F& f, const Xs& xs, Source source, const Name* axis = nullptr) {
  const Value context = trace_in(xs).at(source);
  Module& module = *context.module;
  BodyTrace body(module, {.scan = true});
  const Value inside{&module, module.current, -1, source};
  SliceOfBody take_slice{body};
  const auto slices = step_of(xs, take_slice);
  if (axis != nullptr) name_axis(body, inside, *axis);
  const auto y = as_carry(inside, settle(f(slices)));
  if constexpr (holds_local_v<Xs>) {
    constexpr bool is_local = is_local_v<std::remove_const_t<decltype(y)>>;
    static_assert(is_local, "tessera: the function of a ts::vmap inside of a ts::shard_map returns a local tensor, or "
                            "a tuple of local tensors");
  }
  GiveLeaves give{body, false};
  for_each_leaf(y, give);
  const OpenBody one = body.end();
  const Value around{&module, one.around, -1, source};
  const Growable<Batched> arguments = batched_arguments(body, around);
  BatchGraph all(module, one.graph, one.around, arguments);
  int next = 0;
  const auto take = [&](Storage) { return around.with(all.output(next++, true).id); };
  return StackResults<true, decltype(take)>(body, take)(y);
}

/// The call of the function that ts::vmap returns.
template <int Out, int... In, class F, class... Xs>
constexpr auto vmap_call(const F& f, const Name* axis, Source source, const Xs&... xs) {
  constexpr bool is_count = sizeof...(In) == sizeof...(Xs), is_mapped = ((In != not_mapped) || ...);
  static_assert(is_count, "tessera: ts::in_axes of ts::vmap has an axis for each argument");
  static_assert(is_mapped, "tessera: ts::vmap maps at least one argument");
  if constexpr (is_count && is_mapped) {
    const auto all = std::tuple<decltype(settle(xs))...>(settle(xs)...);
    if (trace_in(all).module == nullptr)
      fail(errc::unsupported, "[vmap] outside of a traced function: call ts::vmap inside a function of ts::compile",
           source);
    const auto mapped = std::tuple_cat(mapped_argument<In>(settle(xs))...);
    const auto one = [&](const auto& slices) {
      return [&]<std::size_t... I>(std::index_sequence<I...>) {
        if constexpr (((In != not_mapped && has_fixed_ranks<std::remove_cvref_t<decltype(settle(xs))>>()) || ...)) {
          constexpr bool takes_tuples =
              std::is_invocable_v<const F&, decltype(example_argument<I, In...>(slices, all))...>;
          static_assert(takes_tuples,
                        "tessera: a struct with fields of fixed ranks arrives in the function of ts::vmap "
                        "as the std::tuple of its fields' examples, which have one dim less; make the "
                        "struct a template of the rank or of the types of its fields, or map a ts::Stack");
          if constexpr (takes_tuples)
            return f(example_argument<I, In...>(slices, all)...);
          else
            return std::get<0>(slices);
        } else {
          return f(example_argument<I, In...>(slices, all)...);
        }
      }(std::index_sequence_for<Xs...>());
    };
    return move_dim<0, Out>(map_batched(one, as_carry(trace_in(mapped), mapped), source, axis));
  }
}

}  // namespace detail

/// The dims along which ts::vmap maps the arguments: `ts::in_axes<0, ts::not_mapped>`.
template <int... Axes> struct InAxes {};
template <int... Axes> inline constexpr InAxes<Axes...> in_axes{};

/// Inside a traced function: applies f to each example, as jax.vmap. `In` has for each argument the dim that counts
/// examples, or ts::not_mapped; `Out` is that dim in the results. f may capture values, and vmaps may be nested.
/// Gradients of each example:
///
///     const auto each = ts::vmap([](const auto& m, const auto& x) { return ts::grad(loss)(m, x); },
///                                ts::in_axes<ts::not_mapped, 0>)(model, xs);
///
/// f is traced for one example, and each operation is made for all examples at once; what is the same for all examples
/// is computed once. A branch that some examples take is computed for all of them, which select their results; a loop
/// whose number of steps differs runs until all examples are done. Memory is that of all examples; for one after the
/// other, see ts::map. Arguments and results are tensors, and tuples, pairs and arrays of these, and Stacks, whose
/// layers are examples; a struct that is a template of a rank or of the types of its fields arrives as a struct, any
/// other as a tuple of its fields; a struct that f returns becomes a Stack, see ts::all_layers: as a result of the
/// program it is whole along the examples on each device, while tensors and tuples stay split. f may call a
/// ts::shard_map; in the function of one, vmap maps local values, and collectives over axes of the mesh are made once
/// for all examples. A number as the key of draws gives each example its own. Errors: shape_mismatch for
/// arguments with different numbers of examples; capacity for a tensor of 8 dims in f. Communication: that of the
/// operations; a split dim of examples stays split. Source: jax.vmap.
template <int Out = 0, class F, int... In> constexpr auto vmap(const F& f, InAxes<In...>, Here at = Here::current()) {
  return [f, at](const auto&... xs) { return detail::vmap_call<Out, In...>(f, nullptr, Source::from(at), xs...); };
}
/// All arguments mapped along their first dim.
template <int Out = 0, class F> constexpr auto vmap(const F& f, Here at = Here::current()) {
  return [f, at]<class... Xs>(const Xs&... xs) {
    return detail::vmap_call<Out, detail::first_dim<Xs>...>(f, nullptr, Source::from(at), xs...);
  };
}
/// With a name for the axis of examples, by which f may call collectives, as `axis_name` of jax.vmap:
///
///     const auto standardized = ts::vmap([](const auto& x) {
///       const auto centered = x - ts::pmean<"batch">(x);
///       return centered * ts::rsqrt(ts::pmean<"batch">(centered * centered) + 1e-5);
///     }, ts::axis_name<"batch">)(xs);
///
/// The collectives of a ts::shard_map take the name: see example_collectives.hpp.
template <int Out = 0, class F, int... In, FixedString Axis>
constexpr auto vmap(const F& f, InAxes<In...>, AxisName<Axis>, Here at = Here::current()) {
  return [f, at](const auto&... xs) {
    return detail::vmap_call<Out, In...>(f, &AxisName<Axis>::name, Source::from(at), xs...);
  };
}
template <int Out = 0, class F, FixedString Axis>
constexpr auto vmap(const F& f, AxisName<Axis>, Here at = Here::current()) {
  return [f, at]<class... Xs>(const Xs&... xs) {
    return detail::vmap_call<Out, detail::first_dim<Xs>...>(f, &AxisName<Axis>::name, Source::from(at), xs...);
  };
}

}  // namespace tessera

#include <tessera/base/pop_macros.hpp>

#endif
